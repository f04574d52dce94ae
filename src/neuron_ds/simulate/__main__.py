"""``python -m neuron_ds.simulate``: one simulated process, with its own slabs.

Started by a parent (``--parent``) it takes commands on standard input; see ``control``. By hand it runs until a signal,
``--seconds`` or ``--events`` ends it. On standard output it says in JSON lines what state it is in.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import ExitStack
from typing import Any

from neuron_ds.datastore import Producer, publish
from neuron_ds.driver import get_driver
from neuron_ds.errors import NeuronDSError
from neuron_ds.simulate.control import Control, die_with_parent
from neuron_ds.simulate.devices import DEFAULT_TYPE, driver_name, prepare
from neuron_ds.simulate.playing import LONGEST_S, SLOWEST, Playback, Player, RealTime
from neuron_ds.simulate.workload import (
    FAL_VERSION,
    FRAMEWORK_TYPE,
    FRAMEWORK_VERSION,
    RUNTIME_VERSION,
    Workload,
    script,
)


def say(state: str, **values: Any) -> None:
    """One line for whoever started us; nobody may be listening any more."""
    try:
        print(json.dumps({"state": state, "pid": os.getpid(), **values}), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nor will anybody later, the exit's flush included


def run(workload: Workload, control: Control, *, driver: str, speed: float, controlled: bool) -> None:
    """Publish and play until the end is wanted."""
    with ExitStack() as stack:
        producers: dict[int, Producer] = {
            device: stack.enter_context(
                publish(
                    device,
                    tag=workload.tag,
                    framework_type=FRAMEWORK_TYPE,
                    framework_version=FRAMEWORK_VERSION,
                    fal_version=FAL_VERSION,
                    runtime_version=RUNTIME_VERSION,
                    driver=get_driver(driver),
                )
            )
            for device in workload.devices
        }
        slots = {str(device): producer.slot for device, producer in producers.items()}
        say("ready", events=0, tag=workload.tag, slots=slots)
        clock = RealTime(speed, control.sleep)
        playback = Playback(Player(producers), script(workload), clock)
        while not control.ended:
            playback.run(control.until)
            if not control.holds(playback.played, playback.over):
                continue
            if control.command is not None:
                say("played", events=playback.played, command=control.command)
                control.command = None
                if not controlled:
                    break
            control.sleep(None)
            clock.restart()
    say("ended", events=playback.played)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 ended as it should, 1 could not publish (the reason as a line), 2 bad arguments."""
    parser = argparse.ArgumentParser(prog="python -m neuron_ds.simulate", description="One simulated process.")
    parser.add_argument("pattern", help="NAME[,KEY=VALUE...]")
    parser.add_argument("--cores", default="0/0", help="DEVICE/CORE[-CORE][,...]")
    parser.add_argument("--model", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tag", default="")
    parser.add_argument("--speed", type=float, default=1.0, help="times real time; inf: as fast as possible")
    parser.add_argument("--events", type=int, help="hold after so many events (by hand: end)")
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--driver", help="publish with this driver instead of the software one")
    parser.add_argument("--type", default=DEFAULT_TYPE, help="of devices that are not there yet")
    parser.add_argument("--parent", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.speed >= SLOWEST:
        parser.error(f"--speed is {options.speed}; it is {SLOWEST:g} or more, or inf")
    if options.seconds is not None and not 0 <= options.seconds <= LONGEST_S:
        parser.error(f"--seconds is {options.seconds}; it is a number from 0 to {LONGEST_S:,}")
    controlled = options.parent is not None
    if controlled:
        die_with_parent(options.parent)
    try:
        workload = Workload.of_arguments(options.pattern, options.cores, options.model, options.seed, options.tag)
        driver = driver_name(options.driver)
        if not controlled:
            prepare(dict.fromkeys(workload.devices, options.type), workload.cores, driver, None)
        control = Control(0 if controlled else None, options.events, options.seconds)
        run(workload, control, driver=driver, speed=options.speed, controlled=controlled)
    except NeuronDSError as e:
        where = {"device": e.device, "slot": e.slot, "path": e.path, "errno": e.errno}
        say("failed", kind=type(e).__name__, error=e.message, **where)
        if not controlled:
            print(f"{parser.prog}: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
