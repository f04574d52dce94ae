"""Series as text: our own writer for the families with so many series that a general one takes a second.

Label text is made once and kept as long as it is used; a family is written as one piece, so that a scrape streams and
holds little. What is written is what prometheus_client writes, line by line. This module knows no metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from neuron_ds.exporter.families import COUNTER, INFO, Family
from neuron_ds.records import printable

Number = int | float

#: From here on a float no longer holds every whole number.
_EXACT = 1 << 53
_PLAIN = 1_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """The series of one family or of several: label values, in the order of ``names``, and the same as text."""

    names: tuple[str, ...]
    values: Sequence[tuple[str, ...]]
    texts: Sequence[str]


class Block(NamedTuple):
    """One family with its series, value by value."""

    family: Family
    rows: Rows
    values: Sequence[Number]


class Labels:
    """Makes label text, with labels that all series share; what was not used since the sweep before is forgotten."""

    def __init__(self, shared: Mapping[str, str]) -> None:
        self.shared = dict(shared)
        self._used: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        self._before = self._used

    def rows(self, names: tuple[str, ...], values: Sequence[tuple[str, ...]]) -> Rows:
        return Rows(names, values, [self._text(names, each) for each in values])

    def _text(self, names: tuple[str, ...], values: tuple[str, ...]) -> str:
        key = names, values
        text = self._used.get(key)
        if text is None:
            text = self._before.get(key)
            if text is None:
                text = label_text({**self.shared, **dict(zip(names, values, strict=True))})
            self._used[key] = text
        return text

    def sweep(self) -> None:
        """Forget what was not used since the last sweep."""
        self._before, self._used = self._used, {}


def clean(text: str) -> str:
    """Text that a label can carry, escaped as everywhere: two tags that differ stay two."""
    return printable(text)


def label_text(labels: Mapping[str, str]) -> str:
    """``{a="1",b="2"}``, by name; "" without labels."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: Number) -> str:
    """A value as prometheus_client writes it, which is Go's way for a float."""
    if type(value) is int and 0 <= value < _EXACT:
        if value < _PLAIN:
            return f"{value}.0"
        digits = str(value)
    else:
        value = float(value)
        text = repr(value)
        if value < _PLAIN or "." not in text:  # small, negative, with an exponent already; nan is no number at all
            return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)
        whole, _, rest = text.partition(".")
        if len(whole) <= 6:
            return text
        return f"{whole[0]}.{whole[1:]}{rest}".rstrip("0.") + f"e+{len(whole) - 1:02d}"
    return f"{digits[0]}.{digits[1:]}".rstrip("0.") + f"e+{len(digits) - 1:02d}"


def write(blocks: Iterable[Block], *, openmetrics: bool = False) -> Iterator[bytes]:
    """The text of each family, one piece for each; the end mark of OpenMetrics is the caller's."""
    for family, rows, values in blocks:
        name = family.sample
        yield (_header(family, openmetrics) + _lines(name, rows.texts, values)).encode()


def _header(family: Family, openmetrics: bool) -> str:
    name, kind = (family.name, family.kind) if openmetrics else (family.sample, family.kind)
    if not openmetrics and kind == INFO:
        kind = "gauge"
    assert kind in (COUNTER, INFO, "gauge")
    return f"# HELP {name} {_help(family.help)}\n# TYPE {name} {kind}\n"


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _lines(name: str, texts: Sequence[str], values: Sequence[Number]) -> str:
    if not texts:
        return ""
    if not any(values):  # most error counters are zero, everywhere and always
        between = f" 0.0\n{name}"
        return name + between.join(texts) + " 0.0\n"
    told = {value: number(value) for value in set(values)}  # many are equal, and a number's text is what costs most
    return "".join([f"{name}{text} {told[value]}\n" for text, value in zip(texts, values, strict=True)])
