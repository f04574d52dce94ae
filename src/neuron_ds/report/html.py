"""HTML as text: elements that escape what is put into them, tables, and numbers as people read them.

What is Markup already is not escaped again; everything else is, wherever it comes from. Nothing of reports is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def put(content: object) -> str:
    """Content as HTML: escaped unless it is Markup; None is a dash, for it is not known."""
    if isinstance(content, Markup):
        return content
    return "–" if content is None else escape(str(content))


def tag(name: str, *content: object, **attributes: str) -> Markup:
    """An element. ``class_`` stands for class."""
    more = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{more}>{''.join(map(put, content))}</{name}>")


def join(parts: Iterable[object]) -> Markup:
    return Markup("".join(map(put, parts)))


#: Columns of these names hold times and words that are never broken.
_WHOLE = frozenset("From To Until At First Last Severity Kind End".split())


def table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], *, right: str = "") -> Markup:
    """A table. Columns whose header is among the words of ``right`` (by |) are numbers."""
    rights = set(right.split("|"))
    styles = [{"class_": "n"} if h in rights else {"class_": "t"} if h in _WHOLE else {} for h in header]
    head = (tag("th", name, scope="col", **style) for name, style in zip(header, styles, strict=True))
    body = (tag("tr", *(tag("td", cell, **style) for cell, style in zip(row, styles, strict=True))) for row in rows)
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *head)), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)


def data_script(identity: str, value: object) -> Markup:
    """Data in the page for programs: no text in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for character, spelled in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        text = text.replace(character, spelled)
    return Markup(f'<script type="application/json" id="{escape(identity)}">{text}</script>')


def size(n: float | None) -> str:
    """Bytes in the largest unit that leaves at least 1."""
    if n is None:
        return "–"
    value, unit = float(n), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def figure(n: float | None) -> str:
    """A number with three digits or more."""
    if n is None:
        return "–"
    return f"{n:,.0f}" if abs(n) >= 100 or n == int(n) else f"{n:.3g}"


def share(n: float | None) -> str:
    return "–" if n is None else f"{100 * n:.1f} %"


def span(seconds: float | None) -> str:
    """A time span."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes, s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {s} s"
