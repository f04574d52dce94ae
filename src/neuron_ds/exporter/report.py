"""From what was accumulated to families with their series: one Report is one scrape.

Blocks come in the order of the table and are made as they are asked for, so that no more than a family is held at a
time. This module knows what each family's values are computed from; how they are written is not its business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from neuron_ds import __version__, layout
from neuron_ds.categories import ERROR_TYPES, STATUS_TYPES
from neuron_ds.collect import DeviceSample, Process, Sample, process_of
from neuron_ds.diagnose import RULES, Finding, Severity
from neuron_ds.diagnose.rules import RULE_FAILED
from neuron_ds.driver import Owner
from neuron_ds.driver.totals import VERSION_KINDS
from neuron_ds.errors import NeuronDSError
from neuron_ds.exporter import families as f
from neuron_ds.exporter.accumulate import Accumulator, Followed, Runtime, gauge
from neuron_ds.exporter.text import Block, Labels, Number, Rows, clean
from neuron_ds.host import CPU_FIELDS, ECC, HostSample, Memory, Processors, ProcessUse
from neuron_ds.numbering import numbering
from neuron_ds.rates import percentiles

_USER = ("user", "nice")
_SYSTEM = ("system", "io_wait", "irq", "soft_irq")
#: A family's series: label values and value.
Series = list[tuple[tuple[str, ...], Number]]


@dataclass(frozen=True, slots=True)
class Window:
    """What gauges are over: the host at its two ends, how long it was, and when (monotonic) it ended."""

    before: HostSample
    after: HostSample
    length_s: float
    end_ns: int


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything beside the slabs that a report tells."""

    sample: Sample
    window: Window
    rss_bytes: dict[int, int]
    ecc: dict[int, Sequence[int]]
    looks: int
    look_s: float
    age_s: float
    window_age_s: float
    findings: Sequence[Finding] = ()


