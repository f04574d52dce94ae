"""What only a detail screen shows, decoded from a Frame when somebody asks: models, all counters, who a process is.

Pure functions of a Frame, but for ``process_details``, which also asks /proc who the process is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from neuron_ds import layout
from neuron_ds.collect import Key, ProcessSample
from neuron_ds.diagnose.looks import NAMED, ProcessLook
from neuron_ds.identity import Identity, identify
from neuron_ds.layout import CounterDef
from neuron_ds.live.figures import ZEROS
from neuron_ds.live.frame import Cell, Frame, SlabFrame
from neuron_ds.rates import grown
from neuron_ds.records import ModelNode, printable
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, Snapshot

_HOST, _DEVICE = 0, 1


@dataclass(frozen=True, slots=True)
class Node:
    """A line of the memory tree, in bytes; a parent is the sum of its children. key: stays from frame to frame."""

    key: str
    label: str
    device_bytes: int
    host_bytes: int
    children: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class CounterLine:
    """One counter with its value and, where it only grows and there was a look before, its growth per second.

    process: the id of the process it is of. physical: the core it is of, None for a device's or a sum over cores.
    """

    process: str
    name: str
    unit: str
    kind: str
    help: str
    physical: int | None
    value: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class ModelLine:
    """One model record. core: logical."""

    device: int
    core: int
    slot: int
    name: str
    model_id: int
    node_id: int
    subgraph: int
    host_bytes: int
    device_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessDetails:
    """All there is to say of a process. records: those that could not be read exactly, and how they were read."""

    id: str
    pid: int
    tag: str
    state: str
    error: str
    identity: Identity
    versions: Mapping[str, str]
    records: Mapping[str, str]
    slabs: tuple[SlabFrame, ...]
    counters: tuple[CounterLine, ...]
    models: tuple[ModelLine, ...]


# --- Memory -----------------------------------------------------------------------------------------------------------


def memory_tree(frame: Frame, process_id: str | None = None) -> tuple[Node, ...]:
    """Device, then core, then model with its id and what belongs to none; of all processes, or of one."""
    samples = {p.key: p for p in frame.sample.processes}
    wanted = None if process_id is None else frame.process(process_id)
    if process_id is not None and wanted is None:
        return ()
    chosen = (wanted,) if wanted else frame.processes
    slabs = [slab for process in chosen for slab in process.slabs]
    nodes = []
    for device in frame.devices:
        here = [slab for slab in slabs if slab.device == device.device]
        cores = [
            node for cell in device.cells if (node := _core_node(cell, here, samples)).children or process_id is None
        ]
        in_models = sum(node.host_bytes for node in cores)
        on_host = sum(sum(slab.host_memory) for slab in here)
        rest = Node(f"{device.device}/host", "host memory of no model", 0, max(0, on_host - in_models))
        children = (*cores, rest) if rest.host_bytes else tuple(cores)
        if here or process_id is None:
            nodes.append(_parent(f"{device.device}", f"ND{device.device}", children))
    return tuple(nodes)


def _core_node(cell: Cell, slabs: Sequence[SlabFrame], samples: Mapping[Key, ProcessSample]) -> Node:
    used, models = 0, []
    for slab in slabs:
        mine = next((c for c in slab.cells if c.core == cell.core), None)
        if mine is None:
            continue
        used += mine.memory_bytes
        models += [
            Node(
                f"{slab.device}/{cell.core}/{slab.slot}.{slab.key[3]}/{slot}",
                f"{printable(model.name) or 'model'} (id {model.model_id})",
                _bytes(model, _DEVICE),
                _bytes(model, _HOST),
            )
            for slot, model in _models(samples.get(slab.key))
            if model.nc_index in cell.physical
        ]
    rest = max(0, used - sum(node.device_bytes for node in models))
    children = (*models, Node(f"{cell.device}/{cell.core}/rest", "no model", rest, 0)) if rest else tuple(models)
    return _parent(f"{cell.device}/{cell.core}", f"NC{cell.core}", children)


def _parent(key: str, label: str, children: tuple[Node, ...]) -> Node:
    return Node(key, label, sum(c.device_bytes for c in children), sum(c.host_bytes for c in children), children)


def _models(process: ProcessSample | None) -> Iterator[tuple[int, ModelNode]]:
    snapshot = process.snapshot if process else None
    if snapshot is not None and snapshot.model_bitmap:
        yield from snapshot.models.items()


def _bytes(model: ModelNode, location: int) -> int:
    """What a record says that a model takes; a size that can't be is 0."""
    return sum(size for size, _ in model.mem_usage[location] if size < 1 << 63)


# --- Counters ---------------------------------------------------------------------------------------------------------


