"""The report's page: the data of ``survey`` as one HTML file that needs nothing else, and says all without a script.

Pictures have their numbers in tables behind them, and the whole data is in the page once more for programs. What
stands in it was written by strangers: nothing gets in but through the helpers that escape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from neuron_ds.listing import brief, shorten_middle
from neuron_ds.report import charts
from neuron_ds.report.charts import Bar, Row, Time, Values
from neuron_ds.report.html import Markup, data_script, figure, join, share, size, span, table, tag
from neuron_ds.report.style import CSS

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: So many rows has a table in which time goes down, one of errors, and the timeline.
TIME_ROWS, ERROR_ROWS, LIFE_ROWS = 60, 200, 100
COMMAND_LENGTH = 60
#: A table with more rows is folded up.
OPEN_ROWS = 16
Data = dict[str, Any]


def page(data: Data, title: str) -> str:
    """The whole page. ``title``: what the recording is called."""
    p = _Page(data)
    recording = data["recording"]
    body = join(
        (
            tag("h1", f"Report: {title}"),
            p.facts(),
            *p.notes(),
            tag("h2", "What was found", id="findings"),
            p.findings(),
            tag("h2", "Utilization", id="utilization"),
            *p.utilization(),
            tag("h2", "Throughput", id="throughput"),
            *p.throughput(),
            tag("h2", "Latency", id="latency"),
            *p.latency(),
            tag("h2", "Memory", id="memory"),
            *p.memory(),
            tag("h2", "Processes and errors", id="processes"),
            *p.processes(),
            tag("h2", "The recording itself", id="recording"),
            *p.ticks(),
            tag(
                "p",
                f"Made by {data['made_by']}. Times of day are UTC, of the clock of {recording['host'] or 'the host'}. "
                "Cores are the physical ones. The data of this page is in it as JSON, under the id “data”.",
                class_="dim",
            ),
            data_script("data", data),
        )
    )
    head = join(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup('<meta name="referrer" content="no-referrer">'),
            tag("title", f"{title} - neuron-ds report"),
            tag("style", Markup(CSS)),
        )
    )
    return f'<!DOCTYPE html>\n<html lang="en">{tag("head", head)}{tag("body", tag("main", body))}</html>\n'


class _Page:
    """The parts of the page."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.recording: Data = data["recording"]
        self.seconds: float = self.recording["seconds"]
        self.start = datetime.fromisoformat(self.recording["start"][:26]).replace(tzinfo=UTC)
        self.width_s: float = data["columns"]["width_s"]
        self.count: int = data["columns"]["count"]
        self.time = Time(self.count * self.width_s, self._clock)

    def _clock(self, second: float | None, *, digits: bool | None = None) -> str:
        """The time of day; with its date where the recording is long."""
        if second is None:
            return "–"
        fine = self.width_s < 1 if digits is None else digits
        when = self.start + timedelta(seconds=second)
        text = f"{when:%H:%M:%S}" + (f".{when.microsecond // 1000:03d}" if fine else "")
        return f"{when:%m-%d} {text}" if self.seconds >= 86400 else text

    def facts(self) -> Markup:
        r = self.recording
        ticks = f"{r['ticks']:,}" + (f", {r['late']:,} late" if r["late"] else "")
        facts = (
            ("Host", r["host"] or "–"),
            ("From (UTC)", r["start"][:19].replace("T", " ")),
            ("For", span(r["seconds"])),
            ("Ticks", ticks + (f", {r['missed']:,} missed" if r["missed"] else "")),
            ("A tick every", span(r["period_us"] / 1e6)),
            ("Devices", len(self.data["devices"])),
            ("Processes", len(self.data["processes"]) + self.data["processes_left_out"]),
            ("Found", len(self.data["findings"]) + self.data["findings_left_out"]),
        )
        return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_="facts")

    def notes(self) -> Iterator[Markup]:
        r = self.recording
        for damage in r["damage"]:
            yield _note(f"The recording is not whole: {damage}.")
        gaps = len(r["gaps"]) + r["gaps_left_out"]
        if gaps:
            longest = max(g["to_s"] - g["from_s"] for g in r["gaps"])
            yield _note(
                f"{_plural(gaps, 'gap')} without ticks, the longest of {span(longest)}: see “The recording itself”. "
                "Where a column lies wholly in one nothing is known of it, and it is blank."
            )
        for count, what in (
            (self.data["processes_left_out"], "process"),
            (self.data["findings_left_out"], "finding"),
        ):
            if count:
                yield _note(f"{_plural(count, what)} more than this page holds.")
        if not self.data["processes"]:
            yield _note("No process published in this time: there is nothing to show.")

    def findings(self) -> Markup:
        found = self.data["findings"]
        if not found:
            return tag("p", "Nothing: no rule of neuron-ds diagnose said anything.")
        rows = []
        for f in found:
            evidence = ", ".join(f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in f["evidence"].items())
            until = "the end" if f["to_s"] is None else self._clock(f["to_s"])
            rows.append(
                (
                    tag("span", f["severity"], class_=f["severity"]),
                    f["kind"],
                    self._clock(f["from_s"]),
                    until,
                    join((f["message"], tag("div", f"Look next: {f['advice']}", class_="dim"))),
                    evidence,
                )
            )
        return table(
            "Findings, the worst first",
            ("Severity", "Kind", "From", "Until", "What, and what to look at", "Evidence"),
            rows,
        )

    # --- pictures and the tables behind them

    def utilization(self) -> Iterator[Markup]:
        cores = self.data["cores"]
        if not cores:
            yield _nothing("No core was used.")
            return
        rows, summary = [], []
        for c in cores:
            label = f"device {c['device']} core {c['core']}"
            known = [u for u in c["utilization"] if u is not None]
            mean, peak = share(c["mean_utilization"]), share(max(known, default=None))
            rows.append((label, f"{label}: {mean} on average, {peak} at most", c["utilization"]))
            summary.append((label, mean, peak, share(min(known, default=None)), figure(c["executions"])))
        yield Markup(
            charts.heatmap("Utilization of each core over time; the numbers are in the table below", rows, self.time)
        )
        yield self._shades()
        header = ("Core", "Mean", "Highest", "Lowest", "Executions")
        numbers = table("Utilization by core", header, summary, right="|".join(header[1:]))
        more = {"open": ""} if len(cores) <= OPEN_ROWS else {}
        yield tag("details", tag("summary", "Each core's mean, highest and lowest"), numbers, **more)
        yield self._behind("Utilization over time", [(row[0], row[2]) for row in rows], share, _mean, most=64)

    @staticmethod
    def _shades() -> Markup:
        items = [("x", "not known"), *((str(n), f"{n * 10} %") for n in (0, 2, 4, 6, 8, 10))]
        return _legend((f'<rect class="h{style}" width="26" height="8"/>', label) for style, label in items)

    def throughput(self) -> Iterator[Markup]:
        yield from self._lines("Executions per second", self._series("executions_s"), figure, "others", fold=_mean)
        failing = [(name, values) for name, values in self._series("failures_s") if any(values)]
        if failing:
            yield from self._lines("Failed executions and calls per second", failing, figure, "others", fold=_mean)

    def latency(self) -> Iterator[Markup]:
        processes = [p for p in self.data["processes"] if p["latency_total_us"]["looks"]]
        if not processes:
            yield _nothing("Nothing was executed.")
            return
        for key, name in (("latency_total_p50_us", "Median"), ("latency_total_p99_us", "99th percentile")):
            yield from self._lines(f"{name} of the total latency (µs)", self._series(key), figure, None, fold=_highest)
        yield tag(
            "p",
            "The runtime tells the latencies of the last execution of each core: one is taken at each look "
            f"({span(self.recording['looked_every_us'] / 1e6)} apart) before which the core completed something. "
            "Percentiles are right to within 1 %.",
            class_="dim",
        )
        header = ("Process", "Latency", "Looks", "p1", "p25", "p50", "p75", "p99", "p100")
        rows = [
            (p["name"], which, *(figure(p[key][h.lower()]) for h in header[2:]))
            for p in processes
            for key, which in (("latency_total_us", "total"), ("latency_device_us", "on the device"))
        ]
        yield table("Latencies by process, µs", header, rows, right="|".join(header[2:]))

    def memory(self) -> Iterator[Markup]:
        devices = self.data["devices"]
        series = [
            (f"device {d['device']}" + (f" of {size(d['memory_bytes'])}" if d["memory_bytes"] else ""), d["used_bytes"])
            for d in devices
        ]
        yield from self._lines("Device memory in use", _by_peak(series), size, "other devices", fold=_highest)
        host = [(name, values) for name, values in self._series("host_bytes") if any(values)]
        if host:
            yield from self._lines("Host memory of processes", _by_peak(host), size, "others", fold=_highest)

    def _series(self, key: str) -> list[tuple[str, Values]]:
        """Of the processes for which there are series, those that executed most first."""
        processes = [p for p in self.data["processes"] if p["series"]]
        return [(p["name"], p["series"][key]) for p in sorted(processes, key=lambda p: -p["executions"])]

    def _lines(
        self,
        name: str,
        series: Sequence[tuple[str, Values]],
        shown: Callable[[float | None], str],
        others: str | None,
        *,
        fold: Callable[[Sequence[float]], float],
    ) -> Iterator[Markup]:
        """Lines with their legend and table; what is too many is one line together, if that makes sense."""
        if not any(v is not None for _, values in series for v in values):
            return
        kept = list(series)
        if len(kept) > charts.LINES:
            kept = kept[: charts.LINES - 1] if others else kept[: charts.LINES]
            rest = [values for _, values in series[len(kept) :]]
            if others:
                kept.append((f"{len(rest)} {others}", _sums(rest)))
        yield tag("h3", name)
        yield Markup(
            charts.lines(
                f"{name} over time; the numbers are in the table below", kept, self.time, shown, binary=shown is size
            )
        )
        items = []
        for number, (label, values) in enumerate(kept):
            known = [v for v in values if v is not None]
            told = f": {shown(_mean(known))} on average, {shown(max(known))} at most" if known else ": not known"
            items.append((f'<path class="l{number}" d="M0 4h26"/>', label + told))
        yield _legend(items)
        yield self._behind(name, series, shown, fold, most=charts.LINES * 3)

    def _behind(
        self,
        name: str,
        series: Sequence[tuple[str, Values]],
        shown: Callable[[float | None], str],
        fold: Callable[[Sequence[float]], float],
        *,
        most: int,
    ) -> Markup:
        """The numbers of a picture, folded into at most TIME_ROWS rows."""
        each = -(-self.count // TIME_ROWS)
        rows = []
        for first in range(0, self.count, each):
            row = [self._clock(first * self.width_s)]
            for _, values in series[:most]:
                known = [v for v in values[first : first + each] if v is not None]
                row.append(shown(fold(known)) if known else "–")
            rows.append(row)
        header = ["From", *(label for label, _ in series[:most])]
        how = "the mean of" if fold is _mean else "the highest of"
        caption = f"{name}: {how} {span(each * self.width_s)} each"
        return tag("details", tag("summary", "The numbers"), table(caption, header, rows, right="|".join(header[1:])))

    # --- processes

    def processes(self) -> Iterator[Markup]:
        processes = self.data["processes"]
        if not processes:
            yield _nothing("There was none.")
            return
        rows = [self._life(p) for p in processes[:LIFE_ROWS]] + list(self._found_rows())
        yield Markup(charts.timeline("Life of each process, its errors, and what was found", rows, self.time))
        yield _legend(
            (
                ('<rect class="life" width="26" height="8"/>', "publishes"),
                ('<path class="mark" d="M13 0v8"/>', "errors, or its death"),
                ('<rect class="critical" width="26" height="8"/>', "critical finding"),
                ('<rect class="warning" width="26" height="8"/>', "warning"),
                ('<rect class="info" width="26" height="8"/>', "worth knowing"),
            )
        )
        header = ("Process", "Device", "Slot", "From", "To", "End", "Executions", "Failed", "Models", "Command")
        told = [
            (
                p["name"],
                p["device"],
                p["slot"],
                self._clock(p["from_s"]),
                self._clock(p["to_s"] if p["died_s"] is None else p["died_s"]),
                tag("span", p["end"], class_="critical") if p["end"] == "died" else p["end"],
                figure(p["executions"]),
                figure(p["failures"]),
                self._models(p),
                shorten_middle(brief(p["command"]), COMMAND_LENGTH),
            )
            for p in processes
        ]
        yield table("Processes", header, told, right="Device|Slot|Executions|Failed")
        yield from self._errors()

    def _life(self, p: Data) -> Row:
        bars = [Bar(p["from_s"], p["to_s"], "life", f"{p['name']}: {p['end']}")]
        marks: dict[int, str] = {}
        failures = (p["series"] or {}).get("failures_s", ())
        for column, value in enumerate(failures):
            if value:
                second = (column + 0.5) * self.width_s
                marks[column] = f"{self._clock(second)}: {figure(value * self.width_s)} errors"
        if not failures:
            for e in p["errors"]:
                for key in ("first_s", "last_s"):
                    marks[int(e[key] / self.width_s)] = f"{self._clock(e[key])}: {e['counter']}"
        shown = [((column + 0.5) * self.width_s, said) for column, said in sorted(marks.items())]
        if p["died_s"] is not None:
            shown.append((p["died_s"], f"{self._clock(p['died_s'])}: died"))
        return Row(p["name"], bars, shown)

    def _found_rows(self) -> Iterator[Row]:
        """What was found, a row for each kind."""
        kinds: dict[str, list[Bar]] = {}
        for f in self.data["findings"]:
            to_s = self.seconds if f["to_s"] is None else f["to_s"]
            kinds.setdefault(f["kind"], []).append(Bar(f["from_s"], to_s, f["severity"], f["message"]))
        for kind, bars in kinds.items():
            yield Row(kind, bars)

    @staticmethod
    def _models(p: Data) -> str:
        cores: dict[str, list[int]] = {}
        for m in p["models"]:
            cores.setdefault(m["name"], []).append(m["core"])
        told = [f"{name} (core {', '.join(map(str, sorted(set(of))))})" for name, of in list(cores.items())[:4]]
        more = len(cores) - len(told)
        return "; ".join(told) + (f"; {more} more" if more else "")

    def _errors(self) -> Iterator[Markup]:
        sums: dict[tuple[str, str], list[Any]] = {}
        for p in self.data["processes"]:
            for e in p["errors"]:
                row = sums.setdefault((p["name"], e["counter"]), [0, set(), e["first_s"], e["last_s"]])
                row[0] += e["errors"]
                row[1].add(f"{p['device']}.{e['core']}")
                row[2], row[3] = min(row[2], e["first_s"]), max(row[3], e["last_s"])
        if not sums:
            yield tag("p", "No counter of errors has moved.")
            return
        most = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
        rows = [
            (name, counter, figure(n), " ".join(sorted(cores)), self._clock(first), self._clock(last))
            for (name, counter), (n, cores, first, last) in most[:ERROR_ROWS]
        ]
        header = ("Process", "Counter", "Errors", "On device.core", "First", "Last")
        yield table("Errors, the most first", header, rows, right="Errors")
        if len(most) > ERROR_ROWS:
            yield tag("p", f"{len(most) - ERROR_ROWS} more are in the page's data.", class_="dim")

    def ticks(self) -> Iterator[Markup]:
        r = self.recording
        text = f"{r['ticks']:,} ticks, one every {span(r['period_us'] / 1e6)}."
        if r["late"]:
            text += f" {r['late']:,} were late by a millisecond or more, the worst by {span(r['worst_late_us'] / 1e6)}."
        if r["missed"]:
            text += f" {r['missed']:,} were missed."
        yield tag("p", f"{text} Looked at every {span(r['looked_every_us'] / 1e6)}. Recorded by {r['recorded_by']}.")
        if r["gaps"]:
            rows = [(self._clock(g["from_s"], digits=True), span(g["to_s"] - g["from_s"])) for g in r["gaps"]]
            yield table("Gaps without ticks", ("From", "For"), rows, right="For")
            if r["gaps_left_out"]:
                yield tag("p", f"{r['gaps_left_out']} shorter ones are left out.", class_="dim")
        if r["marks"]:
            marks = [(self._clock(m["at_s"], digits=True), m["text"]) for m in r["marks"]]
            yield table("What the recorder noted", ("At", "What"), marks)


def _plural(n: int, word: str) -> str:
    ending = "" if n == 1 else "es" if word.endswith("s") else "s"
    return f"{n:,} {word}{ending}"


def _note(text: str) -> Markup:
    return tag("p", text, class_="note", role="note")


def _nothing(text: str) -> Markup:
    return tag("p", text, class_="dim")


def _legend(items: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Markup:
    """Swatches with what they stand for; a swatch is SVG of ours."""
    return tag(
        "ul",
        *(
            tag("li", Markup(f'<svg viewBox="0 0 26 8" aria-hidden="true">{swatch}</svg>'), label)
            for swatch, label in items
        ),
        class_="legend",
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _highest(values: Sequence[float]) -> float:
    return max(values)


def _by_peak(series: Sequence[tuple[str, Values]]) -> list[tuple[str, Values]]:
    """The highest first."""
    return sorted(series, key=lambda s: -max((v for v in s[1] if v is not None), default=0))


def _sums(series: Sequence[Values]) -> Values:
    """Column by column; None where none of them is known."""
    return [
        None if all(v is None for v in column) else sum(v for v in column if v is not None)
        for column in zip(*series, strict=True)
    ]
