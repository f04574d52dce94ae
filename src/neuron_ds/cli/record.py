"""The command ``record``: its options and signals, its progress, and what it says in the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, UNUSABLE, Failure, Finite, put, tell

if TYPE_CHECKING:
    from neuron_ds.record.flight import FlightRecorder, Ring
    from neuron_ds.record.recorder import Recorder

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
YEAR_S = 365 * 86400
PROGRESS_S = 0.5


class Signals:
    """What signals have asked for."""

    def __init__(self) -> None:
        self.stopped = self.asked = False

    def stop(self, number: int, frame: object) -> None:
        self.stopped = True

    def ask(self, number: int, frame: object) -> None:
        self.asked = True


@contextmanager
def signals(*, ask: bool) -> Iterator[Signals]:
    """Until then a signal to end is a wish, and with ``ask`` so is SIGUSR1; what is ignored (nohup) stays ignored."""
    got = Signals()
    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(STOP_SIGNALS, got.stop)
    if ask:
        handlers[signal.SIGUSR1] = got.ask
    heeded = {n: handler for n, handler in handlers.items() if signal.getsignal(n) is not signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in heeded.items()}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """A line on a terminal that is written over; nothing anywhere else."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._due = 0.0

    def show(self, line: Callable[[], str]) -> None:
        if self._shown and (now := time.monotonic()) >= self._due:
            self._due = now + PROGRESS_S
            click.echo(f"\r\033[K{line()}", err=True, nl=False)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)


def _duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    from neuron_ds.errors import BadValue
    from neuron_ds.record.replay import seconds_of

    try:
        seconds = seconds_of(value)
    except BadValue as e:
        raise click.BadParameter(e.message) from None
    if not 0 < seconds <= YEAR_S:
        raise click.BadParameter(f"{value!r} is not within a year, or nothing at all")
    return seconds


@click.command(short_help="Every slab over time, in one file.")
@click.option("-o", "--output", metavar="FILE", help="The file.  [default: neuron-ds-DATE-TIME.mcap]")
@click.option("-f", "--force", is_flag=True, help="Replace a file that is there.")
@click.option("--rate", "rate_hz", type=Finite(1, 1000), default=100.0, show_default=True, help="Looks per second.")
@click.option("-p", "--pid", "pids", type=int, multiple=True, help="Only this process. May be given several times.")
@click.option("-d", "--device", "devices", type=int, multiple=True, help="Only this device. Several times likewise.")
@click.option("--seconds", type=Finite(0, YEAR_S), help="End after so long.  [default: until stopped]")
@click.option(
    "--compression",
    type=click.Choice(["zstd", "lz4", "none"]),
    default="zstd",
    show_default=True,
    help="How chunks are compressed.",
)
@click.option(
    "--keep",
    "keep_s",
    metavar="DURATION",
    callback=_duration,
    help="Flight recorder: keep the last, as in 5m, in memory, and write it when something happens.",
)
@click.option("--out-dir", metavar="DIR", help="With --keep: where its files go.  [default: here]")
@click.option(
    "--on",
    "kinds",
    type=click.Choice(["death", "error", "hang"]),
    multiple=True,
    help="With --keep: what makes it write; SIGUSR1 always does.  [default: all]",
)
@click.option(
    "--after",
    "after_s",
    metavar="DURATION",
    callback=_duration,
    help="With --keep: how much of what follows is in the file too.  [default: 5s]",
)
@click.option(
    "--hang",
    "hang_s",
    metavar="DURATION",
    callback=_duration,
    help="With --keep: a core hangs that is in use and completes nothing for so long.  [default: 10s]",
)
@click.option(
    "--files",
    type=click.IntRange(0),
    metavar="N",
    help="With --keep: keep so many of the files it wrote, the oldest go; 0 keeps all.  [default: 100]",
)
@click.option(
    "--realtime", is_flag=True, help="Look before all else on this host, so that fewer looks are late; a privilege."
)
@click.option("--without-device", is_flag=True, help="Also where there is no device yet.")
def record(
    output: str | None,
    force: bool,
    rate_hz: float,
    pids: tuple[int, ...],
    devices: tuple[int, ...],
    seconds: float | None,
    compression: str,
    keep_s: float | None,
    out_dir: str | None,
    kinds: tuple[str, ...],
    after_s: float | None,
    hang_s: float | None,
    files: int | None,
    realtime: bool,
    without_device: bool,
) -> int:
    """Record every slab until stopped (Ctrl-C, SIGTERM), or for --seconds: what changed, at each look.

    The file can be read while it is written, and after a kill -9 up to its last second. With --keep nothing is
    written until something happens: a process is gone, an error is counted, a core hangs, or SIGUSR1 comes; then the
    last minutes become a file, whose name is printed. Exit 0 when ended as asked; 1 without a device; 2 where the file
    can't be written, or no more of it.

    \b
    Examples:
      neuron-ds record
      neuron-ds record --rate 1000 --seconds 60 -o incident.mcap
      neuron-ds record --keep 5m --out-dir /var/tmp
      neuron-ds monitor --from incident.mcap --speed 10
    """
    if keep_s is None:
        for name, value in {
            "--out-dir": out_dir,
            "--on": kinds,
            "--after": after_s,
            "--hang": hang_s,
            "--files": files,
        }.items():
            if value not in (None, ()):
                raise Failure(f"{name} is for the flight recorder: say with --keep how much it keeps")
    elif output or force:
        raise Failure("--keep names its files itself; say with --out-dir where they go")
    from neuron_ds.driver import get_driver
    from neuron_ds.record.container import need_mcap

    need_mcap()
    if not without_device and not get_driver().devices():
        return tell("no Neuron device; neuron-ds doctor tells more", NEGATIVE)
    if realtime:
        _hurry()
    with signals(ask=keep_s is not None) as got:
        if keep_s is None:
            return _to_file(got, output, force, compression, rate_hz, pids, devices, seconds)
        kept = _Kept(keep_s, out_dir or ".", kinds, after_s, hang_s, compression, files)
        return _in_flight(got, kept, rate_hz, pids, devices, seconds)


