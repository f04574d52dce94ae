"""What graphs show of the past: some hundred moments, a few figures of each for the whole, every core and process.

Kept as arrays of single precision, for a Frame holds the bytes of all slabs and must not be kept. A moment has the time
it was looked at, so that one may look less often for a while. This module computes and knows no format.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from operator import attrgetter

from neuron_ds.live.frame import Frame

MOMENTS = 300
WHOLE = (
    "utilization utilization_low utilization_high flops_s executions_s errors_s latency_p50_us latency_p99_us "
    "device_memory_bytes host_cpu host_memory"
).split()
CORE = "utilization flops_s executions_s errors_s memory_bytes".split()
PROCESS = "utilization flops_s executions_s errors_s latency_p50_us latency_p99_us".split()

_core, _process = attrgetter(*CORE), attrgetter(*PROCESS)
Column = list[float | None]


@dataclass(frozen=True, slots=True)
class Moment:
    """One frame's figures. cores, processes: who is in the arrays, in their order."""

    wall_s: float
    whole: array[float]
    cores: tuple[tuple[int, int], ...]
    core_figures: array[float]
    processes: tuple[str, ...]
    process_figures: array[float]


class History:
    """The last moments. One thread may add while others read."""

    def __init__(self, moments: int = MOMENTS) -> None:
        self._moments: deque[Moment] = deque(maxlen=moments)

    def add(self, frame: Frame) -> tuple[float | None, ...]:
        """Remember a frame; gives back what it says of everything together, in the order of WHOLE."""
        last = self._moments[-1] if self._moments else None
        cores = tuple((cell.device, cell.core) for device in frame.devices for cell in device.cells)
        processes = tuple(process.id for process in frame.processes)
        row = whole(frame)
        while self._moments and self._moments[-1].wall_s >= frame.wall_s:
            if self._moments[-1].wall_s == frame.wall_s:  # a recording is over, and shows its last moment again
                return row
            self._moments.pop()  # the clock was put back: what would come later has no place any more
        self._moments.append(
            Moment(
                frame.wall_s,
                _floats(row),
                last.cores if last and last.cores == cores else cores,
                _floats(value for device in frame.devices for cell in device.cells for value in _core(cell)),
                last.processes if last and last.processes == processes else processes,
                _floats(value for process in frame.processes for value in _process(process)),
            )
        )
        return row

    def of_whole(self) -> dict[str, Column]:
        """Columns of everything together, ``wall_s`` among them."""
        moments = tuple(self._moments)
        return _columns(moments, WHOLE, [moment.whole for moment in moments])

    def of_core(self, device: int, core: int) -> dict[str, Column]:
        """Columns of one logical core."""
        moments = tuple(self._moments)
        rows = [_row(m.cores, (device, core), m.core_figures, len(CORE)) for m in moments]
        return _columns(moments, CORE, rows)

    def of_process(self, id: str) -> dict[str, Column]:
        """Columns of one process."""
        moments = tuple(self._moments)
        rows = [_row(m.processes, id, m.process_figures, len(PROCESS)) for m in moments]
        return _columns(moments, PROCESS, rows)


def whole(frame: Frame) -> tuple[float | None, ...]:
    """Everything together, in the order of WHOLE. Latencies: the middle one and the worst of the processes'."""
    cells = [cell for device in frame.devices for cell in device.cells]
    shares = [cell.utilization for cell in cells if cell.utilization is not None]
    medians = sorted(p.latency_p50_us for p in frame.processes if p.latency_p50_us is not None)
    host = frame.host
    cpu = None if host.user is None or host.system is None else host.user + host.system
    memory = None
    if host.memory_total_bytes and host.memory_used_bytes is not None:
        memory = host.memory_used_bytes / host.memory_total_bytes
    return (
        sum(shares) / len(shares) if shares else None,
        min(shares, default=None),
        max(shares, default=None),
        _sum(cell.flops_s for cell in cells),
        _sum(cell.executions_s for cell in cells),
        _sum(cell.errors_s for cell in cells),
        medians[len(medians) // 2] if medians else None,
        max((p.latency_p99_us for p in frame.processes if p.latency_p99_us is not None), default=None),
        sum(sum(device.memory) for device in frame.devices),
        cpu,
        memory,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _floats(values: Iterable[float | None]) -> array[float]:
    return array("f", [nan if value is None else value for value in values])


def _row(who: Sequence[object], wanted: object, figures: array[float], width: int) -> array[float] | None:
    """The figures of one in a moment; None where it was not there."""
    try:
        at = who.index(wanted) * width
    except ValueError:
        return None
    return figures[at : at + width]


def _columns(
    moments: Sequence[Moment], names: Sequence[str], rows: Sequence[Sequence[float] | None]
) -> dict[str, Column]:
    columns: dict[str, Column] = {"wall_s": [moment.wall_s for moment in moments]}
    for i, name in enumerate(names):
        columns[name] = [None if row is None or isnan(row[i]) else row[i] for row in rows]
    return columns
