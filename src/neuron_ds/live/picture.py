"""Live: looks through a Source and makes one Frame after the other, with rates, histories, events and findings.

It keeps what a picture needs from one look to the next and nothing more. Nothing is drawn here, and nothing is decoded
that not every picture shows: see ``details`` for the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from neuron_ds.collect import Key, Process, Sample, process_of
from neuron_ds.diagnose import Finding, Watcher
from neuron_ds.diagnose.looks import Look, ProcessLook, look_at
from neuron_ds.host import HostSample, ProcessUse
from neuron_ds.live import figures
from neuron_ds.live.cells import Part, cell_of, parts_of, period_of
from neuron_ds.live.frame import (
    DEVICE_MEMORY,
    HOST_MEMORY,
    Cell,
    DeviceFrame,
    Frame,
    HostFrame,
    ProcessFrame,
    SlabFrame,
)
from neuron_ds.live.history import History, Past
from neuron_ds.live.journal import Journal
from neuron_ds.live.source import Source
from neuron_ds.monitor.system import process_vcpu_usage, vcpu_usage
from neuron_ds.numbering import DeviceCores, numbering
from neuron_ds.rates import percentiles
from neuron_ds.records import printable

#: With more slabs than this, rules are asked no more often than every so many seconds: they take longer than the rest.
FEW_SLABS = 64
RULES_S = 2.5
#: While there is nothing to see, how long a reason stands before it is asked for again.
REASON_S = 5.0

Marks = Mapping[int, Sequence[Finding]]
_CoresOf = Callable[[int], DeviceCores]


class Live:
    """Frames of one Source. Not for several threads at once; close it, or use it as a context manager."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._watcher = Watcher()
        self._journal = Journal()
        self._last: Look | None = None
        self._looks, self._judged_ns = 0, 0
        self._hosts: tuple[HostSample | None, HostSample | None] = (None, None)
        self._vcpus: dict[int, tuple[float, float]] = {}
        self._ids: dict[Process, str] = {}
        self._cells: dict[tuple[int, int], History] = {}
        self._rates: dict[str, tuple[History, History]] = {}
        self._errors: dict[str, tuple[list[Key], int]] = {}
        self._reason, self._reason_at = "", float("-inf")

    @property
    def title(self) -> str:
        return self.source.title

    def frame(self) -> Frame:
        """Look once. Raises nothing of ours: what can't be read says so in its place."""
        sample, host = self.source.look()
        wall_s = self.source.wall_s(sample.time_ns)
        before = self._last
        if before is not None and sample.time_ns < before.time_ns:
            before = None  # a recording was rewound: nothing to compare with
        look = look_at(sample, before)
        cores = numbering(sample.properties)
        if not self._watcher.judged and before is not None and before.processes.keys() - look.processes.keys():
            _, began, cleared = self._watcher.judge()  # or nothing would ever be said of who has left
            self._journal.findings(began, cleared, wall_s, cores.of)
        findings, began, cleared = self._watcher.add(look, judge=self._rules_due(look))
        self._last = look
        if host is not self._hosts[1]:
            self._hosts = self._hosts[1], host
            self._vcpus.clear()
        marks = _marks(findings)
        parts: dict[Key, dict[int, Part]] = {}
        for key, process in look.processes.items():
            shape = cores.of(process.owner.device)
            parts[key] = parts_of(process, _earlier(before, key), period_of(before, look, process), shape)
        devices = tuple(self._devices(sample, look, before, parts, cores.of, marks))
        processes = tuple(self._processes(look, before, parts, cores.of, marks))
        names = {key: p for p in processes for key in (slab.key for slab in p.slabs)}
        troubled = {
            key: found for key, mine in parts.items() if (found := [c for p in mine.values() for c in p.troubled])
        }
        self._journal.compare(before, look, names, troubled, cores.of, wall_s)
        self._journal.findings(began, cleared, wall_s, cores.of)
        return Frame(
            time_ns=look.time_ns,
            wall_s=wall_s,
            period_s=None if before is None else (look.time_ns - before.time_ns) / 1e9,
            devices=devices,
            processes=processes,
            host=_host(*self._hosts),
            events=self._journal.events,
            findings=tuple(findings),
            empty=self._why_empty(bool(devices and processes)),
            error=sample.error,
            sample=sample,
            look=look,
            earlier=before,
        )

    def _rules_due(self, look: Look) -> bool:
        """Whether the rules are asked about this look: of many slabs always about the first two, which may be all."""
        self._looks += 1
        since_ns = look.time_ns - self._judged_ns
        due = len(look.processes) <= FEW_SLABS or self._looks <= 2 or not 0 <= since_ns < RULES_S * 1e9
        if due:
            self._judged_ns = look.time_ns
        return due

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- devices and processes

    def _devices(
        self,
        sample: Sample,
        look: Look,
        before: Look | None,
        parts: Mapping[Key, Mapping[int, Part]],
        cores: _CoresOf,
        marks: Marks,
    ) -> Iterator[DeviceFrame]:
        by_device: dict[int, list[ProcessLook]] = {}
        for p in look.processes.values():
            by_device.setdefault(p.owner.device, []).append(p)
        for d in sample.devices:
            shape, here = cores(d.device), by_device.get(d.device, [])
            numbers = sorted({*range(len(shape.keys)), *(core for p in here for core in parts[p.key])})
            known = before is not None and not d.error
            cells = tuple(
                cell_of(
                    shape,
                    core,
                    [part for p in here if (part := parts[p.key].get(core))],
                    marks.get(d.device, ()),
                    known,
                )
                for core in numbers
            )
            yield DeviceFrame(
                device=d.device,
                type=(d.properties.type or "") if d.properties else "",
                cells=cells,
                memory_total_bytes=d.properties.memory_bytes if d.properties else None,
                memory=figures.sums([c.memory for c in cells], len(DEVICE_MEMORY)),
                host_memory=figures.sums([figures.host_memory(p.host_bytes) for p in here], len(HOST_MEMORY)),
                slots_used=d.slots_used,
                error=d.error,
                utilization_history=tuple(self._cell_history(cell) for cell in cells),
            )

    def _cell_history(self, cell: Cell) -> Past:
        key = cell.device, cell.core
        history = self._cells.get(key)
        if history is None:
            history = self._cells[key] = History()
        return history.add(cell.utilization)

    def _processes(
        self,
        look: Look,
        before: Look | None,
        parts: Mapping[Key, Mapping[int, Part]],
        cores: _CoresOf,
        marks: Marks,
    ) -> Iterator[ProcessFrame]:
        groups: dict[Process, list[ProcessLook]] = {}
        for p in look.processes.values():
            groups.setdefault(process_of(p.owner, p.tag), []).append(p)
        self._name(groups)
        for identity, slabs in groups.items():
            yield self._process(self._ids[identity], slabs, parts, cores, marks, before is not None)
        for gone in self._rates.keys() - {self._ids[identity] for identity in groups}:
            del self._rates[gone]
            self._errors.pop(gone, None)

    def _name(self, groups: Collection[Process]) -> None:
        """Give each process an id that it keeps: its pid, and a number behind it where that is or was another's."""
        remembered = self._journal.ids
        self._ids = {p: id for p, id in self._ids.items() if p in groups or id in remembered}
        taken = set(self._ids.values())
        for process in groups:
            if process not in self._ids:
                pid, n = str(process[0]), 2
                name = pid
                while name in taken:
                    name, n = f"{pid}~{n}", n + 1
                self._ids[process] = name
                taken.add(name)

    def _process(
        self,
        id: str,
        slabs: Sequence[ProcessLook],
        parts: Mapping[Key, Mapping[int, Part]],
        cores: _CoresOf,
        marks: Marks,
        compared: bool,
    ) -> ProcessFrame:
        """One process. This is run for every one at every look, so it goes over its slabs and their parts once."""
        owner = slabs[0].owner
        frames: list[SlabFrame] = []
        used: list[Part] = []
        tag, version = "", None
        errors: list[str] = []
        latencies: list[int] = []
        physical, readable, dead = 0, False, False
        for p in slabs:
            mine = parts[p.key]
            device, slot = p.owner.device, p.owner.slot
            shape = cores(device)
            findings = marks.get(device, ()) and [
                f for f in marks[device] if f.pid in (None, owner.pid) and f.slot in (None, slot)
            ]
            cells = tuple([cell_of(shape, core, [part], findings, p.readable) for core, part in mine.items()])
            for cell in cells:
                if cell.utilization is not None:
                    physical += len(cell.physical)
            used += mine.values()
            models = sum(p.models.values()) if p.models else 0
            frames.append(SlabFrame(p.key, device, slot, p.error, cells, figures.host_memory(p.host_bytes), models))
            tag, version = tag or p.tag, version or p.runtime_version
            latencies += p.latencies.total_us
            dead = dead or p.dead
            if p.error:
                errors.append(p.error)
            else:
                readable = True
        rated = [part for part in used if part.known]
        if rated or (not used and compared and readable):
            executions_s: float | None = sum([part.executions_s for part in rated])
            errors_s: float | None = sum([part.failures_s for part in rated])
            flops_s: float | None = sum([part.flops_s for part in rated])
        else:
            executions_s = errors_s = flops_s = None
        host_memory = figures.sums([slab.host_memory for slab in frames], len(HOST_MEMORY))
        use = _use(self._hosts[1], owner.pid, owner.foreign)
        if use is not None:
            host_memory = (*host_memory[:-1], host_memory[-1] + max(0, use.rss_bytes - sum(host_memory)))
        found = percentiles(latencies, (50, 99)) or {}
        histories = self._rates.get(id)
        if histories is None:
            histories = self._rates[id] = History(), History()
        user, system = self._vcpu(owner.pid, use)
        return ProcessFrame(
            id=id,
            pid=owner.pid,
            foreign=owner.foreign,
            tag=printable(tag) or str(owner.pid),
            state="dead" if dead else "running" if readable else "unreadable",
            error=printable("; ".join(errors)) if errors else "",
            slabs=tuple(frames),
            executions_s=executions_s,
            errors_s=errors_s,
            errors=self._count_errors(id, slabs, used),
            utilization=min(1.0, sum([part.share for part in rated]) / physical) if physical else None,
            flops_s=flops_s,
            latency_p50_us=found.get(50),
            latency_p99_us=found.get(99),
            device_memory=figures.sums([part.memory for part in used], len(DEVICE_MEMORY)),
            host_memory=host_memory,
            vcpu_user=user,
            vcpu_system=system,
            runtime_version=str(version) if version else "",
            executions_history=histories[0].add(executions_s),
            latency_history=histories[1].add(found.get(50)),
        )

    def _count_errors(self, id: str, slabs: Sequence[ProcessLook], used: Sequence[Part]) -> int:
        """Failures since the process's start; what was counted last stands as long as nothing moved."""
        known = self._errors.get(id)
        moved = known is None or len(known[0]) != len(slabs)
        for part in used:
            if part.troubled or not part.known:
                moved = True
        if known is None or moved or known[0] != [p.key for p in slabs]:
            total = sum([figures.failures(row) for p in slabs for row in p.rows.values()])
            known = self._errors[id] = [p.key for p in slabs], total
        return known[1]

    def _vcpu(self, pid: int, use: ProcessUse | None) -> tuple[float | None, float | None]:
        before, after = self._hosts
        if use is None or before is None or after is None or pid not in before.processes:
            return None, None
        if pid not in self._vcpus:
            usage = process_vcpu_usage(before, after, pid)["vcpu_usage"]
            assert isinstance(usage, dict)
            self._vcpus[pid] = usage["user"] / 100, usage["system"] / 100
        return self._vcpus[pid]

    def _why_empty(self, full: bool) -> str:
        if full:
            self._reason, self._reason_at = "", float("-inf")
        elif time.monotonic() - self._reason_at > REASON_S:
            self._reason, self._reason_at = printable(self.source.why_empty()), time.monotonic()
        return self._reason


