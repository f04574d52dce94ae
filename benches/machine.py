"""A full machine for who shows it live: 256 slabs in two shapes, and the share of a processor that showing them takes.

Each slab counts on one core, for NeuronCores are not shared. What shows them is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from benches.crowd import runtimes
from benches.fixtures import MANY_DEVICES, directory
from benches.harness import Reading

#: By what stands in the table: how many processes, and on how many devices each has a slab.
SHAPES = {
    "16 processes on 16 devices each": (16, MANY_DEVICES),
    "256 processes": (256, 1),
}
RATE_HZ = 5.0
#: Until what shows them has drawn its first pictures and every rule has what it compares with (``recent_s`` and
#: ``usual_s`` of the thresholds): before, it has less to do than in the hours that it stays open.
SETTLED_S = 55.0


class Watcher(Protocol):
    """A command at work."""

    def percent(self) -> float:
        """Of one core, over whole periods."""


def readings(
    name: str, start: Callable[[str], AbstractContextManager[Watcher]], limit_percent: float
) -> Iterator[Reading]:
    """A reading for each shape; ``start`` is given the directory."""
    for shape, (processes, devices_each) in SHAPES.items():
        with ExitStack() as stack:
            path = stack.enter_context(directory(devices=MANY_DEVICES))
            stack.enter_context(
                runtimes(
                    path,
                    processes=processes,
                    devices=MANY_DEVICES,
                    devices_each=devices_each,
                    cores_each=1,
                    rate_hz=RATE_HZ,
                )
            )
            watcher = stack.enter_context(start(path))
            yield Reading(f"{name}, {shape}", "processor time / time", watcher.percent, limit_percent, "%")
