"""A Pane draws a Block line by line: rows that scroll below lines that stay, and one thing chosen among them.

It redraws the lines that changed and no others; that is what keeps the screen cheap. It knows Textual and text, and
nothing of what the text means.
"""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from neuron_ds.top.text import Block, Line, Row, Spot, safe, width_of

_REVERSE = Style(reverse=True)
_STYLES: dict[str, Style] = {}
_NO_COLOR_WORDS = {"red", "green", "yellow", "cyan"}
WHEEL_LINES = 3


def style_of(look: str, *, color: bool) -> Style:
    """The terminal's attributes for a look: its own sixteen colours, or none."""
    name = look if color else " ".join(w for w in look.split() if w not in _NO_COLOR_WORDS)
    style = _STYLES.get(name)
    if style is None:
        style = _STYLES[name] = Style.parse(name) if name else Style.null()
    return style


class Pane(Widget, can_focus=True):
    """A Block on the screen. Says ``Opened`` when the chosen spot is opened, by enter or by a click on it."""

    DEFAULT_CSS = "Pane { height: 1; width: 100%; }"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """A spot was opened. how: "enter", "click" on what was chosen already, "first click", "left" or "right"."""

        def __init__(self, pane: Pane, key: str, how: str) -> None:
            super().__init__()
            self.pane, self.key, self.how = pane, key, how

        @property
        def control(self) -> Pane:
            return self.pane

    def __init__(self, *, id: str, focusable: bool = True) -> None:
        super().__init__(id=id)
        self.can_focus = focusable
        self.block = Block((), ())
        self.chosen: str | None = None
        self.first = 0  #: the row on top
        self._drawn: list[tuple[Line, int, Spot | None]] = []

    # --- what is shown

    def show(self, block: Block) -> None:
        """Show this from now on; only lines that are new are drawn."""
        self.block = block
        if self.chosen is not None and self._place(self.chosen) is None:
            self.chosen = None
        if self.chosen is None and self.has_focus:
            self._choose_first()
        self._update()

    @property
    def lines(self) -> list[str]:
        """What stands on it now, as text."""
        return ["".join(text for text, _ in line) for line, _, _ in self._content()]

    def _content(self) -> list[tuple[Line, int, Spot | None]]:
        """The lines on the screen: what stands there, the place of its row, and what is highlighted in it."""
        height = self.size.height
        fixed, rows = self.block.fixed, self.block.rows
        room = max(0, height - len(fixed))
        self.first = max(0, min(self.first, len(rows) - room))
        below = len(rows) - self.first - room
        content: list[tuple[Line, int, Spot | None]] = []
        for i, line in enumerate(fixed[:height]):
            if i == 0 and (self.first or below > 0) and room >= 0:
                line = self._with_hint(line, max(0, below))
            content.append((line, -1, None))
        for at in range(self.first, min(len(rows), self.first + room)):
            row = rows[at]
            spot = next((s for s in row.spots if s.key == self.chosen), None) if self.has_focus else None
            content.append((row.line, at, spot))
        return content

    def _with_hint(self, line: Line, below: int) -> Line:
        """The title, at its end how many rows are out of sight."""
        hint = " ".join(
            text for text in (f"↑{self.first}" if self.first else "", f"↓{below} more" if below else "") if text
        )
        gap = self.size.width - sum(width_of(text) for text, _ in line) - len(hint)
        if gap > 0:
            return (*line, (" " * gap, ""), (hint, "reverse"))
        text, look = line[0]
        name = text.rstrip()
        room = len(text) - len(name) - len(hint) - 2  # a table's first column often has room
        return ((f"{name}  ", look), (hint, "reverse"), (" " * room, ""), *line[1:]) if room >= 0 else line

    def _update(self) -> None:
        content = self._content()
        old, width = self._drawn, self.size.width
        self._drawn = content
        if not self.size.height:
            return
        changed = [i for i in range(max(len(old), len(content))) if old[i : i + 1] != content[i : i + 1]]
        if changed:
            self.refresh(*(Region(0, i, width, 1) for i in changed))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if y >= len(self._drawn):
            return Strip.blank(width)
        line, _, spot = self._drawn[y]
        color = not self.app.no_color
        strip = Strip([Segment(safe(text), style_of(look, color=color)) for text, look in line if text])
        strip = strip.adjust_cell_length(width)
        if spot is not None and spot.start < width:  # a terminal may be too narrow for it
            before, inside, behind = strip.divide([spot.start, min(spot.end, width), width])
            strip = Strip.join([before, inside.apply_style(_REVERSE), behind])
        elif y == 0 and self.has_focus and self.block.fixed:
            strip = strip.apply_style(Style(underline=True))
        return strip

    def on_resize(self) -> None:
        self._drawn = []
        self._update()

    def on_focus(self) -> None:
        if self.chosen is None:
            self._choose_first()
        self._drawn = []
        self._update()
        self.refresh()

    def on_blur(self) -> None:
        self._drawn = []
        self._update()
        self.refresh()

    # --- choosing

    def _place(self, key: str) -> tuple[int, Spot] | None:
        """The row and the spot of a key."""
        for at, row in enumerate(self.block.rows):
            for spot in row.spots:
                if spot.key == key:
                    return at, spot
        return None

    def _choose_first(self) -> None:
        for row in self.block.rows:
            if row.spots:
                self.chosen = row.spots[0].key
                return

    def choose(self, key: str | None) -> None:
        """Choose what has this key, and bring it into sight."""
        self.chosen = key
        place = None if key is None else self._place(key)
        if place is not None:
            room = max(1, self.size.height - len(self.block.fixed))
            self.first = min(max(self.first, place[0] - room + 1), place[0])
        self._update()

    def action_move(self, by: int) -> None:
        """To the next row that has something to choose; without any, the rows scroll."""
        place = self._place(self.chosen) if self.chosen is not None else None
        if place is None:
            if any(row.spots for row in self.block.rows):
                self._choose_first()
                self.choose(self.chosen)
            else:
                self.scroll_rows(by)
            return
        at, spot = place
        middle = (spot.start + spot.end) / 2
        nxt = at + by
        while 0 <= nxt < len(self.block.rows):
            spots = self.block.rows[nxt].spots
            if spots:
                self.choose(min(spots, key=lambda s: abs((s.start + s.end) / 2 - middle)).key)
                return
            nxt += by
        self.scroll_rows(by)

    def action_sideways(self, by: int) -> None:
        """To the next spot of the row; in a row with one spot it is for the others to say what that means."""
        place = self._place(self.chosen) if self.chosen is not None else None
        if place is None:
            self.action_move(by)
            return
        at, spot = place
        spots = self.block.rows[at].spots
        if len(spots) > 1:
            self.choose(spots[max(0, min(len(spots) - 1, spots.index(spot) + by))].key)
        else:
            self.post_message(self.Opened(self, spot.key, "left" if by < 0 else "right"))

    def action_page(self, by: int) -> None:
        room = max(1, self.size.height - len(self.block.fixed))
        self._choose_near(by * room)

    def action_end(self, by: int) -> None:
        self._choose_near(by * len(self.block.rows))

    def _choose_near(self, by: int) -> None:
        """Go so many rows, or as many as there are, to the next that has something to choose."""
        place = self._place(self.chosen) if self.chosen is not None else None
        if place is None:
            self.scroll_rows(by)
            return
        rows: list[Row] = list(self.block.rows)
        aim = max(0, min(len(rows) - 1, place[0] + by))
        able = [at for at, row in enumerate(rows) if row.spots]
        self.choose(rows[min(able, key=lambda at: abs(at - aim))].spots[0].key)

    def action_open(self) -> None:
        if self.chosen is not None:
            self.post_message(self.Opened(self, self.chosen, "enter"))

    def scroll_rows(self, by: int) -> None:
        """Move what is in sight; what is chosen stays chosen."""
        self.first += by
        self._update()

    # --- mouse

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        if event.y >= len(self._drawn):
            return
        _, at, _ = self._drawn[event.y]
        spots = self.block.rows[at].spots if 0 <= at < len(self.block.rows) else ()
        spot = next((s for s in spots if s.start <= event.x < s.end), None)
        if spot is not None:
            how = "click" if self.chosen == spot.key else "first click"
            self.choose(spot.key)
            self.post_message(self.Opened(self, spot.key, how))
