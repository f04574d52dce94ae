"""The monitor's report and the exporter's metrics, for who asks: nothing of them runs before that.

A report is one of its own, over half a second, as ``neuron-ds monitor --once`` gives it. The exporter's watch begins
with the first scrape and stays, so its counters count from there. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import threading
import time
from itertools import chain
from typing import TYPE_CHECKING

from neuron_ds.driver import Driver
from neuron_ds.instance import InstanceInfo

if TYPE_CHECKING:
    from neuron_ds.exporter.watch import Watch

#: Who asks again within this is given the same report.
FRESH_S = 0.5
_EOF = b"# EOF\n"


class Others:
    """Made when asked for, one at a time; close it."""

    def __init__(self, driver: Driver | None, *, imds: bool = True) -> None:
        """``imds``: whether the instance metadata service may be asked."""
        self._driver, self._imds = driver, imds
        self._instance: InstanceInfo | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._report: tuple[float, bytes] | None = None
        self._watch: Watch | None = None

    def report(self) -> bytes:
        """One report of the monitor, as JSON; b"" when we are closing."""
        from neuron_ds.monitor.config import load
        from neuron_ds.monitor.stream import Monitor

        def wait(until_ns: int) -> bool:
            return not self._closing.wait(max(0, until_ns - time.monotonic_ns()) / 1e9)

        with self._lock:
            if self._report and time.monotonic() - self._report[0] < FRESH_S:
                return self._report[1]
            with Monitor(load(None, None), self._driver, instance=self._known()) as monitor:
                line = next(monitor.lines(wait), b"")
            self._report = time.monotonic(), line
            return line

    def metrics(self, accept: str) -> tuple[str, bytes]:
        """The exporter's families, as an Accept header wants them: content type and text."""
        from prometheus_client.exposition import choose_encoder

        from neuron_ds.exporter.accept import form
        from neuron_ds.exporter.text import write

        _, content_type = choose_encoder(form(accept))
        openmetrics = "openmetrics" in content_type
        report = self._watching().report()
        pieces = write(chain(report.small(), report.many()), openmetrics=openmetrics)
        return content_type, b"".join([*pieces, _EOF] if openmetrics else pieces)

    def _watching(self) -> Watch:
        from neuron_ds.exporter.watch import Watch

        with self._lock:
            if self._watch is None:
                self._watch = Watch(self._driver, instance=self._known())
            return self._watch

    def _known(self) -> InstanceInfo:
        if self._instance is None:
            self._instance = InstanceInfo(ask=self._imds)
        return self._instance

    def close(self) -> None:
        """End what was begun, also a report on its way."""
        self._closing.set()
        with self._lock:
            if self._watch is not None:
                self._watch.close()
