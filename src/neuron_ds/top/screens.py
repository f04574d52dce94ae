"""The screens beside the main one: details of a process or of a core, and the help."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from neuron_ds.live.frame import Frame
from neuron_ds.top import blocks, keys, tables
from neuron_ds.top.blocks import View
from neuron_ds.top.pane import Pane
from neuron_ds.top.text import Block, Row, left

#: What makes the block of a detail screen: from a Frame and a width.
Maker = Callable[[Frame, int], Block]


class DetailScreen(Screen[None]):
    """One long Block, made anew from every Frame."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,backspace", "back", show=False)]

    def __init__(self, make: Maker) -> None:
        super().__init__()
        self._make = make
        self._frame: Frame | None = None
        self._view = View()
        self._source = ""

    def compose(self) -> ComposeResult:
        yield Pane(id="header", focusable=False)
        yield Pane(id="detail")
        yield Pane(id="keys", focusable=False)

    def on_mount(self) -> None:
        self.query_one("#detail", Pane).styles.height = "1fr"
        self.query_one("#detail", Pane).focus()

    def draw(self, frame: Frame, view: View, source: str) -> None:
        """Show this Frame."""
        self._frame, self._view, self._source = frame, view, source
        width = self.size.width
        if width and self.is_mounted:
            head = blocks.header(frame, view, source, width)
            self.query_one("#header", Pane).show(Block((head,), ()))
            self.query_one("#detail", Pane).show(self._make(frame, width))
            hint = blocks.fitted(
                (("esc", "bold"), (" back  ", ""), ("arrows", "bold"), (" scroll  ", ""), ("q", "bold"), (" quit", "")),
                width,
            )
            self.query_one("#keys", Pane).show(Block((hint,), ()))

    def on_resize(self) -> None:
        if self._frame is not None:
            self.draw(self._frame, self._view, self._source)

    def action_back(self) -> None:
        self.dismiss()


def help_block(_: Frame, width: int) -> Block:
    """All keys, and what the signs mean."""
    rows = [Row(((left(key.shown, 25), "bold"), (key.what, ""))) for key in keys.KEYS]
    rows.append(Row((("", ""),)))
    rows += [Row(((line, ""),)) for note in keys.HELP_NOTES for line in tables.wrapped(note, width)]
    return Block(((("Keys", "bold"),),), tuple(rows))
