"""What the driver costs who looks and who comes and goes: the list of a full machine, 16 processes at one table.

Run as a module it is one of those 16: told a side and a number of rounds on its standard input, it says that it is
ready, waits at the gate with the others, makes its rounds and says that it is done.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benches.fixtures import MANY_DEVICES, directory, producers
from benches.harness import Comparison, Side, statement
from neuron_ds import layout
from neuron_ds.driver import directory as files
from neuron_ds.driver.software import SoftwareDriver

PROCESSES = layout.SLOTS_PER_DEVICE
#: What each process does in one run: enough that starting and ending together is a small part of it.
ROUNDS_EACH = 10
DRIVER, BY_HAND = "driver", "by-hand"
_READY, _DONE = b"r", b"d"
_STAT_BYTES = 4096  # more than any /proc/PID/stat has


def comparisons() -> Iterator[Comparison]:
    yield from _listing()
    yield from _contending()


def _listing() -> Iterator[Comparison]:
    """Every slot of 16 devices is taken; the owners are 16 living processes, so that these have 16 files to read."""
    with (
        directory(devices=MANY_DEVICES) as path,
        producers(path, processes=PROCESSES, devices=MANY_DEVICES, models=0) as pids,
    ):
        driver = SoftwareDriver(path)
        found = [owner for device in driver.devices() for owner in driver.owners(device)]
        assert sorted(owner.pid for owner in found if owner.alive) == sorted(pids * MANY_DEVICES)
        yield Comparison(
            f"owners() of {MANY_DEVICES} devices, {len(found)} slots",
            f"open, read, close {len(found)} /proc/PID/stat",
            statement("[owners(device) for device in devices()]", owners=driver.owners, devices=driver.devices),
            statement(
                "for path in paths: fd = open(path, flags); read(fd, size); close(fd)",
                open=os.open,
                read=os.read,
                close=os.close,
                paths=[f"/proc/{pid}/stat" for pid in pids] * MANY_DEVICES,
                flags=os.O_RDONLY | os.O_CLOEXEC,
                size=_STAT_BYTES,
            ),
            4,
        )


def _contending() -> Iterator[Comparison]:
    with directory(devices=1) as path, _crowd(path) as side:
        yield Comparison(
            f"acquire, release; {PROCESSES} contend",
            "lock, open, mmap, zero, unmap, unlock",
            side(DRIVER),
            side(BY_HAND),
            2,
        )


# --- 16 processes that do the same at the same time -----------------------------------------------------------------


@contextmanager
def _crowd(path: str) -> Iterator[Callable[[str], Side]]:
    """A function that makes a Side of what all the processes do until the last is done."""
    with ExitStack() as stack:
        gate, opening = os.pipe()
        stack.callback(os.close, gate)
        stack.callback(os.close, opening)
        crowd = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, path, str(number), str(gate)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    pass_fds=[gate],
                    cwd=Path(__file__).parent.parent,
                )
            )
            for number in range(PROCESSES)
        ]

        def side(name: str) -> Side:
            def run(times: int) -> float:
                for process in crowd:
                    assert process.stdin is not None
                    process.stdin.write(f"{name} {times * ROUNDS_EACH}\n".encode())
                _wait_for(crowd, _READY)
                began = time.perf_counter()
                os.write(opening, bytes(len(crowd)))
                _wait_for(crowd, _DONE)
                return time.perf_counter() - began

            return Side(run, PROCESSES * ROUNDS_EACH, looped=False)

        yield side


def _wait_for(crowd: Sequence[subprocess.Popen[bytes]], word: bytes) -> None:
    for process in crowd:
        assert process.stdout is not None
        if process.stdout.read(1) != word:
            raise RuntimeError(f"process {process.pid} of the crowd ended before its time")


def main() -> None:
    path, number, gate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    driver = SoftwareDriver(path)
    slabs = f"{path}/{files.device_name(0)}/{files.SLABS}"
    lock = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    zeros = bytes(layout.SLAB_SIZE)

    def through_the_driver() -> None:
        driver.release(driver.acquire(0))

    def by_hand() -> None:  # nobody owns a slab meanwhile
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)
        fd = os.open(slabs, os.O_RDWR | os.O_CLOEXEC)
        slab = mmap.mmap(fd, layout.SLAB_SIZE, offset=number * layout.SLAB_SIZE)
        slab[:] = zeros
        slab.close()
        os.close(fd)
        fcntl.lockf(lock, fcntl.LOCK_UN, 1)

    for line in sys.stdin:
        name, rounds = line.split()
        once = {DRIVER: through_the_driver, BY_HAND: by_hand}[name]
        os.write(1, _READY)
        os.read(gate, 1)
        for _ in range(int(rounds)):
            once()
        os.write(1, _DONE)


if __name__ == "__main__":
    main()
