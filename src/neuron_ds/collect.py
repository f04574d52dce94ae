"""One pass over all slabs gives one Sample: every device and process at one moment, immutable.

A Collector keeps its readers attached between passes and its memory in an arena; a LatencySampler looks at the cores in
between. What cannot be read says so in its own place and fails nobody else. This module knows no period, no rate and no
format of output.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from neuron_ds import _core
from neuron_ds.datastore import ArenaPool, Reader, attach, snapshot_all
from neuron_ds.driver import DeviceProperties, Driver, Owner, get_driver
from neuron_ds.driver.clock import clock_of
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.errors import NeuronDSError, ProducerGone, SystemFailure
from neuron_ds.snapshot import Snapshot

#: What tells one producer's use of a slab from every other: device, slot, generation, pid, directory.
Key = tuple[int, int | None, int | None, int, str | None]
#: What tells one process, with all its slabs, from every other: pid, root, whether it is foreign, what else there is.
Process = tuple[int, str, bool, int | str | None]
#: Why a slab can't be read: in words, and the name of the error's class.
_Why = tuple[str, str]
#: What the native sampler kept of a slab: pairs of total and device latencies, and how many were dropped.
_Kept = tuple[bytes, int]

#: Ends of uses that are remembered: more processes than a device lets in over days.
_MOST_USES = 4096
#: What a pass may run out of, and what helps; it passes by itself where somebody gives something back.
_LACKS = {
    errno.EMFILE: "raise the limit of open files (ulimit -n, LimitNOFILE=)",
    errno.ENFILE: "the host has no descriptor left; raise fs.file-max",
    errno.ENOMEM: "free memory, or raise the limit of it or vm.max_map_count",
}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of one process since the last Sample, one pair after each completion that was seen.

    total_us, device_us: in the order of the looks, cores mixed. dropped: completions seen for which there was no room.
    """

    total_us: tuple[int, ...] = ()
    device_us: tuple[int, ...] = ()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One producer in a Sample. ``snapshot`` is None where ``error`` says why it could not be read.

    error_kind: the name of the error's class, "" where there was none (a dead producer is no error).
    """

    owner: Owner
    snapshot: Snapshot | None
    error: str
    latencies: Latencies = Latencies()
    error_kind: str = ""

    @property
    def key(self) -> Key:
        return key_of(self.owner)


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One device in a Sample. ``totals`` is None, or the lists are short, where ``error`` says why.

    slots_used: places taken, also by the dead; on real hardware by whoever has the device open, publishing or not.
    """

    device: int
    properties: DeviceProperties | None
    processes: tuple[ProcessSample, ...]
    totals: DeviceTotals | None
    slots_used: int
    error: str


@dataclass(frozen=True, slots=True)
class Sample:
    """All devices at one moment. ``time_ns`` is CLOCK_MONOTONIC at the end of the pass; ``error``: no device at all.

    known: what was found out earlier of devices that can't be looked at now.
    """

    time_ns: int
    devices: tuple[DeviceSample, ...]
    error: str
    known: Mapping[int, DeviceProperties] = field(default_factory=dict, repr=False)

    @property
    def processes(self) -> tuple[ProcessSample, ...]:
        return tuple(p for d in self.devices for p in d.processes)

    @property
    def properties(self) -> dict[int, DeviceProperties | None]:
        """What each device is, as far as was ever found out: so that cores keep their numbers."""
        return {d.device: d.properties or self.known.get(d.device) for d in self.devices}


def key_of(owner: Owner) -> Key:
    return owner.device, owner.slot, owner.generation, owner.pid, owner.path


def process_of(owner: Owner, tag: str | None = None) -> Process:
    """The process that has a slab, the same for all slabs of one.

    Of another pid namespace's processes the pid alone says little: two containers may both have a process 1. Where the
    driver doesn't know the namespace, the tag of the slab takes its place.
    """
    where = os.path.dirname(owner.path or "")
    if not owner.foreign:
        return owner.pid, where, False, None
    return owner.pid, where, True, tag if owner.namespace is None else owner.namespace


class _Uses:
    """Uses of slabs where the driver tells neither slot nor generation: whoever gave a slab back and publishes again is
    another producer, though device and pid are the same."""

    def __init__(self) -> None:
        self._ended: dict[tuple[int, int], int] = {}
        self._owning: dict[int, set[int]] = {}

    def listed(self, device: int, owners: Sequence[Owner]) -> list[Owner]:
        """The owners of a device with the number of their use, of those that had one before."""
        owning = {o.pid for o in owners if o.slot is None and o.state == "owned"}
        for pid in self._owning.get(device, set()) - owning:
            self.end(device, pid)
        self._owning[device] = owning
        return [
            o if o.slot is not None or ended is None else replace(o, generation=ended)
            for o in owners
            for ended in (self._ended.get((device, o.pid)),)
        ]

    def end(self, device: int, pid: int) -> None:
        """One has ended."""
        self._ended[device, pid] = self._ended.pop((device, pid), 0) + 1
        if len(self._ended) > _MOST_USES:
            del self._ended[next(iter(self._ended))]


class Collector:
    """Passes over all slabs. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, driver: Driver | None = None, *, totals: bool = True, verify: bool = True) -> None:
        """With ``totals`` device totals are read too; ``verify`` as in ``Reader.snapshot``."""
        self._driver = driver or get_driver()
        self._clock = clock_of(self._driver)
        self._totals, self._verify = totals, verify
        self._readers: dict[Key, Reader] = {}
        self._numbers: list[int] = []
        self._uses = _Uses()
        self._known: dict[int, DeviceProperties] = {}
        self._pool = ArenaPool()
        self.sampler: LatencySampler | None = None

    def collect(self) -> Sample:
        """One pass. Raises nothing of ours nor of the system's: what went wrong stands in the Sample.

        Where descriptors or memory are lacking, the devices of the pass before are looked at as far as that goes.
        """
        with self._clock.held():
            return self._pass()

    def _pass(self) -> Sample:
        error, lacking = "", ""
        try:
            self._numbers = self._driver.devices()
        except (OSError, MemoryError) as e:
            error = _told(e, "listing the devices")
            if self._numbers and _is_lack(e):
                error, lacking = "", error
            else:
                self._numbers = []
        if not error:
            self._known = {device: p for device, p in self._known.items() if device in self._numbers}
        listed = [self._list(device) for device in self._numbers]
        owners = [owner for _, _, found, _ in listed for owner in found]
        errors = self._attach(owners)
        latencies = self.sampler.take() if self.sampler else {}
        seen = self._read([key for owner in owners if (key := key_of(owner)) in self._readers], errors)
        devices = tuple(
            DeviceSample(
                device,
                properties,
                tuple(self._process(owner, seen, errors, latencies) for owner in found if owner.state != "attached"),
                *self._totals_of(device, len(found), problem, lacking),
            )
            for device, properties, found, problem in listed
        )
        for key, shot in seen.items():
            if isinstance(shot, NeuronDSError):
                self._readers.pop(key).close()
            if isinstance(shot, ProducerGone) and key[1] is None:
                self._uses.end(key[0], key[3])
        if self.sampler:
            with suppress(OSError, MemoryError):  # what it looks at already it goes on to look at
                self.sampler.watch(self._readers)
        return Sample(self._clock.moment_ns() or time.monotonic_ns(), devices, error, dict(self._known))

    def _list(self, device: int) -> tuple[int, DeviceProperties | None, list[Owner], str]:
        try:
            found = self._uses.listed(device, self._driver.owners(device))
            properties = self._known[device] = self._driver.properties(device)
            return device, properties, found, ""
        except (OSError, MemoryError) as e:
            return device, None, [], _told(e, f"device {device}")

    def _read(self, keys: Sequence[Key], errors: dict[Key, _Why]) -> dict[Key, Snapshot | NeuronDSError]:
        """Snapshots of these slabs; into ``errors`` why there are none at all."""
        try:
            shots = snapshot_all([self._readers[key] for key in keys], self._pool, verify=self._verify) if keys else []
        except (OSError, MemoryError) as e:
            errors |= dict.fromkeys(keys, (_told(e, "reading the slabs"), type(e).__name__))
            return {}
        return dict(zip(keys, shots, strict=True))

    def _attach(self, owners: Sequence[Owner]) -> dict[Key, _Why]:
        """Attach to who is new, detach from who is gone; why where it did not work."""
        errors: dict[Key, _Why] = {}
        current = {key_of(owner) for owner in owners if owner.alive is not False and owner.state == "owned"}
        for key in [key for key in self._readers if key not in current]:
            self._readers.pop(key).close()
        for owner in owners:
            key = key_of(owner)
            if key in current and key not in self._readers:
                try:
                    self._readers[key] = attach(
                        owner.pid, owner.device, slot=owner.slot, path=owner.path, driver=self._driver
                    )
                except (OSError, MemoryError) as e:
                    errors[key] = _told(e, f"device {owner.device}, pid {owner.pid}"), type(e).__name__
        return errors

    @staticmethod
    def _process(
        owner: Owner,
        seen: dict[Key, Snapshot | NeuronDSError],
        errors: dict[Key, _Why],
        latencies: dict[Key, Latencies],
    ) -> ProcessSample:
        key = key_of(owner)
        shot = seen.get(key)
        if isinstance(shot, Snapshot):
            return ProcessSample(owner, shot, "", latencies.get(key, Latencies()))
        if isinstance(shot, NeuronDSError):
            return ProcessSample(owner, None, _told(shot, ""), error_kind=type(shot).__name__)
        dead = "its producer died; the next publish recovers the slot" if owner.alive is False else owner.state
        error, kind = errors.get(key, (dead, ""))
        return ProcessSample(owner, None, error, error_kind=kind)

    def _totals_of(self, device: int, used: int, problem: str, lacking: str) -> tuple[DeviceTotals | None, int, str]:
        if problem:
            return None, 0, problem
        if not self._totals:
            return None, used, lacking
        try:
            return self._driver.totals(device), used, lacking
        except (OSError, MemoryError) as e:
            return None, used, _told(e, f"device {device}")

    def close(self) -> None:
        """Stop the sampler and detach from everything."""
        if self.sampler:
            self.sampler.close()
            self.sampler = None
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_lack(e: OSError | MemoryError) -> bool:
    return isinstance(e, MemoryError) or e.errno in _LACKS


def _told(e: OSError | MemoryError, doing: str) -> str:
    """An error in words that end in what to do; ``doing`` is for those that don't say what it was about."""
    if isinstance(e, MemoryError):
        return f"{doing}: out of memory; {_LACKS[errno.ENOMEM]}"
    if isinstance(e, NeuronDSError) and not isinstance(e, SystemFailure):
        return str(e)
    text = str(e) if isinstance(e, NeuronDSError) else f"{doing}: {e.strerror or e}"
    return f"{text}; {_LACKS[e.errno]}" if e.errno in _LACKS else text


