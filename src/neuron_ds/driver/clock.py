"""When a driver's slabs are looked at: now, unless the driver has a clock of its own, as one that plays a recording.

Whoever compares times of Samples with the clock, or waits for one, asks this clock and not the system's. It is the same
for all drivers of living devices. This module knows no driver.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

_NOTHING = nullcontext()


class Clock(Protocol):
    """Nanoseconds, as CLOCK_MONOTONIC counts them."""

    @property
    def over(self) -> bool:
        """Whether nothing changes any more, whatever one waits for."""

    def now_ns(self) -> int:
        """The time it is."""

    def moment_ns(self) -> int | None:
        """The time of what a look shows; None for the time of the look itself."""

    def real_ns(self, then_ns: int) -> int:
        """The time of CLOCK_MONOTONIC at which this clock shows ``then_ns``: what to wait for."""

    def held(self) -> AbstractContextManager[object]:
        """A context in which nothing changes, as far as that is the driver's to say: a pass is made in it."""


class RealTime:
    """The clock of everything that lives."""

    over = False

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def moment_ns(self) -> int | None:
        return None

    def real_ns(self, then_ns: int) -> int:
        return then_ns

    def held(self) -> AbstractContextManager[object]:
        return _NOTHING


REAL_TIME = RealTime()


def clock_of(driver: object) -> Clock:
    """A driver's own clock (``driver.clock``), else real time."""
    clock: Clock = getattr(driver, "clock", REAL_TIME)
    return clock
