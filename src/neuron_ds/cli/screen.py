"""How a scene of the demonstration looks: redrawn in place on a terminal, plain lines in a pipe.

It knows scenes, widths and a handful of ANSI sequences, and nothing of where a scene comes from.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TextIO

from neuron_ds.cli.text import device_line, size
from neuron_ds.demo import CoreUse, ProcessUse, Scene
from neuron_ds.layout import SLOTS_PER_DEVICE
from neuron_ds.listing import shorten
from neuron_ds.records import printable

HIDE_CURSOR, SHOW_CURSOR, ERASE_LINE, ERASE_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"
BOLD, DIM, RED, GREEN, YELLOW, RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVALS = 5
#: How wide the bar and the whole line are: on a narrow terminal the bar gives way.
BAR, NARROW_BAR, WIDTH = 16, 6, 118
EIGHTHS = " ▏▎▍▌▋▊▉█"

#: A piece of a line and how it looks; a line is a list of them.
Piece = tuple[str, str]


class Screen:
    """Where scenes are drawn. As a context it hides the cursor and gives it back."""

    def __init__(self, out: TextIO, *, color: bool | None = None) -> None:
        self._out = out
        self.live = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._color = self.live and color is not False
        self._blocks = _can_show(out, EIGHTHS)
        self._drawn = 0
        self._bar_width = BAR

    def interval_s(self, seconds: float) -> float:
        """How long to wait between two scenes."""
        return LIVE_INTERVAL_S if self.live else seconds / PLAIN_INTERVALS

    def __enter__(self) -> Self:
        if self.live:
            self._write(HIDE_CURSOR)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self._write(SHOW_CURSOR)

    def draw(self, scene: Scene, seconds: float) -> None:
        """Draw one scene: over the last one on a terminal, below it otherwise."""
        columns, rows = shutil.get_terminal_size() if self.live else (WIDTH, 0)
        self._bar_width = BAR if columns >= WIDTH else NARROW_BAR
        lines = list(self._lines(scene, seconds))
        if self.live:
            text = "".join(self._line(line, columns - 1) + ERASE_LINE + "\n" for line in lines[: rows - 1])
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            self._drawn = min(len(lines), rows - 1)
            self._write(up + text + ERASE_BELOW)
        else:
            self._write("".join(self._line(line, None).rstrip() + "\n" for line in lines) + "\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def _line(self, pieces: list[Piece], width: int | None) -> str:
        out = []
        for text, look in pieces:
            if width is not None:
                text = text[:width]
                width -= len(text)
            out.append(f"{look}{text}{RESET}" if look and self._color and text else text)
        return "".join(out)

    # --- what stands in a scene --------------------------------------------------------------------------------------

    def _lines(self, scene: Scene, seconds: float) -> Iterator[list[Piece]]:
        living = len({p.pid for p in scene.processes if not p.note})
        title = f"  {living} producers, as a monitor sees them  {scene.elapsed_s:.1f} of {seconds:g} s"
        yield [("neuron-ds demo", BOLD), (title, "")]
        yield [("", "")]
        busy = "busy".ljust(self._bar_width + 5)
        yield [(f"  slot      pid  process           core  {busy}    exec/s    latency  errors     memory  model", DIM)]
        for device in scene.devices:
            mine = [p for p in scene.processes if p.device == device.device]
            yield [(device_line(device), BOLD), (f"  {len(mine)} of {SLOTS_PER_DEVICE} slots used", "")]
            for process in mine:
                yield from self._process(process)
        if scene.events:
            yield [("", "")]
            for event in scene.events:
                yield [("  " + printable(event), YELLOW)]

    def _process(self, process: ProcessUse) -> Iterator[list[Piece]]:
        tag = shorten(printable(process.tag), 16)
        who = f"  {process.slot:4}  {process.pid:7}  {tag:16}"
        if process.note or not process.cores:
            yield [(who, ""), ("  " + (process.note or "nothing on any core yet"), RED if process.note else DIM)]
            return
        if all(core.idle for core in process.cores):
            yield [(f"{who}  {_span(process.cores)}  ", ""), *self._core(_together(process.cores))]
            return
        for core in process.cores:
            yield [(f"{who}  {core.core:>4}  ", ""), *self._core(core)]
            who = " " * len(who)

    def _core(self, core: CoreUse) -> Iterator[Piece]:
        busy = core.busy
        hung = core.executions_s == 0 and (busy or 0) > 0.5  # in use, and nothing ever ends
        yield self._bar(busy or 0.0), RED if hung else YELLOW if (busy or 0) > 0.9 else GREEN
        yield (f" {busy:4.0%}" if busy is not None else "    -"), ""
        rate = "-" if core.executions_s is None else f"{core.executions_s:,.1f}"
        yield f"  {rate:>8}  {_latency(core.latency_us):>9}", ""
        yield f"  {core.errors:>6,}", RED if core.errors else ""
        yield f"  {size(core.memory_bytes):>9}  {shorten(printable(', '.join(core.models)), 24)}", ""

    def _bar(self, part: float) -> str:
        width = self._bar_width
        if not self._blocks:
            return ("#" * round(part * width)).ljust(width, ".")
        full, rest = divmod(round(part * width * 8), 8)
        return (EIGHTHS[8] * full + (EIGHTHS[rest] if full < width else "")).ljust(width)


def _span(cores: Sequence[CoreUse]) -> str:
    first, last = cores[0].core, cores[-1].core
    return f"{first}-{last}".rjust(4) if last > first else f"{first:>4}"


def _together(cores: Sequence[CoreUse]) -> CoreUse:
    """Cores on which nothing has ever run, as one: only their memory and models are to be told."""
    models = tuple(dict.fromkeys(model for core in cores for model in core.models))
    return replace(cores[0], memory_bytes=sum(core.memory_bytes for core in cores), models=models)


def _latency(us: int) -> str:
    if not us:
        return "-"
    if us < 10_000:
        return f"{us:,} us"
    return f"{us / 1e3:,.1f} ms" if us < 10_000_000 else f"{us / 1e6:,.1f} s"


def _can_show(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding or sys.getdefaultencoding())
    except (UnicodeEncodeError, LookupError):
        return False
    return True
