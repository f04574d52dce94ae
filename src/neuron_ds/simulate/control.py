"""How a simulated process is told what to do: signals, an end set in advance, and the lines of its parent.

Commands on standard input are one line each: ``until ID N`` (play until N events were applied in all, then hold and
answer), ``hold ID`` (hold now and answer), ``go``, ``end``; the end of the input is ``end`` too. Every answer carries
the ID of the command it answers. Nothing here plays or publishes.
"""

from __future__ import annotations

import os
import select
import signal
import time

_PR_SET_PDEATHSIG = 1


class Control:
    """What is wanted of this process now.

    ended: it shall end. until: hold after so many events, None = never. command: id of the command to answer once it
    holds, None if nobody waits.
    """

    def __init__(self, fd: int | None, until: int | None, seconds: float | None) -> None:
        """``fd`` brings commands, None where nobody sends any."""
        self.ended = False
        self.until = until
        self.command: int | None = None if until is None else 0
        self._fd = fd
        self._rest = b""
        self._deadline_s = None if seconds is None else time.monotonic() + seconds
        self._wake_fd = _wake_up_at(signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._fds = [self._wake_fd] if fd is None else [self._wake_fd, fd]

    def holds(self, played: int, over: bool) -> bool:
        """Whether, after so many events or at the end of the script, there is nothing to do but to wait."""
        return not self.ended and (over or (self.until is not None and played >= self.until))

    def sleep(self, sleep_s: float | None) -> bool:
        """Wait so long, None = until something is wanted. False if something was, and the wait cut short."""
        full = True
        if self._deadline_s is not None:
            left_s = max(0.0, self._deadline_s - time.monotonic())
            if sleep_s is None or left_s <= sleep_s:
                sleep_s, full = left_s, False
        readable, _, _ = select.select(self._fds, [], [], sleep_s)
        if readable:
            self._read(readable)
            return False
        self.ended = self.ended or not full
        return full

    def _read(self, readable: list[int]) -> None:
        if self._wake_fd in readable:
            self.ended = True
            return
        assert self._fd is not None
        data = os.read(self._fd, 4096)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._obey(line.decode("ascii", "replace").split())
        self.ended = self.ended or not data

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["until", command, events]:
                self.command, self.until = int(command), int(events)
            case ["hold", command]:
                self.command, self.until = int(command), 0
            case ["go"]:
                self.command, self.until = None, None
            case _:
                self.ended = True


def _wake_up_at(*signals: int) -> int:
    """A descriptor that is readable once one of these signals has come."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in signals:
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def die_with_parent(parent: int) -> None:
    """Be killed when the parent dies, whatever this process does then, also if it is stopped.

    Where the system has no such service the end of the input is left, which a stopped process does not notice.
    """
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked
