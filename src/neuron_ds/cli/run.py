"""The commands that run producers: ``simulate`` and ``demo``. Whatever ends them, no child and no file stays behind."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, Failure, tell

if TYPE_CHECKING:
    from neuron_ds.simulate import Fleet, SimulatedProcess

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULT_PATTERN = "inference"


class Stopped(BaseException):
    """A signal asked for the end."""


@contextmanager
def until_stopped() -> Iterator[None]:
    """SIGINT, SIGTERM or SIGHUP leave the block, which ends well; a second one doesn't cut the clearing up short."""

    def stop(number: int, frame: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    except Stopped:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _patterns_help(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from neuron_ds.simulate import PATTERNS

    for name, pattern in PATTERNS.items():
        click.echo(f"{name:12} {pattern.summary()}")
        keys = ", ".join(f"{key}={default}" for key, (default, _) in pattern.parameters().items())
        if keys:
            click.echo(f"{'':12}   {keys}")
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
@click.option("--seconds", type=click.FloatRange(0), help="End after so long.  [default: run until stopped]")
@click.option("--speed", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Time lapse.")
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
    """
    from neuron_ds.driver.directory import DEFAULT_TYPE
    from neuron_ds.simulate import Fleet, plan

    wanted = list(items) or [DEFAULT_PATTERN]
    if processes is not None:
        if any("*" in item.partition(",")[0] for item in wanted):
            raise Failure("--processes and *COUNT both say how many; use one of them")
        wanted = [wanted[i % len(wanted)] for i in range(processes)]
    what = plan(wanted, devices=devices, type=device_type or DEFAULT_TYPE, seed=seed)
    fleet = Fleet(what, speed=speed, driver=driver)
    code = OK
    with until_stopped(), fleet:
        for process in fleet:
            _tell_ready(process, as_json)
        code = _watch(fleet, seconds)
    _tell_reports(fleet, as_json)
    return code


def _watch(fleet: Fleet, seconds: float | None) -> int:
    ended = fleet.wait(seconds)
    if len(ended) == len(list(fleet)):
        tell("every process has ended by itself")
        return NEGATIVE
    return OK


def _tell_ready(process: SimulatedProcess, as_json: bool) -> None:
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
        click.echo(json.dumps(state))
    else:
        where = "; ".join(
            f"device {device} slot {slot} cores {','.join(map(str, cores[device]))}"
            for device, slot in process.slots.items()
        )
        click.echo(f"pid {process.pid}  {process.tag}  {workload.pattern.name}  {where}")


def _tell_reports(fleet: Fleet, as_json: bool) -> None:
    for report in fleet.reports:
        if as_json:
            ended = {
                "state": "ended",
                "pid": report.pid,
                "tag": report.tag,
                "events": report.events,
                "exit_code": report.exit_code,
                "error": report.error,
            }
            click.echo(json.dumps(ended))
        else:
            error = f"  {report.error}" if report.error else ""
            events = "an unknown number of" if report.events is None else report.events
            click.echo(f"pid {report.pid}  {report.tag}  ended after {events} events{error}")


@click.command(short_help="All of it in ten seconds, without an accelerator.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=10.0, show_default=True, help="How long.")
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same workload.")
def demo(seconds: float, seed: int) -> int:
    """Show it all in ten seconds, without any accelerator, and clean up.

    Simulated producers publish in a private directory; what you see is what a monitor reads from their slabs. One of
    them is killed with SIGKILL on the way, and its slot recovered. Live on a terminal, plain lines in a pipe. Exit 0.
    """
    from neuron_ds.cli.screen import Screen
    from neuron_ds.demo import Demo

    screen = Screen(sys.stdout, color=click.get_current_context().color)
    with until_stopped(), Demo(seconds, seed=seed) as stage, screen:
        for scene in stage.scenes(screen.interval_s(seconds)):
            screen.draw(scene, seconds)
    return OK
