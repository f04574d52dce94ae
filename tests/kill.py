"""A producer's whole life, killed at a step of it, and what must hold afterwards.

The steps are the named ones of ``driver/steps.py``; which there are is learned by recording a life. Shared by the
tests of real processes; knows the software driver's files.
"""

from __future__ import annotations

import mmap
import os
import re
import signal
from collections import Counter
from pathlib import Path

import neuron_ds
from neuron_ds import ModelNode, _core, datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import steps
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError, ProducerGone
from tests.devices import COUNT
from tests.processes import Child, Talk

ADDED = 1000
ADD = "(the add)"  # not a step of the driver: the moment in a life when it counts

#: What a process finds on taking the table lock: at which step another one died before.
LEFTOVERS = {
    "nothing": None,
    "a dead owner": "publish.bit",
    "a closing slot": "release.rolled_up",
    "a counted one": "release.header",
}


def names_in_source() -> set[str]:
    """Every step that the package and its core name."""
    source = Path(neuron_ds.__file__).parent
    files = [*source.rglob("*.py"), *(source.parent.parent / "csrc").glob("*.c")]
    return {name for f in files for name in re.findall(r'\b_?step\("([a-z_.]+)"\)', f.read_text())}


def live(root: str, hook, leave_open: bool = False) -> None:
    """Publish, count, add a model, update and delete it, close; ``hook`` is called at each step."""
    steps.set_hook(hook)
    driver = SoftwareDriver(root)
    producer = datastore.publish(0, driver=driver, tag="victim")
    hook(ADD)
    producer.core(0).inference_count.add(ADDED)
    model = producer.add_model(ModelNode.build(model_id=1, name="first"))
    model.update(ModelNode.build(model_id=2, name="second"))
    model.delete()
    if not leave_open:
        producer.close()
    steps.set_hook(None)


def record(root: str, leftover: str | None) -> list[str]:
    """The steps of a life that finds this leftover, in their order."""

    def work(talk: Talk) -> list[str]:
        seen: list[str] = []
        live(root, seen.append)
        return seen

    if leftover is not None:
        kill_at(root, leftover)
    with Child(work) as child:
        return child.expect()


def kill_at(root: str, name: str) -> None:
    """A life that ends at the first such step."""

    def work(talk: Talk) -> None:
        live(root, lambda step: step == name and os.kill(os.getpid(), signal.SIGKILL))

    with Child(work) as child:
        assert child.wait() == -signal.SIGKILL


class Bench:
    """A device with a bystander on it, and eyes on everything: table, slabs, totals."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.driver = SoftwareDriver(root)
        self.driver.probe(0)
        self._table = self._map(d.TABLE)
        self._slabs = os.open(f"{root}/neuron0/{d.SLABS}", os.O_RDONLY)
        self.generations = [0] * layout.SLOTS_PER_DEVICE
        self.bystander = Child(_stand_by, root)
        self.slot = self.bystander.expect()
        self.its_bytes = self.slab(self.slot)
        assert self.its_bytes.count(b"\0") < len(self.its_bytes) - 2000
        self.expected = 0

    def _map(self, name: str) -> _core.Mapping:
        fd = os.open(f"{self.root}/neuron0/{name}", os.O_RDONLY)
        try:
            return _core.map(fd, 0, d.FILE_SIZES[name], False, None)
        finally:
            os.close(fd)

    def close(self) -> None:
        self.bystander.close()
        os.close(self._slabs)

    def slab(self, slot: int) -> bytes:
        return os.pread(self._slabs, layout.SLAB_SIZE, slot * layout.SLAB_SIZE)

    def states(self) -> list[int]:
        words = self._table.load_many(t.W_SLOTS, layout.SLOTS_PER_DEVICE, t.SLOT_STRIDE)
        for slot, word in enumerate(words):
            generation = t.split_slot_word(word)[0]
            assert generation >= self.generations[slot], "a generation went back"
            self.generations[slot] = generation
        return [t.split_slot_word(word)[1] for word in words]

    def total(self) -> int:
        """What an observer sums up without a lock, less what the bystander has."""
        return self.driver.totals(0).nc(0, COUNT) - BYSTANDER_COUNT

    def check_after_death(self) -> None:
        """While the dead one's slot is as it was left: counted once, the bystander untouched."""
        self.states()
        assert self.total() == self.expected, "a slab was counted twice or not at all"
        assert self.slab(self.slot) == self.its_bytes, "the bystander's slab was touched"

    def check_after_recovery(self) -> None:
        """Another process publishes, which recovers whatever there is; then nobody but the bystander has a slot."""
        with Child(_newcomer, self.root) as child:
            slot, counted, bitmap, tag = child.expect()
            assert slot != self.slot, "a slot was given twice"
            assert (counted, bitmap, tag) == (0, 0, "newcomer"), "a slab was not zero when it was given"
            assert child.wait() == 0
        states = self.states()
        assert states.count(t.OWNED) == 1
        assert states[self.slot] == t.OWNED
        assert states.count(t.FREE) == layout.SLOTS_PER_DEVICE - 1, "a slot was lost"
        zero = bytes(layout.SLAB_SIZE)
        assert all(self.slab(s) == zero for s, state in enumerate(states) if state == t.FREE), "free but not zero"
        assert t.Commit.unpack(self._table.load(t.W_COMMIT)).pending is None
        self.check_after_death()

    # --- kills

    def kill(self, sequence: list[str], position: int, *, watched: bool) -> bool:
        """A life killed at a position of its recorded steps. With ``watched`` by us, while a reader looks on;
        returns whether one could."""
        told = False
        with Child(_die_at if not watched else _wait_at, self.root, position) as child:
            reader = None
            if watched:
                assert child.expect() == sequence[position]
                try:
                    reader = datastore.attach(child.pid, driver=self.driver)
                    assert reader.snapshot().generation == reader.generation
                except NeuronDSError:
                    assert sequence[position].startswith(UNSEEN), sequence[position]
                child.kill()
            assert child.wait() == -signal.SIGKILL
            if ADD in sequence[:position]:
                self.expected += ADDED
            self.check_after_death()
            if reader is not None:
                told = _is_told(reader)
        self.check_after_recovery()
        if reader is not None:
            for read in (reader.snapshot, reader.core(0).inference_count.get, reader.nd.counter(3).get):
                try:
                    value = read()
                except ProducerGone:
                    continue
                raise AssertionError(f"a reader of the dead was given {value}")
            reader.close()
        return told


