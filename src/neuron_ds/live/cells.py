"""From rows to cells: what each process does on each logical core, and what all together do on it. Pure functions.

A Part is one process's share of a logical core; a Cell is what is shown. Nothing of time, histories or events here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import add
from typing import NamedTuple

from neuron_ds.diagnose import Finding
from neuron_ds.diagnose.looks import Look, ProcessLook, Row
from neuron_ds.live import figures
from neuron_ds.live.figures import BUSY, MACS, SUCCESS, ZEROS
from neuron_ds.live.frame import DEVICE_MEMORY, Cell, CellState
from neuron_ds.numbering import DeviceCores
from neuron_ds.rates import grown, utilization


class Part(NamedTuple):
    """One logical core as one slab says it is used. Rates per second; share: sum over its physical cores, 0 to 1 each.

    known: whether there are rates at all. troubled: physical cores where a counter of trouble moved.
    """

    known: bool
    share: float
    flops_s: float
    executions_s: float
    failures_s: float
    memory: tuple[int, ...]
    loaded: bool
    troubled: tuple[int, ...]


def period_of(before: Look | None, look: Look, process: ProcessLook) -> float | None:
    """What this process's rates are over; None where there is nothing to compare with."""
    if before is None or process.error:
        return None
    old = before.processes.get(process.key)
    begun_ns = before.time_ns if old is None else old.time_ns
    return (process.time_ns - begun_ns) / 1e9 if process.time_ns > begun_ns else None


def parts_of(
    process: ProcessLook, before: ProcessLook | None, period_s: float | None, shape: DeviceCores
) -> dict[int, Part]:
    """By logical core, those that a process uses; one that came since the last look started from zero."""
    config, rows, models = shape.config, process.rows, process.models
    earlier = before.rows if before else {}
    used = rows.keys() if rows.keys() >= models.keys() else sorted(rows.keys() | models.keys())
    return {
        core: _part(_physical(core, config), rows, earlier, period_s, models)
        for core in dict.fromkeys([physical // config for physical in used])
    }


def _part(
    cores: Sequence[int],
    rows: Mapping[int, Row],
    earlier: Mapping[int, Row],
    period_s: float | None,
    models: Mapping[int, int],
) -> Part:
    """Of these physical cores. This is run for every core at every look, so what hardly ever happens is asked last."""
    share = 0.0
    macs = executions = failures = 0
    memory: tuple[int, ...] | None = None
    troubled: tuple[int, ...] = ()
    for core in cores:
        row = rows.get(core)
        if row is None:
            continue
        memory = figures.device_memory(row) if memory is None else tuple(map(add, memory, figures.device_memory(row)))
        before = earlier.get(core, ZEROS)
        if before is row or period_s is None:
            continue
        busy_us, operations, done = row[BUSY] - before[BUSY], row[MACS] - before[MACS], row[SUCCESS] - before[SUCCESS]
        if busy_us < 0 or operations < 0 or done < 0:  # one has wrapped around, or was reset
            busy_us, operations, done = (grown(before[i], row[i]) for i in (BUSY, MACS, SUCCESS))
        share += utilization(busy_us, period_s)
        macs += operations
        executions += done
        if figures.troubled(before, row):
            troubled += (core,)
            executions += figures.completed_with_errors(before, row)
            failures += figures.failed(before, row)
    if memory is None:
        memory = _NO_MEMORY
    loaded = any(memory) or not models.keys().isdisjoint(cores)
    if period_s is None:
        return Part(False, 0.0, 0.0, 0.0, 0.0, memory, loaded, ())
    each = 1 / period_s
    return Part(True, share, 2 * macs * each, executions * each, failures * each, memory, loaded, troubled)


_NO_MEMORY = (0,) * len(DEVICE_MEMORY)


@cache
def _physical(core: int, config: int) -> tuple[int, ...]:
    return tuple(range(core * config, (core + 1) * config))


def cell_of(shape: DeviceCores, core: int, parts: Sequence[Part], marks: Sequence[Finding], known: bool) -> Cell:
    """One logical core as these parts use it together. ``known``: whether nobody using it means that it is idle."""
    physical = _physical(core, shape.config)
    if len(parts) == 1 and parts[0].known:
        (part,) = parts
        share = min(1.0, part.share / len(physical))
        state = _state(share, part.loaded, physical, marks)
        rates = part.flops_s, part.executions_s, part.failures_s
        return Cell(shape.device, core, physical, state, share, *rates, part.memory)
    memory = figures.sums([part.memory for part in parts], len(DEVICE_MEMORY))
    loaded = any(part.loaded for part in parts)
    rated = [part for part in parts if part.known]
    if not rated and (parts or not known):
        return Cell(shape.device, core, physical, _state(None, loaded, physical, marks), memory=memory)
    share = min(1.0, sum(part.share for part in rated) / len(physical))
    return Cell(
        shape.device,
        core,
        physical,
        _state(share, loaded, physical, marks),
        share,
        sum(part.flops_s for part in rated),
        sum(part.executions_s for part in rated),
        sum(part.failures_s for part in rated),
        memory,
    )


def _state(share: float | None, loaded: bool, physical: Sequence[int], marks: Sequence[Finding]) -> CellState:
    if marks:
        kinds = {finding.kind for finding in marks if finding.core in physical}
        if "hung-core" in kinds:
            return "hung"
        if "straggler" in kinds:
            return "slow"
    if share is None:
        return "unknown"
    if share > 0:
        return "busy"
    return "loaded" if loaded else "idle"
