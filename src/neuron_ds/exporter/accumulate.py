"""What is kept from look to look: each process's last words, each runtime's totals, the window that gauges are over.

An Accumulator is shown every Sample and told when a window ends. Executions and errors add up by runtime from zero at
its start; a process that came counts from its own zero, and a runtime ends with its last process. This module knows no
family, no text and no clock but that of the Samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from neuron_ds import layout
from neuron_ds.categories import DEVICE_MEMORY, ERROR_TYPES, STATUS_TYPES
from neuron_ds.collect import DeviceSample, Key, ProcessSample, Sample
from neuron_ds.driver import DeviceProperties, Owner
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.exporter.kept import Kept
from neuron_ds.exporter.text import clean
from neuron_ds.rates import came_after, grown, utilization
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, RecordState, Snapshot

#: Tag, and whatever else was chosen to tell runtimes apart.
RuntimeKey = tuple[str, ...]
Words = tuple[tuple[int, ...], ...]

_TIME_IN_USE = layout.NC_BY_NAME["time_in_use"].index
_STATUS, _ERRORS = (tuple(c.index for c in types.values()) for types in (STATUS_TYPES, ERROR_TYPES))
_COUNTED = _STATUS + _ERRORS
_HOST_MEMORY = tuple(c.index for c in layout.ND if c.kind == layout.GAUGE)
_DEVICE_GAUGES = tuple(c.index for c in layout.NC if c.kind == layout.GAUGE)
_SHOWN_STATES = tuple(state for state in RecordState if state != RecordState.ABSENT)
#: Of one process and window at most about so many latencies are kept: percentiles of more say nothing else.
MOST_LATENCIES = 1 << 16
#: A gauge of this or more went below zero.
_UNDERFLOW = 1 << 63


def gauge(value: int) -> int:
    """A memory gauge, 0 where it went below zero."""
    return 0 if value >= _UNDERFLOW else value


class Followed:
    """One process's use of one slab, from look to look."""

    __slots__ = (
        "_from_ns",
        "_from_us",
        "_latencies",
        "_pending",
        "_shares",
        "_time_ns",
        "cores",
        "counted",
        "labels",
        "logical_config",
        "nd",
        "owner",
        "readable",
        "versions",
        "words",
    )

    def __init__(
        self, owner: Owner, properties: DeviceProperties | None, words: Words, since: Words, since_ns: int
    ) -> None:
        """``words``: what growth is counted from. ``since``, ``since_ns``: the beginning of its first window."""
        self.owner = owner
        self.cores = len(words)
        self.logical_config = (properties.logical_config if properties else None) or 1
        self.words = words
        self.nd: tuple[int, ...] = ()
        self.versions: tuple[str, str, str] = ("", "", "")
        self.labels: RuntimeKey = ()
        self.readable = True
        self.counted = [0] * len(_COUNTED)
        self._time_ns = self._from_ns = since_ns
        self._from_us = tuple(core[_TIME_IN_USE] for core in since)
        self._shares: tuple[float, ...] | None = None
        self._pending: list[int] = []
        self._latencies: Sequence[int] | None = None

    def reshape(self, words: Words, properties: DeviceProperties | None) -> None:
        """More or fewer cores are to be read: more is known of the device, or it is another.

        Those it had count on, those that come count from now.
        """
        self.logical_config = (properties.logical_config if properties else None) or 1
        if len(words) != self.cores:
            self.cores = len(words)
            self.words = _fitted(self.words, words)
            self._from_us = tuple(core[_TIME_IN_USE] for core in self.words)
            self._from_ns, self._shares = self._time_ns, None

    def read(self, words: Words, snapshot: Snapshot, latencies_us: Sequence[int], time_ns: int) -> list[int]:
        """Take a look's words in; by how much each of the counted counters grew."""
        changed = [(old, new) for old, new in zip(self.words, words, strict=True) if old != new]
        growth = [sum(grown(old[i], new[i]) for old, new in changed) for i in _COUNTED]
        self.counted = [a + b for a, b in zip(self.counted, growth, strict=True)]
        self.words, self.nd = words, snapshot.nd_counters
        if len(self._pending) < MOST_LATENCIES:
            self._pending.extend(latencies_us)
        self._time_ns = snapshot.time_ns or time_ns
        self.readable = True
        return growth

    def end_window(self) -> None:
        """What the gauges are over ends here, and the next begins."""
        self._shares, self._latencies = self._shares_now(), self._pending
        self._pending = []
        self._from_us, self._from_ns = tuple(core[_TIME_IN_USE] for core in self.words), self._time_ns

    def _shares_now(self) -> tuple[float, ...]:
        period_s = (self._time_ns - self._from_ns) / 1e9
        return tuple(
            utilization(grown(before, core[_TIME_IN_USE]), period_s)
            for before, core in zip(self._from_us, self.words, strict=True)
        )

    def utilization(self) -> list[float]:
        """By logical core, over the last window; over what has passed of the first one until that ends."""
        shares, n = self._shares if self._shares is not None else self._shares_now(), self.logical_config
        return [sum(shares[i : i + n]) / len(shares[i : i + n]) for i in range(0, len(shares), n)]

    def latencies_us(self) -> Sequence[int]:
        """Those of the same time as the utilization."""
        return self._pending if self._latencies is None else self._latencies

    def core_memory(self, what: str) -> list[int]:
        """Bytes by logical core."""
        index, n = DEVICE_MEMORY[what].index, self.logical_config
        physical = [gauge(core[index]) for core in self.words]
        return [sum(physical[i : i + n]) for i in range(0, len(physical), n)]

    def host_bytes(self) -> int:
        """What the slab says of host memory."""
        return sum(gauge(self.nd[i]) for i in _HOST_MEMORY)

    def underflows(self) -> int:
        """How many gauges went below zero."""
        in_cores = sum(core[i] >= _UNDERFLOW for core in self.words for i in _DEVICE_GAUGES)
        return in_cores + sum(self.nd[i] >= _UNDERFLOW for i in _HOST_MEMORY)


