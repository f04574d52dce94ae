"""A Window: the Looks of the last while, every one of the last seconds and fewer of what lies behind.

Rules ask it for the newest Look, for the one a while ago, and for those since a time. It knows no rule and no clock:
time is that of the Looks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

from neuron_ds.diagnose.looks import Look, slimmed

#: For so long every Look is kept, then one in SPARSE_S, and none beyond LONGEST_S.
DENSE_S = 60.0
SPARSE_S = 10.0
LONGEST_S = 900.0
#: However often is looked, no more than so many are kept as dense.
MOST_DENSE = 600
#: Looks come a little late or early: by this share of what was asked for, or this much, a Look still counts as old
#: enough.
_SLACK, _SLACK_NS = 0.02, 50_000_000

_T = TypeVar("_T")
_R = TypeVar("_R")


def _own_rows(look: Look, newer: Look) -> int:
    """How many rows of a look are not held by a newer one as well."""
    found = 0
    for key, p in look.processes.items():
        q = newer.processes.get(key)
        if q is None or q.rows is not p.rows:
            found += len(p.rows)
    return found


class Window:
    """Looks in the order of their times."""

    def __init__(
        self,
        looks: Sequence[Look] = (),
        *,
        dense_s: float = DENSE_S,
        sparse_s: float = SPARSE_S,
        longest_s: float = LONGEST_S,
        most_rows: int | None = None,
    ) -> None:
        """``most_rows``: bounds the memory. So many rows of cores may be held beside the newest Look's, not counting
        those that Looks share; beyond, the oldest Looks go early. A row is less than a KiB."""
        self._dense_ns, self._sparse_ns = int(dense_s * 1e9), int(sparse_s * 1e9)
        self._longest_ns = int(longest_s * 1e9)
        self._looks: list[Look] = []  # the sparse ones, then the dense ones
        self._times: list[int] = []
        self._sparse = 0  # how many are sparse
        self._most_rows = most_rows
        self._rows: list[int] = []  # how many rows of each the next look does not share
        self._made: dict[str, tuple[object, object]] = {}
        for look in looks:
            self.add(look)

    def add(self, look: Look) -> None:
        """Take one more; one that is not newer than the last begins the window anew (a recording was rewound)."""
        if self._times and look.time_ns <= self._times[-1]:
            self._looks.clear()
            self._times.clear()
            self._rows.clear()
            self._sparse = 0
        self._made.clear()
        if self._looks:
            self._looks[-1] = slimmed(self._looks[-1])
            if self._most_rows is not None:
                self._rows[-1] = _own_rows(self._looks[-1], look)
        self._looks.append(look)
        self._rows.append(0)
        self._times.append(look.time_ns)
        now = look.time_ns
        while (dense := len(self._looks) - self._sparse) > 1 and (
            now - self._times[self._sparse] > self._dense_ns or dense > MOST_DENSE
        ):
            i = self._sparse
            if i == 0 or self._times[i] - self._times[i - 1] >= self._sparse_ns:
                self._sparse += 1
            else:
                self._drop(i)
        while (self._sparse and now - self._times[0] > self._longest_ns) or (
            self._most_rows is not None and len(self._looks) > 1 and sum(self._rows) > self._most_rows
        ):
            self._drop(0)
            self._sparse = max(0, self._sparse - 1)

    def once(self, name: str, of: _T, make: Callable[[Window, _T], _R]) -> _R:
        """What is made of this window and of another value, made once until the next Look: for rules that share it."""
        made = self._made.get(name)
        if made is None or made[0] != of:
            made = self._made[name] = of, make(self, of)
        return cast(_R, made[1])

    def _drop(self, i: int) -> None:
        del self._looks[i], self._times[i], self._rows[i]

    def __len__(self) -> int:
        return len(self._looks)

    def __iter__(self) -> Iterator[Look]:
        """Oldest first."""
        return iter(self._looks)

    @property
    def now(self) -> Look:
        """The newest. Raises IndexError in an empty window."""
        return self._looks[-1]

    @property
    def before(self) -> Look | None:
        """The one before the newest."""
        return self._looks[-2] if len(self._looks) > 1 else None

    @property
    def span_s(self) -> float:
        """From the oldest to the newest."""
        return (self._times[-1] - self._times[0]) / 1e9 if self._times else 0.0

    def at(self, seconds: float) -> Look | None:
        """The newest that is (give or take a little) at least so many seconds old, None if the window is not that
        long."""
        old_enough_ns = self._times[-1] - int(seconds * 1e9) + max(int(seconds * 1e9 * _SLACK), _SLACK_NS)
        i = bisect_right(self._times, old_enough_ns, hi=len(self._times) - 1)
        return self._looks[i - 1] if i else None

    def since(self, seconds: float) -> list[Look]:
        """Oldest first, those of the last so many seconds, and the one before them where there is one: differences
        then cover the whole time."""
        first_ns = self._times[-1] - int(seconds * 1e9)
        i = bisect_left(self._times, first_ns)
        return self._looks[i:] if i == 0 or self._times[i] == first_ns else self._looks[i - 1 :]
