"""Time in columns: a recording of any length in at most so many, and the series that are summed up in them.

What happens between two looks is shared out over the columns that the time between them covers. Columns in which the
recording has no tick are not known: None, which is not 0. Nothing is known here of counters.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

MOST_COLUMNS = 600
_NICE_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400),
)


class Columns:
    """Columns of equal width from ``start_ns`` on; ``share`` says which of them a time covers."""

    def __init__(self, start_ns: int, end_ns: int, least_ns: int) -> None:
        """``least_ns``: no column is narrower."""
        self.start_ns, self.end_ns = start_ns, max(end_ns, start_ns + 1)
        wanted = max(least_ns, -(-(self.end_ns - start_ns) // MOST_COLUMNS))
        nice = (round(s * 1e9) for s in _NICE_S)
        self.width_ns = next((n for n in nice if n >= wanted), wanted)
        self.count = max(1, -(-(self.end_ns - start_ns) // self.width_ns))
        self._blank: set[int] = set()

    def at(self, time_ns: int) -> int:
        """The column that a time lies in; the first and the last one stand for what lies beyond."""
        return min(self.count - 1, max(0, (time_ns - self.start_ns) // self.width_ns))

    def share(self, from_ns: int, to_ns: int) -> list[tuple[int, float, float]]:
        """(column, share of the time from-to that lies in it, seconds of it) of each column that it covers."""
        length_ns = to_ns - from_ns
        if length_ns <= 0:
            return []
        first, last = self.at(from_ns), self.at(to_ns - 1)
        if first == last:
            return [(first, 1.0, length_ns / 1e9)]
        found = []
        for column in range(first, last + 1):
            begin = self.start_ns + column * self.width_ns
            inside_ns = min(to_ns, begin + self.width_ns) - max(from_ns, begin)
            found.append((column, inside_ns / length_ns, inside_ns / 1e9))
        return found

    def blank(self, from_ns: int, to_ns: int) -> None:
        """Nothing is known of the columns that lie wholly in this time."""
        first = -(-(from_ns - self.start_ns) // self.width_ns)
        last = (to_ns - self.start_ns) // self.width_ns
        self._blank.update(range(max(0, first), min(self.count, last)))

    @property
    def blanks(self) -> frozenset[int]:
        return frozenset(self._blank)

    def zeros(self) -> array[float]:
        """A series to add to."""
        return array("d", bytes(8 * self.count))

    def rates(self, sums: Sequence[float], seconds: Sequence[float], digits: int) -> list[float | None]:
        """Sum per second of each column, None where there were no seconds."""
        return [
            round(total / s, digits) if s > 0 and i not in self._blank else None
            for i, (total, s) in enumerate(zip(sums, seconds, strict=True))
        ]

    def known(self, values: Iterable[float], seconds: Sequence[float]) -> list[int | None]:
        """Whole values, None where there were no seconds."""
        return [
            round(v) if s > 0 and i not in self._blank else None
            for i, (v, s) in enumerate(zip(values, seconds, strict=True))
        ]


class Levels:
    """Where values lie, to within 1 %: how many of each, in little memory, for percentiles."""

    _BITS = 6  # of a value, behind its first one

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.total = 0

    def add(self, value: int, times: int = 1) -> None:
        shift = max(0, value.bit_length() - 1 - self._BITS)
        level = value >> shift << shift
        if shift:
            level += 1 << shift - 1
        self._counts[level] = self._counts.get(level, 0) + times
        self.total += times

    def merge(self, other: Levels) -> None:
        for level, times in other._counts.items():
            self._counts[level] = self._counts.get(level, 0) + times
        self.total += other.total

    def percentile(self, percent: float) -> int | None:
        """By nearest rank; None without values."""
        if not self.total:
            return None
        wanted, seen = max(1, -(-self.total * percent // 100)), 0
        for level in sorted(self._counts):
            seen += self._counts[level]
            if seen >= wanted:
                return level
        raise AssertionError("unreachable")


def runs(values: Iterable[object]) -> Iterator[tuple[object, int, int]]:
    """(value, first index, index behind the last) of each stretch of equal values."""
    start, current, index = 0, None, -1
    for index, value in enumerate(values):
        if index == 0:
            current = value
        elif value != current:
            yield current, start, index
            start, current = index, value
    if index >= 0:
        yield current, start, index + 1
