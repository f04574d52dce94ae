"""Where a live picture comes from: the devices of this machine, or anything else that gives Samples.

A Source looks when it is asked and keeps no history. This module knows collectors; what is made of a Sample it doesn't.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from neuron_ds.collect import Collector, LatencySampler, Sample
from neuron_ds.driver import Driver, get_driver
from neuron_ds.errors import NeuronDSError
from neuron_ds.host import HostCollector, HostSample

if TYPE_CHECKING:
    from neuron_ds.record import Recording

#: A picture needs fewer latencies than a report over seconds does.
SAMPLE_HZ = 20.0
#: The host and /proc are looked at no more often than this, and with many processes so seldom that it takes no more
#: than this share of a processor.
HOST_S = 2.0
HOST_SHARE = 0.0015


class Source(Protocol):
    """Whatever gives Samples, one after the other."""

    @property
    def title(self) -> str:
        """What is looked at, in a few words."""

    def look(self) -> tuple[Sample, HostSample | None]:
        """The devices now, and the host: the same HostSample again where it was not looked at anew, None without
        one. Raises nothing of ours."""

    def wall_s(self, time_ns: int) -> float:
        """When a Sample of this time was taken, in seconds since the epoch."""

    def why_empty(self) -> str:
        """Why there is no device or no process to be seen, and what to do: one line."""

    def close(self) -> None:
        """Let go of everything."""


class LiveSource:
    """The devices that a driver reaches, and this host; of a recording the devices alone, for the host it was made on
    is not in it. Not for several threads at once."""

    def __init__(self, driver: Driver | None = None, *, sample_hz: float = SAMPLE_HZ, host_s: float = HOST_S) -> None:
        """``sample_hz``: how often latencies are looked at in between, 0 for never. ``host_s``: the least time between
        two looks at the host."""
        self._driver = driver or get_driver()
        self._collector = Collector(self._driver, totals=False)
        self._recording: Recording | None = getattr(self._driver, "recording", None)
        self._host = HostCollector(self._driver)
        self._seen: HostSample | None = None
        self._host_due, self._host_s = 0.0, host_s
        if sample_hz:
            LatencySampler(self._collector, sample_hz)

    @property
    def title(self) -> str:
        return f"{self._driver.name} driver" if self._recording is None else f"recording {self._recording.path}"

    def look(self) -> tuple[Sample, HostSample | None]:
        sample = self._collector.collect()
        now = time.monotonic()
        if self._recording is None and now >= self._host_due:
            begun = time.thread_time()
            pids = {p.owner.pid for p in sample.processes if p.owner.alive is not False and not p.owner.foreign}
            self._seen = self._host.collect(pids, ())
            self._host_due = now + max(self._host_s, (time.thread_time() - begun) / HOST_SHARE)
        return sample, self._seen

    def wall_s(self, time_ns: int) -> float:
        return time.time() if self._recording is None else self._recording.wall_ns(time_ns) / 1e9

    def why_empty(self) -> str:
        if self._recording is not None:
            return "no process was there at this moment of the recording"
        from neuron_ds.doctor import examine

        try:
            problems = [f for f in examine() if f.level == "problem"]
        except NeuronDSError as e:
            return str(e)
        if not problems:
            return "no process publishes on the devices that are there; neuron-ds simulate starts some"
        return "; ".join(text for text in (problems[0].message, problems[0].advice) if text)

    def close(self) -> None:
        self._collector.close()
