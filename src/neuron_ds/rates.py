"""Differences between two Samples: pure functions, nothing of clocks, drivers or output.

A process is followed by its use of a slab (device, slot, generation, pid), so a slab that changed hands is another
process. One that came in between started from zero and counts whole; one that left, or that was there but could not be
seen, has no difference. Time is the monotonic clock of the Samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neuron_ds.collect import Key, ProcessSample, Sample
from neuron_ds.driver import Owner
from neuron_ds.layout import NC_COUNTERS
from neuron_ds.snapshot import Snapshot

_WRAP = 1 << 64
#: A difference of this or more is a counter that went back (a reset, a fault), not one that wrapped around.
_BACKWARDS = 1 << 63
_ZEROS = (0,) * NC_COUNTERS
#: A pass over all slabs takes some time: who came so shortly before its end may have been missed by it.
_PASS_NS = 1_000_000_000
PERCENTILES = (0, 1, 25, 50, 75, 99, 100)


def elapsed_s(before: Sample, after: Sample) -> float:
    """Seconds between two Samples."""
    return (after.time_ns - before.time_ns) / 1e9


def grown(before: int, after: int) -> int:
    """By how much a counter grew, wrap-around included; 0 if it went back."""
    difference = (after - before) % _WRAP
    return 0 if difference >= _BACKWARDS else difference


def came_after(owner: Owner, since_ns: int, now_ns: int, *, seen: bool) -> bool:
    """Whether a process that was not found at ``since_ns`` came later, not just out of hiding.

    seen: its device was looked at then. That decides where the driver can't tell how long a slot is taken.
    """
    if owner.age_s is None:
        return seen
    return now_ns - owner.age_s * 1e9 > since_ns - (_PASS_NS if seen else 0)


class ProcessDelta:
    """What one process did between two Samples; ``nc`` and ``nc_rows`` decode on demand."""

    __slots__ = ("_after", "_before", "is_new", "period_s", "process")

    def __init__(self, process: ProcessSample, before: Snapshot | None, is_new: bool, period_s: float) -> None:
        """``before``: its earlier snapshot. ``is_new``: it came in between, so it started from zero."""
        assert process.snapshot is not None
        self.process, self._after, self._before = process, process.snapshot, before
        self.is_new, self.period_s = is_new, period_s

    def nc(self, core: int, counter: int) -> int:
        """By how much a core's counter grew; 0 where there is nothing to compare with."""
        now = self._after.nc(core, counter)
        if self._before is None:
            return now if self.is_new else 0
        return grown(self._before.nc(core, counter), now)

    def nc_rows(self, core: int) -> tuple[Sequence[int], Sequence[int]]:
        """All counters of a core, before and after; equal where there is nothing to compare with."""
        now = self._after.nc_counters(core)
        if self._before is None:
            return (_ZEROS if self.is_new else now), now
        return self._before.nc_counters(core), now


def deltas(before: Sample | None, after: Sample) -> dict[Key, ProcessDelta]:
    """What every readable process of ``after`` did since ``before`` (None: the first look, nothing to compare)."""
    earlier = {p.key: p for p in before.processes} if before else {}
    looked_at = {d.device for d in before.devices if d.properties or not d.error} if before else set()
    found = {}
    for p in after.processes:
        if p.snapshot is None:
            continue
        old = earlier.get(p.key)
        is_new = False
        if before is not None and (old is None or old.snapshot is None):
            seen = old is None and p.owner.device in looked_at
            is_new = came_after(p.owner, before.time_ns, after.time_ns, seen=seen)
        found[p.key] = ProcessDelta(p, old.snapshot if old else None, is_new, _period_s(old, p, before, after))
    return found


def _period_s(old: ProcessSample | None, now: ProcessSample, before: Sample | None, after: Sample) -> float:
    """Seconds between the two copies of this very slab; of the Samples where there is only one."""
    times = [p.snapshot.time_ns if p and p.snapshot else None for p in (old, now)]
    if times[0] is not None and times[1] is not None:
        return (times[1] - times[0]) / 1e9
    return elapsed_s(before, after) if before else 0.0


def utilization(busy_us: int, period_s: float) -> float:
    """Busy time as a share of a period, 0 to 1."""
    return min(1.0, max(0.0, busy_us / (period_s * 1e6))) if period_s > 0 else 0.0


def percentiles(values: Sequence[int], wanted: Sequence[int] = PERCENTILES) -> dict[int, int] | None:
    """Nearest-rank percentiles, None without values. The 0th is the smallest, the 100th the largest."""
    if not values:
        return None
    ordered, n = sorted(values), len(values)
    return {p: ordered[max(0, math.ceil(p / 100 * n) - 1)] for p in wanted}
