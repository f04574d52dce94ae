"""The command ``top``: its options, and whether the picture goes to a terminal, to a poor one, or out as plain text."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, Failure, Finite, print_json, put, tell
from neuron_ds.cli.replay import replayed
from neuron_ds.cli.run import collect_seldom, until_stopped

if TYPE_CHECKING:
    from neuron_ds.live.frame import Frame
    from neuron_ds.live.picture import Live

#: Between the two looks of --once, so that there are rates.
ONCE_S = 0.5


@click.command(short_help="The live picture on a terminal: cores, memory, processes, events.")
@click.option("--period", type=Finite(0.1, 3600), default=1.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="One plain picture, over half a second, and end.")
@click.option("-j", "--json", "as_json", is_flag=True, help="With --once: the picture as JSON.")
@click.option(
    "--sample-hz",
    type=Finite(0, 1000),
    default=20.0,
    show_default=True,
    help="How often latencies are looked at for the percentiles; 0 for never.",
)
@click.option("--no-color", is_flag=True, help="No colours, as with NO_COLOR set.")
@replayed()
def top(period: float, once: bool, as_json: bool, sample_hz: float, no_color: bool) -> int:
    """Show live what all processes on the devices do; ? there tells the keys.

    On a terminal that can't be drawn on (TERM=dumb) plain pictures follow one another. Exit 0 when quit, 1 if
    --once finds no device, 2 without a terminal: --once is for pipes.

    \b
    Examples:
      neuron-ds top
      neuron-ds top --period 0.5 --no-color
      neuron-ds top --once | grep HUNG
    """
    if as_json and not once:
        raise Failure("--json goes with --once")
    # Textual draws on standard error, and the plain pictures go to standard output: all three must be the terminal.
    if not once and not all(map(_is_terminal, (sys.stdin, sys.stdout, sys.stderr))):
        raise Failure("no terminal to draw on: input, output and error must be one; --once prints one picture")
    poor = os.environ.get("TERM", "dumb") in ("", "dumb")
    try:
        from neuron_ds.live.picture import Live
        from neuron_ds.live.source import HOST_S, LiveSource

        if not once and not poor:
            from neuron_ds.top import app
    except ModuleNotFoundError as e:
        raise Failure(f"{e.name} is not installed; pip install 'neuron-datastore[top]'") from None
    collect_seldom()
    with Live(LiveSource(sample_hz=sample_hz, host_s=ONCE_S / 2 if once else HOST_S)) as live:
        if once:
            return _once(live, as_json)
        elif poor:
            with until_stopped():
                _pictures(live, period)
        else:
            _choose_colors(no_color)
            return app.run(live, period_s=period, tell=tell)
    return OK


def _is_terminal(stream: object) -> bool:
    return stream is not None and stream.isatty()  # type: ignore[attr-defined]  # sys.stdin and sys.stdout are files


def _choose_colors(no_color: bool) -> None:
    """Textual asks the environment, and takes an empty NO_COLOR for a wish, which it is not."""
    if no_color:
        os.environ["NO_COLOR"] = "1"
    elif not os.environ.get("NO_COLOR"):
        os.environ.pop("NO_COLOR", None)


def _once(live: Live, as_json: bool) -> int:
    live.frame()
    time.sleep(ONCE_S)
    frame = live.frame()
    if as_json:
        from neuron_ds.top.plain import as_dict

        print_json(as_dict(frame))
    else:
        _put_picture(frame, live.title)
    return OK if frame.devices else NEGATIVE


def _pictures(live: Live, period_s: float) -> None:
    """One plain picture after the other, until a signal."""
    live.frame()
    time.sleep(min(period_s, ONCE_S))
    while True:
        _put_picture(live.frame(), live.title)
        put("")
        sys.stdout.flush()
        time.sleep(period_s)


def _put_picture(frame: Frame, title: str) -> None:
    from neuron_ds.top import plain

    width = shutil.get_terminal_size((plain.WIDTH, 24)).columns
    for line in plain.lines(frame, title, width, signs=_can_show("█▁▼")):
        put(line)


def _can_show(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or sys.getdefaultencoding())
    except (UnicodeEncodeError, LookupError):
        return False
    return True
