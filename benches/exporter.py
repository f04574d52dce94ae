"""What a scrape of a full machine costs: against prometheus_client's own way to gather many processes, and in memory.

The exporter is the command in a process of its own, scraped over HTTP as Prometheus does it. Run as a module with a
list of families on its standard input this is one of the yardstick's processes: it counts them in prometheus_client's
multiprocess mode and ends; what it counted stays in its files.
"""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benches.crowd import runtimes
from benches.fixtures import MANY_DEVICES, directory
from benches.harness import LEAST_ROUNDS, Comparison, Reading, Side
from neuron_ds import layout

PROCESSES = layout.SLOTS_PER_DEVICE
RATE_HZ = 1.0
#: How much faster than prometheus_client a whole scrape must be.
FASTER = 15
RSS_MIB, GROWTH_MIB = 110, 4
COMMAND = (sys.executable, "-m", "neuron_ds", "exporter", "--listen", "127.0.0.1:0", "--per-process")
#: Both the server and the yardstick squeeze like this.
GZIP_LEVEL = 1
#: The yardstick takes seconds; one scrape beside it would be a matter of luck.
SCRAPES_PER_ROUND = 5
WINDOW_S = 5.0
#: For memory windows end as often as can be, so that they meet scrapes in every way they can.
SHORT_WINDOW_S = 0.1
SCRAPES, MANY_SCRAPES = 60, 5000
MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_MIB = 1 << 20
_LABEL = re.compile(r'(\w+)="([^"]*)"')

#: A family for the yardstick: name, type, names of labels, and (values of labels, value) of each series.
Series = tuple[list[str], float]
Portion = tuple[str, str, list[str], list[Series]]


def comparisons() -> Iterator[Comparison | Reading]:
    with _full_machine() as path:
        with Exporter(path) as exporter, tempfile.TemporaryDirectory() as files:
            text = gzip.decompress(exporter.scrape()).decode()
            series = sum(not line.startswith("#") for line in text.splitlines())
            _count_the_same(text, files)
            yield Comparison(
                f"scrape of {series:,} series, gzip",
                f"prometheus_client, {PROCESSES} processes, gzip",
                Side(lambda times: exporter.scrapes(times * SCRAPES_PER_ROUND), SCRAPES_PER_ROUND, looped=False),
                _prometheus_client(files, series),
                FASTER,
                faster=True,
                rounds=LEAST_ROUNDS,
            )
        with Exporter(path, SHORT_WINDOW_S) as exporter:
            yield _most(exporter, SCRAPES)
    with (
        directory(devices=1) as path,
        runtimes(path, processes=1, devices=1, rate_hz=RATE_HZ),
        Exporter(path, SHORT_WINDOW_S) as exporter,
    ):
        yield _growth(exporter)


def endurance() -> Iterator[Reading]:
    """Many scrapes of the full machine, as the exporter runs by default."""
    with _full_machine() as path, Exporter(path) as exporter:
        yield _growth(exporter)
        yield _most(exporter, SCRAPES)


@contextmanager
def _full_machine() -> Iterator[str]:
    with (
        directory(devices=MANY_DEVICES) as path,
        runtimes(path, processes=PROCESSES, devices=MANY_DEVICES, devices_each=MANY_DEVICES, rate_hz=RATE_HZ),
    ):
        yield path


def _most(exporter: Exporter, scrapes: int) -> Reading:
    return Reading(
        "exporter's memory, full machine",
        f"most of {scrapes} scrapes",
        lambda: exporter.most_mib(scrapes),
        RSS_MIB,
        "MiB",
    )


def _growth(exporter: Exporter) -> Reading:
    def grown_mib() -> float:
        before_mib = exporter.most_mib(SCRAPES)
        exporter.scrapes(MANY_SCRAPES)
        return exporter.most_mib(SCRAPES) - before_mib

    return Reading("exporter's memory", f"growth over {MANY_SCRAPES:,} scrapes", grown_mib, GROWTH_MIB, "MiB")


