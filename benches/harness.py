"""Ratios: two sides timed in turn, without the loop's own cost, as the median of the rounds.

This module knows how to time and how to judge, and nothing of what is timed. A machine drifts between fast and slow
modes and other work interrupts it, so a figure is never nanoseconds: within each round both sides are timed right
behind each other, and only the ratio of a round counts. What is no comparison (memory, a share of a core) is a Reading.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from dataclasses import dataclass

LEAST_ROUNDS = 9
#: One side's share of a round: well below a scheduler's time slice, well above the clock's resolution.
SLICE_S = 1e-3
#: A call of some nanoseconds stands so often in its loop, or the figure would be one of the loop.
SHORT = 20
#: A miss is measured again with so many times the rounds, and that figure counts.
SECOND_LOOK = 4


@dataclass(frozen=True)
class Side:
    """One thing to time: ``run(n)`` does it n times and returns the seconds that took.

    Each time counts as ``units``. ``looped``: a Python loop repeats it, whose cost is to be subtracted.
    """

    run: Callable[[int], float]
    units: int = 1
    looped: bool = True


def statement(code: str, *, often: int = 1, units: int = 1, **names: object) -> Side:
    """A statement in a Python loop; the names are its local variables, so that methods can be bound beforehand.

    It stands ``often`` times in the loop, and each time counts as ``units``.
    """
    setup = "; ".join(f"{name} = _{name}" for name in names) or "pass"
    values = {f"_{name}": value for name, value in names.items()}
    return Side(timeit.Timer("; ".join([code] * often), setup, globals=values).timeit, often * units)


def process(code: str) -> Side:
    """A whole Python process that runs the code."""

    def run(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    return Side(run, looped=False)


EMPTY_LOOP = statement("pass")


@dataclass(frozen=True)
class Comparison:
    """What is held to a limit: ours / yardstick at most so much or, where ``faster``, yardstick / ours at least.

    ``rounds``: that many are enough, where one takes seconds.
    """

    name: str
    yardstick: str
    ours: Side
    other: Side
    limit: float
    faster: bool = False
    rounds: int | None = None


@dataclass(frozen=True)
class Reading:
    """What is held to a limit as it is read: ``take`` measures it and says how much it is, at most so much ``unit``."""

    name: str
    when: str
    take: Callable[[], float]
    limit: float
    unit: str


@dataclass(frozen=True)
class Figure:
    """What came out: the ratio of each round, and the median times of one unit, which only say the order of size.

    Of a Reading: what was read in place of ratios, its unit, and no times.
    """

    name: str
    yardstick: str
    limit: float
    faster: bool
    ratios: list[float]
    ours_ns: float
    other_ns: float
    looks: int = 1
    unit: str = ""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def ok(self) -> bool:
        return self.ratio >= self.limit if self.faster else self.ratio <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "yardstick": self.yardstick,
            "ratio": self.ratio,
            "unit": self.unit,
            "limit": self.limit,
            "direction": "at least" if self.faster else "at most",
            "ok": self.ok,
            "ours_ns": self.ours_ns,
            "yardstick_ns": self.other_ns,
            "ratios": self.ratios,
            "looks": self.looks,
        }


def measure(what: Comparison | Reading, rounds: int) -> Figure:
    """The figure; a miss is measured once more, a comparison's also longer, before it is believed."""
    if isinstance(what, Reading):
        figure = _read(what, looks=1)
        return figure if figure.ok else _read(what, looks=2)
    rounds = min(rounds, what.rounds or rounds)
    figure = _measure(what, rounds, looks=1)
    return figure if figure.ok else _measure(what, rounds * SECOND_LOOK, looks=2)


def _read(reading: Reading, looks: int) -> Figure:
    value = reading.take()
    return Figure(reading.name, reading.when, reading.limit, False, [value], 0.0, 0.0, looks, reading.unit)


def _measure(comparison: Comparison, rounds: int, looks: int) -> Figure:
    sides = comparison.ours, comparison.other
    times = [_times_per_slice(side) for side in sides]
    loop_times = _times_per_slice(EMPTY_LOOP)
    spent: tuple[list[float], list[float]] = ([], [])
    for turn in range(max(rounds, LEAST_ROUNDS)):
        loop_s = EMPTY_LOOP.run(loop_times) / loop_times
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            once_s = sides[i].run(times[i]) / times[i]
            spent[i].append((once_s - loop_s * sides[i].looped) / sides[i].units)
    ratios = [o / y for o, y in zip(*spent, strict=True)]
    if comparison.faster:
        ratios = [1 / ratio for ratio in ratios]
    return Figure(
        comparison.name,
        comparison.yardstick,
        comparison.limit,
        comparison.faster,
        ratios,
        statistics.median(spent[0]) * 1e9,
        statistics.median(spent[1]) * 1e9,
        looks,
    )


def _times_per_slice(side: Side) -> int:
    """How often a side runs in one slice; also warms it up."""
    times = 1
    while (spent := side.run(times)) < SLICE_S / 4:
        times *= 4
    return max(1, round(times * SLICE_S / spent))
