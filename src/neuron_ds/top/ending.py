"""How ``top`` ends where the screen can't: on a terminal that takes nothing any more, or is gone.

Textual writes through a thread and a short queue. Where nobody reads, the queue is full and the application stands; no
signal that it would handle, and no look at the terminal of its own, is ever reached then. So a thread of its own minds
both. It knows the terminal's descriptor and signals, and no application.
"""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
#: How often is looked, and how long the application may take to end by itself.
MIND_S, GRACE_S = 0.5, 2.0
#: How often the last words are tried to be written.
TRIES = 5
#: No reports of the mouse, of focus or of what is pasted; the screen of before, and the cursor.
_AS_BEFORE = b"\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1004l\x1b[?2004l\x1b[?1049l\x1b[?25h"


@contextmanager
def minded(fd: int, stop: Callable[[], object]) -> Iterator[None]:
    """Inside, a signal or the loss of the terminal ``fd`` calls ``stop``, from whatever thread.

    Who has not left GRACE_S later is ended, with the terminal as it was.
    """
    try:
        before = termios.tcgetattr(fd)
    except termios.error:
        before = None
    asked, done = threading.Event(), threading.Event()

    def ask(*_: object) -> None:
        asked.set()
        stop()

    def mind() -> None:
        while not done.wait(MIND_S):
            if not asked.is_set() and not os.isatty(fd):
                ask()
            if asked.is_set() and not done.wait(GRACE_S):
                _leave(fd, before)

    handlers = {}
    for number in STOP_SIGNALS:
        with contextlib.suppress(ValueError):  # not in the main thread: a test
            handlers[number] = signal.signal(number, ask)
    thread = threading.Thread(target=mind, name="neuron-ds-terminal", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _leave(fd: int, before: list[object] | None) -> None:
    """End this very process, whatever its other threads wait for. The modes of a terminal can always be set; whether it
    takes one more word depends on whether what nobody reads can be thrown away."""
    with contextlib.suppress(termios.error, OSError):
        if before is not None:
            termios.tcsetattr(fd, termios.TCSANOW, before)  # type: ignore[arg-type]  # as tcgetattr gave it
        os.set_blocking(fd, False)  # the writer, which wakes up as soon as there is room, fails with it
        try:
            for _ in range(TRIES):
                time.sleep(MIND_S / TRIES)
                termios.tcflush(fd, termios.TCOFLUSH)
                with contextlib.suppress(BlockingIOError):
                    os.write(fd, _AS_BEFORE)
                    break
        finally:
            os.set_blocking(fd, True)  # the terminal is the shell's too
    os._exit(0)