class LatencySampler:
    """A thread that looks at the cores of a Collector's readers many times a second, all slabs in one call.

    The runtime stores the latencies of the last execution only; a sample is kept whenever a core completed something
    since the look before. ``rate_hz``: 100 by default, up to 1000. ``busy_s`` is what it has cost in processor time.
    """

    def __init__(self, collector: Collector, rate_hz: float = 100.0) -> None:
        self._period = 1.0 / rate_hz
        self._lock = threading.Lock()
        self._keys: tuple[Key, ...] = ()
        self._native = _core.sampler((), ())
        self._carried: dict[Key, _Kept] = {}  # from an earlier native sampler, of those that this one looks at too
        # To be had once this ends. A lock and no Event: to wait for an Event takes a third more of a processor.
        self._ended = threading.Lock()
        self._ended.acquire()
        self.busy_s = 0.0
        self._thread = threading.Thread(target=self._run, name="neuron-ds-sampler", daemon=True)
        collector.sampler = self
        self._thread.start()

    def _run(self) -> None:
        due, wait = time.monotonic(), 0.0
        while not self._ended.acquire(timeout=wait):
            with self._lock:
                self._native.look()
            due += self._period
            now = time.monotonic()
            due = max(due, now)  # too late: the looks that were missed are not made up for
            wait = due - now
        self.busy_s = time.thread_time()

    def watch(self, readers: dict[Key, Reader]) -> None:
        """Look at these from now on. What was kept for those that stay is part of the next take."""
        keys = tuple(readers)
        if keys == self._keys:
            return
        native = _core.sampler(
            tuple(reader._lease.mapping for reader in readers.values()),
            tuple(reader.properties.slab_cores for reader in readers.values()),
        )
        with self._lock:
            kept = self._take()
            native.look()
            self._keys, self._native = keys, native
            self._carried = {key: kept[key] for key in keys if key in kept}

    def take(self) -> dict[Key, Latencies]:
        """What was kept since the last take, a last look included, so that nothing that completed before is told of the
        next. Whoever takes must find the slab still its producer's, or drop it."""
        with self._lock:
            kept = self._take()
        found = {}
        for key, (data, dropped) in kept.items():
            words = memoryview(data).cast("Q")
            found[key] = Latencies(tuple(words[0::2]), tuple(words[1::2]), dropped)
        return found

    def _take(self) -> dict[Key, _Kept]:
        """As ``take``, raw; for who holds the lock."""
        self._native.look()
        kept = dict(zip(self._keys, self._native.take(), strict=True))
        for key, (earlier, dropped) in self._carried.items():
            data, more = kept[key]
            kept[key] = earlier + data, dropped + more
        self._carried = {}
        return kept

    def close(self) -> None:
        with suppress(RuntimeError):  # it has been told already
            self._ended.release()
        self._thread.join()
