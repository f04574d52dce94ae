"""A recording read once, from beginning to end, into the data of a report: plain values of a bounded size.

Utilization by core, what each process did, memory by device, the recording's own ticks, and the findings that the
rules have at each look. It draws nothing; what a figure means is said by the rooms that it comes from.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from neuron_ds import __version__, layout
from neuron_ds.collect import Key, ProcessSample, Sample
from neuron_ds.diagnose import Finding, Look, Watcher, look_at
from neuron_ds.errors import FormatError
from neuron_ds.export.steps import Step, earlier_rows, steps_of
from neuron_ds.export.table import iso
from neuron_ds.live import figures
from neuron_ds.record import Recording
from neuron_ds.records import printable
from neuron_ds.report.columns import Columns
from neuron_ds.report.lives import Life

#: Looks at a recording: no more often than this; so many in all, fewer where each is at many slabs.
LEAST_NS = 50_000_000
MOST_LOOKS, FEWEST_LOOKS = 12_000, 1200
MOST_SLABS_LOOKED_AT = 100_000
#: How often the rules are asked.
FINDINGS_NS = 900_000_000
MOST_LIVES, MOST_FINDINGS, MOST_GAPS = 400, 300, 100
#: Of so many processes, those that executed most, there are series.
MOST_SERIES = 24


@dataclass(slots=True)
class _Episode:
    """A finding while it lasted."""

    finding: Finding
    from_ns: int
    to_ns: int | None = None


class _Core:
    """One physical core, whoever used it."""

    def __init__(self, columns: Columns) -> None:
        self.busy_us, self.executed, self.seconds = columns.zeros(), columns.zeros(), columns.zeros()
        self.total_us = self.executions = 0
        self.total_s = 0.0


class _Survey:
    """Takes one Step after the other."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.cores: dict[tuple[int, int], _Core] = {}
        self.memory: dict[int, array[float]] = {}
        self.memory_seconds = columns.zeros()
        self.lives: dict[Key, Life] = {}
        self.ended: list[Life] = []
        self.left_out = 0
        self.episodes: dict[tuple[object, ...], _Episode] = {}
        self.over: list[_Episode] = []
        self.findings_left_out = 0
        self.ticks = self.late = self.worst_us = self.missed = self.looks = 0
        self.gaps: list[tuple[int, int]] = []
        self.gaps_left_out = 0
        self.marks: list[tuple[int, str]] = []
        self.devices: dict[int, dict[str, object]] = {}
        self._seen: dict[Key, bytes] = {}
        self._look: Look | None = None
        self._watcher = Watcher()
        self._asked_ns: int | None = None

    def add(self, step: Step) -> None:
        before, look = self._look, look_at(step.sample, self._look)
        self._look = look
        self._recording(step)
        then_ns = before.time_ns if before else look.time_ns
        for key in [key for key in self.lives if key not in look.processes]:
            life = self.lives.pop(key)
            life.close(look.time_ns, gone=True)
            self.ended.append(life)
        samples = {p.key: p for p in step.sample.processes}
        work: dict[tuple[int, int], list[figures.Work]] = {}
        for key, process in look.processes.items():
            life_now = self._life(key, look)
            if life_now is None:
                continue
            old = earlier_rows(before, process, look.time_ns)
            for core, done in life_now.see(old, process, then_ns, look.time_ns).items():
                work.setdefault((process.owner.device, core), []).append(done)
            self._models(life_now, samples[key], look.time_ns)
        self._sum_up(work, then_ns, look)
        for d in look.devices.values():
            self.devices[d.device] = {
                "device": d.device,
                "type": d.type,
                "cores": d.cores,
                "logical_config": d.logical_config,
                "memory_bytes": d.memory_bytes,
                "error": printable(d.error),
            }
        if self._asked_ns is None or look.time_ns - self._asked_ns >= FINDINGS_NS:
            self._asked_ns = look.time_ns
            self._find(look)

    def _recording(self, step: Step) -> None:
        self.looks += 1
        self.ticks += step.ticks
        self.late += step.late
        self.missed += step.missed
        self.worst_us = max(self.worst_us, step.worst_us)
        self.marks += step.marks[: MOST_GAPS - len(self.marks)]
        for gap in step.gaps:
            self.columns.blank(*gap)
            self.gaps.append(gap)
        if len(self.gaps) > 2 * MOST_GAPS:
            self._cut_gaps()

    def _cut_gaps(self) -> None:
        """Keep the longest."""
        longest = sorted(self.gaps, key=lambda g: g[0] - g[1])[:MOST_GAPS]
        self.gaps_left_out += len(self.gaps) - len(longest)
        self.gaps = sorted(longest)

    def _life(self, key: Key, look: Look) -> Life | None:
        life = self.lives.get(key)
        if life is None:
            if len(self.lives) + len(self.ended) >= MOST_LIVES:
                if key not in self._seen:
                    self.left_out += 1
                    self._seen[key] = b""
                return None
            life = self.lives[key] = Life(self.columns, look.processes[key], look.time_ns)
        return life

    def _models(self, life: Life, process: ProcessSample, now_ns: int) -> None:
        snapshot = process.snapshot
        if snapshot is None or snapshot.torn:
            return  # what is torn at this moment may be anything: the next look tells
        seen = bytes(snapshot.raw[layout.MODEL_BITMAP.offset : layout.MODELS.end])
        if seen != self._seen.get(process.key):
            self._seen[process.key] = seen
            life.load(snapshot.models, now_ns)

    def _sum_up(self, work: dict[tuple[int, int], list[figures.Work]], then_ns: int, look: Look) -> None:
        shares = self.columns.share(then_ns, look.time_ns)
        for place, done in work.items():
            core = self.cores.get(place)
            if core is None:
                core = self.cores[place] = _Core(self.columns)
            busy_us, executions = sum(w.busy_us for w in done), sum(w.executions for w in done)
            core.total_us += busy_us
            core.executions += executions
            core.total_s += (look.time_ns - then_ns) / 1e9
            for column, share, seconds in shares:
                core.busy_us[column] += busy_us * share
                core.executed[column] += executions * share
                core.seconds[column] += seconds
        used: dict[int, int] = dict.fromkeys(look.devices, 0)
        for p in look.processes.values():
            if p.readable:
                used[p.owner.device] = used.get(p.owner.device, 0) + sum(
                    sum(figures.device_memory(row)) for row in p.rows.values()
                )
        for device, bytes_used in used.items():
            series = self.memory.setdefault(device, self.columns.zeros())
            for column, _, _ in shares or [(self.columns.at(look.time_ns), 1.0, 0.0)]:
                series[column] = max(series[column], bytes_used)
        for column, _, seconds in shares:
            self.memory_seconds[column] += seconds

    def _find(self, look: Look) -> None:
        findings, _, over = self._watcher.add(look)
        for finding in over:
            episode = self.episodes.pop(finding.identity, None)
            if episode is not None:
                episode.to_ns = look.time_ns
        for finding in findings:
            episode = self.episodes.get(finding.identity)
            if episode is not None:
                episode.finding = max(episode.finding, finding, key=lambda f: f.severity)
            elif len(self.over) < MOST_FINDINGS:
                episode = self.episodes[finding.identity] = _Episode(finding, finding.since_ns)
                self.over.append(episode)
            else:
                self.findings_left_out += 1
                self.episodes[finding.identity] = _Episode(finding, finding.since_ns)

    def finish(self) -> None:
        """Nothing more comes."""
        if self._look is not None:
            for life in self.lives.values():
                life.close(self._look.time_ns, gone=False)
        self.ended += self.lives.values()
        self.lives = {}
        self._cut_gaps()

    # --- as plain values

    def data(self, recording: Recording, every_ns: int) -> dict[str, object]:
        columns, session = self.columns, recording.session
        offset_ns = session.wall_offset_ns

        def seconds(time_ns: int | None) -> float | None:
            return None if time_ns is None else round((time_ns - columns.start_ns) / 1e9, 3)

        lives = sorted(self.ended, key=lambda life: (life.first_ns, life.look.owner.device, life.look.owner.slot or 0))
        processes = [life.to_dict() for life in lives]
        most = sorted(range(len(lives)), key=lambda i: (-lives[i].executions, i))[MOST_SERIES:]
        for i in most:
            processes[i]["series"] = None
        return {
            "version": 1,
            "made_by": f"neuron-datastore {__version__}",
            "recording": {
                "host": printable(session.host),
                "driver": printable(session.driver),
                "recorded_by": printable(session.software),
                "start": iso(columns.start_ns + offset_ns),
                "end": iso(columns.end_ns + offset_ns),
                "seconds": seconds(columns.end_ns),
                "period_us": session.period_us,
                "looked_every_us": max(every_ns // 1000, session.period_us),
                "ticks": self.ticks,
                "late": self.late,
                "worst_late_us": self.worst_us,
                "missed": self.missed,
                "gaps": [{"from_s": seconds(a), "to_s": seconds(b)} for a, b in self.gaps],
                "gaps_left_out": self.gaps_left_out,
                "marks": [{"at_s": seconds(t), "text": text} for t, text in self.marks],
                "damage": [printable(text) for text in recording.damage],
            },
            "columns": {"count": columns.count, "width_s": columns.width_ns / 1e9, "blank": sorted(columns.blanks)},
            "devices": [
                about | {"used_bytes": columns.known(self.memory[device], self.memory_seconds)}
                for device, about in sorted(self.devices.items())
                if device in self.memory
            ],
            "cores": [
                {
                    "device": device,
                    "core": number,
                    "utilization": [
                        None if u is None else min(1.0, u)
                        for u in columns.rates([us / 1e6 for us in core.busy_us], core.seconds, 4)
                    ],
                    "mean_utilization": round(min(1.0, core.total_us / 1e6 / core.total_s), 4)
                    if core.total_s
                    else None,
                    "executions": core.executions,
                    "executions_s": columns.rates(core.executed, core.seconds, 3),
                }
                for (device, number), core in sorted(self.cores.items())
            ],
            "processes": processes,
            "processes_left_out": self.left_out,
            "findings": [
                {
                    "kind": e.finding.kind,
                    "severity": e.finding.severity.name.lower(),
                    "device": e.finding.device,
                    "slot": e.finding.slot,
                    "pid": e.finding.pid,
                    "tag": printable(e.finding.tag),
                    "core": e.finding.core,
                    "from_s": seconds(max(e.from_ns, columns.start_ns)),
                    "to_s": seconds(e.to_ns),
                    "from": iso(e.from_ns + offset_ns),
                    "message": printable(e.finding.message),
                    "advice": printable(e.finding.advice),
                    "evidence": {
                        str(k): printable(v) if isinstance(v, str) else v for k, v in e.finding.evidence.items()
                    },
                }
                for e in sorted(self.over, key=lambda e: (-e.finding.severity, e.from_ns))
            ],
            "findings_left_out": self.findings_left_out,
        }


def survey(
    recording: Recording,
    *,
    every_ns: int = 0,
    start_ns: int | None = None,
    end_ns: int | None = None,
    seen: Callable[[Step], None] = lambda step: None,
) -> dict[str, object]:
    """The data of a report. ``every_ns``: how often to look, 0: what its length allows; ``seen`` is told each Step.

    Raises FormatError where the recording holds numbers that can't be.
    """
    first_ns = max(recording.start_ns, recording.start_ns if start_ns is None else start_ns)
    last_ns = min(recording.end_ns, recording.end_ns if end_ns is None else end_ns)
    if not every_ns:
        slabs = len(next(recording.samples(first_ns, last_ns), Sample(0, (), "")).processes)
        looks = max(FEWEST_LOOKS, min(MOST_LOOKS, MOST_SLABS_LOOKED_AT // max(1, slabs)))
        every_ns = max(LEAST_NS, (last_ns - first_ns) // looks)
    found = _Survey(Columns(first_ns, last_ns, max(every_ns, recording.session.period_us * 1000)))
    for step in steps_of(recording, every_ns, first_ns, last_ns):
        seen(step)
        found.add(step)
    found.finish()
    try:
        return found.data(recording, every_ns)
    except OverflowError as e:
        raise FormatError(f"holds a number that can't be: {e}", path=recording.path) from None
