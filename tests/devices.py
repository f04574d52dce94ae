"""What tests want to know of a device directory, and producers that only stand there.

Knows the software driver's files.
"""

from __future__ import annotations

import os
import signal
import stat

from neuron_ds import ModelNode, _core, datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import Talk, outcome, result_of

COUNT = layout.NC_BY_NAME["inference_count"].index

#: What one may want of a device.
USES = {
    "properties": lambda driver: driver.properties(0),
    "publish": lambda driver: datastore.publish(0, driver=driver),
    "attach": lambda driver: datastore.attach(1, driver=driver),
    "owners": lambda driver: driver.owners(0),
    "totals": lambda driver: driver.totals(0),
}


def node(k: int) -> ModelNode:
    return ModelNode.build(model_id=k, name=f"model {k}", uuid=bytes([k % 256]) * 16)


def table_of(root: str) -> _core.Mapping:
    """The slot table of device 0, read-only."""
    fd = os.open(f"{root}/neuron0/{d.TABLE}", os.O_RDONLY)
    try:
        return _core.map(fd, 0, d.FILE_SIZES[d.TABLE], False, None)
    finally:
        os.close(fd)


def slot_states(root: str) -> list[int]:
    words = table_of(root).load_many(t.W_SLOTS, layout.SLOTS_PER_DEVICE, t.SLOT_STRIDE)
    return [t.split_slot_word(word)[1] for word in words]


def seen_from_outside(root: str) -> list[list]:
    """[slot, pid, alive] of every owner of device 0 as another process sees them."""
    return result_of(lambda talk: [[o.slot, o.pid, o.alive] for o in SoftwareDriver(root).owners(0)])


def write_header(root: str, slot: int, word: int, device: int = 0) -> None:
    """A header put there behind its producer's back."""
    with open(f"{root}/neuron{device}/{d.SLABS}", "r+b") as f:
        f.seek(slot * layout.SLAB_SIZE)
        f.write(word.to_bytes(8, "little"))


def put_word(path: str, index: int, value: int) -> None:
    with open(path, "r+b") as f:
        f.seek(index * 8)
        f.write(value.to_bytes(8, "little"))


def entries(root: str) -> list[str]:
    return sorted(os.listdir(root))


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def files_of(root: str) -> list[str]:
    return [f"{root}/neuron0/{name}" for name in d.FILE_SIZES]


def probe_and_die(talk: Talk, root: str, call: str, number: int, end: signal.Signals) -> None:
    """Probe; at the n-th use of this system call, killed or stopped."""
    real, used = getattr(os, call), 0

    def instead(*args, **kwargs):
        nonlocal used
        used += 1
        if used == number:
            os.kill(os.getpid(), end)
        return real(*args, **kwargs)

    setattr(os, call, instead)
    talk.say(outcome(lambda: SoftwareDriver(root).probe(0)))


def publish_once(root: str) -> int | None:
    """The slot that the next publish gets."""
    with datastore.publish(0, driver=SoftwareDriver(root)) as producer:
        return producer.slot


def slots_that_others_get(root: str) -> list[int]:
    """Of 16 processes one after the other: all slots, each once, unless one is lost."""
    return sorted(result_of(lambda talk: publish_once(root)) for _ in range(layout.SLOTS_PER_DEVICE))


def publish_and_wait(talk: Talk, root: str, tag: str) -> None:
    """The life of a child that publishes, counts 111, says its slot and waits to be told to end."""
    producer = datastore.publish(0, driver=SoftwareDriver(root), tag=tag)
    producer.core(0).inference_count.set(111)
    talk.say(producer.slot)
    talk.hear()
