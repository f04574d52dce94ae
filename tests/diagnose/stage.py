"""A stage for rules: simulated processes play on real slabs, and looks at them carry the time of the script.

Everything but the clock is as it is live: the runtime's facade writes, a Collector reads, ``look_at`` condenses. An
hour of a script takes as long as its events take to be played. Each workload has a device of its own, as a process
owns one slab per device, and is given a pid of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

from neuron_ds import datastore
from neuron_ds.collect import Collector, ProcessSample, Sample
from neuron_ds.diagnose import DeviceLook, Finding, Look, ProcessLook, Thresholds, Watcher, look_at
from neuron_ds.diagnose.looks import HOST_MEMORY, NAMED, Row
from neuron_ds.diagnose.rules import RULE_FAILED
from neuron_ds.driver import Owner
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.layout import NC_BY_NAME
from neuron_ds.simulate import PATTERNS, Player, Workload, script
from neuron_ds.simulate.playing import Playback
from neuron_ds.snapshot import Snapshot

#: When the script begins, by the clock of the looks.
START_NS = 1_000_000_000_000


def work(name: str, device: int = 0, cores: int = 4, seed: int = 5, **parameters: object) -> Workload:
    """A workload with its device and the first of its cores."""
    own = {key: parameters.pop(key) for key in ("model", "tag") if key in parameters}
    places = tuple((device, core) for core in range(cores))
    return Workload(pattern=PATTERNS[name](**parameters), seed=seed, cores=places, number=device, **own)  # type: ignore[arg-type]


def played(
    driver: SoftwareDriver, workloads: Sequence[Workload], seconds: float, period_s: float = 1.0
) -> Iterator[Look]:
    """Play so many seconds and look once per period."""
    with ExitStack() as stack:
        plays = []
        for w in workloads:
            (device,) = w.devices
            driver.probe(device)
            producer = stack.enter_context(datastore.publish(device, driver=driver, tag=w.tag))
            plays.append(Playback(Player({device: producer}), script(w)))
        collector = stack.enter_context(Collector(driver, totals=False))
        look = None
        for n in range(int(seconds / period_s) + 1):
            for play in plays:
                play.run(until_us=round(n * period_s * 1e6))
            look = look_at(at(collector.collect(), START_NS + round(n * period_s * 1e9)), look)
            yield look


def at(sample: Sample, time_ns: int) -> Sample:
    """The sample as if it had been taken at a time, each device's process with a pid of its own."""
    devices = [replace(d, processes=tuple(_at(p, time_ns) for p in d.processes)) for d in sample.devices]
    return replace(sample, time_ns=time_ns, devices=tuple(devices))


def _at(p: ProcessSample, time_ns: int) -> ProcessSample:
    owner = replace(p.owner, pid=1000 + p.owner.device)
    if p.snapshot is None:
        return replace(p, owner=owner)
    make, (raw, origin, _, states, stale) = p.snapshot.__reduce__()
    snapshot = make(raw, origin, time_ns, states, stale)
    assert isinstance(snapshot, Snapshot)
    return replace(p, owner=owner, snapshot=snapshot)


class Story(NamedTuple):
    """What a Watcher told of a series of looks: (seconds of the script, finding), and the findings at the end."""

    began: list[tuple[float, Finding]]
    over: list[tuple[float, Finding]]
    last: list[Finding]

    @property
    def kinds(self) -> set[str]:
        return {f.kind for _, f in self.began}

    def of(self, kind: str) -> list[tuple[float, Finding]]:
        """When findings of a kind began, and what was said then."""
        return [(when, f) for when, f in self.began if f.kind == kind]


def watch(looks: Iterable[Look], thresholds: Thresholds | None = None) -> Story:
    """All that a Watcher has to tell. A rule that fails is a failure here."""
    watcher = Watcher(thresholds)
    story = Story([], [], [])
    for look in looks:
        _, began, over = watcher.add(look)
        when = (look.time_ns - START_NS) / 1e9
        assert not [f.message for f in began if f.kind == RULE_FAILED]
        story.began.extend((when, f) for f in began)
        story.over.extend((when, f) for f in over)
    return story._replace(last=watcher.findings)


# --- By hand ----------------------------------------------------------------------------------------------------------


def row(**counters: int) -> Row:
    """The row of a core by the names of its counters."""
    values = [0] * NAMED
    for name, value in counters.items():
        values[NC_BY_NAME[name].index] = value
    return tuple(values)


def process(seconds: float, rows: dict[int, Row], **more: Any) -> ProcessLook:
    """A look at a process of device 0, slot 0, pid 1000; ``more``: other fields, of its owner too."""
    own = {key: more.pop(key) for key in ("device", "slot", "pid", "alive") if key in more}
    owner = Owner(**{"device": 0, "slot": 0, "pid": 1000, "alive": True, "generation": 1, **own})
    fields = {"tag": "t", "error": "", "host_bytes": (0,) * len(HOST_MEMORY), "models": {}, **more}
    return ProcessLook(owner=owner, time_ns=START_NS + round(seconds * 1e9), rows=rows, **fields)


def look(seconds: float, *processes: ProcessLook, devices: Iterable[DeviceLook] | None = None) -> Look:
    """A look at these processes, all their devices being trn2."""
    used = {p.owner.device: sum(q.owner.device == p.owner.device for q in processes) for p in processes}
    found = [device(n, slots_used=count) for n, count in used.items()] if devices is None else devices
    return Look(START_NS + round(seconds * 1e9), {d.device: d for d in found}, {p.key: p for p in processes})


def device(number: int = 0, **more: Any) -> DeviceLook:
    fields = {
        "type": "trn2",
        "cores": 8,
        "logical_config": 2,
        "memory_bytes": 96 << 30,
        "slots_used": 1,
        "error": "",
    }
    return DeviceLook(number, **{**fields, **more})


def series(of: Callable[[int], ProcessLook], seconds: int, begin: int = 0) -> list[Look]:
    """A look each second at what ``of`` gives for it."""
    return [look(n, of(n)) for n in range(begin, begin + seconds + 1)]
