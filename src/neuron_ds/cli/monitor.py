"""The command ``monitor``: its options, its signals, and how its lines get out.

A line is written whole before a signal ends the stream, unless nobody takes it; a reader that goes away ends it at
once. What is in a line is the monitor room's.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, STDOUT, UNUSABLE, Failure, Finite, tell
from neuron_ds.cli.pods import names_of_pods
from neuron_ds.cli.replay import replayed

if TYPE_CHECKING:
    from neuron_ds.monitor import Config

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: How long a line that was begun may take to be finished once a signal asks for the end.
GRACE_S = 1.0


class Outlet:
    """Standard output and the wish to end. Knows when nobody reads any more, also while nothing is written."""

    def __init__(self, fd: int) -> None:
        self._fd, self._told = fd, os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.stopped = False
        self._poll = select.poll()
        self._poll.register(self._told, select.POLLIN)
        self._poll.register(fd, 0)  # errors are told without being asked for

    def stop(self, number: int, frame: object) -> None:
        """A signal handler."""
        self.stopped = True
        os.eventfd_write(self._told, 1)

    def wait(self, until_ns: int) -> bool:
        """Until a time of CLOCK_MONOTONIC. False if a signal asks for the end; raises BrokenPipeError."""
        while not self.stopped:
            left_ns = until_ns - time.monotonic_ns()
            if self._gone(self._poll.poll(max(0, -(-left_ns // 1_000_000)))):
                raise BrokenPipeError
            if left_ns <= 0:
                return True
        return False

    def write(self, data: bytes) -> None:
        """All of it, in pieces that a pipe takes at once, so that a signal is heeded also where nobody reads."""
        writable = select.poll()
        writable.register(self._fd, select.POLLOUT)
        view, deadline_s = memoryview(data), None
        while view:
            events = writable.poll(100)
            if events:
                view = view[self._put(view[: select.PIPE_BUF]) :]
            elif self.stopped:
                deadline_s = deadline_s or time.monotonic() + GRACE_S
                if time.monotonic() > deadline_s:
                    return

    def _put(self, piece: memoryview) -> int:
        """How much of it was taken; what standard output can't take is an error with its name."""
        try:
            return os.write(self._fd, piece)
        except BlockingIOError:  # another writer was faster
            return 0
        except BrokenPipeError:
            raise
        except OSError as e:
            raise OSError(e.errno, e.strerror, STDOUT) from None

    def _gone(self, events: list[tuple[int, int]]) -> bool:
        return any(fd == self._fd and event & (select.POLLERR | select.POLLHUP) for fd, event in events)

    def close(self) -> None:
        os.close(self._told)


@contextmanager
def outlet() -> Iterator[Outlet]:
    """Standard output until a signal asks for the end; those that we were started to ignore (nohup) stay ignored."""
    if sys.stdout is None:
        raise Failure("there is no standard output to write to")
    sys.stdout.flush()
    out = Outlet(sys.stdout.fileno())
    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, out.stop) for number in heeded}
    try:
        yield out
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        out.close()


@click.command(short_help="The JSON stream of neuron-monitor, one report per line.")
@click.option("-c", "--config-file", metavar="FILE", help="What to report and how often.  [default: everything, 5s]")
@click.option("--period", metavar="DURATION", help="How often, as in 5, 5s or 500ms, instead of the file's period.")
@click.option("--once", is_flag=True, help="One report, over half a second, and end.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="So many reports, and end.")
@click.option("--no-loaded-models", is_flag=True, help="Leave loaded_models out: lines stay short.")
@click.option("--pretty", is_flag=True, help="Indented, over many lines: for people, not for programs.")
@click.option(
    "--sample-hz",
    type=Finite(0, 1000),
    default=100.0,
    show_default=True,
    help="How often latencies are looked at for the percentiles; 0 for never.",
)
@click.option("--no-imds", is_flag=True, help="Never ask the instance metadata service.")
@click.option(
    "--pod-resources",
    metavar="PATH",
    help="Kubelet's socket, which tells neuron_k8s_info the names of pods; 'none' asks nobody.  "
    "[default: where kubelet has it]",
)
@click.option("--without-device", is_flag=True, help="Also where there is no device yet.")
@click.option(
    "--verbose",
    type=click.IntRange(0, 4),
    is_flag=False,
    flag_value=1,
    default=0,
    metavar="LEVEL",
    help="Talk on standard error, 0 to 4.  [default: 0; 1 without a level]",
)
@replayed()
def monitor(
    config_file: str | None,
    period: str | None,
    once: bool,
    count: int | None,
    no_loaded_models: bool,
    pretty: bool,
    sample_hz: float,
    no_imds: bool,
    pod_resources: str | None,
    without_device: bool,
    verbose: int,
) -> int:
    """Report what all runtimes do as neuron-monitor does: a line of JSON per period, the first within two seconds.

    Ends with SIGTERM or Ctrl-C, after --count, and when nobody reads any more. Exit 0 when ended as asked; 1 for a
    configuration that can't be used, and without a device; 2 where devices can't be looked for.
    """
    if once and count is not None:
        raise Failure("--once and --count both say how many; use one of them")
    config = _configuration(config_file, period)
    if config is None:
        return NEGATIVE
    from neuron_ds.instance import InstanceInfo
    from neuron_ds.monitor.stream import Monitor

    def talk(level: int, text: str) -> None:
        if verbose >= level:
            tell(text)

    with (
        outlet() as out,
        names_of_pods(pod_resources, config.kubernetes_ns is not None, partial(talk, 1)) as pods,
        Monitor(
            config,
            sample_hz=sample_hz,
            models=not no_loaded_models,
            instance=InstanceInfo(ask=not no_imds),
            tell=talk,
            pods=pods,
        ) as stream,
    ):
        sample = stream.begin()
        if not sample.devices and not without_device:
            if sample.error:
                return tell(sample.error, UNUSABLE)
            return tell("no Neuron device; neuron-ds doctor tells more", NEGATIVE)
        for line in islice(stream.lines(out.wait, pretty=pretty), 1 if once else count):
            out.write(line)
    return OK


def _configuration(path: str | None, period: str | None) -> Config | None:
    """The configuration; None if it can't be used, which has been told then."""
    try:
        from neuron_ds.monitor.config import duration_ns, load
    except ModuleNotFoundError as e:
        raise Failure(f"{e.name} is not installed; pip install 'neuron-datastore[monitor]'") from None
    from neuron_ds.errors import BadValue

    try:
        period_ns = None
        if period is not None:
            period_ns = duration_ns(period + "s" if period.replace(".", "", 1).isdecimal() else period)
    except BadValue as e:
        raise Failure(f"--period: {e.message}") from None
    try:
        config = load(path, period_ns)
    except BadValue as e:
        tell(str(e))
        return None
    except OSError as e:
        tell(f"{path}: {e.strerror}")
        return None
    for place in config.unknown:
        tell(f"{path}: {place} means nothing here and is ignored")
    return config
