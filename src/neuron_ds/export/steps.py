"""Steps through a recording: a Sample every so often, and what happened to the recording's own ticks in between.

Whoever thins a recording out still wants to know which ticks were late and where there are none: that is told here,
once for all forms of output. It knows the recording and no form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neuron_ds.collect import Sample
from neuron_ds.diagnose.looks import Look, ProcessLook, Row
from neuron_ds.rates import came_after
from neuron_ds.record import Moment, Recording
from neuron_ds.records import printable

#: Ticks that are further apart than so many periods, and than this, leave a gap; what is shorter is only missed.
GAP_PERIODS, GAP_NS = 1.5, 100_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """A Sample, and of the ticks since the last Step: how many, how many of them late, how late the worst of them.

    missed: ticks that were not made. gaps: (from, to) where there is none for long. marks: (time,
    text) of what the recorder was told, or found out.
    """

    sample: Sample
    ticks: int
    late: int
    worst_us: int
    missed: int
    gaps: tuple[tuple[int, int], ...]
    marks: tuple[tuple[int, str], ...] = ()


def steps_of(
    recording: Recording, every_ns: int = 0, start_ns: int | None = None, end_ns: int | None = None
) -> Iterator[Step]:
    """A Step for every tick, or for the first one in every ``every_ns``; the last tick always has one."""
    longest_ns = max(GAP_NS, GAP_PERIODS * recording.session.period_us * 1000)
    since = _Since()
    last_ns = due_ns = 0
    origin_ns: int | None = None
    player, world = None, None
    for player, moment in recording.moments(start_ns, end_ns):
        if origin_ns is None:
            origin_ns = moment.time_ns
        since.see(moment)
        if last_ns and moment.time_ns - last_ns > longest_ns:
            since.gaps.append((last_ns, moment.time_ns))
        if player.world is not world:
            world = player.world
            if world is not None and world.mark:
                since.marks.append((moment.time_ns, printable(world.mark)))
        last_ns = moment.time_ns
        if last_ns >= due_ns:
            if every_ns:
                due_ns = last_ns + every_ns - (last_ns - origin_ns) % every_ns
            yield since.step(player.sample())
            since = _Since()
    if since.ticks and player is not None:
        yield since.step(player.sample())


def earlier_rows(before: Look | None, process: ProcessLook, now_ns: int) -> Mapping[int, Row] | None:
    """The rows of a process at the look before; none of one that came since then, for it started from zero; None where
    there is nothing to compare with."""
    if before is None:
        return None
    old, owner = before.processes.get(process.key), process.owner
    if old is not None:
        return old.rows if old.readable else None
    device = before.devices.get(owner.device)
    seen = not before.error and (device is None or not device.error)
    return {} if came_after(owner, before.time_ns, now_ns, seen=seen) else None


class _Since:
    """What happened since the last Step."""

    def __init__(self) -> None:
        self.ticks = self.late = self.worst_us = self.missed = 0
        self.gaps: list[tuple[int, int]] = []
        self.marks: list[tuple[int, str]] = []

    def see(self, moment: Moment) -> None:
        self.ticks += 1
        self.late += moment.late_us > 0
        self.worst_us = max(self.worst_us, moment.late_us)
        self.missed += moment.missed

    def step(self, sample: Sample) -> Step:
        return Step(sample, self.ticks, self.late, self.worst_us, self.missed, tuple(self.gaps), tuple(self.marks))
