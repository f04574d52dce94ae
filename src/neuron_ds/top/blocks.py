"""The blocks of the screen as lines of text: header, cores, vCPU, memory, events, tabs. Pure functions of a Frame.

What is chosen, filtered or switched stands in a ``View``. Marks are words and signs, so that they are there without
colours too. Nothing here knows a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from neuron_ds.live.frame import DEVICE_MEMORY, HOST_MEMORY, Cell, DeviceFrame, Event, Frame, ProcessFrame
from neuron_ds.top import text as t
from neuron_ds.top.text import Block, Line, Piece, Row, Spot, row

MARKS = {"hung": "!", "slow": "~"}
WORDS = {"hung": "HUNG", "slow": "SLOW"}
LOOKS = {"hung": "bold red", "slow": "bold yellow", "idle": "dim", "unknown": "dim"}
SEVERITY_LOOKS = {"critical": "bold red", "warning": "yellow", "info": ""}
#: Names as neuron-top has them.
MEMORY_NAMES = {
    "application_memory": "application",
    "dma_buffers": "DMA buffers",
    "model_code": "model code",
    "model_shared_scratchpad": "scratchpad",
    "runtime_memory": "runtime memory",
}
#: Cells that a core needs, and those with which it gets a history beside its bar.
LEAST_CELL, ROOMY_CELL, MOST_CELL = 7, 17, 36
_INDENT, _LABEL = 5, 11


@dataclass(frozen=True, slots=True)
class View:
    """What the user has chosen. process: the id of the tab's, None for all. expanded: keys of the memory tree.
    period_s: how often there is a new picture, 0 for one and no other."""

    process: str | None = None
    flops: bool = False
    history: bool = False
    filter: str = ""
    sort: str = "device"
    descending: bool = False
    expanded: frozenset[str] = field(default=frozenset())
    paused: bool = False
    period_s: float = 1.0


# --- Which processes --------------------------------------------------------------------------------------------------


def matches(process: ProcessFrame, wanted: str) -> bool:
    """Whether a filter lets a process through: a part of its tag, or the beginning of its pid."""
    return wanted.lower() in process.tag.lower() or str(process.pid).startswith(wanted)


def processes_of(frame: Frame, view: View) -> list[ProcessFrame]:
    """Those that the filter lets through, in the frame's order."""
    return [p for p in frame.processes if not view.filter or matches(p, view.filter)]


def name_of(process: ProcessFrame) -> str:
    """What a process is called: its tag, which is its pid where it has none."""
    return process.tag or str(process.pid)


def chosen(frame: Frame, view: View) -> ProcessFrame | None:
    """The process of the tab, None for all."""
    return frame.process(view.process) if view.process else None


# --- Header and tabs --------------------------------------------------------------------------------------------------


def header(frame: Frame, view: View, title: str, width: int) -> Line:
    """What is looked at, how much of it there is, what is wrong, and when it was."""
    clock = time.strftime("%H:%M:%S", time.localtime(frame.wall_s))
    shown, there = len(processes_of(frame, view)), len(frame.processes)
    many = t.plural(there, "process") if shown == there else f"{shown} of {t.plural(there, 'process')}"
    parts: list[Piece] = [
        ("neuron-ds top", "bold"),
        (f"  {title}", ""),
        (f"  {t.plural(len(frame.devices), 'device')}  {many}", ""),
        (f"  {_period(frame, view)}", "dim"),
    ]
    if view.paused:
        parts.append(("  PAUSED", "bold yellow"))
    if view.filter:
        parts.append((f"  /{view.filter}", "cyan"))
    if frame.findings:
        worst = max(f.severity for f in frame.findings).name.lower()
        parts.append((f"  {t.plural(len(frame.findings), 'finding')}", SEVERITY_LOOKS[worst]))
    return (*fitted(parts, width - len(clock) - 1), (" " + clock, ""))


