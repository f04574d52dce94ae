"""What the benches measure on: private directories, slabs that are full of models, producers in other processes.

Run as a module with a directory, devices and models it is such a producer: it publishes on every device, says so on
its standard output, and waits until its standard input ends. Producers whose counters move are in ``crowd``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from neuron_ds import layout
from neuron_ds.datastore import Producer, publish
from neuron_ds.driver.directory import DEVICE_BYTES
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.records import ModelNode

#: Every counter of a measured slab: two digits of a Python int, and below 2**60.
VALUE = (1 << 59) + 12345
MANY_DEVICES = 16
_ROOM_FACTOR = 1.25


@contextmanager
def directory(devices: int) -> Iterator[str]:
    """A directory of our own with so many devices: in memory where there is room, else on disk."""
    shared = "/dev/shm"
    needed = int(devices * DEVICE_BYTES * _ROOM_FACTOR)
    stat = os.statvfs(shared) if os.path.isdir(shared) else None
    parent = shared if stat and stat.f_bavail * stat.f_frsize > needed and os.access(shared, os.W_OK) else None
    path = tempfile.mkdtemp(prefix="neuron-ds-bench-", dir=parent)
    try:
        for device in range(devices):
            SoftwareDriver(path).probe(device)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def fill(producer: Producer, models: int) -> None:
    """Give every counter of the device's cores a value, and add models that differ in every field."""
    for core in range(producer.properties.cores or layout.MAX_CORES):
        counters = producer.core(core)
        for index in range(layout.NC_COUNTERS):
            counters.counter(index).set(VALUE + core * layout.NC_COUNTERS + index)
    for number in range(models):
        producer.add_model(model(number))


def model(number: int) -> ModelNode:
    """A model as a runtime publishes it: a long name, a uuid, both rows of its memory grid."""
    return ModelNode.build(
        model_id=1000 + number,
        model_node_id=number,
        name=f"transformer-block-{number:02}/attention/fused-qkv-projection-bf16",
        uuid=number.to_bytes(layout.UUID_SIZE, "big"),
        nc_index=number % 8,
        sg_index=number % 4,
        mem_usage=[[((number + 1) << slot + 20, slot + 1) for slot in range(layout.MEM_SLOTS)]] * 2,
    )


@contextmanager
def producers(path: str, *, processes: int, devices: int, models: int) -> Iterator[list[int]]:
    """So many processes, each with a slab on every device; their pids."""
    command = [sys.executable, "-m", __name__, path, str(devices), str(models)]
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent
                )
            )
            for _ in range(processes)
        ]
        for child in running:
            assert child.stdout is not None
            if child.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the producer {child.pid} did not start")
        yield [child.pid for child in running]


def main() -> None:
    path, devices, models = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    driver = SoftwareDriver(path)
    with ExitStack() as stack:
        for device in range(devices):
            fill(stack.enter_context(publish(device, driver=driver)), models)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
