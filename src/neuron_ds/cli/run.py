"""The commands that run producers: ``simulate`` and ``demo``. Whatever ends them, no child and no file stays behind."""

from __future__ import annotations

import gc
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, Failure, Finite, put, tell

if TYPE_CHECKING:
    from neuron_ds.simulate import Fleet, Report, SimulatedProcess

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULT_PATTERN = "inference"
YEAR_S = 365 * 86400
SPEEDS = (0.001, 1_000_000)


class Stopped(BaseException):
    """A signal asked for the end."""


def _heed_no_more(number: int, frame: object) -> None:
    """For SIG_IGN, of which Python complains with a traceback where the signal is on its way already."""


@contextmanager
def until_stopped() -> Iterator[None]:
    """SIGINT, SIGTERM or SIGHUP leave the block, which ends well; a second one doesn't cut the clearing up short.

    Those that whoever started us has made us ignore (nohup) stay ignored.
    """

    def stop(number: int, frame: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, _heed_no_more)
        raise Stopped

    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    except Stopped:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def collect_seldom() -> None:
    """For commands that make pictures: each is hundreds of thousands of values that end by themselves, and the cyclic
    collector would look at them again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _patterns_help(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from neuron_ds.simulate import MODELS, PATTERNS
    from neuron_ds.simulate.patterns import as_text

    for name, pattern in PATTERNS.items():
        put(f"{name:12} {pattern.summary()}")
        keys = ", ".join(f"{key}={as_text(default)}" for key, (default, _) in pattern.parameters().items())
        if keys:
            put(f"{'':12}   {keys}")
    put(f"\nevery pattern also takes tag=TEXT, seed=N, and model= one of {', '.join(MODELS)}")
    context.exit()


@click.command(short_help="Producers with chosen, seeded workloads.")
@click.option(
    "-p",
    "--pattern",
    "items",
    multiple=True,
    metavar="ITEM",
    help="What to run: PATTERN[*COUNT][@DEVICE[-DEVICE][/CORE[-CORE]]][,KEY=VALUE...]. May be given several times.  "
    "[default: inference]",
)
@click.option("-n", "--processes", type=click.IntRange(1), help="How many processes; the items take turns.")
@click.option("-d", "--devices", type=click.IntRange(1, 64), default=1, show_default=True, help="How many devices.")
@click.option("-t", "--type", "device_type", help="Their type: trn1, inf2 or trn2.  [default: trn2]")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same workload.")
@click.option("--seconds", type=Finite(0, YEAR_S), help="End after so long.  [default: run until stopped]")
@click.option("--speed", type=Finite(*SPEEDS), default=1.0, show_default=True, help="Time lapse.")
@click.option(
    "--driver",
    help="Publish through this driver. Without it the software driver, so that nothing is ever faked on real hardware "
    "by accident.",
)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "--patterns",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_patterns_help,
    help="List the patterns and their keys.",
)
def simulate(
    items: tuple[str, ...],
    processes: int | None,
    devices: int,
    device_type: str | None,
    seed: int,
    seconds: float | None,
    speed: float,
    driver: str | None,
    as_json: bool,
) -> int:
    """Run producers with chosen workloads until stopped (Ctrl-C, SIGTERM), or for --seconds.

    Without @ the processes are spread over the devices and the cores are shared out. Exit 0 when ended as asked, 1 if
    every process ended by itself before, 2 if they could not be started.

    \b
    Examples:
      neuron-ds simulate
      neuron-ds simulate -p 'inference*2' -p training@1 -p hung,after_s=3 -d 2 --seconds 60
      neuron-ds simulate -t trn1 -p erring@0/0,share=0.5,kinds=hbm+dma --seed 3 --json
    """
    from neuron_ds.driver.directory import DEFAULT_TYPE
    from neuron_ds.simulate import Fleet, plan

    wanted = list(items) or [DEFAULT_PATTERN]
    if processes is not None:
        if any("*" in item.partition(",")[0] for item in wanted):
            raise Failure("--processes and *COUNT both say how many; use one of them")
        wanted = [wanted[i % len(wanted)] for i in range(processes)]
    what = plan(wanted, devices=devices, type=device_type or DEFAULT_TYPE, seed=seed)
    fleet = Fleet(what, speed=speed, driver=driver, same_type=device_type is not None)
    told: set[int] = set()

    def tell_end(report: Report) -> None:
        if report.pid not in told:
            told.add(report.pid)
            _tell_report(report, as_json)

    code = OK
    with until_stopped(), fleet:
        for process in fleet:
            _tell_ready(process, as_json)
        code = _watch(fleet, seconds, tell_end)
    for report in fleet.reports:
        tell_end(report)
    return code


def _watch(fleet: Fleet, seconds: float | None, tell_end: Callable[[Report], None]) -> int:
    try:
        output = None if sys.stdout is None else sys.stdout.fileno()
    except OSError:
        output = None  # no file at all: a test's buffer
    ended = fleet.wait(seconds, told=tell_end, output=output)
    if len(ended) == len(fleet):
        tell("every process has ended by itself")
        return NEGATIVE
    return OK


def _tell_ready(process: SimulatedProcess, as_json: bool) -> None:
    from neuron_ds.cli.text import spans

    workload = process.workload
    cores: dict[int, list[int]] = {}
    for device, core in workload.cores:
        cores.setdefault(device, []).append(core)
    if as_json:
        state = {
            "state": "ready",
            "pid": process.pid,
            "tag": process.tag,
            "pattern": workload.pattern.name,
            "slots": [
                {"device": device, "slot": slot, "cores": cores[device]} for device, slot in process.slots.items()
            ],
        }
        put(json.dumps(state))
    else:
        where = "; ".join(
            f"device {device} slot {slot} cores {spans(cores[device])}" for device, slot in process.slots.items()
        )
        put(f"pid {process.pid}  {process.tag}  {workload.pattern.name}  {where}")


def _tell_report(report: Report, as_json: bool) -> None:
    if as_json:
        ended = {
            "state": "ended",
            "pid": report.pid,
            "tag": report.tag,
            "events": report.events,
            "exit_code": report.exit_code,
            "error": report.error,
        }
        put(json.dumps(ended))
        return
    events = f"after {'an unknown number of' if report.events is None else report.events} events"
    what, mark, more = report.error.removeprefix("was ").partition("; ")
    put(f"pid {report.pid}  {report.tag}  {f'{what}, ' if what else 'ended '}{events}{mark}{more}")


@click.command(short_help="All of it in ten seconds, without an accelerator.")
@click.option("--seconds", type=Finite(1, 3600), default=10.0, show_default=True, help="How long.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same workload.")
def demo(seconds: float, seed: int) -> int:
    """Show it all in ten seconds, without any accelerator, and clean up.

    Simulated producers publish in a private directory; what you see is what a monitor reads from their slabs. One of
    them is killed with SIGKILL on the way, and its slot recovered. Live on a terminal, plain lines in a pipe. Exit 0
    when done or stopped, 2 if it could not start.

    \b
    Examples:
      neuron-ds demo
      neuron-ds demo --seconds 60 --seed 3
      neuron-ds demo | less
    """
    from neuron_ds.cli.screen import Screen
    from neuron_ds.demo import Demo

    screen = Screen(sys.stdout, color=click.get_current_context().color)
    with until_stopped(), Demo(seconds, seed=seed) as stage, screen:
        for scene in stage.scenes(screen.interval_s(seconds)):
            screen.draw(scene, seconds)
    return OK
