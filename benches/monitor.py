"""What ``neuron-ds monitor`` takes of a processor while runtimes work: its processor time over six of its periods.

The monitor is the command in a process of its own, with the period of five seconds that it has by default. The cases
run side by side, for each takes a few percent of a core only and it is processor time that counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benches.crowd import runtimes
from benches.fixtures import MANY_DEVICES, directory
from benches.harness import Reading

PERIODS = 6
_PERCENT = "%"


@dataclass(frozen=True)
class Case:
    """So many runtimes, each with a slab, on a machine of 16 devices; each of their cores executes at this rate."""

    processes: int
    rate_hz: float
    options: tuple[str, ...]
    limit_percent: float


CASES = {
    "monitor, 4 processes": Case(4, 20, (), 1.5),
    "monitor, 256 processes, no models": Case(256, 1, ("--no-loaded-models",), 6),
    "monitor, 1 process, 1 kHz sampler": Case(1, 100, ("--sample-hz", "1000"), 4),
}


def comparisons() -> Iterator[Reading]:
    with ExitStack() as stack:
        monitors = {name: stack.enter_context(Monitor(_world(stack, case), case)) for name, case in CASES.items()}
        fresh: dict[str, float] = {}

        def take(name: str) -> float:
            """What was measured beside another case counts too, once."""
            if name not in fresh:
                with ThreadPoolExecutor(len(monitors)) as pool:
                    fresh.update(zip(monitors, pool.map(Monitor.percent, monitors.values()), strict=True))
            return fresh.pop(name)

        for name, case in CASES.items():
            yield Reading(name, "processor time / time", partial(take, name), case.limit_percent, _PERCENT)


def _world(stack: ExitStack, case: Case) -> str:
    path = stack.enter_context(directory(devices=MANY_DEVICES))
    stack.enter_context(runtimes(path, processes=case.processes, devices=MANY_DEVICES, rate_hz=case.rate_hz))
    return path


class Monitor:
    """The command on a directory. A context: it ends with it."""

    def __init__(self, path: str, case: Case) -> None:
        import psutil

        self._process = subprocess.Popen(
            [sys.executable, "-m", "neuron_ds", "monitor", "--no-imds", *case.options],
            stdout=subprocess.PIPE,
            env=os.environ | {"NEURON_DS_DIR": path},
        )
        self._proc = psutil.Process(self._process.pid)

    def percent(self) -> float:
        """Of one core, from the end of a line to the end of the sixth behind it: whole periods."""
        self._line()
        began, used_s = time.monotonic(), self._used_s()
        for _ in range(PERIODS):
            self._line()
        return 100 * (self._used_s() - used_s) / (time.monotonic() - began)

    def _line(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline().endswith(b"\n"):
            raise RuntimeError("the monitor ended before its time")

    def _used_s(self) -> float:
        times = self._proc.cpu_times()
        return float(times.user + times.system)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()
