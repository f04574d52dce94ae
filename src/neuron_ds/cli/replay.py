"""The options with which a command works on a recording instead of the devices of this host.

``@recorded()`` is for commands that look once, ``@replayed()`` for those that go on. Inside such a command the driver
is the recording's; nothing else about the command changes. This module knows no command.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from neuron_ds.cli.base import Failure, tell
from neuron_ds.errors import BadValue

if TYPE_CHECKING:
    from neuron_ds.record.recording import Recording
    from neuron_ds.record.replay import ReplayDriver

Command = Callable[..., Any]
_NO_METADATA = "AWS_EC2_METADATA_DISABLED"


def recorded() -> Callable[[Command], Command]:
    """--from FILE and --at TIME: one moment of a recording, by default its last."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, from_file: str | None, at: str | None, **more: Any) -> Any:
            if from_file is None:
                _refuse({"--at": at})
                return command(*args, **more)
            with replaying(from_file, at=at or "-0", still=True):
                return command(*args, **more)

        return _from_file(_at("its end")(run))

    return decorate


def replayed(*, steps: bool = True) -> Callable[[Command], Command]:
    """--from FILE, --at TIME, --speed X and --loop. ``steps``: whether a speed of 0, a tick with each look, is one."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(*args: Any, from_file: str | None, at: str | None, speed: str | None, loop: bool, **more: Any) -> Any:
            if from_file is None:
                _refuse({"--at": at, "--speed": speed, "--loop": loop})
                return command(*args, **more)
            with replaying(from_file, at=at, speed=_speed(speed, steps), loop=loop):
                return command(*args, **more)

        how = "how fast, 1 as it was" + ("; 0 for as fast as it is looked at." if steps else ".")
        options = [
            click.option("--speed", metavar="X", help=f"With --from: {how}  [default: 1]"),
            click.option("--loop", is_flag=True, help="With --from: at its end begin anew."),
        ]
        for option in reversed(options):
            run = option(run)
        return _from_file(_at("its start")(run))

    return decorate


def _from_file(command: Command) -> Command:
    return click.option("--from", "from_file", metavar="FILE", help="A recording in place of this host's devices.")(
        command
    )


def _at(default: str) -> Callable[[Command], Command]:
    text = "With --from: the time, as in 90, 1m30s, -10s (before its end) or 14:05:30."
    return click.option("--at", metavar="TIME", help=f"{text}  [default: {default}]")


def _refuse(options: dict[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise Failure(f"{name} is for a recording: name it with --from")


def _speed(text: str | None, steps: bool) -> float:
    try:
        speed = 1.0 if text is None else float(text)
    except ValueError:
        raise Failure(f"--speed: {text!r} is no number") from None
    if speed == 0 and not steps:
        raise Failure("--speed 0: this command goes by the clock; give it a speed")
    return speed


def _span(recording: Recording) -> str:
    """From when to when it is, by the clock of this host."""
    from datetime import datetime

    first, last = (datetime.fromtimestamp(recording.wall_ns(ns) / 1e9) for ns in (recording.start_ns, recording.end_ns))
    length_s = (recording.end_ns - recording.start_ns) / 1e9
    until = f"{last:%H:%M:%S}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M:%S}"
    return f"goes from {first:%Y-%m-%d %H:%M:%S} to {until}, for {length_s:.3f} s"


@contextmanager
def replaying(
    path: str, *, at: str | None = None, speed: float = 1.0, still: bool = False, loop: bool = False
) -> Iterator[ReplayDriver]:
    """The driver of a recording is everybody's inside. Says what is not whole in the file, and when it is over."""
    from neuron_ds.driver import use_driver
    from neuron_ds.record.recording import Recording
    from neuron_ds.record.replay import ReplayDriver, time_of

    at_ns = None
    if at is not None:
        with Recording(path) as recording:
            try:
                at_ns = time_of(recording, at)
            except BadValue as e:
                raise Failure(f"--at: {e.message}") from None
            if not recording.start_ns <= at_ns <= recording.end_ns:
                raise Failure(f"--at {at}: that is outside of {path}, which {_span(recording)}")
    try:
        driver = ReplayDriver(path, speed=speed, at_ns=at_ns, still=still, loop=loop)
    except BadValue as e:
        raise Failure(str(e) if e.path else f"--speed: {e.message}") from None
    before = os.environ.get(_NO_METADATA)
    os.environ[_NO_METADATA] = "true"  # this instance is not the one that was recorded
    use_driver(driver)
    try:
        for damage in driver.recording.damage:
            tell(f"{path}: {damage}")
        yield driver
        if driver.over:
            tell(f"{path}: the recording is over")
    finally:
        use_driver(None)
        driver.close()
        if before is None:
            del os.environ[_NO_METADATA]
        else:
            os.environ[_NO_METADATA] = before