def _period(frame: Frame, view: View) -> str:
    if view.period_s:
        return f"every {t.seconds(view.period_s)}"
    return "" if frame.period_s is None else f"over {frame.period_s:.1f} s"


def fitted(pieces: Iterable[Piece], width: int) -> Line:
    """Exactly so many cells of a line."""
    out: list[Piece] = []
    for text, look in pieces:
        if t.width_of(text) >= width:
            out.append((t.cut(text, width), look))
            width -= t.width_of(out[-1][0])
            break
        out.append((text, look))
        width -= t.width_of(text)
    if width > 0:
        out.append((" " * width, ""))
    return tuple(out)


def tabs(frame: Frame, view: View, width: int) -> Row:
    """All and one per process, the chosen one always to be seen; the first nine have their key before them."""
    names = [("All", ""), *((name_of(p), p.id) for p in processes_of(frame, view))]
    labels = [f" {f'{i} ' if i <= 9 else ''}{t.cut(name, 20)} " for i, (name, _) in enumerate(names, 1)]
    at = next((i for i, (_, id) in enumerate(names) if id == (view.process or "")), 0)
    first = at
    used = t.width_of(labels[at]) + 2  # room for the two arrows
    while first > 0 and used + t.width_of(labels[first - 1]) <= width:
        first -= 1
        used += t.width_of(labels[first])
    pieces: list[Piece] = [("<" if first else " ", "dim")]
    spots, column = [], 1
    for i in range(first, len(names)):
        label = labels[i]
        if column + t.width_of(label) + 1 > width:
            pieces.append((">", "dim"))
            break
        pieces.append((label, "reverse" if i == at else ""))
        spots.append(Spot(column, column + t.width_of(label), names[i][1]))
        column += t.width_of(label)
    return Row(tuple(pieces), tuple(spots))


# --- Cores ------------------------------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """How the cells of the cores are laid out."""

    width: int  #: of a cell, its gap included
    per_line: int
    value: int
    bar: int
    spark: int


def core_key(device: int, core: int) -> str:
    """What a chosen core is called."""
    return f"{device}/{core}"


def cores(frame: Frame, view: View, width: int) -> Block:
    """A line per device, a column per core: bar, percentage or TFLOP/s, and history where there is room."""
    process = chosen(frame, view)
    grid = list(_grid(frame, process))
    cells = [cell for _, row_cells in grid for cell in row_cells]
    shape = _shape(max((len(row_cells) for _, row_cells in grid), default=1), view, width, history=process is None)
    most = max((c.flops_s or 0.0 for c in cells), default=0.0) if view.flops else 1.0
    rows: list[Row] = []
    for device, row_cells in grid:
        histories = dict(zip((c.core for c in device.cells), device.utilization_history, strict=False))
        for first in range(0, len(row_cells), shape.per_line):
            pieces: list[Piece] = [(t.left("" if first else f"ND{device.device}", _INDENT), "bold")]
            spots, column = [], _INDENT
            for cell in row_cells[first : first + shape.per_line]:
                history = histories.get(cell.core, ()) if process is None else ()
                pieces += _cell(cell, shape, view, most, history)
                spots.append(Spot(column, column + shape.width - 1, core_key(cell.device, cell.core)))
                column += shape.width
            rows.append(Row(tuple(pieces), tuple(spots)))
        if device.error:
            name = "" if row_cells else f"ND{device.device}"
            rows.append(Row(((t.left(name, _INDENT), "bold"), (t.cut(f"! {device.error}", width - _INDENT), "red"))))
    if not grid:
        why = "this process uses no core yet" if process else frame.error or frame.empty or "no device"
        rows.append(Row(((t.cut(why, width), ""),)))
    heading = " " * _INDENT + "".join(
        t.left(f" NC{i}", shape.width) for i in range(min(shape.per_line, max((len(c) for _, c in grid), default=0)))
    )
    return Block((_cores_title(cells, view), ((heading[:width], "dim"),)), tuple(rows))