class Report:
    """One moment, ready to be told. ``choices`` are the labels that runtimes carry beside their tag."""

    def __init__(
        self, labels: Labels, state: Accumulator, facts: Facts, choices: tuple[str, ...], per_process: bool
    ) -> None:
        self._labels, self._choices = labels, choices
        self._blocks: list[Block | Callable[[], Iterator[Block]]] = []
        sample = facts.sample
        self._numbers = numbering(state.properties)
        per_device = self._numbers.cores_per_device
        self._cores = [device * per_device + i for device in sorted(state.properties) for i in range(per_device)]
        #: When each runtime began to count, on the monotonic clock.
        self.since_ns = {key: runtime.since_ns for key, runtime in state.runtimes.items()}
        self._runtimes(state, facts)
        self._system(facts)
        self._hardware(state)
        self._ours(state, facts)
        self._totals(sample, state)
        if per_process:
            self._processes([p for p in state.followed.values() if p.readable])

    def __iter__(self) -> Iterator[Block]:
        """Family by family; those without series are left out."""
        for each in self._blocks:
            for block in (each,) if isinstance(each, Block) else each():
                if block.values:
                    yield block

    def small(self) -> Iterator[Block]:
        """The families that are few series each."""
        return (block for block in self._blocks if isinstance(block, Block) and not block.family.many and block.values)

    def many(self) -> Iterator[Block]:
        """The families of many series: what ``small`` leaves out."""
        return (block for block in self if block.family.many)

    def _add(self, family: f.Family, series: Sequence[tuple[tuple[str, ...], Number]]) -> None:
        names = family.labels + self._choices if family in _BY_RUNTIME else family.labels
        rows = self._labels.rows(names, [labels for labels, _ in series])
        self._blocks.append(Block(family, rows, [value for _, value in series]))

    def _one(self, family: f.Family, value: Number) -> None:
        self._add(family, [((), value)])

    # --- The vendor's

    def _runtimes(self, state: Accumulator, facts: Facts) -> None:
        runtimes = list(state.runtimes.values())
        found: dict[f.Family, Series] = {family: [] for family in (*f.RUNTIME, f.RUNTIME_PROCESSES)}
        for runtime in runtimes:
            self._runtime(runtime, facts, found)
        for family, series in found.items():
            self._add(family, series)

    def _runtime(self, runtime: Runtime, facts: Facts, found: dict[f.Family, Series]) -> None:
        tag, *chosen = runtime.key
        members = runtime.readable()

        def put(family: f.Family, value: Number, *labels: str) -> None:
            found[family].append(((tag, *labels, *chosen), value))

        for what, count in zip(STATUS_TYPES, runtime.status(), strict=True):
            put(f.EXECUTION_STATUS, count, what)
        for what, count in zip(ERROR_TYPES, runtime.errors(), strict=True):
            put(f.EXECUTION_ERRORS, count, what)
        put(f.RUNTIME_PROCESSES, len({process_of(m.owner) for m in runtime.members.values()}))
        if not members:
            return
        shares = dict.fromkeys(self._cores, 0.0)
        for member in members:
            for core, share in zip(self._cores_of(member), member.utilization(), strict=False):
                shares[core] = min(1.0, shares.get(core, 0.0) + share)
        for core, share in shares.items():
            put(f.UTILIZATION, share, str(core))
        on_devices = 0
        for what, family in f.CORE_MEMORY_FAMILIES.items():
            memory: dict[int, int] = {}
            for member in members:
                for core, used in zip(self._cores_of(member), member.core_memory(what), strict=False):
                    memory[core] = memory.get(core, 0) + used
            on_devices += sum(memory.values())
            for core, used in sorted(memory.items()):
                put(family, used, str(core), "None")
        put(f.MEMORY_USED, _host_bytes(members, facts), "host")
        put(f.MEMORY_USED, on_devices, "neuron_device")
        user, system = _vcpu_shares(members, facts.window)
        put(f.RUNTIME_VCPU, user, "user")
        put(f.RUNTIME_VCPU, system, "system")
        pooled = percentiles([us for member in members for us in member.latencies_us()])
        for p, us in (pooled or {}).items():
            put(f.LATENCY, us / 1e6, f"p{p}")

    def _cores_of(self, member: Followed) -> range:
        """The logical cores of a process's device, numbered through over the devices."""
        first = self._numbers.of(member.owner.device).first
        return range(first, first + self._numbers.cores_per_device)

    def _system(self, facts: Facts) -> None:
        host, before = facts.window.after, facts.window.before
        ecc = [
            ((what, str(device)), count)
            for device, counts in facts.ecc.items()
            for what, count in zip(ECC, counts, strict=True)
        ]
        self._add(f.ECC, ecc)
        if isinstance(host.processors, Processors):
            self._one(f.VCPU_COUNT, len(host.processors.seconds))
            usage = _cpu_shares(before.processors, host.processors)
            kinds = {"user": _USER, "system": _SYSTEM}
            self._add(f.VCPU_USAGE, [((k,), min(1.0, sum(usage[n] for n in names))) for k, names in kinds.items()])
        if isinstance(host.memory, Memory):
            self._one(f.MEMORY_TOTAL, host.memory.total_bytes)
            self._one(f.MEMORY_OF_SYSTEM, host.memory.used_bytes)
            self._one(f.SWAP_TOTAL, host.memory.swap_total_bytes)
            self._one(f.SWAP_USED, host.memory.swap_used_bytes)

    def _hardware(self, state: Accumulator) -> None:
        known = state.properties
        memory = next((p.memory_bytes for p in known.values() if p and p.memory_bytes), 0)
        self._one(f.INSTANCE, 1)
        self._add(f.HARDWARE, [((str(len(known)), str(self._numbers.cores_per_device), str(memory)), 1)])

    # --- Ours

    def _ours(self, state: Accumulator, facts: Facts) -> None:
        devices = facts.sample.devices
        self._one(f.LISTED, int(not facts.sample.error))
        if not facts.sample.error:
            self._one(f.DEVICES, len(devices))
        self._by_device(f.DEVICE_READABLE, devices, lambda d: [((), int(not d.error))])
        self._by_device(f.DEVICE_INFO, devices, _device_info)
        self._by_device(
            f.DEVICE_MEMORY,
            devices,
            lambda d: [((), d.properties.memory_bytes)] if d.properties and d.properties.memory_bytes else [],
        )
        self._by_device(f.SLOTS, devices, lambda d: [((), layout.SLOTS_PER_DEVICE)])
        self._by_device(f.SLOTS_USED, devices, lambda d: [((), d.slots_used)] if d.properties else [])
        self._by_device(f.PROCESSES, devices, _process_states)
        reads = [((str(d), s.name.lower()), n) for (d, s), n in sorted(state.record_reads.items())]
        self._add(f.RECORD_READS, reads)
        self._add(f.SLAB_ERRORS, [((str(d),), n) for d, n in sorted(state.slab_errors.items())])
        self._by_device(f.UNDERFLOWS, devices, lambda d: [((), sum(p.underflows() for p in state.of_device(d.device)))])
        self._by_device(f.VERSIONS, devices, _published_versions)
        self._one(f.SAMPLE_AGE, facts.age_s)
        self._one(f.WINDOW, facts.window.length_s)
        self._one(f.WINDOW_AGE, facts.window_age_s)
        self._one(f.LOOK_DURATION, facts.look_s)
        self._one(f.LOOKS, facts.looks)
        self._one(f.LATENCIES_DROPPED, state.latencies_dropped)
        found = Counter((each.kind, each.severity) for each in facts.findings)
        kinds = [(kind, severity) for kind in (*RULES, RULE_FAILED) for severity in Severity]
        self._add(f.FINDINGS, [((kind, s.name.lower()), found[kind, s]) for kind, s in kinds])
        self._add(f.EXPORTER, [((__version__,), 1)])

    def _by_device(
        self, family: f.Family, devices: Sequence[DeviceSample], of: Callable[[DeviceSample], Series]
    ) -> None:
        self._add(family, [((str(d.device), *labels), value) for d in devices for labels, value in of(d)])

    def _totals(self, sample: Sample, state: Accumulator) -> None:
        readable = [(d, totals) for d in sample.devices if (totals := state.totals(d))]
        for each in f.DEVICE_COUNTERS:
            i, is_gauge = each.counter.index, each.counter.kind == layout.GAUGE
            values = [((str(d.device),), totals.nd(i)) for d, totals in readable]
            self._add(each.family, [(labels, gauge(v) if is_gauge else v) for labels, v in values])
        cores = [
            (d.device, core, totals)
            for d, totals in readable
            for core in range(d.properties.slab_cores if d.properties else layout.MAX_CORES)
        ]
        labels = f.CORE_COUNTERS[0].family.labels
        rows = self._labels.rows(labels, [(str(device), str(core)) for device, core, _ in cores])

        def columns() -> Iterator[Block]:
            for each in f.CORE_COUNTERS:
                yield _column(each, rows, [totals.nc(core, each.counter.index) for _, core, totals in cores])

        self._blocks.append(columns)

    def _processes(self, processes: list[Followed]) -> None:
        def names(*more: str) -> tuple[str, ...]:
            return (*f.PROCESS_LABELS, *self._choices, *more)

        who = [(*_place(p.owner), *p.labels) for p in processes]
        versions = [(*each, *p.versions) for each, p in zip(who, processes, strict=True)]
        info = self._labels.rows(names("runtime_version", "framework_version", "fal_version"), versions)
        self._blocks.append(Block(f.PROCESS_INFO, info, [1] * len(processes)))
        by_process = self._labels.rows(names(), who)
        of_cores = [(*each, str(core)) for each, p in zip(who, processes, strict=True) for core in range(p.cores)]
        by_core = self._labels.rows(names("core"), of_cores)
        nd = [p.nd for p in processes]
        words = [core for p in processes for core in p.words]

        def columns() -> Iterator[Block]:
            for each in f.PROCESS_COUNTERS:
                yield _column(each, by_process, [row[each.counter.index] for row in nd])
            for each in f.PROCESS_CORE_COUNTERS:
                yield _column(each, by_core, [row[each.counter.index] for row in words])

        self._blocks.append(columns)


