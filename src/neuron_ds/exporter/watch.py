"""The watch that never sleeps for long: looks at the slabs for every scrape and once per window in the background.

A Watch owns the collector, the sampler, what is accumulated, and the thread that ends the windows; ``report`` is all
that anybody else needs. This module knows when things are looked at; what they mean and how they are told it doesn't.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from neuron_ds.collect import Collector, LatencySampler, Sample
from neuron_ds.diagnose import Finding, Look, Watcher, look_at
from neuron_ds.diagnose import Window as History
from neuron_ds.driver import Driver, Owner, get_driver
from neuron_ds.driver.clock import clock_of
from neuron_ds.errors import BadValue, Closed
from neuron_ds.exporter.accumulate import Accumulator
from neuron_ds.exporter.families import CHOICES, INSTANCE_LABELS
from neuron_ds.exporter.report import Facts, Report, Window
from neuron_ds.exporter.text import Labels
from neuron_ds.host import ECC, HostCollector, HostSample, ProcessUse
from neuron_ds.identity import Identities
from neuron_ds.instance import InstanceInfo
from neuron_ds.kubernetes import PodResources
from neuron_ds.rates import grown

WINDOW_S = 5.0
SAMPLE_HZ = 100.0
#: How long the metadata service may hold up the first report.
INSTANCE_PATIENCE_S = 1.0
#: What the findings' history may hold: some minutes where each core belongs to a process, less on a crowded machine.
MOST_ROWS = 4500
#: Windows that may pass without one ending before the watch counts as stuck.
STUCK_WINDOWS = 4

_NAMES = {"availability_zone": "instance_availability_zone", "region": "instance_region"}


class Watch:
    """Everything a scrape tells, kept up to date. Threads may share one; close it, or use it as a context manager."""

    def __init__(
        self,
        driver: Driver | None = None,
        *,
        window_s: float = WINDOW_S,
        sample_hz: float = SAMPLE_HZ,
        per_process: bool = False,
        choices: Sequence[str] = (),
        instance: InstanceInfo | None = None,
        pods: PodResources | None = None,
    ) -> None:
        """``sample_hz``: how often latencies are looked at, 0 for never. ``choices``: keys of CHOICES. ``pods``: where
        names of pods come from; whoever made it closes it.

        Raises BadValue (EINVAL) for a choice or a number that can't be.
        """
        unknown = [choice for choice in choices if choice not in CHOICES]
        if unknown:
            raise BadValue(f"label {unknown[0]!r} is none; there are {', '.join(CHOICES)}")
        if not 0.1 <= window_s <= 3600 or not 0 <= sample_hz <= 1000:
            raise BadValue(f"a window of {window_s} s at {sample_hz} Hz: give 0.1 to 3600 s and 0 to 1000 Hz")
        self.window_s, self.per_process = window_s, per_process
        self.choices = tuple(label for choice in dict.fromkeys(choices) for label in CHOICES[choice])
        self._identities = Identities(pods) if self.choices else None
        self._lock = threading.Lock()
        self._driver = driver or get_driver()
        self._clock = clock_of(self._driver)
        self._collector = Collector(self._driver)
        self._host = HostCollector(self._driver)
        self._state = Accumulator(self._choose, driver_forgets=not self._driver.can_reset)
        self._instance = instance or InstanceInfo()
        self._instance.tried.wait(INSTANCE_PATIENCE_S)
        self._labels = Labels(self._instance_labels())
        self._looks, self._look_s = 0, 0.0
        self._rss_bytes: dict[int, int] = {}
        self._ecc: dict[int, list[int]] = {}
        self._ecc_seen: dict[int, Sequence[int]] = {}
        self.devices = self.readable = 0  #: devices that the last look found, and those of them it could read
        self._trouble = ""
        self.errors: tuple[str, ...] = ()  #: what was in its way
        self._sampler = LatencySampler(self._collector, sample_hz) if sample_hz else None
        self._window: Window | None = None
        self.begun_ns = self._clock.now_ns()  #: what the exporter itself counts, it counts since
        sample = self._look()
        self._watcher = Watcher(window=_history(window_s))
        self._seen: Look | None = None
        self._findings: list[Finding] = []
        self._diagnose(sample)
        self._begun = self._last_host = self._look_at_host(sample)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neuron-ds-window", daemon=True)
        self._thread.start()

    # --- What others ask

    def report(self) -> Report:
        """A look at this moment, told over the last window. Raises Closed (EBADF)."""
        with self._lock:
            if self.closed:
                raise Closed("this watch is closed; make another")
            return self._report()  # which lets go of the Sample while the lock is held: one arena is enough

    def _report(self) -> Report:
        sample = self._look()
        window = self._window or self._first_window(sample)
        shared = self._instance_labels()
        if shared != self._labels.shared:
            self._labels = Labels(shared)
        now_ns = self._clock.now_ns()
        facts = Facts(
            sample,
            window,
            self._resident(),
            {device: tuple(counts) for device, counts in self._ecc.items()},
            self._looks,
            self._look_s,
            (now_ns - sample.time_ns) / 1e9,
            (now_ns - window.end_ns) / 1e9,
            self._findings,
        )
        report = Report(self._labels, self._state, facts, self.choices, self.per_process)
        self._labels.sweep()
        return report

    @property
    def shared_labels(self) -> dict[str, str]:
        """What every series of the last report carries."""
        return self._labels.shared

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    @property
    def problem(self) -> str:
        """Why the figures can't be trusted: the watch is closed or stuck; "" if all is well."""
        if self.closed:
            return "closed"
        if not self._thread.is_alive():
            return "the window thread has ended"
        end_ns = self._window.end_ns if self._window else self._begun.time_ns
        late_s = (self._clock.now_ns() - end_ns) / 1e9
        if self._trouble:
            return self._trouble
        if late_s > STUCK_WINDOWS * self.window_s + 1:
            return f"no window has ended for {late_s:.0f} s"
        return ""

    def end_window(self) -> None:
        """End a window now, as the thread does when one is over."""
        with self._lock:
            self._end_window()

    def _end_window(self) -> None:
        sample = self._look()
        self._diagnose(sample)
        host = self._look_at_host(sample)
        length_s = self._state.end_window()
        self._window = Window(self._last_host, host, length_s, sample.time_ns)
        self._last_host = host

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()
        self._thread.join()
        with self._lock:
            self._collector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- Looks

    def _run(self) -> None:
        length_ns = round(self.window_s * 1e9)
        due_ns = self._clock.now_ns() + length_ns
        while not self._stop.wait(max(0, self._clock.real_ns(due_ns) - time.monotonic_ns()) / 1e9):
            try:
                self.end_window()
                self._trouble = ""
            except Exception as e:  # whatever it is: the next look may go well, and somebody has to look then
                self._trouble = f"the last window could not be ended: {e!r}"
            due_ns = max(due_ns + length_ns, self._clock.now_ns())  # windows that were missed are not made up for

    def _look(self) -> Sample:
        begun_ns = time.monotonic_ns()
        sample = self._collector.collect()
        if self._identities:
            self._identities.look(sample)
        self._state.look(sample)
        self._looks += 1
        self._look_s = (time.monotonic_ns() - begun_ns) / 1e9
        self.devices, self.readable = len(sample.devices), sum(d.properties is not None for d in sample.devices)
        self.errors = tuple(error for error in (sample.error, *(d.error for d in sample.devices)) if error)
        return sample  # who keeps it keeps the memory of all slabs

    def _diagnose(self, sample: Sample) -> None:
        """Once per window: a scrape costs nothing for it. Only what rules need is kept of the sample."""
        self._seen = look_at(sample, self._seen, latencies=False)
        self._findings, _, _ = self._watcher.add(self._seen)

    def _look_at_host(self, sample: Sample) -> HostSample:
        devices = [d.device for d in sample.devices]
        host = self._host.collect(self._pids(), devices)
        self._rss_bytes = _rss_of(host)
        self._add_ecc(devices, host)
        return host

    def _pids(self) -> set[int]:
        """Of the processes that /proc knows by the pid we know them by."""
        return {p.owner.pid for p in self._state.followed.values() if not p.owner.foreign}

    def _first_window(self, sample: Sample) -> Window:
        """Until the first window ends: what has passed of it."""
        host = self._look_at_host(sample)
        return Window(self._begun, host, (host.time_ns - self._begun.time_ns) / 1e9, self._begun.time_ns)

    def _resident(self) -> dict[int, int]:
        """Resident memory by pid as of the last window's end, of those that came since as of now."""
        if new := self._pids() - self._rss_bytes.keys():
            self._rss_bytes |= dict.fromkeys(new, 0) | _rss_of(self._host.collect(new, (), system=False))
        return dict(self._rss_bytes)

    def _add_ecc(self, devices: Sequence[int], host: HostSample) -> None:
        """ECC events from zero at our start; of devices that are no hardware there are none.

        A device whose counts are not known now keeps its sums, and is compared with what was last seen of it later.
        """
        if isinstance(host.ecc, str):
            return
        found: Mapping[int, tuple[int, ...] | str]
        found = dict.fromkeys(devices, (0,) * len(ECC)) if host.ecc is None else host.ecc
        for device, counts in found.items():
            if isinstance(counts, str):
                continue
            sums, seen = self._ecc.setdefault(device, [0] * len(ECC)), self._ecc_seen.get(device, counts)
            for i, (old, new) in enumerate(zip(seen, counts, strict=True)):
                sums[i] += grown(old, new)
            self._ecc_seen[device] = counts

    # --- Labels

    def _choose(self, owner: Owner) -> tuple[str, ...]:
        if not self._identities:
            return ()
        identity = self._identities.of(owner)
        return tuple(getattr(identity, name) for name in self.choices)

    def _instance_labels(self) -> dict[str, str]:
        known = self._instance.group()
        return {name: known.get(_NAMES.get(name, name), "") for name in INSTANCE_LABELS}


def _rss_of(host: HostSample) -> dict[int, int]:
    return {pid: use.rss_bytes for pid, use in host.processes.items() if isinstance(use, ProcessUse)}


def _history(window_s: float) -> History:
    """What findings go by: some minutes, and in any case several windows."""
    return History(
        dense_s=max(30, 3 * window_s),
        sparse_s=max(20, window_s),
        longest_s=max(320, 10 * window_s),
        most_rows=MOST_ROWS,
    )
