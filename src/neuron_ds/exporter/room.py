"""Room for so many connections, so that what others leave open costs the host no memory and nobody the scrape.

Each connection has a thread, and perhaps a report that it hasn't taken yet. For one that comes beyond, the one that has
had no whole request for the longest gives way. This module knows sockets and threads and no protocol.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

#: An answer that takes longer than this gives way too, where all are being served.
LONGEST_S = 60.0
#: How long a newcomer waits for one to become idle, and then for that one to go.
WAIT_S, LEAVE_S = 0.25, 1.0
#: How often the same is said at most.
SAID_S = 60.0


@dataclass(slots=True)
class _Connection:
    """One that is open. since: when its last whole request came, or was answered, or it was opened."""

    socket: socket.socket
    since: float
    served: bool = False
    ended: bool = False


class Room:
    """``enter`` is for who accepts connections; the rest is for the thread that serves one, about its own."""

    def __init__(self, most: int, told: Callable[[str], object]) -> None:
        self._most, self._told, self._silent_until = most, told, 0.0
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._connections: dict[int, _Connection] = {}  # by thread

    def enter(self) -> bool:
        """Whether one more may be served; ``leave`` gives its place back. Takes a moment where nobody is idle."""
        if self._room.acquire(blocking=False):
            return True
        deadline = time.monotonic() + WAIT_S
        while not (ended := self._end_one()) and time.monotonic() < deadline:  # one may be about to be answered
            if self._room.acquire(timeout=WAIT_S / 20):
                return True
        if ended and self._room.acquire(timeout=LEAVE_S):
            return True
        self._say(f"{self._most} connections are open and being served; others are turned away")
        return False

    def _end_one(self) -> bool:
        now = time.monotonic()
        with self._lock:
            open_ones = [c for c in self._connections.values() if not c.ended]
            waiting = [c for c in open_ones if not c.served]
            slow = [c for c in open_ones if c.served and now - c.since > LONGEST_S]
            chosen = min(waiting or slow, key=lambda c: c.since, default=None)
            if chosen is None:
                return False
            chosen.ended = True
            _shut(chosen.socket)
        self._say(f"{self._most} connections are open; the longest idle gives way to the next")
        return True

    def _say(self, text: str) -> None:
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + SAID_S
            self._told(text)

    def use(self, connection: socket.socket) -> None:
        """This thread's connection is this; after a handshake it is another object."""
        with self._lock:
            known = self._connections.setdefault(threading.get_ident(), _Connection(connection, time.monotonic()))
            known.socket = connection
            if known.ended:
                _shut(connection)

    def serving(self, served: bool) -> None:
        """It has a whole request now, or waits for the next."""
        with self._lock:
            connection = self._connections[threading.get_ident()]
            connection.served, connection.since = served, time.monotonic()

    def leave(self) -> None:
        """It has ended, or never began."""
        with self._lock:
            self._connections.pop(threading.get_ident(), None)
        self._room.release()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # it may just have ended; of a TLS socket nothing but the descriptor is touched
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