# --- From looks to figures --------------------------------------------------------------------------------------------


def _earlier(before: Look | None, key: Key) -> ProcessLook | None:
    return before.processes.get(key) if before else None


def _marks(findings: Iterable[Finding]) -> Marks:
    found: dict[int, list[Finding]] = {}
    for finding in findings:
        if finding.device is not None and finding.core is not None:
            found.setdefault(finding.device, []).append(finding)
    return found


def _use(host: HostSample | None, pid: int, foreign: bool) -> ProcessUse | None:
    use = None if host is None or foreign else host.processes.get(pid)
    return use if isinstance(use, ProcessUse) else None


def _host(before: HostSample | None, after: HostSample | None) -> HostFrame:
    if after is None:
        return HostFrame(None, None, None, None, None)
    memory = None if isinstance(after.memory, str) else after.memory
    total, used = (memory.total_bytes, memory.used_bytes) if memory else (None, None)
    if isinstance(after.processors, str):
        return HostFrame(None, None, None, total, used)
    vcpus = len(after.processors.seconds)
    if before is None or isinstance(before.processors, str):
        return HostFrame(vcpus, None, None, total, used)
    percents = vcpu_usage(before, after)["average_usage"]
    assert isinstance(percents, dict)
    user = (percents["user"] + percents["nice"]) / 100
    system = (percents["system"] + percents["io_wait"] + percents["irq"] + percents["soft_irq"]) / 100
    return HostFrame(vcpus, user, system, total, used)
