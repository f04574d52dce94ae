"""What ``neuron-ds top`` takes of a processor while 256 runtimes work: its processor time over some of its periods.

It is the command in a process of its own, on a pseudo-terminal that is always read; looks, drawing and sampler
together count.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from benches.crowd import runtimes
from benches.fixtures import MANY_DEVICES, directory
from benches.harness import Reading

PERIODS = 10
#: Until it has drawn its first pictures, and its histories have begun.
SETTLED_S = 4.0
COLUMNS, ROWS = 120, 40
_PERCENT = "%"


@dataclass(frozen=True)
class Case:
    """So many processes with so many slabs and cores each; on each of those so many executions a second."""

    processes: int
    devices_each: int
    cores_each: int
    rate_hz: float
    limit_percent: float


CASES = {
    "top, 16 processes on 16 devices each": Case(16, MANY_DEVICES, 1, 5, 5),
    "top, 256 processes": Case(256, 1, 1, 5, 5),
}


def comparisons() -> Iterator[Reading]:
    for name, case in CASES.items():
        with ExitStack() as stack:
            path = stack.enter_context(directory(devices=MANY_DEVICES))
            stack.enter_context(
                runtimes(
                    path,
                    processes=case.processes,
                    devices=MANY_DEVICES,
                    devices_each=case.devices_each,
                    cores_each=case.cores_each,
                    rate_hz=case.rate_hz,
                )
            )
            top = stack.enter_context(Top(path))
            yield Reading(name, "processor time / time", top.percent, case.limit_percent, _PERCENT)


class Top:
    """The command on a directory and a terminal that somebody looks at. A context: it ends with it."""

    def __init__(self, path: str, *options: str) -> None:
        import psutil

        self._terminal, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "neuron_ds", "top", *options],
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            env=os.environ | {"NEURON_DS_DIR": path, "TERM": "xterm-256color"},
        )
        os.close(side)
        self._proc = psutil.Process(self._process.pid)
        self.bytes_read = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        time.sleep(SETTLED_S)

    def _read(self) -> None:
        try:
            while data := os.read(self._terminal, 1 << 16):
                self.bytes_read += len(data)
        except OSError:  # the other side of the terminal is gone
            pass

    def percent(self) -> float:
        """Of one core, over whole periods of a second."""
        drawn = self.bytes_read
        began, used_s = time.monotonic(), self._used_s()
        time.sleep(PERIODS)
        if self._process.poll() is not None or self.bytes_read == drawn:
            raise RuntimeError("top ended before its time, or drew nothing")
        return 100 * (self._used_s() - used_s) / (time.monotonic() - began)

    def _used_s(self) -> float:
        times = self._proc.cpu_times()
        return float(times.user + times.system)

    def __enter__(self) -> Top:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        os.close(self._terminal)
