"""What the driver costs whoever looks and whoever comes and goes: listing a full machine, 16 processes at one table.

Run as a module it is one of those 16: told a side and a number on its standard input, it says that it is ready, waits
at the gate with the others, does its rounds and says that it is done.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benches.fixtures import directory, producers
from benches.harness import Comparison, Side, statement
from neuron_ds import layout
from neuron_ds.driver import directory as files
from neuron_ds.driver.software import SoftwareDriver

MANY_DEVICES = 16
PROCESSES = layout.SLOTS_PER_DEVICE
#: Rounds of each process in one contended run: enough that they contend, and not only start and end together.
CONTENDED_ROUNDS = 10
_READ_BYTES = 4096


def comparisons() -> Iterator[Comparison]:
    yield from _listing()
    yield from _contending()


def _listing() -> Iterator[Comparison]:
    """256 owners, each slot's liveness asked of the kernel, against as many reads of a living process's stat."""
    with directory(devices=MANY_DEVICES) as path, producers(path, processes=PROCESSES, devices=MANY_DEVICES, models=0) as pids:
        driver = SoftwareDriver(path)
        found = [owner for device in driver.devices() for owner in driver.owners(device)]
        assert sorted(owner.pid for owner in found if owner.alive) == sorted(pids * MANY_DEVICES)
        yield Comparison(
            f"owners() of {MANY_DEVICES} devices, {len(found)} slots",
            f"{len(found)} /proc/PID/stat, os.open and read",
            statement("[owners(device) for device in devices()]", owners=driver.owners, devices=driver.devices),
            statement(
                "for stat in stats: fd = open(stat, flags); read(fd, size); close(fd)",
                open=os.open,
                read=os.read,
                close=os.close,
                stats=[f"/proc/{pid}/stat" for pid in pids] * MANY_DEVICES,
                flags=os.O_RDONLY | os.O_CLOEXEC,
                size=_READ_BYTES,
            ),
            4,
        )


def _contending() -> Iterator[Comparison]:
    with directory(devices=1) as path, _crowd(path) as side:
        yield Comparison(
            f"acquire, release; {PROCESSES} contend",
            "lock, open, mmap, zero, unmap, unlock",
            side("driver"),
            side("hand"),
            2,
        )


# --- 16 processes that do the same at once ----------------------------------------------------------------------------


@contextmanager
def _crowd(path: str) -> Iterator[Callable[[str], Side]]:
    gate_read, gate_write = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, gate_write)
        back_read, back_write = os.pipe()
        stack.callback(os.close, back_read)
        crowd = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, path, str(number), str(gate_read)],
                    stdin=subprocess.PIPE,
                    stdout=back_write,
                    pass_fds=[gate_read],
                    cwd=Path(__file__).parent.parent,
                    bufsize=0,
                )
            )
            for number in range(PROCESSES)
        ]
        os.close(gate_read)
        os.close(back_write)

        def all_say(word: bytes) -> None:
            for _ in crowd:
                if os.read(back_read, 1) != word:
                    raise RuntimeError("a process of the crowd ended")

        def side(name: str) -> Side:
            def run(times: int) -> float:
                for process in crowd:
                    process.stdin.write(f"{name} {times * CONTENDED_ROUNDS}\n".encode())
                all_say(b"r")
                began = time.perf_counter()
                os.write(gate_write, b"g" * PROCESSES)
                all_say(b"d")
                return time.perf_counter() - began

            return Side(run, PROCESSES * CONTENDED_ROUNDS, looped=False)

        yield side


def main() -> None:
    path, number, gate = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device = f"{path}/{files.device_name(0)}"
    driver = SoftwareDriver(path)
    lock = os.open(f"{path}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    zeros = bytes(layout.SLAB_SIZE)

    def through_driver() -> None:
        driver.release(driver.acquire(0))

    def by_hand() -> None:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1)
        fd = os.open(f"{device}/{files.SLABS}", os.O_RDWR | os.O_CLOEXEC)
        slab = mmap.mmap(fd, layout.SLAB_SIZE, offset=number * layout.SLAB_SIZE)
        slab[:] = zeros
        slab.close()
        os.close(fd)
        fcntl.lockf(lock, fcntl.LOCK_UN, 1)

    for line in sys.stdin:
        side, times = line.split()
        once = {"driver": through_driver, "hand": by_hand}[side]
        os.write(1, b"r")
        os.read(gate, 1)
        for _ in range(int(times)):
            once()
        os.write(1, b"d")


if __name__ == "__main__":
    main()
