"""Starting a process that cannot outlive us, and reading what it says line by line.

The kernel kills a child (``control.die_with_parent``) when the *thread* that started it ends, so one thread starts
them all, and it never ends. What is started and what it says is not known here.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from queue import SimpleQueue

from neuron_ds.errors import SystemFailure


def launch(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process with pipes to its input and output. Raises SystemFailure.

    It is in a group of its own: what is typed at our terminal is for us to deal with.
    """
    global _orders
    with _lock:
        if _orders is None:
            _orders = SimpleQueue()
            threading.Thread(target=_carry_out, args=(_orders,), name="neuron-ds-launcher", daemon=True).start()
    order = _Order(arguments, environment)
    _orders.put(order)
    try:
        result = order.result.get()
    except BaseException:  # a signal, say: nobody will want the process any more
        result = order.result.get()
        if isinstance(result, subprocess.Popen):
            result.kill()
            result.communicate()
        raise
    if isinstance(result, OSError):
        raise SystemFailure(f"starting a process: {result.strerror}; end some others first", code=result.errno)
    if isinstance(result, BaseException):
        raise result
    return result


class _Order:
    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.arguments, self.environment = arguments, environment
        self.result: SimpleQueue[subprocess.Popen[bytes] | BaseException] = SimpleQueue()

    def carry_out(self) -> None:
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(self.arguments, env=self.environment, stdin=pipe, stdout=pipe, process_group=0)
        except BaseException as e:
            self.result.put(e)
        else:
            self.result.put(process)


_orders: SimpleQueue[_Order] | None = None
_lock = threading.Lock()


def _carry_out(orders: SimpleQueue[_Order]) -> None:
    while True:
        orders.get().carry_out()


def _forget() -> None:
    """In a forked child the thread is not there."""
    global _orders, _lock
    _orders, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


class Lines:
    """The lines of a pipe, each waited for until some time. ``ended``: there will be no more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.ended = False
        self._lines: list[bytes] = []
        self._rest = b""

    def next(self, deadline_s: float) -> bytes | None:
        """The next line; None if it did not come in time, or never will. A deadline in the past: do not wait."""
        while not self._lines and not self.ended:
            poll = select.poll()  # not select: there may be descriptors above 1023
            poll.register(self.fd, select.POLLIN)
            left_s = max(0.0, deadline_s - time.monotonic())
            if not poll.poll(left_s * 1000):
                return None
            data = os.read(self.fd, 65536)
            self.ended = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines += lines
        return self._lines.pop(0) if self._lines else None
