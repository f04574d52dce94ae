"""A pseudo-terminal with the command on it: what it writes, what it is told, and how it leaves the terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from tests.cli.helpers import environment

PATIENCE_S = 60.0


class Terminal:
    """``neuron-ds top`` on a terminal of a size. A context: it is gone with it."""

    def __init__(self, directory, *options, columns=80, rows=24, **env):
        self._fd, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(side)
        self._side = side
        self.written = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "neuron_ds.cli", "top", *options],
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
            env={**environment(directory), "TERM": "xterm-256color", "COLORTERM": "truecolor", **env},
        )

    def wait_for(self, text):
        """Until it has written this."""
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self.written:
            assert time.monotonic() < deadline, f"no {text!r} in {self.written[-2000:]!r}"
            self._read(0.1)

    def wait(self):
        """Its exit status; all that it wrote is read."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self._read(0.1)
        while self._read(0.3):  # the kernel moves on what is behind a full buffer in its own time
            pass
        return self.process.returncode

    def _read(self, wait_s):
        if not select.select([self._fd], [], [], wait_s)[0]:
            return False
        self.written += os.read(self._fd, 1 << 16)
        return True

    def unread(self):
        """How many bytes of what it wrote nobody has read."""
        return struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))[0]

    def type(self, text):
        os.write(self._fd, text.encode())

    @property
    def has_its_modes(self):
        return termios.tcgetattr(self._side) == self.before

    @property
    def is_restored(self):
        """Whether the terminal is as it was: its modes, the screen of before, the cursor, no reports of the mouse."""
        at = self.written.rfind
        return (
            self.has_its_modes
            and at(b"\x1b[?1049l") > at(b"\x1b[?1049h") >= 0
            and at(b"\x1b[?25h") > at(b"\x1b[?25l")
            and at(b"\x1b[?1000l") > at(b"\x1b[?1000h")
        )

    def take_away(self):
        """The terminal is gone, and no signal says so."""
        os.close(self._fd)
        self._fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        for fd in (self._fd, self._side):
            if fd >= 0:
                os.close(fd)