def _grid(frame: Frame, process: ProcessFrame | None) -> Iterator[tuple[DeviceFrame, tuple[Cell, ...]]]:
    """The devices to be shown, and their cells: of all, or of one process, whose unused cores stay in their places."""
    if process is None:
        yield from ((device, device.cells) for device in frame.devices)
        return
    mine: dict[int, dict[int, Cell]] = {}
    for slab in process.slabs:
        mine.setdefault(slab.device, {}).update((cell.core, cell) for cell in slab.cells)
    for number, cells in sorted(mine.items()):
        device = frame.by_device.get(number)
        if device is not None:
            yield device, tuple(cells.get(c.core, Cell(number, c.core, c.physical)) for c in device.cells)


def _shape(columns: int, view: View, width: int, *, history: bool) -> _Shape:
    columns = max(1, columns)
    room = max(width - _INDENT, LEAST_CELL)
    value = 7 if view.flops else 5  # a gap before it among them
    least = LEAST_CELL + value - 5
    per_line = min(columns, max(1, room // least))
    cell = min(MOST_CELL, room // per_line)
    rest = cell - 2 - value  # without the mark and the gap behind it
    if rest < 2:
        return _Shape(cell, per_line, value, 0, 0)
    if history and cell >= ROOMY_CELL and not view.flops:
        spark = rest // 2
        return _Shape(cell, per_line, value, rest - 1 - spark, spark)
    return _Shape(cell, per_line, value, rest, 0)


def _cell(cell: Cell, shape: _Shape, view: View, most: float, history: Sequence[float | None]) -> Iterator[Piece]:
    value = cell.flops_s if view.flops else cell.utilization
    word, look = WORDS.get(cell.state, ""), LOOKS.get(cell.state, "")
    part = (value or 0.0) / most if most else 0.0
    yield MARKS.get(cell.state, " "), look
    if shape.bar:
        if view.history and not shape.spark:
            yield t.spark(history, shape.bar, 1.0), look or "cyan"
        elif word and shape.bar >= len(word):
            yield t.left(word, shape.bar), look
        else:
            yield t.bar(part, shape.bar), look or ("yellow" if part > 0.9 else "green")
    text = t.tera(value) if view.flops else t.share(value)
    yield t.right(text, shape.value), look
    if shape.spark:
        yield " " + t.spark(history, shape.spark, 1.0), "cyan"
    yield " ", ""


def _cores_title(cells: Sequence[Cell], view: View) -> Line:
    if view.flops:
        known = [c.flops_s for c in cells if c.flops_s is not None]
        text = f"NeuronCore TFLOP/s  total {t.tera(sum(known) if known else None)}"
    else:
        text = f"NeuronCore utilization  average {t.share(average(cells)).strip()}"
    pieces = [(text, "bold")]
    for state in ("hung", "slow"):
        if n := sum(cell.state == state for cell in cells):
            pieces.append((f"  {MARKS[state]} {n} {state}", LOOKS[state]))
    return tuple(pieces)


def average(cells: Iterable[Cell]) -> float | None:
    """The mean utilization of those whose is known."""
    known = [c.utilization for c in cells if c.utilization is not None]
    return sum(known) / len(known) if known else None


# --- vCPU and memory --------------------------------------------------------------------------------------------------


def vcpu(frame: Frame, view: View) -> Line:
    """User and system share of the host's processors: of the whole host, and of the runtimes or the one chosen."""
    process = chosen(frame, view)
    wanted = frame.processes if process is None else (process,)
    user, system = (_sum(p.vcpu_user for p in wanted), _sum(p.vcpu_system for p in wanted))
    count = "" if frame.host.vcpus is None else f" ({frame.host.vcpus})"
    return (
        (f"vCPU{count}", "bold"),
        ("  system: ", "dim"),
        (f"user {t.fine_share(frame.host.user)}  system {t.fine_share(frame.host.system)}", ""),
        ("   runtime: ", "dim"),
        (f"user {t.fine_share(user)}  system {t.fine_share(system)}", ""),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def memory(frame: Frame, view: View, width: int) -> tuple[Line, ...]:
    """Host and device memory of all runtimes, or of the one chosen, by what it is used for."""
    process = chosen(frame, view)
    if process is None:
        host = _columns((p.host_memory for p in frame.processes), len(HOST_MEMORY))
        device = _columns((d.memory for d in frame.devices), len(DEVICE_MEMORY))
    else:
        host, device = process.host_memory, process.device_memory
    return (*_memory("Host mem", HOST_MEMORY, host, width), *_memory("Device mem", DEVICE_MEMORY, device, width))


def _columns(rows: Iterable[Sequence[int]], n: int) -> tuple[int, ...]:
    total = [0] * n
    for values in rows:
        for i, value in enumerate(values):
            total[i] += value
    return tuple(total)


def _memory(title: str, kinds: Sequence[str], values: Sequence[int], width: int) -> Iterator[Line]:
    parts: list[list[Piece]] = [[("total ", "dim"), (t.size(sum(values)), "bold")]]
    parts += [[(f"{memory_name(k)} ", "dim"), (t.size(v), "")] for k, v in zip(kinds, values, strict=True)]
    for i, line in enumerate(t.flow(parts, width, _LABEL)):
        yield ((t.left("" if i else title, _LABEL), "bold"), *line)


def memory_name(kind: str) -> str:
    """What a kind of memory is called."""
    return MEMORY_NAMES.get(kind, kind)


# --- Events -----------------------------------------------------------------------------------------------------------

_EVENT_LOOKS = {"error": "red", "died": "bold red", "came": "green", "left": "dim", "cleared": "green"}


def events(frame: Frame, view: View, width: int) -> Block:
    """What happened, the newest first: time, process, core, and what it was; of the chosen and filtered ones."""
    process = chosen(frame, view)
    ids = None
    if process is not None:
        ids = {process.id}
    elif view.filter:
        ids = {p.id for p in processes_of(frame, view)}
    wanted = [e for e in reversed(frame.events) if ids is None or e.process in ids or _tagged(e, view, process)]
    errors = sum(e.count for e in wanted if e.kind == "error" and e.counter)
    title: list[Piece] = [("Events", "bold")]
    if wanted:
        title.append((f"  {len(wanted)}", ""))
    if errors:
        title.append((f"  with {t.plural(errors, 'error')} counted", "red"))
    rows = tuple(row(event_line(e, width)) for e in wanted) or (row((("nothing happened since the start", "dim"),)),)
    return Block((tuple(title),), rows)


def _tagged(event: Event, view: View, process: ProcessFrame | None) -> bool:
    """Whether a filter lets an event through whose process has left."""
    return process is None and bool(event.tag) and view.filter.lower() in event.tag.lower()


@lru_cache(1024)
def event_line(event: Event, width: int) -> Line:
    """One event; errors carry a sign."""
    look = _EVENT_LOOKS.get(event.kind) or SEVERITY_LOOKS.get(event.severity, "")
    sign = "!" if event.kind in ("error", "died", "began") else " "
    place = "" if event.device is None else f"ND{event.device}"
    place += "" if event.core is None else f" NC{event.core}"
    who = "" if event.pid is None else f"{event.pid} {t.cut(event.tag, 18)}".strip()
    if event.tag == str(event.pid):
        who = event.tag
    clock = time.strftime("%H:%M:%S", time.localtime(event.wall_s))
    what = "over: " + event.text if event.kind == "cleared" else event.text
    head: list[Piece] = [(clock, "dim"), (f" {sign} ", look)]
    for text, least in ((who, 17), (place, 9)):
        head.append((t.left(text, max(least, t.width_of(text))) + " ", ""))
    used = sum(t.width_of(piece) for piece, _ in head)
    return (*head, (t.cut(what, max(0, width - used)), look))
