"""Text for a grid of character cells: lines of pieces that know their look, columns, bars, sparklines, compact figures.

A line is a tuple of (text, look) pairs; looks are names such as "bold red" that whoever draws gives a meaning. Widths
are those of terminal cells. This module knows no Frame and no terminal library.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from neuron_ds.records import printable

#: A piece of a line and how it looks.
Piece = tuple[str, str]
Line = tuple[Piece, ...]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
#: For outputs that can't show the above.
PLAIN_SIGNS = str.maketrans(
    {
        **dict.fromkeys(_EIGHTHS[1:4], "-"),
        **dict.fromkeys(_EIGHTHS[4:], "#"),
        **dict(zip(_LEVELS[:-1], "_..--==", strict=True)),
    }
    | {"▼": "-", "▶": "+", "…": "~", "·": ".", "×": "x", "↑": "^", "↓": "v", "█": "#"}
)
NOTHING = "-"
_THOUSANDS = "kMGTP"


class Spot(NamedTuple):
    """A part of a row that can be chosen: from column ``start`` up to ``end``; ``key`` says what it stands for."""

    start: int
    end: int
    key: str


class Row:
    """A line and what can be chosen in it. The line may be made when it is looked at: most rows are out of sight."""

    __slots__ = ("_line", "spots")

    def __init__(self, line: Line | Callable[[], Iterable[Piece]], spots: tuple[Spot, ...] = ()) -> None:
        self._line, self.spots = line, spots

    @property
    def line(self) -> Line:
        if callable(self._line):
            self._line = tuple(self._line())
        return self._line


class Block(NamedTuple):
    """A part of the screen: lines that stay, and rows that scroll below them."""

    fixed: tuple[Line, ...]
    rows: tuple[Row, ...]

    @property
    def height(self) -> int:
        """Lines that show all of it."""
        return len(self.fixed) + len(self.rows)


def row(line: Line | Callable[[], Iterable[Piece]], key: str | None = None, width: int = 0) -> Row:
    """A row that is chosen as a whole, or not at all without a key."""
    return Row(line, (Spot(0, width, key),) if key is not None else ())


def safe(text: str) -> str:
    """A text that commands no terminal, whether it was made printable before or not."""
    return text if text.isprintable() else printable(text)


def plain(line: Line) -> str:
    """The text alone."""
    return "".join(safe(text) for text, _ in line)


# --- Widths -----------------------------------------------------------------------------------------------------------


@lru_cache(1024)
def _cell_width(c: str) -> int:
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def width_of(text: str) -> int:
    """Terminal cells that a text takes."""
    return len(text) if text.isascii() else sum(map(_cell_width, text))


def cut(text: str, width: int) -> str:
    """A text of at most so many cells; what is cut off is told by an ellipsis."""
    if width_of(text) <= width:
        return text
    if text.isascii() and width > 1:
        return text[: width - 1] + "…"
    if width <= 1:
        return "…"[:width]
    kept, used = [], 1
    for c in text:
        used += _cell_width(c)
        if used > width:
            break
        kept.append(c)
    return "".join(kept) + "…"


def left(text: str, width: int) -> str:
    """Exactly so many cells, text to the left."""
    if text.isascii() and len(text) <= width:
        return text.ljust(width)
    text = cut(text, width)
    return text + " " * (width - width_of(text))


def right(text: str, width: int) -> str:
    """Exactly so many cells, text to the right."""
    if text.isascii() and len(text) <= width:
        return text.rjust(width)
    text = cut(text, width)
    return " " * (width - width_of(text)) + text


def flow(parts: Sequence[Sequence[Piece]], width: int, indent: int, gap: int = 2) -> list[list[Piece]]:
    """Parts beside each other, on as many lines as they need; the lines begin behind an indent."""
    lines: list[list[Piece]] = [[]]
    used = indent
    for part in parts:
        size = sum(width_of(text) for text, _ in part)
        if lines[-1] and used + gap + size > width:
            lines.append([])
            used = indent
        if lines[-1]:
            lines[-1].append((" " * gap, ""))
            used += gap
        lines[-1].extend(part)
        used += size
    return lines


# --- Pictures ---------------------------------------------------------------------------------------------------------


def bar(part: float, width: int) -> str:
    """A part of 1 as a bar; what is more than nothing shows at least its thinnest sign."""
    part = min(1.0, max(0.0, part))
    eighths = max(round(part * width * 8), 1 if part > 0 else 0)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def spark(values: Sequence[float | None], width: int, most: float | None = None) -> str:
    """The newest values as a line of columns, the newest to the right. None is a gap; ``most`` is the full height."""
    shown = values[-width:] if width else ()
    if most is None:
        most = max((v for v in shown if v is not None), default=0.0)
    out = []
    for value in shown:
        if value is None:
            out.append(" ")
        elif value <= 0 or not most:
            out.append(_LEVELS[0])
        else:
            out.append(_LEVELS[min(7, max(1, round(value / most * 7)))])
    return "".join(out).rjust(width)


def chart(values: Sequence[float | None], width: int, height: int, most: float) -> list[str]:
    """The newest values as columns over several lines, top line first. None is a gap."""
    shown = values[-width:]
    lines = []
    for level in range(height - 1, -1, -1):
        out = []
        for value in shown:
            eighths = 0 if value is None or most <= 0 else round(min(1.0, value / most) * height * 8) - level * 8
            if level == 0 and value is not None:
                eighths = max(1, eighths)  # zero is a value, and not a gap
            out.append(" " if eighths <= 0 else _LEVELS[min(eighths, 8) - 1])
        lines.append("".join(out).rjust(width))
    return lines


# --- Figures ----------------------------------------------------------------------------------------------------------


def share(part: float | None) -> str:
    """A part of 1 in percent, four cells: `` 37%``."""
    return right(NOTHING, 4) if part is None else f"{part:4.0%}"


def fine_share(part: float | None) -> str:
    """A part of 1 in percent with a decimal."""
    return NOTHING if part is None else f"{part:.1%}"


def rate(value: float | None) -> str:
    """Something per second, at most seven cells."""
    if value is None:
        return NOTHING
    if value < 10_000:
        return f"{value:.1f}"
    unit = 0
    while value >= 1000 and unit < len(_THOUSANDS):
        value, unit = value / 1000, unit + 1
    return f"{value:.1f}{_THOUSANDS[unit - 1]}"


def tera(value: float | None) -> str:
    """FLOP/s in TFLOP/s, at most six cells."""
    if value is None:
        return NOTHING
    value /= 1e12
    if not value:
        return "0"
    if value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def size(n: int | None) -> str:
    """Bytes in powers of 1024, at most five cells: ``1.5G``."""
    if n is None:
        return NOTHING
    value = float(n)
    for unit in ("", "K", "M", "G", "T", "P", "E"):
        if value < 999.5 or unit == "E":
            break
        value /= 1024
    if not unit or value >= 99.95:
        return f"{value:.0f}{unit}"
    return f"{value:.1f}".removesuffix(".0") + unit


def latency(us: float | None) -> str:
    """Microseconds in the unit that suits, at most six cells."""
    if us is None:
        return NOTHING
    if us < 1000:
        return f"{us:.0f}us"
    if us < 1_000_000:
        return f"{us / 1e3:.1f}ms" if us < 100_000 else f"{us / 1e3:.0f}ms"
    return f"{us / 1e6:.1f}s"


def seconds(value: float) -> str:
    """A period: ``0.5 s``, ``30 s``."""
    return f"{value:g} s"


def plural(n: int, word: str) -> str:
    """``1 process``, ``2 processes``."""
    return f"{n} {word}" + ("" if n == 1 else "es" if word.endswith("s") else "s")
