"""Figures of one core: what two rows of counters, and the time between them, say. Pure functions of rows.

Which counters count as executions, as failures and as memory of what kind is said here for all live pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from neuron_ds import categories, layout
from neuron_ds.diagnose.looks import NAMED, Row
from neuron_ds.layout import NC_BY_NAME, CounterDef
from neuron_ds.live.frame import DEVICE_MEMORY, HOST_MEMORY
from neuron_ds.rates import grown
from neuron_ds.runtime import ApiFailure, Status

ZEROS: Row = (0,) * NAMED
_MOST = 1 << 63

BUSY, MACS, SUCCESS = NC_BY_NAME["time_in_use"].index, NC_BY_NAME["mac_count"].index, int(Status.SUCCESS)
# Executions that ran to their end, as the stream of neuron-monitor counts them: the successful, and these.
_COMPLETED_WITH = tuple(c.index for c in categories.COMPLETIONS if c.index != SUCCESS)
#: One of these moves for every execution and every call that failed.
FAILURES = (*(int(s) for s in Status if s is not Status.SUCCESS), *(int(f) for f in ApiFailure))
#: What only grows and is no sign of trouble.
_GOOD = ("time_in_use", "infer_completed", "model_load_count", "inference_count", "mac_count")
#: Every counter that tells of trouble: statuses, and the classes beside them.
TROUBLES = tuple(c for c in layout.NC if c.kind == layout.COUNTER and c.name not in _GOOD)

_failures = itemgetter(*FAILURES)
_troubles = itemgetter(*(c.index for c in TROUBLES))

_memory = itemgetter(*(categories.DEVICE_MEMORY[name].index for name in DEVICE_MEMORY))
_HOST_ORDER = tuple(c.index for c in layout.ND if c.kind == layout.GAUGE)
_HOST_AT = tuple(tuple(_HOST_ORDER.index(c.index) for c in categories.HOST_MEMORY[name]) for name in HOST_MEMORY)


def _runs(indices: Sequence[int]) -> Iterator[slice]:
    """Ascending indices as slices: they are quicker to compare than what is picked one by one."""
    first = 0
    for i, index in enumerate(indices):
        if i + 1 == len(indices) or indices[i + 1] != index + 1:
            yield slice(indices[first], index + 1)
            first = i + 1


_TROUBLED = tuple(_runs([c.index for c in TROUBLES]))


def troubled(before: Row, now: Row) -> bool:
    """Whether any counter of trouble moved."""
    for run in _TROUBLED:  # noqa: SIM110  # any() costs twice as much, and this is asked of every core
        if before[run] != now[run]:
            return True
    return False


def failed(before: Row, now: Row) -> int:
    """Failed executions and calls between two rows."""
    return sum(map(grown, _failures(before), _failures(now)))


def completed_with_errors(before: Row, now: Row) -> int:
    """Executions that ran to their end, but with an error, between two rows."""
    return sum(grown(before[i], now[i]) for i in _COMPLETED_WITH)


class Work(NamedTuple):
    """What happened on physical cores in a while: plain sums."""

    busy_us: int = 0
    macs: int = 0
    executions: int = 0
    failures: int = 0


NOTHING = Work()


def work(before: Row, now: Row) -> Work:
    """What happened between two rows of one core."""
    if before is now:
        return NOTHING
    executions, failures = grown(before[SUCCESS], now[SUCCESS]), 0
    if troubled(before, now):
        executions += completed_with_errors(before, now)
        failures = failed(before, now)
    return Work(grown(before[BUSY], now[BUSY]), grown(before[MACS], now[MACS]), executions, failures)


def failures(row: Row) -> int:
    """Failed executions and calls since the process's start."""
    return sum(_failures(row))


def troubles(before: Row, now: Row) -> Iterator[tuple[CounterDef, int]]:
    """Every counter of trouble that moved, and by how much."""
    old, new = _troubles(before), _troubles(now)
    if old != new:
        for counter, a, b in zip(TROUBLES, old, new, strict=True):
            if a != b and (by := grown(a, b)):
                yield counter, by


def device_memory(row: Row) -> tuple[int, ...]:
    """Device memory of one core by DEVICE_MEMORY; a gauge that has fallen below zero counts as 0."""
    memory: tuple[int, ...] = _memory(row)
    return memory if max(memory) < _MOST else tuple(value if value < _MOST else 0 for value in memory)


@lru_cache(4096)  # of some slabs more than a machine has: it is asked again for each, and hardly ever changes
def host_memory(gauges: tuple[int, ...]) -> tuple[int, ...]:
    """Host memory of one slab by HOST_MEMORY, from a Look's ``host_bytes``."""
    if not gauges:
        return (0,) * len(HOST_MEMORY)
    return tuple(sum(g for i in places if (g := gauges[i]) < _MOST) for places in _HOST_AT)


def sums(rows: Sequence[tuple[int, ...]], width: int) -> tuple[int, ...]:
    """Column by column."""
    if len(rows) == 1:
        return rows[0]
    return tuple(map(sum, zip(*rows, strict=True))) if rows else (0,) * width
