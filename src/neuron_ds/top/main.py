"""The main screen: the blocks one below the other, how high each is, and what its keys do to the View."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from neuron_ds.live.details import Node, memory_tree
from neuron_ds.live.frame import Frame
from neuron_ds.top import blocks, details, keys, tables
from neuron_ds.top.blocks import View
from neuron_ds.top.pane import Pane
from neuron_ds.top.screens import DetailScreen, Maker
from neuron_ds.top.text import Block, Piece

if TYPE_CHECKING:
    from neuron_ds.top.app import Top

#: The blocks that share what is left of the screen, and the least that each of them gets where there is room. Cores
#: get up to half of it.
SHARING = {"cores": 3, "tree": 3, "processes": 3, "events": 2}
#: The part of a processor's time that decoding the memory tree may take.
TREE_SHARE = 0.01
#: With more devices than these the memory tree begins folded.
FEW_DEVICES = 2


def arrange(room: int, wants: Sequence[int], least: Sequence[int]) -> list[int]:
    """Heights out of so many lines: to each its least, then in turn what each still wants, the rest to the last."""
    heights = [0] * len(wants)
    for i, (want, enough) in enumerate(zip(wants, least, strict=True)):
        heights[i] = min(want, enough, room)
        room -= heights[i]
    while room and any(height < want for height, want in zip(heights, wants, strict=True)):
        for i, want in enumerate(wants):
            if room and heights[i] < want:
                heights[i] += 1
                room -= 1
    heights[-1] += room
    return heights


def _bindings() -> list[BindingType]:
    found: list[BindingType] = []
    for key in keys.KEYS:
        if "{}" in key.action:
            found += [Binding(name, key.action.format(name), show=False) for name in key.names]
        elif key.action and not key.action.startswith("app."):
            found.append(Binding(",".join(key.names), key.action, show=False))
    return found


class MainScreen(Screen[None]):
    """The four blocks of neuron-top, the processes, the events, and the bottom bar."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings()

    def __init__(self) -> None:
        super().__init__()
        self._frame: Frame | None = None
        self._source = ""
        self._heights: dict[str, int] = {}
        self._zoomed: str | None = None
        self._tree: tuple[Node, ...] = ()
        self._tree_of: tuple[str | None, frozenset[str]] | None = None
        self._tree_at, self._tree_due = 0, 0.0
        self._began_tree = False

    @property
    def top(self) -> Top:
        return cast("Top", self.app)

    def compose(self) -> ComposeResult:
        yield Pane(id="header", focusable=False)
        yield Pane(id="cores")
        yield Pane(id="vcpu", focusable=False)
        yield Pane(id="memory", focusable=False)
        yield Pane(id="tree")
        yield Pane(id="processes")
        yield Pane(id="events")
        yield Input(id="filter", placeholder="part of a tag, or the beginning of a pid; enter keeps, esc clears")
        yield Pane(id="tabs", focusable=False)
        yield Pane(id="keys", focusable=False)

    def on_mount(self) -> None:
        self.pane("tree").focus()

    def pane(self, name: str) -> Pane:
        return self.query_one(f"#{name}", Pane)

    # --- drawing

    def draw(self, frame: Frame, view: View, source: str) -> None:
        """Show this Frame as the View wants it."""
        self._frame, self._source = frame, source
        width, height = self.size
        if not width or not self.is_mounted:
            return
        if not self._began_tree and frame.devices:
            self._began_tree = True
            if len(frame.devices) <= FEW_DEVICES:
                view = replace(view, expanded=frozenset(str(d.device) for d in frame.devices))
                self.top.view = view
        made = {
            "header": Block((blocks.header(frame, view, source, width),), ()),
            "cores": blocks.cores(frame, view, width),
            "vcpu": Block((blocks.vcpu(frame, view),), ()),
            "memory": Block(blocks.memory(frame, view, width), ()),
            "tree": tables.tree(self._memory_nodes(frame, view), view.expanded, width),
            "processes": tables.processes(frame, view, width),
            "events": blocks.events(frame, view, width),
            "tabs": Block((), (blocks.tabs(frame, view, width),)),
            "keys": Block((_keys_line(width),), ()),
        }
        self._arrange(made, height)
        for name, block in made.items():
            self.pane(name).show(block)

    def _memory_nodes(self, frame: Frame, view: View) -> tuple[Node, ...]:
        """The memory tree of this Frame and tab. One that is costly to decode stands for a while."""
        what, now = (view.process, view.expanded), time.monotonic()
        if self._tree_of != what or (now >= self._tree_due and self._tree_at != frame.time_ns):
            began_s = time.thread_time()
            self._tree = tables.nodes_of(frame, view)
            spent_s = time.thread_time() - began_s
            self._tree_of, self._tree_at, self._tree_due = what, frame.time_ns, now + spent_s / TREE_SHARE
        return self._tree

    def _arrange(self, made: dict[str, Block], height: int) -> None:
        if self._zoomed:
            heights = dict.fromkeys([*SHARING, "vcpu", "memory"], 0)
            heights[self._zoomed] = max(1, height - 3)
        else:
            room = max(0, height - 3)  # without header, tabs and keys
            vcpu = 1 if room > 3 else 0
            memory = min(made["memory"].height, room // 4)
            wants = [made[name].height for name in SHARING]
            left = room - vcpu - memory
            least = [max(enough, left // 2) if name == "cores" else enough for name, enough in SHARING.items()]
            shared = arrange(left, wants, least)
            heights = {"vcpu": vcpu, "memory": memory, **dict(zip(SHARING, shared, strict=True))}
        for name, lines in heights.items():
            if self._heights.get(name) != lines:
                pane = self.pane(name)
                pane.display = lines > 0
                if lines:
                    pane.styles.height = lines
        self._heights = heights

    def redraw(self) -> None:
        """Draw the same Frame again, as the View is now."""
        if self._frame is not None:
            self.draw(self._frame, self.top.view, self._source)

    def on_resize(self) -> None:
        self.redraw()

    def _change(self, **what: object) -> None:
        self.top.view = replace(self.top.view, **what)  # type: ignore[arg-type]  # the callers name fields of a View
        self.redraw()

    # --- keys

    def action_tab(self, by: int) -> None:
        """To a neighbour of this tab; behind the last comes the first."""
        if self._frame is not None:
            ids = self._tabs()
            at = ids.index(self.top.view.process) if self.top.view.process in ids else 0
            self._change(process=ids[(at + by) % len(ids)])

    def action_tab_number(self, number: int) -> None:
        if self._frame is not None and number <= len(ids := self._tabs()):
            self._change(process=ids[number - 1])

    def _tabs(self) -> list[str | None]:
        assert self._frame is not None
        return [None, *(p.id for p in blocks.processes_of(self._frame, self.top.view))]

    def action_tree(self) -> None:
        """Open the whole tree; fold it if it is open."""
        if self._frame is not None:
            everything = frozenset(tables.parents(memory_tree(self._frame, self.top.view.process)))
            self._change(expanded=frozenset() if everything <= self.top.view.expanded else everything)

    def action_flops(self) -> None:
        self._change(flops=not self.top.view.flops)

    def action_history(self) -> None:
        self._change(history=not self.top.view.history)

    def action_sort(self) -> None:
        self._change(sort=tables.next_sort(self.top.view.sort), descending=False)

    def action_reverse(self) -> None:
        self._change(descending=not self.top.view.descending)

    def action_zoom(self) -> None:
        """The block with the focus alone on the screen, or all of them again."""
        focused = self.focused.id if self.focused is not None else None
        self._zoomed = None if self._zoomed else focused if focused in SHARING else "cores"
        self.redraw()

    def action_info(self) -> None:
        """Details of the tab's process, or of the one that is chosen in the table."""
        id = self.top.view.process or self.pane("processes").chosen
        if id is not None:
            self._open_process(id)

    def action_back(self) -> None:
        """Out of the filter, out of the zoom, out of a process's tab."""
        if self.query_one("#filter").display or self.top.view.filter:
            self.query_one("#filter", Input).value = ""
            self._close_filter()
            self._change(filter="")
        elif self._zoomed:
            self.action_zoom()
        elif self.top.view.process is not None:
            self._change(process=None)

    # --- the filter

    def action_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.value = self.top.view.filter
        self.pane("tabs").display = False
        field.display = True
        field.focus()

    def _close_filter(self) -> None:
        field = self.query_one("#filter", Input)
        if field.display:
            field.display = False
            self.pane("tabs").display = True
            self.pane("processes" if self._heights.get("processes") else "tree").focus()

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        if event.input.display:
            self._change(filter=event.value.strip())

    @on(Input.Submitted)
    def _filter_kept(self, event: Input.Submitted) -> None:
        self._close_filter()
        self.redraw()

    # --- what is opened

    @on(Pane.Opened)
    def _opened(self, event: Pane.Opened) -> None:
        name, key, how = event.pane.id, event.key, event.how
        opens = how in ("enter", "click")
        if name == "tabs":
            self._change(process=key or None)
        elif name == "tree":
            self._fold(key, how)
        elif name == "processes" and opens:
            self._open_process(key)
        elif name == "cores" and opens:
            device, core = map(int, key.split("/"))
            self._open(lambda frame, width: details.core_block(frame, device, core, width, self.top.view.process))

    def _fold(self, key: str, how: str) -> None:
        """Open or fold a branch; left on a folded one goes to its parent."""
        expanded = self.top.view.expanded
        if key in expanded and how != "right":
            self._change(expanded=expanded - {key})
        elif how == "left":
            if "/" in key:
                self.pane("tree").choose(key.rpartition("/")[0])
        else:
            self._change(expanded=expanded | {key})

    def _open_process(self, id: str) -> None:
        self._open(lambda frame, width: details.process_block(frame, id, width))

    def _open(self, make: Maker) -> None:
        self.top.open_detail(DetailScreen(make))


def _keys_line(width: int) -> tuple[Piece, ...]:
    """As many of the keys as there is room for, the most useful first."""
    pieces: list[Piece] = []
    used = 0
    for name, word in keys.bar_keys():
        if used + len(name) + len(word) + 3 > width:
            break
        pieces += [(name, "bold"), (f" {word}  ", "dim")]
        used += len(name) + len(word) + 3
    return tuple(pieces)