_BY_RUNTIME = frozenset((*f.RUNTIME, f.RUNTIME_PROCESSES))


def _column(each: f.CounterFamily, rows: Rows, values: Sequence[int]) -> Block:
    """One counter of all in its base unit."""
    if each.counter.kind == layout.GAUGE:
        values = [gauge(v) for v in values]
    if each.divisor != 1 and any(values):
        return Block(each.family, rows, [v / each.divisor for v in values])
    return Block(each.family, rows, values)


def _host_bytes(members: Sequence[Followed], facts: Facts) -> int:
    """What the slabs say of host memory, by process at least what is resident of it."""
    told: dict[Process, int] = {}
    for member in members:
        who = process_of(member.owner)
        told[who] = told.get(who, 0) + member.host_bytes()
    rss = facts.rss_bytes
    return sum(used if foreign else max(used, rss.get(pid, 0)) for (pid, _, foreign, _), used in told.items())


def _vcpu_shares(members: Sequence[Followed], window: Window) -> tuple[float, float]:
    """(user, system) of the processes over the window, as shares of all vCPUs."""
    user = system = 0.0
    cpus = len(window.after.processors.seconds) if isinstance(window.after.processors, Processors) else 1
    elapsed_s = (window.after.time_ns - window.before.time_ns) / 1e9 * max(1, cpus)
    for pid in {m.owner.pid for m in members if not m.owner.foreign}:
        before, after = window.before.processes.get(pid), window.after.processes.get(pid)
        if isinstance(before, ProcessUse) and isinstance(after, ProcessUse) and elapsed_s > 0:
            user += max(0.0, after.user_s - before.user_s) / elapsed_s
            system += max(0.0, after.system_s - before.system_s) / elapsed_s
    return min(1.0, user), min(1.0, system)


