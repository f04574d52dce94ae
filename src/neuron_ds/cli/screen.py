"""How a scene of the demonstration looks: redrawn in place on a terminal, plain lines in a pipe.

It knows scenes, widths and a handful of ANSI sequences, and nothing of where a scene comes from.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TextIO

from neuron_ds.cli.text import device_line, size
from neuron_ds.demo import CoreUse, ProcessUse, Scene
from neuron_ds.layout import SLOTS_PER_DEVICE
from neuron_ds.listing import shorten_middle
from neuron_ds.records import printable

HIDE_CURSOR, SHOW_CURSOR, ERASE_LINE, ERASE_BELOW = "\x1b[?25l", "\x1b[?25h", "\x1b[K", "\x1b[J"
BOLD, DIM, RED, GREEN, YELLOW, RESET = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
LIVE_INTERVAL_S = 0.5
PLAIN_INTERVALS = 5
EIGHTHS = " ▏▎▍▌▋▊▉█"

#: A piece of a line and how it looks; a line is a list of them.
Piece = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Columns:
    """How wide what can give way is; 0 leaves it out. The rest, errors and memory among it, always stays whole."""

    pid: int = 7
    tag: int = 16
    bar: int = 16
    model: int = 24

    @property
    def width(self) -> int:
        """Of a whole line."""
        columns = (4, self.pid, self.tag, 4, self.bar + 5, 8, 9, 6, 9, self.model)
        return sum(2 + width for width in columns if width)


#: What gives way on a narrow terminal, one after the other.
LAYOUTS = (
    Columns(),
    Columns(bar=6),
    Columns(bar=6, model=14),
    Columns(bar=6, model=0),
    Columns(bar=6, model=0, pid=0),
    Columns(bar=6, model=0, pid=0, tag=12),
    Columns(bar=2, model=0, pid=0, tag=6),
)


class Screen:
    """Where scenes are drawn. As a context it hides the cursor and gives it back."""

    def __init__(self, out: TextIO, *, color: bool | None = None) -> None:
        self._out = out
        self.live = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._color = self.live and color is not False
        self._blocks = _can_show(out, EIGHTHS)
        self._drawn = 0
        self._columns = LAYOUTS[0]

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
        columns, rows = shutil.get_terminal_size() if self.live else (LAYOUTS[0].width + 1, 0)
        width = max(columns - 1, 1)
        self._columns = next((c for c in LAYOUTS if c.width <= width), LAYOUTS[-1])
        lines = list(self._lines(scene, seconds, width if self.live else None))
        if self.live:
            lines = _fitting(lines, max(rows - 1, 1))
            text = "".join(self._line(line, width) + ERASE_LINE + "\n" for line in lines)
            up = f"\x1b[{self._drawn}F" if self._drawn else ""
            self._drawn = len(lines)
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

    def _lines(self, scene: Scene, seconds: float, width: int | None) -> Iterator[list[Piece]]:
        living = len({p.pid for p in scene.processes if not p.note})
        title = f"  {living} producers, as a monitor sees them  {scene.elapsed_s:.1f} of {seconds:g} s"
        yield [("neuron-ds demo", BOLD), (title, "")]
        yield [("", "")]
        c = self._columns
        who = f"  slot{_cell('pid', c.pid, right=True)}{_cell('process', c.tag)}  core{_cell('busy', c.bar + 5)}"
        yield [(f"{who}    exec/s    latency  errors     memory{_cell('model', c.model)}".rstrip(), DIM)]
        for device in scene.devices:
            mine = [p for p in scene.processes if p.device == device.device]
            yield [(device_line(device), BOLD), (f"  {len(mine)} of {SLOTS_PER_DEVICE} slots used", "")]
            for process in mine:
                yield from self._process(process)
        if scene.events:
            yield [("", "")]
            for event in scene.events:
                text = "  " + printable(event)
                parts = [text] if width is None else textwrap.wrap(text, width, subsequent_indent=" " * 10)
                for part in parts:
                    yield [(part, YELLOW)]

    def _process(self, process: ProcessUse) -> Iterator[list[Piece]]:
        c = self._columns
        who = f"  {process.slot:4}{_cell(str(process.pid), c.pid, right=True)}{_cell(printable(process.tag), c.tag)}"
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
        yield f"  {size(core.memory_bytes):>9}{_cell(printable(', '.join(core.models)), self._columns.model)}", ""

    def _bar(self, part: float) -> str:
        width = self._columns.bar
        if not self._blocks:
            return ("#" * round(part * width)).ljust(width, ".")
        full, rest = divmod(round(part * width * 8), 8)
        return (EIGHTHS[8] * full + (EIGHTHS[rest] if full < width else "")).ljust(width)


def _cell(text: str, width: int, *, right: bool = False) -> str:
    """A column that may be left out, with the gap before it."""
    if not width:
        return ""
    text = shorten_middle(text, width)  # tags and models differ at their ends
    return "  " + (text.rjust(width) if right else text.ljust(width))


def _fitting(lines: list[list[Piece]], rows: int) -> list[list[Piece]]:
    """As many lines as there are rows; the last one says how many there would be more."""
    if len(lines) <= rows:
        return lines
    kept = rows - 1
    return [*lines[:kept], [(f"  ... {len(lines) - kept} more", DIM)]]


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
