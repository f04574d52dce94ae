"""The command ``diagnose``: watches for a while, or goes through a recording, and prints what the rules find.

What is wrong and how one sees it is the diagnose room's; here are the options, the time, and how findings are printed.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, UNUSABLE, Failure, Finite, print_json, put, tell

if TYPE_CHECKING:
    from neuron_ds.cli.monitor import Outlet
    from neuron_ds.collect import Sample
    from neuron_ds.diagnose import Finding, Look, Thresholds

_WIDTH = 100


def _duration(context: click.Context, parameter: click.Parameter, value: str) -> float:
    from neuron_ds.errors import BadValue
    from neuron_ds.record.replay import seconds_of

    try:
        seconds = seconds_of(value)
    except BadValue as e:
        raise click.BadParameter(e.message) from None
    if not 1 <= seconds <= 86400:
        raise click.BadParameter(f"{value!r} is not within 1s and 24h")
    return seconds


def _list_rules(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from neuron_ds.diagnose import RULES, Thresholds

    put("rules")
    for kind, rule in RULES.items():
        put(f"  {kind:24} {rule.sentence}")
    put("\nthresholds, for --set")
    t = Thresholds()
    for name, sentence in Thresholds.sentences().items():
        put(f"  {f'{name}={getattr(t, name):.10g}':34} {sentence}")
    context.exit()


@click.command(short_help="What is wrong, as an experienced operator would read the counters.")
@click.option("--for", "for_s", metavar="DURATION", default="10s", show_default=True, callback=_duration, help="Watch.")
@click.option("--period", type=Finite(0.1, 60), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("-f", "--follow", is_flag=True, help="Go on until stopped: a line for what begins and what is over.")
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Another threshold, as in hung_after_s=20. May be given several times.",
)
@click.option("--from", "from_file", metavar="FILE", help="Go through a recording, all of it.")
@click.option("-j", "--json", "as_json", is_flag=True, help="JSON: one object; with --follow one per line.")
@click.option(
    "--rules",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_rules,
    help="List the rules and the thresholds.",
)
def diagnose(
    for_s: float, period: float, follow: bool, settings: tuple[str, ...], from_file: str | None, as_json: bool
) -> int:
    """Watch all processes and say what is wrong: hung and slow cores, errors, leaks, collapses and more.

    Each finding names process and core, since when, the counters that show it, and what to look at next. Rules that
    compare with what is usual, or that wait for minutes, need to be watched as long (--for 5m, --follow, or a
    recording). Exit 0 if nothing was found, 1 if something was, 2 if nothing can be seen.

    \b
    Examples:
      neuron-ds diagnose
      neuron-ds diagnose --for 5m --set hung_after_s=20 --json
      neuron-ds diagnose --follow
      neuron-ds diagnose --from incident.mcap
    """
    from neuron_ds.diagnose import Thresholds
    from neuron_ds.errors import BadValue

    try:
        thresholds = Thresholds.read(settings)
    except BadValue as e:
        raise Failure(f"--set: {e.message}") from None
    if from_file is not None:
        if follow:
            raise Failure("--follow is for what goes on; a recording is gone through as a whole")
        return _recorded(from_file, period, thresholds, as_json)
    return _live(for_s, period, follow, thresholds, as_json)


# --- Where looks come from


def _live(for_s: float, period_s: float, follow: bool, thresholds: Thresholds, as_json: bool) -> int:
    from neuron_ds.cli.monitor import outlet
    from neuron_ds.collect import Collector, LatencySampler
    from neuron_ds.diagnose import looks_of

    story = _Story(thresholds)
    with outlet() as out, Collector(totals=False) as collector:
        LatencySampler(collector)
        samples = _samples(collector.collect, out, period_s, None if follow else for_s)
        for look in looks_of(samples):
            if not story.looks and not look.devices:
                return tell(_why_empty(look), UNUSABLE)
            if not story.looks and not look.processes:
                tell("no process publishes on the devices that are there; neuron-ds ls shows them")
            news = story.add(look)
            if follow:
                for finding, over in news:
                    line = _json_line(finding, over, look) if as_json else _line(finding, over, _wall(time.time()))
                    out.write(f"{line}\n".encode("utf-8", "backslashreplace"))
    if not follow:
        story.tell(as_json, lambda time_ns: time.time() - (time.monotonic_ns() - time_ns) / 1e9)
    return story.code


def _samples(collect: Callable[[], Sample], out: Outlet, period_s: float, for_s: float | None) -> Iterator[Sample]:
    """A Sample each period, until the time is over or a signal asks for the end. Says how it goes on a terminal."""
    from neuron_ds.cli.record import Progress

    progress = Progress()
    begun_ns = due_ns = time.monotonic_ns()
    try:
        while True:
            yield collect()
            left_s = (begun_ns - due_ns) / 1e9 + (for_s or 0)
            if for_s is not None:
                if left_s <= 0:
                    return
                progress.show(lambda left_s=left_s: f"watching, {left_s:.0f} s left")  # type: ignore[misc]  # bound now
            due_ns = max(due_ns + round(period_s * 1e9), time.monotonic_ns())
            if not out.wait(due_ns):
                return
    finally:
        progress.clear()


def _recorded(path: str, period_s: float, thresholds: Thresholds, as_json: bool) -> int:
    from neuron_ds.diagnose import looks_of
    from neuron_ds.record import Recording

    story = _Story(thresholds)
    with Recording(path) as recording:
        for look in looks_of(recording.samples(every_ns=round(period_s * 1e9))):
            story.add(look)
        for damage in recording.damage:
            tell(f"{path}: {damage}")
        if not story.looks:
            raise Failure(f"{path}: there is no look in it")
        story.tell(as_json, lambda time_ns: recording.wall_ns(time_ns) / 1e9)
    return story.code


def _why_empty(look: Look) -> str:
    """The doctor's first problem."""
    from neuron_ds.doctor import examine

    problem = next((f for f in examine() if f.level == "problem"), None)
    if problem is None:
        return look.error or "no Neuron device; neuron-ds doctor tells more"
    return "; ".join(text for text in (problem.message, problem.advice) if text)


