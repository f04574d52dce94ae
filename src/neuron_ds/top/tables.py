"""The table of processes and the tree of memory, as lines of text. Pure functions of a Frame and of a View."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from neuron_ds.live.details import Node, memory_tree
from neuron_ds.live.frame import Frame, ProcessFrame, SlabFrame
from neuron_ds.top import text as t
from neuron_ds.top.blocks import View, chosen, name_of, processes_of
from neuron_ds.top.text import Block, Line, Piece, Row, row

STATE_LOOKS = {"dead": "bold red", "unreadable": "bold red"}


# --- Order ------------------------------------------------------------------------------------------------------------


def _known(value: float | None) -> tuple[bool, float]:
    """What is not known is less than any value."""
    return value is not None, value or 0.0


#: What the table can be ordered by, in the order in which a key goes through them; the largest figures come first.
SORTS: Mapping[str, Callable[[ProcessFrame], object]] = {
    "device": lambda p: (
        min((slab.device, -1 if slab.slot is None else slab.slot) for slab in p.slabs) if p.slabs else ()
    ),
    "tag": lambda p: name_of(p).lower(),
    "pid": lambda p: p.pid,
    "utilization": lambda p: _known(p.utilization),
    "executions": lambda p: _known(p.executions_s),
    "latency": lambda p: _known(p.latency_p99_us),
    "errors": lambda p: p.errors,
    "memory": lambda p: sum(p.device_memory),
}
#: Those that begin with the smallest.
ASCENDING = ("device", "tag", "pid")


def ordered(processes: Iterable[ProcessFrame], view: View) -> list[ProcessFrame]:
    """In the order that was chosen; equal ones keep their places."""
    descending = (view.sort not in ASCENDING) != view.descending
    return sorted(processes, key=SORTS[view.sort], reverse=descending)  # type: ignore[arg-type]  # each key's are alike


def next_sort(sort: str) -> str:
    """The next thing to order by."""
    names = list(SORTS)
    return names[(names.index(sort) + 1) % len(names)]


# --- Processes --------------------------------------------------------------------------------------------------------

#: Heading, width, what it is ordered by, and the figure. The tag comes before them and takes what is left.
_Column = tuple[str, int, str, Callable[[ProcessFrame], str]]
_COLUMNS: tuple[_Column, ...] = (
    ("PID", 8, "pid", lambda p: str(p.pid)),
    ("DEV", 6, "device", lambda p: spans(sorted({slab.device for slab in p.slabs}))),
    ("UTIL", 5, "utilization", lambda p: t.share(p.utilization)),
    ("EXEC/S", 8, "executions", lambda p: t.rate(p.executions_s)),
    ("P50", 7, "", lambda p: t.latency(p.latency_p50_us)),
    ("P99", 7, "latency", lambda p: t.latency(p.latency_p99_us)),
    ("ERRORS", 8, "errors", lambda p: f"{p.errors}"),
    ("DEVMEM", 7, "memory", lambda p: t.size(sum(p.device_memory))),
)
_MORE: tuple[_Column, ...] = (
    ("HOSTMEM", 8, "", lambda p: t.size(sum(p.host_memory))),
    ("MODELS", 7, "", lambda p: str(p.models)),
)
_LEAST_TAG, _SPARK = 12, 14


def processes(frame: Frame, view: View, width: int) -> Block:
    """A row per process with what it does; a process or slab that can't be read says so in its place."""
    columns = _COLUMNS
    spare = width - 2 - _LEAST_TAG - sum(c[1] for c in columns)
    if spare >= sum(c[1] for c in _MORE):
        columns += _MORE
        spare -= sum(c[1] for c in _MORE)
    sparks = min(2, max(0, (spare - 6) // (_SPARK + 1)))
    tag = width - 2 - sum(c[1] for c in columns) - sparks * (_SPARK + 1)
    wanted = ordered(processes_of(frame, view), view)
    title: list[Piece] = [("Processes", "bold"), (f"  {len(wanted)}", "")]
    if view.filter:
        title.append((f"  of {len(frame.processes)} with {view.filter!r}", "cyan"))
    arrow = "↑" if (view.sort in ASCENDING) != view.descending else "↓"
    title.append((f"  by {view.sort} {arrow}", "dim"))
    heading = t.left("  TAG", tag + 2) + "".join(t.right(name, w) for name, w, _, _ in columns)
    heading += "".join(" " + t.right(name, _SPARK) for name in ("EXEC/S HISTORY", "P50 HISTORY")[:sparks])
    rows: list[Row] = []
    for p in wanted:
        rows.append(row(partial(_process, p, columns, tag, sparks), p.id, width))
        rows += _slab_errors(p, width)
    if not rows:
        if view.filter and frame.processes:
            why = f"no process has {view.filter!r} in its tag or begins with it in its pid; esc clears the filter"
        else:
            why = frame.empty or "no process"
        rows = [Row(((line, ""),)) for line in wrapped(why, width)]
    return Block((tuple(title), ((t.cut(heading, width), "dim"),)), tuple(rows))


def _process(p: ProcessFrame, columns: Sequence[_Column], tag: int, sparks: int) -> Iterator[Piece]:
    states = {cell.state for cell in p.cells}
    mark, look = ("!", "bold red") if "hung" in states else ("~", "bold yellow") if "slow" in states else (" ", "")
    if p.state != "running":
        yield "! ", STATE_LOOKS[p.state]
        yield t.left(name_of(p), tag) + t.right(str(p.pid), 8), ""
        yield f"  {p.state.upper()}", STATE_LOOKS[p.state]
        if p.error:
            yield f": {p.error}", ""
        return
    yield f"{mark} ", look
    yield t.left(f"{name_of(p)}{' (other pid namespace)' if p.foreign else ''}", tag), look
    for name, width, _, text in columns:
        yield t.right(text(p), width), "red" if name == "ERRORS" and p.errors else ""
    for values in (p.executions_history, p.latency_history)[:sparks]:
        yield " " + t.spark(values, _SPARK), "cyan"


def _slab_errors(p: ProcessFrame, width: int) -> Iterator[Row]:
    if p.state == "running":
        for slab in p.slabs:
            if slab.error:
                slot = "" if slab.slot is None else f" slot {slab.slot}"
                yield Row(((t.cut(f"    ! ND{slab.device}{slot} UNREADABLE: {slab.error}", width), "red"),))


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: ``0-3,6``."""
    out = []
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        members = [number for _, number in run]
        out.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0]))
    return ",".join(out)


def wrapped(text: str, width: int) -> list[str]:
    """A sentence over as many lines as it needs."""
    lines, line = [], ""
    for word in text.split():
        if line and t.width_of(line) + 1 + t.width_of(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


# --- Memory details ---------------------------------------------------------------------------------------------------


def nodes_of(frame: Frame, view: View) -> tuple[Node, ...]:
    """The memory tree of the tab. Models, of which there may be thousands, are decoded only of devices that are open;
    of the others the gauges say how much there is."""
    process = chosen(frame, view)
    wanted = frame.processes if process is None else (process,)
    used: dict[int, list[SlabFrame]] = {}
    for slab in (slab for p in wanted for slab in p.slabs):
        used.setdefault(slab.device, []).append(slab)
    opened = tuple(d for d in frame.devices if str(d.device) in view.expanded)
    decoded = {node.key: node for node in memory_tree(replace(frame, devices=opened), view.process)} if opened else {}
    nodes = []
    for device in frame.devices:
        slabs, key = used.get(device.device, ()), str(device.device)
        if key in decoded:
            nodes.append(decoded[key])
        elif process is None:
            nodes.append(_folded(key, sum(device.memory), sum(device.host_memory)))
        elif slabs:
            cells = sum(cell.memory_bytes for slab in slabs for cell in slab.cells)
            nodes.append(_folded(key, cells, sum(sum(slab.host_memory) for slab in slabs)))
    return tuple(nodes)


def _folded(key: str, device_bytes: int, host_bytes: int) -> Node:
    inside = Node(f"{key}/folded", "", device_bytes, host_bytes)
    return Node(key, f"ND{key}", device_bytes, host_bytes, (inside,))


def tree(nodes: Sequence[Node], expanded: frozenset[str], width: int) -> Block:
    """Device, core, model, with device and host memory; what has children can be expanded."""
    label = max(10, width - 28)
    heading = (
        (t.left("Memory details", label), "bold"),
        (t.right("device memory", 14) + t.right("host memory", 14), "dim"),
    )
    rows = tuple(
        row(partial(_node, node, depth, expanded, label), node.key, width) for node, depth in _visible(nodes, expanded)
    )
    return Block((heading,), rows or (Row((("no memory in use", "dim"),)),))


def _visible(nodes: Sequence[Node], expanded: frozenset[str], depth: int = 0) -> Iterator[tuple[Node, int]]:
    for node in nodes:
        yield node, depth
        if node.key in expanded:
            yield from _visible(node.children, expanded, depth + 1)


def _node(node: Node, depth: int, expanded: frozenset[str], label: int) -> Line:
    sign = " " if not node.children else "▼" if node.key in expanded else "▶"
    name = t.left(f"{'  ' * depth}{sign} {node.label}", label)
    look = "" if node.device_bytes or node.host_bytes else "dim"
    return ((name, look), (t.right(t.size(node.device_bytes), 14), look), (t.right(t.size(node.host_bytes), 14), look))


def parents(nodes: Sequence[Node]) -> Iterator[str]:
    """The keys of all that can be expanded."""
    for node in nodes:
        if node.children:
            yield node.key
            yield from parents(node.children)
