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

from benches.harness import Reading
from benches.machine import SETTLED_S, readings

PERIODS = 10
COLUMNS, ROWS = 120, 40
LIMIT_PERCENT = 5


def comparisons() -> Iterator[Reading]:
    return readings("top", Top, LIMIT_PERCENT)


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
