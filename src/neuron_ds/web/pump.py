"""The one thread that looks: a frame per period while somebody watches, one every ten seconds while nobody does.

Each frame is put into bytes once, remembered, and handed to whoever asked to be told. This module knows when to look;
who is connected and how bytes reach them it doesn't.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from neuron_ds.live.frame import Frame
from neuron_ds.live.picture import Live
from neuron_ds.web import wire
from neuron_ds.web.history import History

#: While nobody watches: often enough for graphs, events and findings to go on, coarsely.
IDLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Picture:
    """A frame and how it is sent. made_s: when, on this host's monotonic clock; a recording has its own."""

    number: int
    frame: Frame
    body: bytes
    made_s: float


class Pump:
    """Makes pictures of a Live in a thread of its own, from ``start`` to ``close``. Threads may ask for the latest."""

    def __init__(self, live: Live, period_s: float, *, told: Callable[[str], object] = lambda text: None) -> None:
        self.history = History()
        self.period_s = period_s
        self.latest: Picture | None = None
        self._live, self._told = live, told
        self._deliver: Callable[[Picture], None] = lambda picture: None
        self._watched = self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="neuron-ds-frames", daemon=True)

    def start(self, deliver: Callable[[Picture], None]) -> None:
        """Begin; ``deliver`` is called with each picture, in the pump's thread."""
        self._deliver = deliver
        self._thread.start()

    def watched(self, yes: bool) -> None:
        """Whether somebody watches from now on; if so, the next picture comes within a period."""
        with self._change:
            self._watched = yes
            self._change.notify()

    def close(self) -> None:
        """End the thread, and let the source go."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join()
        self._live.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        number = 0
        while True:
            number, began = number + 1, time.monotonic()
            try:
                self._look(number)
            except Exception as e:  # the page must not stop for one bad look; it shows how old its picture is
                self._told(f"a look failed: {e!r}")
            with self._change:
                while not self._closed and (left := began + self._pause_s(number) - time.monotonic()) > 0:
                    self._change.wait(left)
                if self._closed:
                    return

    def _pause_s(self, number: int) -> float:
        """From one look to the next; rates take two looks, so the second doesn't wait for somebody to watch."""
        return self.period_s if self._watched or number == 1 else max(IDLE_S, self.period_s)

    def _look(self, number: int) -> None:
        frame = self._live.frame()
        whole = self.history.add(frame)
        picture = Picture(number, frame, wire.encode(wire.picture(frame, number, whole)), time.monotonic())
        self.latest = picture
        self._deliver(picture)
