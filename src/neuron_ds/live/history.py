"""A History keeps the newest values of one figure, None where it was not known; a Past is what it held at one moment.

There are some hundred of them and a picture shows a few: a Past is one copy of packed numbers, and decodes what is
asked for. What the figures mean is not known here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from math import isnan, nan
from typing import overload

#: Values that a history goes back.
KEPT = 120


class Past(Sequence[float | None]):
    """Values, oldest first. Immutable, and equal to a tuple of the same values."""

    __slots__ = ("_values",)

    def __init__(self, values: array[float]) -> None:
        """``values``: nobody else's; not a number is None."""
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> float | None: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[float | None, ...]: ...
    def __getitem__(self, at: int | slice) -> float | tuple[float | None, ...] | None:
        if isinstance(at, slice):
            return tuple([None if isnan(value) else value for value in self._values[at]])
        return None if isnan(self._values[at]) else self._values[at]

    def __iter__(self) -> Iterator[float | None]:
        return iter(self[:])

    def __eq__(self, other: object) -> bool:
        return self[:] == tuple(other) if isinstance(other, (Past, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self[:])

    def __repr__(self) -> str:
        return f"Past({self[:]!r})"


class History:
    """The newest KEPT values of a figure."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, value: float | None) -> Past:
        """One more; gives all that are kept."""
        if len(self._values) == KEPT:
            del self._values[0]
        self._values.append(nan if value is None else value)
        return Past(self._values[:])