#: Where no reader can have attached: before the slot is owned and its header stands, and once the release has begun.
UNSEEN = ("table.", "recover.", "acquire.", "release.")
BYSTANDER_COUNT = 77


def _is_told(reader: datastore.Reader) -> bool:
    assert not reader.alive
    try:
        reader.snapshot()
    except ProducerGone:
        return True
    raise AssertionError("a reader was given a snapshot of the dead")


def _stand_by(talk: Talk, root: str) -> None:
    producer = datastore.publish(0, driver=SoftwareDriver(root), tag="bystander")
    for core in range(producer.properties.cores or 0):
        for i in range(layout.NC_COUNTERS):
            producer.core(core).counter(i).set(core * 1000 + i + 1)
    producer.core(0).counter(COUNT).set(BYSTANDER_COUNT)
    for i in range(8):
        producer.add_model(ModelNode.build(model_id=i, name=f"model {i}" * 20))
    talk.say(producer.slot)
    talk.hear()


def _newcomer(talk: Talk, root: str) -> tuple[int | None, int, int, str | None]:
    with datastore.publish(0, driver=SoftwareDriver(root), tag="newcomer") as producer:
        snapshot = producer.snapshot()
        return producer.slot, snapshot.nc(0, COUNT), snapshot.model_bitmap, snapshot.tag


def _die_at(talk: Talk, root: str, position: int) -> None:
    count = Counter[str]()

    def hook(step: str) -> None:
        count["steps"] += 1
        if count["steps"] > position:
            os.kill(os.getpid(), signal.SIGKILL)

    live(root, hook)


def _wait_at(talk: Talk, root: str, position: int) -> None:
    count = Counter[str]()

    def hook(step: str) -> None:
        count["steps"] += 1
        if count["steps"] > position:
            talk.say(step)
            signal.pause()

    live(root, hook)


# --- Kills at random instants ---------------------------------------------------------------------------------------


class Ledger:
    """Two words that outlive a killed child: what it was about to count, and what it had counted.

    Each changes by one store: ``struct.pack_into`` zeroes a word before it writes it, and a kill in between is seen.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")

    def begin(self) -> None:
        self._words[0] += ADDED

    def done(self) -> None:
        self._words[1] += ADDED

    @property
    def range(self) -> tuple[int, int]:
        begun, done = self._words[:2]
        return done, begun


def busy(talk: Talk, root: str, ledger: Ledger) -> None:
    """Lives one after the other, without end."""
    driver = SoftwareDriver(root)
    talk.say("ready")
    while True:
        producer = datastore.publish(0, driver=driver, tag="victim")
        count = producer.core(0).inference_count
        for n in range(3):
            ledger.begin()
            count.add(ADDED)
            ledger.done()
            model = producer.add_model(ModelNode.build(model_id=n, name="of a victim"))
            model.delete()
        producer.close()