def _cpu_shares(before: Processors | str, after: Processors) -> dict[str, float]:
    """Of all CPUs together, by kind of time."""
    old = before.seconds if isinstance(before, Processors) else after.seconds
    spent = [0.0] * (len(CPU_FIELDS) + 1)
    for earlier, now in zip(old, after.seconds, strict=False):
        for i, (a, b) in enumerate(zip(earlier, now, strict=True)):
            spent[i] += max(0.0, b - a)
    total = sum(spent)
    return {name: s / total if total else 0.0 for name, s in zip(CPU_FIELDS, spent, strict=False)}


def _place(owner: Owner) -> tuple[str, str, str]:
    return str(owner.device), "" if owner.slot is None else str(owner.slot), str(owner.pid)


def _device_info(d: DeviceSample) -> Series:
    p = d.properties
    if p is None:
        return []
    told = ("" if value is None else clean(str(value)) for value in (p.type, p.name, p.cores, p.logical_config))
    return [(tuple(told), 1)]


def _process_states(d: DeviceSample) -> Series:
    states = {"readable": 0, "dead": 0, "unreadable": 0}
    for p in d.processes:
        dead = p.owner.alive is False
        states["dead" if dead else "readable" if p.snapshot else "unreadable"] += 1
    return [((state,), n) for state, n in states.items()] if d.properties else []


def _published_versions(d: DeviceSample) -> Series:
    if d.totals is None:
        return []
    found: Series = []
    for kind in VERSION_KINDS:
        try:
            counts, beyond = d.totals.versions(kind)
        except NeuronDSError:
            continue
        component = kind.removesuffix("_version")
        found += [((component, str(version)), n) for version, n in sorted(counts.items())]
        if beyond:
            found.append(((component, "other"), beyond))
    return found
