"""Steps as a trace: counter tracks for every core, slices for models and processes, instants for errors.

A rate is drawn from the look at which its period began, as viewers hold a value until the next one; a value that
stays isn't told again. Rates are the figures of the live pictures. How a trace is spelled is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from neuron_ds import layout
from neuron_ds.collect import Key, Process, ProcessSample, process_of
from neuron_ds.diagnose.looks import Look, ProcessLook, Row, look_at
from neuron_ds.diagnose.measures import who
from neuron_ds.export.steps import Step, earlier_rows
from neuron_ds.export.tracefile import TraceSink
from neuron_ds.layout import NC_BY_NAME
from neuron_ds.live import figures
from neuron_ds.rates import utilization
from neuron_ds.records import ModelNode, printable
from neuron_ds.snapshot import Snapshot

#: Above what Linux gives a process: for tracks that no process of the trace may share its pid with.
_OWN_PIDS = 1 << 22
_LATENCY = NC_BY_NAME["latency_total"].index


@dataclass(slots=True)
class _Model:
    """A model while it is loaded."""

    raw: bytes
    core: int
    lane: int


@dataclass(slots=True)
class _Slab:
    """What is open of one slab."""

    process: int
    life: int
    models: dict[int, _Model] = field(default_factory=dict)  #: by model slot
    seen: bytes = b""  #: the model records as they were last decoded
    cores: set[int] = field(default_factory=set)
    dead: bool = False


class Trace:
    """Takes one Step after the other and tells a TraceSink."""

    def __init__(self, sink: TraceSink) -> None:
        self._sink = sink
        self._processes: dict[tuple[Process, str], int] = {}
        self._pids: set[int] = set()
        self._slabs: dict[Key, _Slab] = {}
        self._tracks: dict[tuple[int, str], int] = {}
        self._shown: dict[int, int | float] = {}
        self._look: Look | None = None
        self._recording = sink.track(sink.process(_OWN_PIDS, "the recording"), "ticks")

    def add(self, step: Step) -> None:
        """One more Step."""
        before, look = self._look, look_at(step.sample, self._look)
        now_ns = look.time_ns
        for start_ns, end_ns in step.gaps:
            self._sink.begin(self._recording, start_ns, "no ticks", {"seconds": round((end_ns - start_ns) / 1e9, 6)})
            self._sink.end(self._recording, end_ns)
        if step.late:
            args = {"late": step.late, "worst_us": step.worst_us, "missed": step.missed}
            self._sink.instant(self._recording, now_ns, "late ticks", args)
        for time_ns, mark in step.marks:
            self._sink.instant(self._recording, time_ns, mark, {})
        for key in self._slabs.keys() - look.processes.keys():
            self._leave(key, self._slabs.pop(key), now_ns)
        samples = {p.key: p for p in step.sample.processes}
        for key, process in look.processes.items():
            slab = self._slabs.get(key)
            if slab is None:
                slab = self._slabs[key] = self._come(process, now_ns)
            earlier = earlier_rows(before, process, now_ns)
            if before is not None and earlier is not None and process.readable:
                self._rates(slab, earlier, process, before.time_ns)
            if process.readable:
                self._gauges(slab, process, now_ns)
            self._models(slab, samples[key], now_ns)
            if process.dead and not slab.dead:
                slab.dead = True
                self._sink.instant(slab.life, now_ns, "died", {"pid": process.owner.pid})
                self._still(slab, key, now_ns)
        self._look = look

    def finish(self) -> None:
        """End what is open, at the last Step."""
        if self._look is not None:
            for key, slab in self._slabs.items():
                self._leave(key, slab, self._look.time_ns)
        self._slabs.clear()

    # --- processes

    def _come(self, process: ProcessLook, now_ns: int) -> _Slab:
        owner, name = process.owner, who(process)
        key = process_of(owner, process.tag), name
        number = self._processes.get(key)
        if number is None:
            pid = owner.pid if owner.pid not in self._pids else _OWN_PIDS + 1 + len(self._processes)
            self._pids.add(pid)
            number = self._processes[key] = self._sink.process(pid, name)
        slot = "" if owner.slot is None else f" slot {owner.slot}"
        life = self._track(number, f"device {owner.device}{slot}")
        self._sink.begin(life, now_ns, "publishes", {"pid": owner.pid, "tag": printable(process.tag)})
        return _Slab(number, life)

    def _leave(self, key: Key, slab: _Slab, now_ns: int) -> None:
        for model in slab.models.values():
            self._sink.end(self._lane(slab, key[0], model.core, model.lane), now_ns)
        slab.models.clear()
        self._sink.end(slab.life, now_ns)
        self._still(slab, key, now_ns)

    def _still(self, slab: _Slab, key: Key, now_ns: int) -> None:
        """From now on nothing is counted: what was last drawn must not go on."""
        for core in slab.cores:
            for name, unit in (("utilization", "%"), ("executions", "1/s"), ("failures", "1/s"), ("memory", "bytes")):
                self._count(slab.process, f"device {key[0]} core {core} {name}", unit, now_ns, 0)
        if slab.cores:
            self._count(slab.process, f"device {key[0]} host memory", "bytes", now_ns, 0)

    def _track(self, process: int, name: str) -> int:
        track = self._tracks.get((process, name))
        if track is None:
            track = self._tracks[process, name] = self._sink.track(process, name)
        return track

    # --- counters

    def _count(self, process: int, name: str, unit: str, time_ns: int, value: int | float) -> None:
        counter = self._tracks.get((process, name))
        if counter is None:
            counter = self._tracks[process, name] = self._sink.counter(process, name, unit)
        if self._shown.get(counter) != value:
            self._shown[counter] = value
            self._sink.count(counter, time_ns, value)

    def _rates(self, slab: _Slab, before: Mapping[int, Row], now: ProcessLook, then_ns: int) -> None:
        """What happened on each core since the look before."""
        if now.time_ns <= then_ns:
            return
        period_s = (now.time_ns - then_ns) / 1e9
        for core, row in now.rows.items():
            old = before.get(core, figures.ZEROS)
            work, place = figures.work(old, row), f"device {now.owner.device} core {core}"
            busy = round(100 * utilization(work.busy_us, period_s), 3)
            self._count(slab.process, f"{place} utilization", "%", then_ns, busy)
            self._count(slab.process, f"{place} executions", "1/s", then_ns, round(work.executions / period_s, 3))
            self._count(slab.process, f"{place} failures", "1/s", then_ns, round(work.failures / period_s, 3))
            if work.executions:  # else the last values are those of before
                self._count(slab.process, f"{place} latency", "us", now.time_ns, row[_LATENCY])
            for counter, by in figures.troubles(old, row):
                errors = self._track(slab.process, f"{place} errors")
                self._sink.instant(errors, now.time_ns, counter.name, {"errors": by, "core": core})

    def _gauges(self, slab: _Slab, now: ProcessLook, now_ns: int) -> None:
        for core, row in now.rows.items():
            slab.cores.add(core)
            place = f"device {now.owner.device} core {core}"
            self._count(slab.process, f"{place} memory", "bytes", now_ns, sum(figures.device_memory(row)))
        if slab.cores:
            host = sum(figures.host_memory(now.host_bytes))
            self._count(slab.process, f"device {now.owner.device} host memory", "bytes", now_ns, host)

    # --- models

    def _models(self, slab: _Slab, process: ProcessSample, now_ns: int) -> None:
        snapshot = process.snapshot
        if snapshot is None:
            return
        seen = bytes(snapshot.raw[layout.MODEL_BITMAP.offset : layout.MODELS.end])
        if seen == slab.seen:
            return
        slab.seen = seen
        device, found = process.owner.device, snapshot.models
        for slot in [s for s, m in slab.models.items() if s not in found or _identity(found[s]) != m.raw]:
            if slot not in found and not _is_free(snapshot, slot):
                continue  # torn at this moment: not known to be gone
            model = slab.models.pop(slot)
            self._sink.end(self._lane(slab, device, model.core, model.lane), now_ns)
        for slot, node in found.items():
            if slot not in slab.models:
                core = node.nc_index
                taken = {m.lane for m in slab.models.values() if m.core == core}
                lane = next(n for n in range(layout.MAX_MODELS) if n not in taken)
                slab.models[slot] = _Model(_identity(node), core, lane)
                name = printable(node.name) or f"model {node.model_id}"
                args = {"core": core, "slot": slot, "model_id": node.model_id, "subgraph": node.sg_index}
                self._sink.begin(self._lane(slab, device, core, lane), now_ns, name, args)

    def _lane(self, slab: _Slab, device: int, core: int, lane: int) -> int:
        """Slices of one track may not overlap, so that each model of a core has a track of its own."""
        more = f" ({lane + 1})" if lane else ""
        return self._track(slab.process, f"device {device} core {core} models{more}")


def _identity(node: ModelNode) -> bytes:
    """What makes it the same model, whatever memory it uses."""
    values: Mapping[str, object] = {"id": node.model_id, "node": node.model_node_id, "core": node.nc_index}
    return repr((values, node.name, node.uuid, node.sg_index)).encode()


def _is_free(snapshot: Snapshot, slot: int) -> bool:
    return not snapshot.model_bitmap >> slot & 1


def write_trace(steps: Iterable[Step], sink: TraceSink) -> None:
    """Write all Steps."""
    trace = Trace(sink)
    for step in steps:
        trace.add(step)
    trace.finish()
    sink.close()
