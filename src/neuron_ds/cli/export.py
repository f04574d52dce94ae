"""The commands ``export`` and ``report``: what a recording becomes for those who analyse, and for those who read."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import click

from neuron_ds.cli.base import OK, Failure, tell
from neuron_ds.cli.record import Progress
from neuron_ds.errors import BadValue

if TYPE_CHECKING:
    from neuron_ds.export import Step
    from neuron_ds.record import Recording

_TIME = "as in 90, 1m30s, -10s (before its end) or 14:05:30"


def _every(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    from neuron_ds.record.replay import seconds_of

    try:
        return 0 if value is None else round(seconds_of(value) * 1e9)
    except (BadValue, OverflowError) as e:
        raise click.BadParameter(str(e)) from None


def _part(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which part of a recording, and how the output is written."""
    options = [
        click.argument("file"),
        click.option("-o", "--output", metavar="OUT", required=True, help="The file to write."),
        click.option("-f", "--force", is_flag=True, help="Replace a file that is there."),
        click.option("--since", metavar="TIME", help=f"From this time of the recording on, {_TIME}."),
        click.option("--until", metavar="TIME", help="Up to this time, likewise."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


class _Reading:
    """A recording while it is read: the part that is asked for, and how far it has come."""

    def __init__(self, recording: Recording, since: str | None, until: str | None) -> None:
        self.recording = recording
        self.start_ns = recording.start_ns if since is None else self._time("--since", since)
        self.end_ns = recording.end_ns if until is None else self._time("--until", until)
        if not recording.start_ns <= self.end_ns or not self.start_ns <= min(self.end_ns, recording.end_ns):
            raise Failure(
                f"{recording.path}: nothing of it lies there; it is "
                f"{(recording.end_ns - recording.start_ns) / 1e9:.1f} s long"
            )
        self.progress = Progress()
        self.steps = 0

    def _time(self, option: str, text: str) -> int:
        from neuron_ds.record.replay import time_of

        try:
            return time_of(self.recording, text)
        except BadValue as e:
            raise Failure(f"{option}: {e.message}") from None

    def seen(self, step: Step) -> None:
        self.steps += 1
        first_ns = max(self.start_ns, self.recording.start_ns)
        length_ns = max(1, min(self.end_ns, self.recording.end_ns) - first_ns)
        share = (step.sample.time_ns - first_ns) / length_ns
        self.progress.show(lambda: f"{self.recording.path}: {share:.0%}, {self.steps} looks")


@contextmanager
def _reading(file: str, since: str | None, until: str | None) -> Iterator[_Reading]:
    """A recording; what is not whole in it is told at the end. A signal to end is heeded as Ctrl-C is."""
    from neuron_ds.record import Recording

    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in heeded}
    try:
        with Recording(file) as recording:
            reading = _Reading(recording, since, until)
            try:
                yield reading
            finally:
                reading.progress.clear()
            for damage in recording.damage:
                tell(f"{file}: {damage}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@click.command("export", short_help="A recording as Parquet, CSV or a trace.")
@_part
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "trace", "perfetto"]),
    help="What to write.  [default: what OUT ends in]",
)
@click.option(
    "--every", "every_ns", metavar="DURATION", callback=_every, help="One look in so long, as in 1s.  [default: all]"
)
@click.option("--changes", is_flag=True, help="Parquet and CSV: a row only where the value is another one.")
def export_command(
    file: str,
    output: str,
    force: bool,
    since: str | None,
    until: str | None,
    form: str | None,
    every_ns: int,
    changes: bool,
) -> int:
    """Write what a recording FILE says for other programs.

    Parquet (.parquet) and CSV (.csv, .csv.gz; - for standard output) have a row for each counter of each slab at each
    look; a trace has counters for every core, slices for models and processes and instants for errors: as Chrome's JSON
    (.json, .json.gz) or as Perfetto's packets (.perfetto-trace, .pftrace). Exit 0 when it is written; 2
    where the recording can't be read or the output not be written: no half of it stays behind then.

    \b
    Examples:
      neuron-ds export incident.mcap -o incident.parquet
      neuron-ds export incident.mcap -o incident.perfetto-trace --since -2m
      neuron-ds export incident.mcap -o - --every 10s | head
    """
    from neuron_ds.export import check_form, export, form_of, writing

    to_stdout = output == "-"
    try:
        form = form or ("csv" if to_stdout else form_of(output))
        check_form(form, output)
    except BadValue as e:
        raise Failure(e.message) from None
    if changes and form not in ("parquet", "csv"):
        raise Failure("--changes is for parquet and csv; a trace has changes only, always")
    with _reading(file, since, until) as reading:

        def write(out: IO[bytes]) -> int:
            part = {"start_ns": reading.start_ns, "end_ns": reading.end_ns, "every_ns": every_ns}
            return export(reading.recording, form, out, **part, changes=changes, seen=reading.seen)

        if to_stdout:
            if form != "csv" and sys.stdout.isatty():
                raise Failure("-: standard output is a terminal; redirect it, or name a file")
            rows = _to_stdout(write)
        else:
            with writing(output, force=force, compress=output.endswith(".gz")) as out:
                rows = write(out)
    return OK if to_stdout else tell(f"{output}: {reading.steps} looks" + (f", {rows:,} rows" if rows else ""))


def _to_stdout(write: Callable[[IO[bytes]], int]) -> int:
    try:
        rows = write(sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as e:
        raise OSError(e.errno, os.strerror(e.errno or 0), "standard output") if e.filename is None else e from None
    return rows


@click.command("report", short_help="A recording as one page that opens from disk.")
@_part
@click.option(
    "--every",
    "every_ns",
    metavar="DURATION",
    callback=_every,
    help="One look in so long.  [default: 50ms, longer for long recordings]",
)
def report_command(file: str, output: str, force: bool, since: str | None, until: str | None, every_ns: int) -> int:
    """Write what happened in a recording FILE as one HTML page.

    Utilization of every core over time, throughput, latency, memory, errors, the life of each process, and what the
    rules of neuron-ds diagnose find. The page needs no network and runs no script; its data is in it as JSON too.
    Exit 0 when it is written; 2 where the recording can't be read or the page can't be written.

    \b
    Example:
      neuron-ds report incident.mcap -o report.html --since -10m
    """
    from neuron_ds.export import writing
    from neuron_ds.records import printable
    from neuron_ds.report import page, survey

    if output == "-" and sys.stdout.isatty():
        raise Failure("-: standard output is a terminal; redirect it, or name a file")
    with _reading(file, since, until) as reading:

        def write(out: IO[bytes]) -> int:
            data = survey(
                reading.recording,
                every_ns=every_ns,
                start_ns=reading.start_ns,
                end_ns=reading.end_ns,
                seen=reading.seen,
            )
            return out.write(page(data, printable(os.path.basename(file))).encode())

        if output == "-":
            _to_stdout(write)
            return OK
        with writing(output, force=force) as out:
            size_bytes = write(out)
    return tell(f"{output}: {reading.steps} looks, {size_bytes / 1000:,.0f} kB")