class Exporter:
    """``neuron-ds exporter --per-process`` on a directory, in a process of its own. A context: it ends with it."""

    def __init__(self, path: str, window_s: float = WINDOW_S) -> None:
        import psutil

        environ = os.environ | {"NEURON_DS_DIR": path, "AWS_EC2_METADATA_DISABLED": "true"}
        environ.pop(MULTIPROCESS_VARIABLE, None)
        self._process = subprocess.Popen(
            [*COMMAND, "--window", str(window_s)],
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
        )
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            *_, last = (line + self._process.communicate()[1]).splitlines() or [""]
            raise RuntimeError(f"the exporter did not start: {last}")
        url = urllib.parse.urlsplit(found[0])
        self._address = url.hostname or "", url.port
        self._proc = psutil.Process(self._process.pid)
        self._ready = time.monotonic() + 2 * window_s + 1

    def scrape(self) -> bytes:
        """A scrape on a connection of its own, as it comes: squeezed."""
        connection = http.client.HTTPConnection(*self._address, timeout=60)
        try:
            connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != http.HTTPStatus.OK or response.getheader("Content-Encoding") != "gzip":
            raise RuntimeError(f"a scrape failed: {response.status} {body[:200]!r}")
        return body

    def scrapes(self, times: int) -> float:
        """So many; the seconds that took."""
        began = time.perf_counter()
        for _ in range(times):
            self.scrape()
        return time.perf_counter() - began

    def most_mib(self, scrapes: int) -> float:
        """The most resident memory seen behind any of so many scrapes, after the first windows have ended."""
        while time.monotonic() < self._ready:
            self.scrape()
        most = 0
        for _ in range(scrapes):
            self.scrape()
            most = max(most, self._proc.memory_info().rss)
        return most / _MIB

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()


# --- The same with prometheus_client ----------------------------------------------------------------------------------


def _prometheus_client(path: str, series: int) -> Side:
    """What an application's /metrics does that gathers its processes, less the HTTP."""
    os.environ[MULTIPROCESS_VARIABLE] = path  # its mode is chosen at import; the counters' bench needs the same
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.multiprocess import MultiProcessCollector

    def gathered() -> bytes:
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=path)  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def run(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            gzip.compress(gathered(), GZIP_LEVEL)
        return time.perf_counter() - began

    found = sum(not line.startswith(b"#") for line in gathered().splitlines())
    if found != series:
        raise RuntimeError(f"prometheus_client gathers {found} series, not {series}")
    return Side(run, looped=False)


def _count_the_same(text: str, path: str) -> None:
    """Have as many processes as we watch count what stands in this scrape: each its own series, the last the rest."""
    for portion in _portions(text):
        subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(portion).encode(),
            env=os.environ | {MULTIPROCESS_VARIABLE: path},
            cwd=Path(__file__).parent.parent,
            check=True,
        )


def _portions(text: str) -> list[list[Portion]]:
    found: dict[str, dict[str, Portion]] = defaultdict(dict)
    kinds = {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, name, rest = line.split(" ", 3)
            if what == "TYPE":
                kinds[name] = rest
            continue
        place, _, value = line.rpartition(" ")
        name = place.partition("{")[0]
        labels = dict(_LABEL.findall(place))
        family = found[labels.get("pid", "")].setdefault(name, (name, kinds[name], list(labels), []))
        family[3].append((list(labels.values()), float(value)))
    others = found.pop("", {})
    portions = [list(families.values()) for families in found.values()]
    portions[-1] += others.values()
    return portions


def main() -> None:
    from prometheus_client import Counter, Gauge

    portion: list[Portion] = json.load(sys.stdin)
    for name, kind, names, series in portion:
        if kind == "counter":
            counter = Counter(name, "Of a bench.", names, registry=None)
            for labels, value in series:
                (counter.labels(*labels) if labels else counter).inc(value)
        else:
            gauge = Gauge(name, "Of a bench.", names, registry=None, multiprocess_mode="sum")
            for labels, value in series:
                (gauge.labels(*labels) if labels else gauge).set(value)


if __name__ == "__main__":
    main()
