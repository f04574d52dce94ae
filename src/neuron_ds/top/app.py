"""The application: takes one Frame after the other in a worker thread and shows it on the screen that is on top.

It knows where Frames come from only as something with a title that gives them. What a Frame looks like is the
screens' and the blocks' business.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Protocol

from textual.app import App
from textual.binding import Binding, BindingType

from neuron_ds.errors import NeuronDSError
from neuron_ds.live.frame import Frame
from neuron_ds.records import printable
from neuron_ds.top import keys
from neuron_ds.top.blocks import View
from neuron_ds.top.ending import minded
from neuron_ds.top.main import MainScreen
from neuron_ds.top.screens import DetailScreen, help_block

PERIODS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
#: The second look comes so early, so that rates are there soon.
SECOND_LOOK_S = 0.5


class Frames(Protocol):
    """What gives Frames: ``live.Live``."""

    @property
    def title(self) -> str:
        """What is looked at, in a few words."""

    def frame(self) -> Frame:
        """Look once."""


class Top(App[int]):
    """``neuron-ds top`` on a terminal. ``run()`` gives the exit code."""

    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    CSS = """
    Screen { background: transparent; overflow: hidden; }
    Input#filter { display: none; height: 1; border: none; padding: 0; background: transparent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(name, key.action.removeprefix("app."), show=False, priority=name == "ctrl+c")
        for key in keys.KEYS
        for name in key.names
        if key.action.startswith("app.")
    ]

    def __init__(self, live: Frames, *, period_s: float = 1.0, looks: bool = True) -> None:
        """``looks``: whether it looks by itself, every period; a test may want to do that."""
        super().__init__(ansi_color=True)
        self._live, self._looks = live, looks
        self.view = View(period_s=period_s)
        self._main = MainScreen()
        self._latest: Frame | None = None
        self._changed = asyncio.Event()
        self._running_in: asyncio.AbstractEventLoop | None = None
        self.problem = ""  #: why it ended by itself

    def get_default_screen(self) -> MainScreen:
        return self._main

    def on_mount(self) -> None:
        self._running_in = asyncio.get_running_loop()
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        if self._looks:
            self.run_worker(self._look_for_ever(), name="looks")

    def stop(self) -> None:
        """End soon; from any thread, and from a signal handler."""
        if self._running_in is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._running_in.call_soon_threadsafe(self.exit, 0)

    # --- looking

    async def _look_for_ever(self) -> None:
        due = time.monotonic()
        wait_s = min(self.view.period_s, SECOND_LOOK_S)
        while await self.look():
            due = max(due + wait_s, time.monotonic())
            begun = due - wait_s
            while (left := due - time.monotonic()) > 0:
                try:
                    await asyncio.wait_for(self._changed.wait(), left)
                except TimeoutError:
                    break
                self._changed.clear()
                due = begun + self.view.period_s
            wait_s = self.view.period_s

    async def look(self) -> bool:
        """Take one Frame and show it, unless the picture is held. False if that is not possible any more."""
        try:
            frame = await asyncio.to_thread(self._live.frame)
        except (NeuronDSError, OSError) as e:
            self.problem = printable(str(e))
            self.exit(2)
            return False
        self._latest = frame
        if not self.view.paused:
            self.show(frame)
        return True

    def show(self, frame: Frame) -> None:
        """Draw a Frame on the screen on top. The tab of a process that has left gives way to that of all."""
        self._shown = frame
        if self.view.process is not None and frame.process(self.view.process) is None:
            self.view = replace(self.view, process=None)
        if isinstance(self.screen, MainScreen | DetailScreen):
            self.screen.draw(frame, self.view, self._live.title)

    def open_detail(self, screen: DetailScreen) -> None:
        """Put a detail screen on top, with what is known now."""
        self.push_screen(screen, lambda _: self._show_again())
        self.call_after_refresh(self._show_again)

    def _show_again(self) -> None:
        if self._shown is not None:
            self.show(self._shown)

    # --- keys

    async def action_quit(self) -> None:
        self.exit(0)

    def action_help(self) -> None:
        self.open_detail(DetailScreen(help_block))

    def action_pause(self) -> None:
        """Hold the picture, or go on with the newest."""
        self.view = replace(self.view, paused=not self.view.paused)
        if not self.view.paused and self._latest is not None:
            self._shown = self._latest
        self._show_again()

    def action_period(self, by: int) -> None:
        """The next shorter or longer period."""
        now = self.view.period_s
        wanted = [p for p in PERIODS_S if (p > now if by > 0 else p < now)]
        if wanted:
            self.view = replace(self.view, period_s=min(wanted) if by > 0 else max(wanted))
            self._changed.set()
            self._show_again()

    _shown: Frame | None = None


def run(live: Frames, *, period_s: float, tell: Callable[[str], object]) -> int:
    """Show it until the user has seen enough; gives the exit code, and says why it ended if that was not asked for."""
    app = Top(live, period_s=period_s)
    with minded(sys.__stderr__.fileno() if sys.__stderr__ else -1, app.stop):
        code = app.run()
    if app.problem:
        tell(app.problem)
    return app.return_code or 0 if code is None else code