def _to_file(
    got: Signals,
    output: str | None,
    force: bool,
    compression: str,
    rate_hz: float,
    pids: tuple[int, ...],
    devices: tuple[int, ...],
    seconds: float | None,
) -> int:
    from neuron_ds.record.container import FileSink
    from neuron_ds.record.recorder import Recorder, default_name

    sink = FileSink(output or default_name(), compression=compression, force=force)
    progress = Progress()
    try:
        with Recorder(sink, rate_hz=rate_hz, pids=pids, devices=devices) as recorder:
            _tell_missing(recorder, pids, devices)

            def stopped() -> bool:
                progress.show(lambda: f"{sink.path}: {_so_far(recorder)}, {_size(sink.size_bytes)}")
                return got.stopped

            recorder.run(stopped, seconds)
            recorder.finish()
            told = _so_far(recorder)
    except BaseException:
        progress.clear()
        sink.abandon()
        raise
    sink.close()
    progress.clear()
    return tell(f"{sink.path}: {told}, {_size(sink.size_bytes)}")


def _hurry() -> None:
    from neuron_ds.record.recorder import hurry

    try:
        hurry()
    except OSError as e:
        tell(f"--realtime: {e.strerror}: it takes root or CAP_SYS_NICE; recording without it")


class _Kept:
    """What the options of the flight recorder say."""

    def __init__(
        self,
        keep_s: float,
        directory: str,
        kinds: tuple[str, ...],
        after_s: float | None,
        hang_s: float | None,
        compression: str,
        files: int | None = None,
    ) -> None:
        from neuron_ds.record import flight

        if not os.path.isdir(directory):
            raise Failure(f"--out-dir {directory}: no such directory")
        if not os.access(directory, os.W_OK | os.X_OK):
            raise Failure(f"--out-dir {directory}: nothing can be written there; name another")
        self.keep_s, self.directory, self.compression = keep_s, directory, compression
        self.kinds = kinds or flight.KINDS
        self.after_s = flight.AFTER_S if after_s is None else after_s
        self.hang_s = flight.HANG_S if hang_s is None else hang_s
        self.most_files = flight.MOST_FILES if files is None else files
        self.keyframe_s = min(10.0, keep_s / flight.SEGMENTS)


def _in_flight(
    got: Signals,
    kept: _Kept,
    rate_hz: float,
    pids: tuple[int, ...],
    devices: tuple[int, ...],
    seconds: float | None,
) -> int:
    from neuron_ds.cli.text import plural
    from neuron_ds.record import flight
    from neuron_ds.record.recorder import Recorder

    progress = Progress()

    def told(path: str, text: str) -> None:
        with suppress(OSError):  # where nobody reads any more: what happens is written all the same
            progress.clear()
            tell(f"{path}: {text}" if path else text)
        with suppress(OSError):
            if path:
                put(path)
                sys.stdout.flush()

    ring = flight.Ring(kept.keep_s)
    with Recorder(ring, rate_hz=rate_hz, pids=pids, devices=devices, keyframe_s=kept.keyframe_s) as recorder:
        _tell_missing(recorder, pids, devices)
        alarms = flight.Alarms(recorder, hang_s=kept.hang_s, quiet_s=kept.keep_s, kinds=kept.kinds)
        recorded = flight.FlightRecorder(
            recorder,
            ring,
            alarms,
            kept.directory,
            after_s=kept.after_s,
            compression=kept.compression,
            most_files=kept.most_files,
            told=told,
        )

        def stopped() -> bool:
            return _fly(got, recorder, recorded, ring, progress)

        recorder.run(stopped, seconds)
        recorded.finish()
        progress.clear()
        tell(f"{_so_far(recorder)}, {plural(recorded.files, 'file')} written")
    return UNUSABLE if recorded.failed else OK


def _fly(got: Signals, recorder: Recorder, recorded: FlightRecorder, ring: Ring, progress: Progress) -> bool:
    """Between two looks of the flight recorder: whether to end."""
    from neuron_ds.record import flight

    if got.asked:
        got.asked = False
        recorded.happened(flight.SIGNAL, "SIGUSR1 asked for it")
    recorded.look()
    squeezed = ", as much as there is room for" if ring.squeezed else ""
    progress.show(lambda: f"{_so_far(recorder)}, {ring.kept_s:.0f} s kept in {_size(ring.size_bytes)}{squeezed}")
    return got.stopped


def _tell_missing(recorder: Recorder, pids: tuple[int, ...], devices: tuple[int, ...]) -> None:
    for device in sorted(set(devices) - {d.device for d in recorder.world.devices}):
        tell(f"there is no device {device}, so far; neuron-ds ls shows which there are")
    there = {owner.pid for owner in recorder.tracks.values()}
    for pid in sorted(set(pids) - there):
        tell(f"process {pid} has no slab that can be read, so far; neuron-ds ls shows who has")


def _so_far(recorder: Recorder) -> str:
    from neuron_ds.cli.text import plural

    length_s = (recorder.last_us - recorder.started_us) / 1e6
    parts = [f"{length_s:.1f} s", plural(recorder.ticks, "look")]
    if recorder.late or recorder.missed:
        parts.append(f"{recorder.late} late, {recorder.missed} missed")
    return ", ".join((*parts, plural(len(recorder.tracks), "slab")))


def _size(size_bytes: int) -> str:
    from neuron_ds.cli.text import size

    return size(size_bytes)