def core_counters(frame: Frame, device: int, core: int, process_id: str | None = None) -> tuple[CounterLine, ...]:
    """All 95 counters of each physical core of a logical one, for each process that uses it; reserved ones where they
    are not 0."""
    samples = {p.key: p for p in frame.sample.processes}
    lines = []
    for process in frame.processes:
        if process_id not in (None, process.id):
            continue
        for slab in process.slabs:
            cell = next((c for c in slab.cells if slab.device == device and c.core == core), None)
            sample = samples.get(slab.key)
            if cell is None or sample is None or sample.snapshot is None:
                continue
            _, before, period_s = _looks(frame, slab.key)
            for physical in cell.physical:
                values = sample.snapshot.nc_counters(physical) if physical < layout.MAX_CORES else ()
                old = before.rows.get(physical, ZEROS) if before else ZEROS
                for counter, value in zip(layout.NC, values, strict=False):
                    if counter.kind != layout.RESERVED or value:
                        rate = _rate(counter, old, value, period_s)
                        lines.append(_line(process.id, counter, physical, value, rate))
    return tuple(lines)


def _looks(frame: Frame, key: Key) -> tuple[ProcessLook | None, ProcessLook | None, float | None]:
    """A slab now and a look before, and the seconds in between; None where there is nothing to compare with."""
    now = frame.look.processes.get(key)
    if now is None or now.error or frame.earlier is None:
        return now, None, None
    before = frame.earlier.processes.get(key)
    begun_ns = before.time_ns if before else frame.earlier.time_ns
    return now, before, (now.time_ns - begun_ns) / 1e9 if now.time_ns > begun_ns else None


def _rate(counter: CounterDef, old: Sequence[int], value: int, period_s: float | None) -> float | None:
    if counter.kind != layout.COUNTER or not period_s or counter.index >= NAMED:
        return None
    return grown(old[counter.index], value) / period_s


def _line(process: str, c: CounterDef, physical: int | None, value: int, rate: float | None) -> CounterLine:
    return CounterLine(process, c.name, c.unit, c.kind, c.help, physical, value, rate)


# --- One process ------------------------------------------------------------------------------------------------------


def process_details(frame: Frame, id: str) -> ProcessDetails | None:
    """All there is to say of a process; None if it has left."""
    process = frame.process(id)
    if process is None:
        return None
    samples = {p.key: p for p in frame.sample.processes}
    shots = [(slab, s.snapshot) for slab in process.slabs if (s := samples.get(slab.key)) and s.snapshot is not None]
    configs = {cell.device: len(cell.physical) for device in frame.devices for cell in device.cells}
    models = [
        ModelLine(
            slab.device,
            model.nc_index // configs.get(slab.device, 1),
            slot,
            printable(model.name),
            model.model_id,
            model.model_node_id,
            model.sg_index,
            _bytes(model, _HOST),
            _bytes(model, _DEVICE),
        )
        for slab, shot in shots
        if shot.model_bitmap
        for slot, model in shot.models.items()
    ]
    return ProcessDetails(
        id,
        process.pid,
        process.tag,
        process.state,
        process.error,
        (None if process.foreign else identify(process.pid)) or Identity(),
        dict(_versions([shot for _, shot in shots])),
        {
            f"device {slab.device} {name}": state
            for slab in process.slabs
            if (look := frame.look.processes.get(slab.key))
            for name, state in look.odd.items()
        },
        process.slabs,
        tuple(_sums(frame, id, shots)),
        tuple(models),
    )


def _versions(shots: Sequence[Snapshot]) -> Iterator[tuple[str, str]]:
    for shot in shots[:1]:
        if shot.runtime_version:
            yield "runtime", str(shot.runtime_version)
        info = shot.process_info
        if info is not None:
            yield "framework", f"{info.framework_version} (type {info.framework_type})"
            yield "fal", str(info.fal_version)
        elif shot.state(RECORD_PROCESS_INFO).has_value is False:
            yield "framework", shot.state(RECORD_PROCESS_INFO).name.lower()
        if shot.process_info_ext is None:
            yield "long tag", shot.state(RECORD_PROCESS_INFO_EXT).name.lower()


def _sums(frame: Frame, id: str, shots: Sequence[tuple[SlabFrame, Snapshot]]) -> Iterator[CounterLine]:
    """Its core counters, summed over cores; last values have no sum and are left out. Then those of its devices."""
    rows = []
    for slab, _ in shots:
        now, before, period_s = _looks(frame, slab.key)
        if now is not None:
            rows += [(row, before.rows.get(c, ZEROS) if before else ZEROS, period_s) for c, row in now.rows.items()]
    for counter in layout.NC[:NAMED]:
        if counter.kind not in (layout.COUNTER, layout.GAUGE):
            continue
        i = counter.index
        value = sum(row[i] for row, _, _ in rows if counter.kind == layout.COUNTER or row[i] < 1 << 63)
        rates = [grown(old[i], row[i]) / s for row, old, s in rows if s] if counter.kind == layout.COUNTER else []
        yield _line(id, counter, None, value, sum(rates) if rates else None)
    for counter in layout.ND:
        values = [shot.nd(counter.index) for _, shot in shots]
        if counter.kind == layout.GAUGE:
            yield _line(id, counter, None, sum(v for v in values if v < 1 << 63), None)
        elif any(values) and counter.kind in (layout.BITMAP, layout.RESERVED):
            yield _line(id, counter, None, values[0], None)


__all__ = [
    "CounterLine",
    "ModelLine",
    "Node",
    "ProcessDetails",
    "core_counters",
    "memory_tree",
    "process_details",
]
