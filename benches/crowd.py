"""Runtimes at work: many processes that publish and execute, forked from one so that 256 of them start in a second.

Each plays the simulator's script of its number at a steady rate until its standard input, which is that of all, ends.
Run as a module it is the one that they are forked from. What is measured on them is not known here.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from neuron_ds import layout
from neuron_ds.datastore import Producer, publish
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.simulate import PATTERNS, Playback, Player, RealTime, Workload, script

#: What is played as fast as possible before a process is ready: its model is loaded and all of its cores have executed.
EVENTS_BEFORE = 20
#: Added to whatever a core has counted by then, as if it had run for long.
COUNTED_BEFORE = 123_456_789_012
_FAILED = b"failed\n"


@contextmanager
def runtimes(
    path: str,
    *,
    processes: int,
    devices: int,
    devices_each: int = 1,
    rate_hz: float,
    cores_each: int = layout.MAX_CORES,
) -> Iterator[list[int]]:
    """So many processes, spread over the devices; on each core of theirs so many executions a second. Their pids.

    cores_each: on how many cores of each of its devices a process works; those of a device take other ones in turn.

    They are healthy but for the first: it errs now and then.
    """
    numbers = (processes, devices, devices_each, cores_each, rate_hz)
    with subprocess.Popen(
        [sys.executable, "-m", __name__, path, *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent,
    ) as root:
        assert root.stdin is not None
        assert root.stdout is not None
        pids = []
        for _ in range(processes):
            line = root.stdout.readline()
            if line == _FAILED or not line:
                root.stdin.close()
                raise RuntimeError("a runtime of the crowd did not start")
            pids.append(int(line))
        yield pids


def main() -> None:
    path, processes, devices, devices_each, cores_each = sys.argv[1], *map(int, sys.argv[2:6])
    rate_hz = float(sys.argv[6])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the bench, and with it the input of all
    gc.freeze()
    children = []
    for number in range(processes):
        child = os.fork()
        if not child:
            on = [(number * devices_each + i) % devices for i in range(devices_each)]
            first = number * devices_each // devices * cores_each
            os._exit(_work(path, number, on, range(first, first + cores_each), rate_hz))
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _work(path: str, number: int, devices: list[int], wanted: range, rate_hz: float) -> int:
    """The life of one runtime on the ``wanted`` cores of each device, counted around; its exit status."""
    try:
        driver = SoftwareDriver(path)
        with ExitStack() as stack:
            producers = {
                device: stack.enter_context(publish(device, tag=f"runtime-{number}", driver=driver))
                for device in devices
            }
            there = {d: p.properties.cores or layout.MAX_CORES for d, p in producers.items()}
            cores = [(d, core) for d, n in there.items() for core in sorted({core % n for core in wanted})]
            pattern = PATTERNS["inference" if number else "erring"](rate=rate_hz)
            workload = Workload(pattern, seed=number, cores=tuple(cores), number=number)
            player, events = Player(producers), script(workload)
            before = Playback(player, events)
            before.run(EVENTS_BEFORE * len(cores))
            for producer in producers.values():
                _age(producer)
            os.write(1, b"%d\n" % os.getpid())
            clock = RealTime(1.0, lambda left_s: not select.select([0], [], [], left_s)[0])
            Playback(player, events, clock).run()
        return 0
    except BaseException:
        traceback.print_exc()
        os.write(1, _FAILED)
        return 1


def _age(producer: Producer) -> None:
    for core in range(producer.properties.cores or layout.MAX_CORES):
        for counter in layout.NC:
            cell = producer.core(core).counter(counter.index)
            if counter.kind == layout.COUNTER and cell.get():
                cell.add(COUNTED_BEFORE)


if __name__ == "__main__":
    main()
