"""Runtimes and their metric groups: two Samples become the entries of ``neuron_runtime_data``.

A runtime is a process with all its slabs, one per device. These are pure functions of what was collected; where a slab
or a value cannot be trusted, the group says so in its ``error`` and goes on. No clock, no driver and no encoding here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from neuron_ds.categories import COMPLETIONS, DEVICE_MEMORY, ERROR_TYPES, HOST_MEMORY, STATUS_TYPES
from neuron_ds.collect import Key, Process, ProcessSample, Sample, process_of
from neuron_ds.layout import MAX_MODELS, NC_BY_NAME, CounterDef
from neuron_ds.monitor.models import loaded_models
from neuron_ds.monitor.sums import MAX_INTEGER, Sum
from neuron_ds.numbering import Numbering
from neuron_ds.rates import ProcessDelta, grown, percentiles, utilization
from neuron_ds.records import printable
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, RecordState

Group = dict[str, object]
#: Total and device latencies of a process in microseconds.
Pooled = tuple[Sequence[int], Sequence[int]]

_BUSY, _MACS = NC_BY_NAME["time_in_use"].index, NC_BY_NAME["mac_count"].index
_COMPLETIONS = tuple(c.index for c in COMPLETIONS)


@dataclass(slots=True)
class Slab:
    """One slab of a runtime with what happened in it: by physical core, all counters before and after."""

    process: ProcessSample
    delta: ProcessDelta | None
    rows: list[tuple[Sequence[int], Sequence[int]]]
    active: list[int] = field(init=False)  #: the physical cores where something changed at all

    def __post_init__(self) -> None:
        self.active = [core for core, (before, after) in enumerate(self.rows) if before != after]

    @property
    def device(self) -> int:
        return self.process.owner.device

    def growth(self, core: int, counters: Iterable[int]) -> int:
        """By how much these counters of a physical core grew together."""
        before, after = self.rows[core]
        return sum(grown(before[c], after[c]) for c in counters)


@dataclass(slots=True)
class Runtime:
    """A process with its slabs. error: what could not be read of it at all. period_s: the time since the last look."""

    process: Process
    pid: int
    foreign: bool
    tag: str
    error: str
    period_s: float
    slabs: list[Slab] = field(default_factory=list)

    def group(self, errors: Iterable[str] = ()) -> Group:
        """The beginning of a group made from its slabs."""
        unread = [self.error] if any(s.delta is None for s in self.slabs) else []
        return {"period": self.period_s, "error": printable("; ".join([*unread, *errors]))}


def runtimes(sample: Sample, deltas: Mapping[Key, ProcessDelta], elapsed_s: float, numbers: Numbering) -> list[Runtime]:
    """The living runtimes of a Sample. A slab that a dead process left, or that is being released, is none."""
    found: dict[Process, list[ProcessSample]] = {}
    for p in sample.processes:
        if p.owner.alive is not False and p.owner.state == "owned":
            found.setdefault(process_of(p.owner, p.snapshot.tag if p.snapshot else None), []).append(p)
    return [_runtime(process, ps, deltas, elapsed_s, numbers) for process, ps in found.items()]


def _runtime(
    process: Process,
    processes: Sequence[ProcessSample],
    deltas: Mapping[Key, ProcessDelta],
    elapsed_s: float,
    numbers: Numbering,
) -> Runtime:
    owner = processes[0].owner
    tags, errors, slabs, periods = [], [], [], []
    for p in processes:
        delta = deltas.get(p.key)
        if p.snapshot is None or delta is None:
            errors.append(p.error if p.error.startswith("device ") else f"device {p.owner.device}: {p.error}")
            slabs.append(Slab(p, None, []))
            continue
        slabs.append(Slab(p, delta, [delta.nc_rows(core) for core in range(numbers.of(p.owner.device).physical)]))
        periods.append(delta.period_s)
        tags.append(p.snapshot.tag)
        for record, name in ((RECORD_PROCESS_INFO, "process info"), (RECORD_PROCESS_INFO_EXT, "process info ext")):
            if p.snapshot.state(record) == RecordState.TORN:
                errors.append(f"device {p.owner.device}: {name} is torn")
    tag = next((t for t in tags if t and t != str(owner.pid)), str(owner.pid))
    period_s = max(0.0, periods[0] if periods else elapsed_s)
    return Runtime(process, owner.pid, owner.foreign, printable(tag), printable("; ".join(errors)), period_s, slabs)


# --- Groups -----------------------------------------------------------------------------------------------------------


def idle_cores(numbers: Numbering) -> dict[str, Group]:
    """Every core of the instance as one that did nothing, in the order of their numbers."""
    found: dict[str, Group] = {}
    for device in sorted(numbers.devices):
        cores = numbers.devices[device]
        for core, key in enumerate(cores.keys):
            found[key] = _core([(0.0, 0) for _ in cores.halves(core)], 0.0)
            if cores.config > 1:
                found[key]["v3d"] = {cores.half_key(p): {"neuroncore_utilization": 0.0} for p in cores.halves(core)}
    return found


def _core(halves: Sequence[tuple[float, int]], period_s: float) -> Group:
    """A core from (percent, multiply-accumulates) of its physical cores: mean utilization, sum of operations."""
    operations = 2 * sum(macs for _, macs in halves)
    flops = min(round(operations / period_s), MAX_INTEGER) if period_s > 0 else 0
    percent = sum(percent for percent, _ in halves) / len(halves) if halves else 0.0
    return {"neuroncore_utilization": percent, "flops": flops, "effective_flops": flops}


def neuroncore_counters(runtime: Runtime, numbers: Numbering, idle: Mapping[str, object]) -> Group:
    """The group: every core of the instance, those of other devices idle."""
    in_use = dict(idle)
    spent: dict[str, dict[int, tuple[float, int]]] = {}  # percent and operations, by core and physical core
    for slab in runtime.slabs:
        if slab.delta is None:
            continue
        cores, period_s = numbers.of(slab.device), slab.delta.period_s
        for core, key in enumerate(cores.keys):
            halves = cores.halves(core)
            if not any(slab.rows[physical][0] != slab.rows[physical][1] for physical in halves):
                continue
            here = spent.setdefault(key, {})
            for physical in halves:
                before, after = slab.rows[physical]
                busy_us, macs = grown(before[_BUSY], after[_BUSY]), grown(before[_MACS], after[_MACS])
                percent, macs_before = here.get(physical, (0.0, 0))
                here[physical] = min(100.0, percent + 100.0 * utilization(busy_us, period_s)), macs_before + macs
            entry = _core(list(here.values()), period_s)
            if cores.config > 1:
                entry["v3d"] = {
                    cores.half_key(physical): {"neuroncore_utilization": percent}
                    for physical, (percent, _) in here.items()
                }
            in_use[key] = entry
    return runtime.group() | {"neuroncores_in_use": in_use}


def execution_stats(runtime: Runtime, latencies: Pooled) -> Group:
    """The group: what ended in the period, and latencies of what was seen to complete."""

    def sums(counters: Mapping[str, CounterDef]) -> dict[str, int]:
        return {
            name: min(sum(s.growth(core, (c.index,)) for s in runtime.slabs for core in s.active), MAX_INTEGER)
            for name, c in counters.items()
        }

    total_us, device_us = latencies
    return runtime.group() | {
        "error_summary": sums(ERROR_TYPES),
        "execution_summary": sums(STATUS_TYPES),
        "latency_stats": {"total_latency": _seconds(total_us), "device_latency": _seconds(device_us)},
    }


def _seconds(values_us: Sequence[int]) -> dict[str, float] | None:
    found = percentiles(values_us)
    return None if found is None else {f"p{p}": value / 1e6 for p, value in found.items()}


def memory_used(runtime: Runtime, numbers: Numbering, rss_bytes: int | str, *, models: bool) -> Group:
    """The group. rss_bytes: resident memory of the process, or why it is not known."""
    errors: list[str] = [] if isinstance(rss_bytes, int) else [f"no resident memory: {rss_bytes}"]
    host, device = Sum(errors), Sum(errors)
    on_host = dict.fromkeys(HOST_MEMORY, 0)
    on_cores: dict[str, dict[str, int]] = {}
    for slab in runtime.slabs:
        if slab.process.snapshot is None or slab.delta is None:
            continue
        for name, counters in HOST_MEMORY.items():
            for counter in counters:
                where = f"device {slab.device}"
                on_host[name] += host.take(slab.process.snapshot.nd(counter.index), where, counter.name)
        for key, used in _core_memory(slab, numbers, device).items():
            before = on_cores.get(key, {})
            on_cores[key] = {what: size + before.get(what, 0) for what, size in used.items()}
    if isinstance(rss_bytes, int):
        on_host["application_memory"] += host.fill(rss_bytes)
    sums = {
        "host": host.total,
        "neuron_device": device.total,
        "usage_breakdown": {"host": on_host, "neuroncore_memory_usage": on_cores},
    }
    group: Group = {"neuron_runtime_used_bytes": sums}
    if models:
        group["loaded_models"] = _models(runtime, numbers, errors)
    return runtime.group(errors) | group


def _core_memory(slab: Slab, numbers: Numbering, total: Sum) -> dict[str, dict[str, int]]:
    cores = numbers.of(slab.device)
    found = {}
    for core, key in enumerate(cores.keys):
        used = dict.fromkeys(DEVICE_MEMORY, 0)
        for physical in cores.halves(core):
            after = slab.rows[physical][1]
            for name, counter in DEVICE_MEMORY.items():
                if value := after[counter.index]:
                    used[name] += total.take(value, f"device {slab.device} core {physical}", counter.name)
        found[key] = used
    return found


def _models(runtime: Runtime, numbers: Numbering, errors: list[str]) -> list[Group]:
    nodes = []
    for slab in runtime.slabs:
        snapshot = slab.process.snapshot
        if snapshot is None or not snapshot.model_bitmap:
            continue
        for number in range(MAX_MODELS):
            if snapshot.state(number) == RecordState.TORN:
                errors.append(f"device {slab.device}: model slot {number} is torn")
        config = numbers.of(slab.device).config
        running = {core for core in slab.active if slab.growth(core, _COMPLETIONS)}
        for number, node in snapshot.models.items():
            nodes.append((slab.device, config, number, node, node.nc_index in running))
    return loaded_models(nodes, errors)
