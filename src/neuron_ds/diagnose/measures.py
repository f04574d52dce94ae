"""What rules measure: counters by name in a row, growth between two looks at a process, when something last moved.

All differences go through ``rates.grown``, so that a counter that wraps around is one that grew and one that was reset
is one that did not. This module knows rows, looks and windows; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import NAMED, Look, ProcessLook, Row
from neuron_ds.diagnose.window import Window
from neuron_ds.layout import GAUGE, NC, NC_BY_NAME
from neuron_ds.rates import grown
from neuron_ds.records import printable

#: A core in use that completed nothing for so long may have begun to hang: its time per execution means nothing.
JUST_BEFORE_S = 1.0
#: The row of a core on which nothing was ever counted.
ZERO: Row = (0,) * NAMED


def index(name: str) -> int:
    """The number of a core's counter."""
    return NC_BY_NAME[name].index


BUSY = index("time_in_use")
MACS = index("mac_count")
COMPLETED = tuple(index(n) for n in ("infer_completed", "infer_completed_with_err", "infer_completed_with_num_err"))
_SUCCESS, _WITH_ERR, _WITH_NUM_ERR = COMPLETED
TIMED_OUT = index("infer_timed_out")
#: Executions that used the core and ended without completing.
BROKEN = tuple(
    index(n)
    for n in (
        "infer_timed_out",
        "err_hw",
        "oob",
        "hw_err_collectives",
        "hw_err_hbm_ue",
        "hw_err_nc_ue",
        "hw_err_dma_abort",
        "err_sw_nq_overflow",
        "hw_err_repairable_hbm_ue",
    )
)
ENDED = COMPLETED + BROKEN
#: A gauge of this or more went below zero, and a counter that grew by this or more went back.
_UNDERFLOW = 1 << 63
_ended = itemgetter(*ENDED)
_completed = itemgetter(*COMPLETED)
_memory = itemgetter(*(c.index for c in NC if c.kind == GAUGE))


def growth(before: Row, after: Row, counter: int) -> int:
    n = after[counter] - before[counter]
    return n if 0 <= n < _UNDERFLOW else grown(before[counter], after[counter])


def completed(before: Row, after: Row) -> int:
    """Executions that completed, with an error or without."""
    n = after[_SUCCESS] - before[_SUCCESS]
    if 0 <= n < _UNDERFLOW and before[_WITH_ERR] == after[_WITH_ERR] and before[_WITH_NUM_ERR] == after[_WITH_NUM_ERR]:
        return n  # nearly always, and asked for very often
    return _growth(_completed(before), _completed(after))


def ended(before: Row, after: Row) -> int:
    """Executions that ended, in whatever way. A hardware error counts twice where the runtime gives its class too."""
    return _growth(_ended(before), _ended(after))


def _growth(before: Sequence[int], after: Sequence[int]) -> int:
    if before == after:
        return 0
    return sum([grown(b, a) for b, a in zip(before, after, strict=True)])


def device_bytes(row: Row) -> int:
    """Device memory of a core, what went below zero counted as nothing."""
    used = _memory(row)
    total = sum(used)
    return total if total < _UNDERFLOW else sum(b for b in used if b < _UNDERFLOW)


def host_bytes(process: ProcessLook) -> int:
    return sum(b for b in process.host_bytes if b < _UNDERFLOW)


def total(process: ProcessLook, counter: int) -> int:
    """A counter over all cores, for a first rough look: nothing is known of cores that were reset."""
    return sum([row[counter] for row in process.rows.values()])


class Stretch(NamedTuple):
    """One process, readable now, and a look at it some time ago."""

    now: ProcessLook
    then: ProcessLook
    elapsed_s: float

    def rows(self) -> Iterator[tuple[int, Row, Row]]:
        """(core, then, now) of each core that is in use."""
        then = self.then.rows
        for core, row in self.now.rows.items():
            yield core, then.get(core, ZERO), row

    @property
    def idle(self) -> bool:
        """Not one counter has moved on any core."""
        return self.now.rows is self.then.rows


def stretches(window: Window, seconds: float) -> Iterator[Stretch]:
    """Every process that is readable and was there so many seconds ago."""
    then = window.at(seconds)
    if then is None:
        return
    for key, now in window.now.processes.items():
        old = then.processes.get(key)
        if old is not None and not now.error and known(old) and now.time_ns > old.time_ns:
            yield Stretch(now, old, (now.time_ns - old.time_ns) / 1e9)


def known(look: ProcessLook) -> bool:
    """Whether its counters were ever read: without a look that worked there is nothing to compare with."""
    return not look.error or bool(look.host_bytes)


def looks_at(looks: Sequence[Look], process: ProcessLook) -> list[ProcessLook]:
    """What these looks saw of a process, in their order."""
    key = process.key
    return [p for look in looks if (p := look.processes.get(key)) is not None]


_T = TypeVar("_T")


def bisect(values: Sequence[_T], holds: Callable[[_T], bool]) -> int:
    """The first of these for which something holds that holds from some one on up to the last."""
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if holds(values[middle]):
            high = middle
        else:
            low = middle + 1
    return low


def first(looks: Sequence[Look], process: ProcessLook, holds: Callable[[ProcessLook], bool]) -> ProcessLook | None:
    """The earliest of these looks at a process from which on something holds."""
    key = process.key

    def there(look: Look) -> bool:
        p = look.processes.get(key)
        return p is not None and known(p) and holds(p)

    return looks[bisect(looks, there)].processes.get(key) if looks else None


def oldest(looks: Sequence[Look], process: ProcessLook) -> ProcessLook | None:
    """The earliest of these looks at a process that worked."""
    p = looks[0].processes.get(process.key) if looks else None
    return p if p is not None and known(p) else first(looks, process, lambda p: True)


def who(process: ProcessLook) -> str:
    """A process as a message names it."""
    pid = f"pid {process.owner.pid}"
    tag = printable(process.tag)
    return pid if tag in ("", str(process.owner.pid)) else f"{tag} ({pid})"


def found(
    kind: str,
    severity: Severity,
    process: ProcessLook,
    since_ns: int,
    message: str,
    advice: str,
    evidence: Mapping[str, int | float | str],
    core: int | None = None,
) -> Finding:
    """A Finding about a process, or about one of its cores."""
    owner = process.owner
    where = f"device {owner.device}" if core is None else f"device {owner.device} core {core}"
    return Finding(
        kind,
        severity,
        f"{who(process)} on {where}: {message}",
        advice,
        since_ns,
        owner.device,
        owner.slot,
        owner.pid,
        process.tag,
        core,
        evidence,
    )
