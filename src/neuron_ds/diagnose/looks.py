"""A Look: what of a Sample is worth keeping for a while, small enough that a window of minutes fits in memory.

A Sample holds the bytes of every slab; a Look holds the named counters of the cores that are in use, the memory of the
host and what was odd. Rules, the screen and the web page are functions of Looks. This module knows no rule, no clock
and no output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from neuron_ds import _core, layout
from neuron_ds.collect import Key, Latencies, ProcessSample, Sample
from neuron_ds.driver import Owner
from neuron_ds.records import Version
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, Snapshot

#: The named counters of a core: a row of a Look has them, by index.
NAMED = sum(c.kind != layout.RESERVED for c in layout.NC)
HOST_MEMORY = tuple(c.index for c in layout.ND if c.kind == layout.GAUGE)
#: One physical core of one process: its counters 0 to NAMED - 1.
Row = tuple[int, ...]
_T = TypeVar("_T")
#: In ``ProcessLook.odd`` where counters stand in both places where an extension can be, which no runtime does.
EXTENSION = "extension counters"
#: How many latencies of a process a Look that is not the newest keeps.
SOME_LATENCIES = 16

_IDLE: Row = (0,) * NAMED
_RECORD_NAMES = {RECORD_PROCESS_INFO: "process info", RECORD_PROCESS_INFO_EXT: "process info extension"}
_NO_LATENCIES = Latencies()
_NOTHING_ODD: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """One producer's slab. error: why it could not be read; the rest is then as at the last good look, or empty.

    error_kind: the name of the error's class, "" for the dead and the readable. rows: by physical core, those where
    anything was ever counted. host_bytes: by HOST_MEMORY's order. models: how many are loaded, by physical core. odd:
    records that were torn or stale, by name, and EXTENSION. latencies: since the last look. time_ns: when it was
    copied. said: the bytes that tag and version were read from.
    """

    owner: Owner
    tag: str
    error: str
    time_ns: int
    rows: Mapping[int, Row] = field(default_factory=dict)
    host_bytes: tuple[int, ...] = ()
    models: Mapping[int, int] = field(default_factory=dict)
    runtime_version: Version | None = None
    odd: Mapping[str, str] = field(default_factory=dict)
    latencies: Latencies = _NO_LATENCIES
    error_kind: str = ""
    said: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def key(self) -> Key:
        o = self.owner
        return o.device, o.slot, o.generation, o.pid, o.path

    @property
    def readable(self) -> bool:
        return not self.error

    @property
    def dead(self) -> bool:
        """Its producer is gone without giving the slab back."""
        return self.owner.alive is False


@dataclass(frozen=True, slots=True)
class DeviceLook:
    """One device: what it has, and how full. None where it is not known."""

    device: int
    type: str | None
    cores: int | None
    logical_config: int | None
    memory_bytes: int | None
    slots_used: int
    error: str


@dataclass(frozen=True, slots=True)
class Look:
    """All devices and processes at one moment; time_ns is the monotonic clock's, as in the Sample.

    dead: the keys of the processes that are dead.
    """

    time_ns: int
    devices: Mapping[int, DeviceLook]
    processes: Mapping[Key, ProcessLook]
    error: str = ""
    dead: tuple[Key, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dead = tuple([key for key, p in self.processes.items() if p.owner.alive is False])
        object.__setattr__(self, "dead", dead)


def look_at(sample: Sample, before: Look | None = None, *, latencies: bool = True) -> Look:
    """The Look of a Sample. What is as in the one before is shared with it, not copied.

    latencies: whether to keep those that were sampled, which may be thousands.
    """
    earlier = before.processes if before else {}
    return Look(
        sample.time_ns,
        {
            d.device: DeviceLook(
                d.device,
                d.properties.type if d.properties else None,
                d.properties.cores if d.properties else None,
                d.properties.logical_config if d.properties else None,
                d.properties.memory_bytes if d.properties else None,
                d.slots_used,
                d.error,
            )
            for d in sample.devices
        },
        {p.key: _process(p, earlier.get(p.key), sample.time_ns, latencies) for p in sample.processes},
        sample.error,
    )


def slimmed(look: Look) -> Look:
    """The look with no more latencies of a process than SOME_LATENCIES, evenly chosen: for keeping."""
    slim: dict[Key, ProcessLook] = {}
    for key, p in look.processes.items():
        total_us, n = p.latencies.total_us, len(p.latencies.total_us)
        if n > SOME_LATENCIES:
            some = tuple([total_us[i * n // SOME_LATENCIES] for i in range(SOME_LATENCIES)])
            slim[key] = replace(p, latencies=Latencies(some, (), p.latencies.dropped))
    return replace(look, processes={**look.processes, **slim}) if slim else look


def _process(process: ProcessSample, before: ProcessLook | None, time_ns: int, latencies: bool) -> ProcessLook:
    snapshot, owner = process.snapshot, process.owner
    if snapshot is None:
        return _unreadable(process, before, time_ns)
    said: tuple[bytes, ...] = snapshot.said
    if before is not None and before.said == said:
        tag, version, said = before.tag, before.runtime_version, before.said
    else:
        tag, version = snapshot.tag or "", snapshot.runtime_version
    older = before or _NEVER
    nd = snapshot.nd_counters
    host = tuple([nd[i] for i in HOST_MEMORY])
    return ProcessLook(
        owner,
        tag,
        "",
        snapshot.time_ns or time_ns,
        _rows(snapshot, older.rows),
        older.host_bytes if host == older.host_bytes else host,
        _same(snapshot.models_by_core(), older.models),
        version,
        _odd(snapshot),
        process.latencies if latencies else _NO_LATENCIES,
        "",
        said,
    )


def _unreadable(process: ProcessSample, before: ProcessLook | None, time_ns: int) -> ProcessLook:
    error = process.error or "could not be read"
    if before is None:
        return ProcessLook(process.owner, "", error, time_ns, error_kind=process.error_kind)
    return ProcessLook(
        process.owner,
        before.tag,
        error,
        before.time_ns,
        before.rows,
        before.host_bytes,
        before.models,
        before.runtime_version,
        before.odd,
        _NO_LATENCIES,
        process.error_kind,
        before.said,
    )


_NEVER = ProcessLook(Owner(0, None, 0, None), "", "", 0)


def _same(now: Mapping[int, _T], before: Mapping[int, _T]) -> Mapping[int, _T]:
    """The one of before where nothing has changed."""
    return before if now == before else now


def _rows(snapshot: Snapshot, before: Mapping[int, Row]) -> Mapping[int, Row]:
    """The rows of the cores in use; one that did not change is the very one of before, and so are all together."""
    if snapshot.layout != "older":
        return _core.used_rows(snapshot.raw, NAMED, before if isinstance(before, dict) else dict(before))
    rows: dict[int, Row] = {}
    for core in range(layout.MAX_CORES):
        row = snapshot.nc_counters(core)[:NAMED]
        if row != _IDLE:
            rows[core] = before[core] if before.get(core) == row else row
    return _same(rows, before)


def _odd(snapshot: Snapshot) -> Mapping[str, str]:
    odd = {_RECORD_NAMES.get(r, f"model slot {r}"): s.name.lower() for r, s in snapshot.torn.items()}
    if snapshot.layout == "mixed":
        odd[EXTENSION] = "mixed"
    return odd or _NOTHING_ODD
