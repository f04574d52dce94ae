"""A Frame: everything that one picture of the devices shows, as immutable values; terminal and web page draw it.

Cores are logical ones, as users count them: utilization is the mean of the physical cores they are made of, everything
else their sum. None means that it is not known (yet), which is not 0. This module computes nothing and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from neuron_ds.collect import Key, Sample
from neuron_ds.diagnose.finding import Finding
from neuron_ds.diagnose.looks import Look

EventKind = Literal["came", "left", "died", "error", "began", "cleared"]
CellState = Literal["unknown", "idle", "loaded", "busy", "slow", "hung"]
#: Kinds of device memory and of host memory (``categories``), in the order of neuron-top.
DEVICE_MEMORY = ("tensors", "constants", "model_code", "runtime_memory", "model_shared_scratchpad")
HOST_MEMORY = ("tensors", "constants", "dma_buffers", "application_memory")


class Cell(NamedTuple):
    """One logical core: of one process, or of all together. Rates are per second over the last period.

    core: logical, within the device. physical: the cores it is made of. utilization: 0 to 1. errors_s: failed
    executions and failed calls. memory: device memory in bytes by DEVICE_MEMORY.
    """

    device: int
    core: int
    physical: tuple[int, ...]
    state: CellState = "unknown"
    utilization: float | None = None
    flops_s: float | None = None
    executions_s: float | None = None
    errors_s: float | None = None
    memory: tuple[int, ...] = (0,) * len(DEVICE_MEMORY)

    @property
    def memory_bytes(self) -> int:
        return sum(self.memory)


class SlabFrame(NamedTuple):
    """One slab of a process. error: why it can't be read, "" if it can; the rest is then as it was last seen."""

    key: Key
    device: int
    slot: int | None
    error: str
    cells: tuple[Cell, ...]  #: the cores that it uses or ever used
    host_memory: tuple[int, ...]  #: bytes, by HOST_MEMORY, without what only the resident memory tells
    models: int  #: how many are loaded


class ProcessFrame(NamedTuple):
    """One process with its slabs. Latencies in microseconds, of the executions seen since the last frame.

    state: "dead" is one that ended without giving its slab back, "unreadable" one none of whose slabs can be read.
    vcpu_user, vcpu_system: share of all processors of the host, 0 to 1. host_memory: as HOST_MEMORY, what the resident
    memory tells included. id: stays the same from frame to frame.
    """

    id: str
    pid: int
    foreign: bool
    tag: str
    state: Literal["running", "dead", "unreadable"]
    error: str
    slabs: tuple[SlabFrame, ...]
    executions_s: float | None
    errors_s: float | None
    errors: int  #: failed executions and calls since its start
    utilization: float | None  #: mean over the cores it uses
    flops_s: float | None
    latency_p50_us: int | None
    latency_p99_us: int | None
    device_memory: tuple[int, ...]
    host_memory: tuple[int, ...]
    vcpu_user: float | None
    vcpu_system: float | None
    runtime_version: str
    executions_history: Sequence[float | None] = ()
    latency_history: Sequence[float | None] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for slab in self.slabs for cell in slab.cells)

    @property
    def models(self) -> int:
        return sum(slab.models for slab in self.slabs)


@dataclass(frozen=True, slots=True)
class DeviceFrame:
    """One device: every core it has, whoever uses it. error: why it, or a part of it, could not be read."""

    device: int
    type: str
    cells: tuple[Cell, ...]
    memory_total_bytes: int | None
    memory: tuple[int, ...]
    host_memory: tuple[int, ...]
    slots_used: int
    error: str
    utilization_history: tuple[Sequence[float | None], ...] = ()  #: by cell

    @property
    def utilization(self) -> float | None:
        known = [c.utilization for c in self.cells if c.utilization is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class HostFrame:
    """The host. Shares 0 to 1 over the last look at it; None where it could not be looked at."""

    vcpus: int | None
    user: float | None
    system: float | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened between two frames. wall_s: seconds since the epoch. kind: "error" is an error counter
    that moved, by ``count``; "began" and "cleared" are findings."""

    number: int  #: grows by one
    wall_s: float
    kind: EventKind
    text: str
    pid: int | None = None
    tag: str = ""
    device: int | None = None
    core: int | None = None  #: logical
    counter: str = ""
    count: int = 0
    severity: str = ""
    process: str = ""  #: id of the ProcessFrame


@dataclass(frozen=True, slots=True)
class Frame:
    """One moment. period_s: what the rates are over, None for the first. empty: why there is nothing to see, or ""."""

    time_ns: int
    wall_s: float
    period_s: float | None
    devices: tuple[DeviceFrame, ...]
    processes: tuple[ProcessFrame, ...]
    host: HostFrame
    events: tuple[Event, ...]  #: the newest last; some hundred are kept
    findings: tuple[Finding, ...]
    empty: str
    error: str
    sample: Sample = field(repr=False)
    look: Look = field(repr=False)
    earlier: Look | None = field(repr=False, default=None)

    def process(self, id: str) -> ProcessFrame | None:
        """The process of that id, None if it has left."""
        return next((p for p in self.processes if p.id == id), None)

    def concerns(self, finding: Finding, process: ProcessFrame) -> bool:
        """Whether a finding is of this process: pids are not enough where pid namespaces meet."""
        if finding.pid != process.pid:
            return False
        return finding.slot is None or any((s.device, s.slot) == (finding.device, finding.slot) for s in process.slabs)

    @property
    def by_device(self) -> Mapping[int, DeviceFrame]:
        return {d.device: d for d in self.devices}