class Runtime:
    """All processes of one tag, and what they counted since it appeared; those that left included."""

    __slots__ = ("counted", "key", "members", "since_ns")

    def __init__(self, key: RuntimeKey, since_ns: int) -> None:
        """``since_ns``: when it wasn't there yet; what it counted, it counted since."""
        self.key, self.since_ns = key, since_ns
        self.counted = [0] * len(_COUNTED)
        self.members: dict[Key, Followed] = {}

    def status(self) -> list[int]:
        """In the order of STATUS_TYPES."""
        return self.counted[: len(_STATUS)]

    def errors(self) -> list[int]:
        """In the order of ERROR_TYPES."""
        return self.counted[len(_STATUS) :]

    def readable(self) -> list[Followed]:
        return [f for f in self.members.values() if f.readable]


class Accumulator:
    """Everything that is kept between looks."""

    def __init__(
        self, choose: Callable[[Owner], tuple[str, ...]] = lambda owner: (), *, driver_forgets: bool = False
    ) -> None:
        """``choose`` gives what tells runtimes apart beside the tag; it may come to know more of a process.
        ``driver_forgets``: its totals may lose what ended processes counted."""
        self._choose = choose
        self._kept: dict[int, Kept] | None = {} if driver_forgets else None
        self._unread: set[Key] = set()
        self._hidden: dict[Key, Words] = {}  # counted up to here, by processes of devices that are not there
        self._looked_at: set[int] = set()  # devices, in the last look
        self._first_ns: int | None = None
        self._last_ns: int | None = None
        self._from_ns = 0
        self.properties: dict[int, DeviceProperties | None] = {}  #: as last known of the devices that are there
        self.followed: dict[Key, Followed] = {}
        self.runtimes: dict[RuntimeKey, Runtime] = {}
        self.record_reads: dict[tuple[int, RecordState], int] = {}
        self.slab_errors: dict[int, int] = {}
        self.latencies_dropped = 0

    def look(self, sample: Sample) -> None:
        """Take a Sample in."""
        present = {p.key: (p, d.properties) for d in sample.devices for p in d.processes if _lives(p)}
        listed = {d.device for d in sample.devices if d.properties is not None}
        if not sample.error:
            self.properties = sample.properties
        for key, followed in list(self.followed.items()):
            if key in present:
                continue
            blind = bool(sample.error) or (key[0] not in listed and any(key[0] == d.device for d in sample.devices))
            if blind and not _gone(followed.owner):
                followed.readable = False  # what it holds now isn't known, which is not 0
                continue
            self._leave(key)
            if key[0] not in listed and not _gone(followed.owner):  # with its device: both may come back
                self._hidden[key] = followed.words
        for key in [key for key in self._hidden if key[0] in listed and key not in present]:
            del self._hidden[key]
        for device in sample.devices:
            self.slab_errors[device.device] = self.slab_errors.get(device.device, 0) + bool(device.error)
            for state in _SHOWN_STATES:
                self.record_reads.setdefault((device.device, state), 0)
        for key, (process, properties) in present.items():
            if process.snapshot is None:
                self._unreadable(key, process)
            else:
                self._read(key, process, process.snapshot, properties, sample.time_ns)
        if self._kept is not None:
            for device in sample.devices:
                if device.totals:
                    self._kept.setdefault(device.device, Kept()).look(device.totals)
        self._unread &= present.keys()
        self._looked_at = {d.device for d in sample.devices if d.properties or not d.error}
        if self._first_ns is None:
            self._first_ns = self._from_ns = sample.time_ns
        self._last_ns = sample.time_ns

    def end_window(self) -> float:
        """Gauges are from now on over the time since the last call; how long that was, in seconds."""
        for followed in self.followed.values():
            followed.end_window()
        now_ns = self._last_ns or 0
        length_s, self._from_ns = (now_ns - self._from_ns) / 1e9, now_ns
        return length_s

    def totals(self, device: DeviceSample) -> DeviceTotals | None:
        """What all processes of a device ever counted, as far as anybody knows."""
        kept = self._kept.get(device.device) if self._kept is not None else None
        return kept.with_kept(device.totals) if kept and device.totals else device.totals

    def of_device(self, device: int) -> Iterator[Followed]:
        """The readable processes of a device."""
        return (f for f in self.followed.values() if f.readable and f.owner.device == device)

    def _unreadable(self, key: Key, process: ProcessSample) -> None:
        if _gone(process.owner):
            self._leave(key)
            return
        self.slab_errors[process.owner.device] += 1
        if key in self.followed:
            self.followed[key].readable = False
        else:
            self._unread.add(key)

    def _read(
        self, key: Key, process: ProcessSample, snapshot: Snapshot, properties: DeviceProperties | None, now_ns: int
    ) -> None:
        cores = properties.slab_cores if properties else layout.MAX_CORES
        words = tuple(snapshot.nc_counters(core) for core in range(cores))
        followed = self.followed.get(key)
        if followed is not None:
            followed.reshape(words, properties)
        else:
            zeros = ((0,) * layout.NC_COUNTERS,) * cores
            since, since_ns = words, snapshot.time_ns or now_ns
            if self._came_after(self._from_ns, process, now_ns):
                since, since_ns = zeros, self._from_ns
            before = zeros if self._came_after(self._first_ns, process, now_ns) else words
            if key in self._hidden:  # it was counted already, up to here
                before = since = _fitted(self._hidden.pop(key), words)
                since_ns = snapshot.time_ns or now_ns
            followed = Followed(process.owner, properties, before, since, since_ns)
            self.followed[key] = followed
            self._unread.discard(key)
        runtime = self._runtime_of(key, followed, snapshot, now_ns if self._last_ns is None else self._last_ns)
        growth = followed.read(words, snapshot, process.latencies.total_us, now_ns)
        runtime.counted = [a + b for a, b in zip(runtime.counted, growth, strict=True)]
        self.latencies_dropped += process.latencies.dropped
        states = snapshot._verified()  # one byte each: counted here without a value made of each
        for state in _SHOWN_STATES:
            self.record_reads[process.owner.device, state] += states.count(state)

    def _came_after(self, since_ns: int | None, process: ProcessSample, now_ns: int) -> bool:
        """Whether a process that is read for the first time came after a moment, rather than out of hiding."""
        if self._first_ns is None or since_ns is None:
            return False
        owner = process.owner
        seen = owner.device in self._looked_at and process.key not in self._unread
        return came_after(owner, since_ns, now_ns, seen=seen)

    def _runtime_of(self, key: Key, followed: Followed, snapshot: Snapshot, since_ns: int) -> Runtime:
        """The runtime a process belongs to now; one that changes its tag takes along what it counted."""
        states = snapshot.state(RECORD_PROCESS_INFO), snapshot.state(RECORD_PROCESS_INFO_EXT)
        if followed.labels and RecordState.TORN in states:
            return self.runtimes[followed.labels]  # its tag can't be read: what it was called before stands
        chosen = map(clean, self._choose(followed.owner))
        labels = (clean(snapshot.tag or str(followed.owner.pid)), *chosen)
        followed.versions = _versions(snapshot)
        if labels != followed.labels:
            self._drop(key, followed.labels)
            followed.labels = labels
            runtime = self.runtimes.setdefault(labels, Runtime(labels, since_ns))
            runtime.members[key] = followed
            runtime.counted = [a + b for a, b in zip(runtime.counted, followed.counted, strict=True)]
        return self.runtimes[labels]

    def _leave(self, key: Key) -> None:
        followed = self.followed.pop(key, None)
        if followed is not None:
            self._drop(key, followed.labels)

    def _drop(self, key: Key, labels: RuntimeKey) -> None:
        runtime = self.runtimes.get(labels)
        if runtime is not None:
            runtime.members.pop(key, None)
            if not runtime.members:
                del self.runtimes[labels]


def _fitted(before: Words, now: Words) -> Words:
    """What the cores of now held before; those that were not read then count from now."""
    return before[: len(now)] + now[len(before) :]


def _lives(process: ProcessSample) -> bool:
    return process.owner.alive is not False and process.owner.state == "owned"


def _gone(owner: Owner) -> bool:
    """Whether it is sure that the process is gone."""
    return not owner.foreign and not os.path.exists(f"/proc/{owner.pid}")


def _versions(snapshot: Snapshot) -> tuple[str, str, str]:
    """Of runtime, framework and framework abstraction layer."""
    info = snapshot.process_info
    if info is None:
        return str(snapshot.runtime_version or ""), "", ""
    return str(snapshot.runtime_version or ""), str(info.framework_version), str(info.fal_version)
