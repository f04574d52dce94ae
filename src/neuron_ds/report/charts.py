"""Pictures as inline SVG: a heatmap, lines, and a timeline of bars. Plain functions of labels and values.

Every picture has a name for those who hear it instead of seeing it, and stays small: neighbours that look alike are
one shape. Whatever text comes in is escaped here. What the values mean is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from neuron_ds.report.columns import runs

Values = Sequence[float | int | None]
WIDTH, LEFT, RIGHT, TOP = 1000, 190, 10, 6
PLOT = WIDTH - LEFT - RIGHT
AXIS = 20
#: Shades of the heatmap, and lines that one picture can hold.
SHADES, LINES = 11, 8
_LABEL = 30  # characters that stand beside a row


@dataclass(frozen=True, slots=True)
class Time:
    """The time axis: how long it is, and the wall clock's text for a second of it."""

    seconds: float
    text: Callable[[float], str]

    def x(self, second: float) -> float:
        return LEFT + PLOT * min(1.0, max(0.0, second / self.seconds if self.seconds > 0 else 0.0))


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a row of the timeline. style: a class of the style sheet."""

    from_s: float
    to_s: float
    style: str
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the timeline. marks: seconds at which something happened, with what is said of it."""

    label: str
    bars: Sequence[Bar]
    marks: Sequence[tuple[float, str]] = field(default=())


def heatmap(name: str, rows: Sequence[tuple[str, str, Values]], time: Time) -> str:
    """Rows of (label, title, shares from 0 to 1)."""
    height = 14 if len(rows) <= 64 else 8 if len(rows) <= 256 else 4
    shapes = []
    for number, (label, title, values) in enumerate(rows):
        y = TOP + number * height
        shapes.append(f"<g><title>{escape(title)}</title>")
        shapes += _shades(values, y, height - 1)
        if height >= 8:
            shapes.append(_label(label, y + height / 2))
        shapes.append("</g>")
    return _svg(name, TOP + len(rows) * height, shapes, time)


def _shades(values: Values, y: float, height: float) -> Iterable[str]:
    """A path for each shade of a row."""
    width = PLOT / max(1, len(values))
    paths: dict[str, list[str]] = {}
    shades = ("x" if v is None else str(min(SHADES - 1, round(v * (SHADES - 1)))) for v in values)
    for shade, first, behind in runs(shades):
        x, w = LEFT + first * width, (behind - first) * width
        paths.setdefault(str(shade), []).append(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(height)}h{_n(-w)}z")
    for shade, parts in sorted(paths.items()):
        yield f'<path class="h{shade}" d="{"".join(parts)}"/>'


def lines(
    name: str,
    series: Sequence[tuple[str, Values]],
    time: Time,
    shown: Callable[[float], str],
    *,
    binary: bool = False,
) -> str:
    """Lines of (label, values), at most LINES of them, from 0 to the highest; unknown values leave a gap.

    ``binary``: the scale goes by powers of two, as bytes do.
    """
    height = 150
    most = max((v for _, values in series for v in values if v is not None), default=0.0)
    top = _round_up(most, 2.0, (1, 1.5, 2)) if binary else _round_up(most, 10.0, (1, 2, 4, 5, 8, 10))
    shapes = []
    for part in range(5):
        y = TOP + height - height * part / 4
        shapes.append(f'<path class="grid" d="M{LEFT} {_n(y)}h{PLOT}"/>')
        shapes.append(f'<text class="tick" x="{LEFT - 6}" y="{_n(y + 4)}">{escape(shown(top * part / 4))}</text>')
    for number, (label, values) in enumerate(series[:LINES]):
        path = _line(values, height, top)
        shapes.append(f'<g><title>{escape(label)}</title><path class="l{number}" d="{path}"/></g>')
    return _svg(name, TOP + height, shapes, time)


def _line(values: Values, height: float, top: float) -> str:
    """A step for each column: a value stands for all of it."""
    width, out, pen = PLOT / max(1, len(values)), [], False
    for value, first, behind in runs(values):
        if not isinstance(value, (int, float)):
            pen = False
            continue
        y = TOP + height - height * (value / top if top else 0.0)
        x = LEFT + first * width
        out.append(f"V{_n(y)}" if pen else f"M{_n(x)} {_n(y)}")
        out.append(f"H{_n(LEFT + behind * width)}")
        pen = True
    return "".join(out)


def timeline(name: str, rows: Sequence[Row], time: Time) -> str:
    """Bars and marks by row."""
    height, shapes = 20, []
    for number, row in enumerate(rows):
        y = TOP + number * height
        shapes.append(_label(row.label, y + height / 2))
        for bar in row.bars:
            x = time.x(bar.from_s)
            w = max(2.0, time.x(bar.to_s) - x)
            shapes.append(
                f'<rect class="{escape(bar.style)}" x="{_n(x)}" y="{y + 3}" width="{_n(w)}" height="{height - 6}">'
                f"<title>{escape(bar.title)}</title></rect>"
            )
        for second, said in row.marks:
            x = time.x(second)
            shapes.append(f'<path class="mark" d="M{_n(x)} {y + 1}v{height - 2}"><title>{escape(said)}</title></path>')
    return _svg(name, TOP + len(rows) * height, shapes, time)


def _svg(name: str, bottom: float, shapes: Iterable[str], time: Time) -> str:
    """The picture, with the time below it."""
    out = [
        f'<svg role="img" aria-label="{escape(name)}" viewBox="0 0 {WIDTH} {_n(bottom + AXIS)}" '
        f'preserveAspectRatio="xMidYMin meet">',
        *shapes,
    ]
    for part in range(7):
        x = LEFT + PLOT * part / 6
        anchor = "start" if part == 0 else "end" if part == 6 else "middle"
        out.append(f'<path class="grid" d="M{_n(x)} {_n(bottom)}v4"/>')
        out.append(
            f'<text class="time" text-anchor="{anchor}" x="{_n(x)}" y="{_n(bottom + 15)}">'
            f"{escape(time.text(time.seconds * part / 6))}</text>"
        )
    return "".join((*out, "</svg>"))


def _label(label: str, y: float) -> str:
    short = label if len(label) <= _LABEL else label[: _LABEL - 1] + "…"
    return f'<text class="row" x="{LEFT - 6}" y="{_n(y + 3.5)}">{escape(short)}</text>'


def _n(value: float) -> str:
    """A coordinate: a tenth is finer than a screen."""
    return f"{value:.1f}".removesuffix(".0")


def _round_up(value: float, base: float, steps: Sequence[float]) -> float:
    """The next of these steps, times a power of the base."""
    if value <= 0:
        return 1.0
    power = base ** math.floor(math.log(value, base) + 1e-9)
    return next((power * step for step in steps if power * step >= value * (1 - 1e-9)), power * base)