# --- What is told


@dataclass(slots=True)
class _Episode:
    """A finding while it lasted: as it was said last, and when it was over."""

    finding: Finding
    over_ns: int | None = None


class _Story:
    """Everything that was found, in the order in which it began."""

    def __init__(self, thresholds: Thresholds) -> None:
        from neuron_ds.diagnose import Watcher

        self._watcher = Watcher(thresholds)
        self._open: dict[object, _Episode] = {}
        self.episodes: list[_Episode] = []
        self.looks = 0
        self.first: Look | None = None
        self.last: Look | None = None

    def add(self, look: Look) -> list[tuple[Finding, bool]]:
        """What has begun (False) and what is over (True) with this look."""
        findings, began, over = self._watcher.add(look)
        self.looks, self.first, self.last = self.looks + 1, self.first or look, look
        for finding in over:
            self._open.pop(finding.identity).over_ns = look.time_ns
        for finding in findings:
            if finding.identity in self._open:
                self._open[finding.identity].finding = finding
            else:
                self._open[finding.identity] = _Episode(finding)
                self.episodes.append(self._open[finding.identity])
        return [(f, True) for f in over] + [(f, False) for f in began]

    @property
    def code(self) -> int:
        return NEGATIVE if self.episodes else OK

    def tell(self, as_json: bool, wall_s: Callable[[int], float]) -> None:
        """The worst first; ``wall_s`` turns times of looks into seconds since 1970."""
        if self.first is None or self.last is None:
            return
        ranked = sorted(self.episodes, key=lambda e: -e.finding.severity)
        now_ns, watched_s = self.last.time_ns, (self.last.time_ns - self.first.time_ns) / 1e9
        if as_json:
            print_json(
                {
                    "looks": self.looks,
                    "watched_s": round(watched_s, 3),
                    "devices": len(self.last.devices),
                    "processes": len(self.last.processes),
                    "findings": [self._to_dict(e, now_ns, wall_s) for e in ranked],
                }
            )
            return
        for number, episode in enumerate(ranked):
            if number:
                put("")
            for line in _paragraph(episode, now_ns, wall_s):
                put(line)
        tell(f"{len(ranked) or 'no'} finding{'' if len(ranked) == 1 else 's'} in {self.looks} looks, {watched_s:.0f} s")

    @staticmethod
    def _to_dict(episode: _Episode, now_ns: int, wall_s: Callable[[int], float]) -> dict[str, object]:
        since_ns, over_ns = episode.finding.since_ns, episode.over_ns
        times = {
            "since": _wall(wall_s(since_ns)),
            "over": None if over_ns is None else _wall(wall_s(over_ns)),
        }
        return {**episode.finding.to_dict(now_ns if over_ns is None else over_ns), **times}


def _paragraph(episode: _Episode, now_ns: int, wall_s: Callable[[int], float]) -> Iterator[str]:
    from neuron_ds.cli.text import age
    from neuron_ds.records import printable

    f, over_ns = episode.finding, episode.over_ns
    lasted = age(((now_ns if over_ns is None else over_ns) - f.since_ns) / 1e9)
    when = (
        f"since {_wall(wall_s(f.since_ns))} ({lasted})"
        if over_ns is None
        else (f"from {_wall(wall_s(f.since_ns))} to {_wall(wall_s(over_ns))} ({lasted}), over")
    )
    yield f"{f.severity.name}  {f.kind}  {when}"
    yield from _wrapped(printable(f.message), "  ")
    yield from _wrapped(", ".join(f"{name} {_figure(v)}" for name, v in f.evidence.items()), "  evidence: ")
    yield from _wrapped(f.advice, "  next: ")


def _wrapped(text: str, lead: str) -> Iterable[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * len(lead),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _figure(value: int | float | str) -> str:
    return str(value) if isinstance(value, str) else f"{value:,}"


def _line(finding: Finding, over: bool, wall: str) -> str:
    from neuron_ds.records import printable

    what = "over " if over else "began"
    return f"{wall}  {what}  {finding.severity.name:8}  {finding.kind}  {printable(finding.message)}"


def _json_line(finding: Finding, over: bool, look: Look) -> str:
    now = {"time": _wall(time.time()), "event": "over" if over else "began"}
    return json.dumps({**now, **finding.to_dict(look.time_ns)})


def _wall(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
