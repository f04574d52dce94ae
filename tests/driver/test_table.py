"""The rules of the slot table: the recorded answers of the real driver, and every death the model can think of."""

from __future__ import annotations

import copy
import json
import random
import threading
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from neuron_ds.driver import table as t
from neuron_ds.layout import SLOTS_PER_DEVICE
from tests.driver.table_world import COUNTS, Interrupted, Killed, Machine, Observer, Process, Source

GOLDEN = Path(__file__).parent.parent / "golden"
ENOENT, ENOMEM = 2, 12


# --- The real driver's answers --------------------------------------------------------------------------------------


def order(ticks: list[int]) -> list[int]:
    """Ticks as an order: 0 for never released, else the rank."""
    ranks = sorted({x for x in ticks if x})
    return [ranks.index(x) + 1 if x else 0 for x in ticks]


def ticks(machine: Machine) -> list[int]:
    return [machine.words[t.slot_index(s, t.S_TICK)] for s in range(SLOTS_PER_DEVICE)]


def last_close(machine: Machine, callers: dict[int, Process]) -> None:
    """What the kernel alone does when a device file is closed for the last time: every slot is cleared, without an
    owner check and without a roll-up. No procedure of ours does; the model is set to the state that follows."""
    for slot in range(SLOTS_PER_DEVICE):
        generation, state = t.split_slot_word(machine.words[t.slot_index(slot)])
        machine.words[t.slot_index(slot, t.S_TICK)] = max(ticks(machine)) + 1
        machine.words[t.slot_index(slot)] = t.slot_word(generation + (state != t.FREE), t.FREE)
        machine.slabs[slot] = [0] * len(machine.slabs[slot])
    machine.holders.clear()
    for process in callers.values():
        process.own = None
    machine.counted = machine.sum_now()  # what was not rolled up is lost there, and so it is here


@pytest.mark.parametrize(("name", "steps", "last_closes"), [("slots-a", 300, 1), ("slots-b", 300, 2)])
def test_golden_trace(name, steps, last_closes):
    trace = json.loads((GOLDEN / f"{name}.json").read_text())
    assert trace["slots"] == SLOTS_PER_DEVICE
    machine = Machine()
    callers: dict[int, Process] = {}
    compared = closed = 0
    for number, step in enumerate(trace["steps"]):
        where = f"step {number}: {step['caller']} {step['op']} {step['pid']}"
        caller = callers.setdefault(step["caller"], Process(machine, step["caller"]))
        errno, slot = 0, -1
        caller.rolled_up.clear()
        if step["op"] == "last_close":
            last_close(machine, callers)
            closed += 1
        elif step["op"] == "acquire" and step["pid"] == 0:
            had = caller.own
            if not caller.acquire():
                errno = ENOMEM
            else:
                slot = caller.own[0]
                assert had in (None, caller.own), where
        elif step["op"] == "acquire":
            owned = {p.pid: p.own[0] for p in callers.values() if p.own}
            slot = owned.get(step["pid"], -1)
            errno = 0 if slot >= 0 else ENOENT
            if slot >= 0:  # and the table alone shows the same to an observer
                view = t.read_slot(machine, slot)
                assert (view.state, view.owner.pid) == (t.OWNED, step["pid"]), where
        else:
            assert step["op"] == "release"
            if step["pid"] in (0, caller.pid):
                caller.release()
        assert (errno, slot) == (step["errno"], step["slot"]), where
        assert bool(caller.rolled_up) == step["rolled_up"], where
        views = t.read_slots(machine)
        assert [v.owner.pid if v.state == t.OWNED else 0 for v in views] == [row[0] for row in step["table"]], where
        assert order([v.tick for v in views]) == order([row[1] for row in step["table"]]), where
        # The mark is what the recorder wrote into the first device counter: zeroing shows.
        assert [machine.slabs[s][0] for s in range(SLOTS_PER_DEVICE)] == [row[2] for row in step["table"]], where
        compared += 1
    assert (compared, closed) == (steps, last_closes)


# --- Small rules ----------------------------------------------------------------------------------------------------


def test_a_never_used_slot_comes_before_the_one_that_is_free_longest():
    machine = Machine()
    assert t.free_slots(machine) == list(range(SLOTS_PER_DEVICE))
    for slot, (state, tick) in enumerate([(t.FREE, 4), (t.OWNED, 1), (t.FREE, 2), (t.FREE, 0), (t.CLOSING, 0)]):
        machine.words[t.slot_index(slot)] = t.slot_word(3, state)
        machine.words[t.slot_index(slot, t.S_TICK)] = tick
    assert t.free_slots(machine) == [3, *range(5, SLOTS_PER_DEVICE), 2, 0]
    for slot in range(SLOTS_PER_DEVICE):
        machine.words[t.slot_index(slot)] = t.slot_word(3, t.CLOSING if slot % 2 else t.OWNED)
    assert t.free_slots(machine) == []


@pytest.mark.parametrize("state", [t.FREE, t.OWNED, t.CLOSING])
@pytest.mark.parametrize("generation", [0, 1, 255, 256, 2**32, 2**56 - 1])
def test_slot_words_come_back(generation, state):
    word = t.slot_word(generation, state)
    assert 0 <= word < 2**64
    assert t.split_slot_word(word) == (generation, state)


@pytest.mark.parametrize("commit", [t.Commit(0, 0, None), t.Commit(7, 1, 0), t.Commit(2**48 - 1, 0, 15)])
def test_commit_words_come_back(commit):
    assert t.Commit.unpack(commit.pack()) == commit
    assert 0 <= commit.pack() < 2**64


def test_a_byte_that_somebody_holds_of_a_free_slot_is_left_alone():
    machine = Machine()
    machine.holders[0] = 1  # a process between take and store, or one that never gave it back
    first = machine.process()
    assert first.acquire()
    assert first.own == (1, 1)
    assert machine.words[t.slot_index(0)] == 0


def test_a_release_of_another_generation_touches_nothing():
    machine = Machine()
    first, second = machine.process(), machine.process()
    assert first.acquire()
    slot, generation = first.own
    machine.holders.clear()  # its lock is lost, so its slot is recovered and given away
    first.own = None
    assert second.acquire()
    for _ in range(SLOTS_PER_DEVICE):  # until the slot has come round
        if second.own[0] == slot:
            break
        second.release()
        second.acquire()
    assert second.own[0] == slot
    before = (list(machine.words), copy.deepcopy(machine.slabs), dict(machine.holders))
    assert first.rules.release(slot, generation) is False
    assert (machine.words, machine.slabs, machine.holders) == before


def test_reset_refuses_while_an_owner_lives_and_is_one_store():
    machine = Machine()
    first = machine.process()
    first.acquire()
    first.add(0, 5)
    assert first.rules.reset() is False
    assert machine.sum_now() == [5, 0]
    first.release()
    sums = []
    store = first.rules._words.store  # the two zeros of the inactive copy show nothing; the one store does
    first.rules._words.store = lambda i, v: (
        sums.append(machine.sum_now()),
        machine.counted.__setitem__(0, 0),
        store(i, v),
    )
    assert first.rules.reset() is True
    assert sums == [[5, 0]]
    assert machine.sum_now() == [0, 0]


# --- The state machine ----------------------------------------------------------------------------------------------

POOL = 6
fuses = st.one_of(st.none(), st.integers(1, 70))
ends = st.sampled_from([Killed, Killed, Interrupted])
who = st.integers(0, POOL - 1)


class TableMachine(RuleBasedStateMachine):
    """Processes that acquire, count, release and die behind any change; observers that read between any two."""

    @initialize(seed=st.integers(0, 2**32), others=st.integers(0, SLOTS_PER_DEVICE), looks=st.integers(0, 3))
    def start(self, seed, others, looks):
        self.machine = Machine(seed)
        for _ in range(others):  # so that a full table is met as well
            assert self.machine.process().acquire()
        self.pool = [self.machine.process() for _ in range(POOL)]
        for _ in range(looks):
            Observer(self.machine, None)
        for slot in range(0, SLOTS_PER_DEVICE, 5):
            Observer(self.machine, slot)

    def one(self, i: int) -> Process:
        if not self.pool[i].alive:
            self.pool[i] = self.machine.process()
        return self.pool[i]

    @rule(i=who, fuse=fuses, end=ends)
    def acquire(self, i, fuse, end):
        self.one(i).acquire(fuse, end)

    @rule(i=who, fuse=fuses, end=ends)
    def release(self, i, fuse, end):
        self.one(i).release(fuse, end)

    @rule(i=who)
    def die(self, i):
        self.one(i).die()

    @rule(i=who, count=st.integers(0, len(COUNTS) - 1), n=st.integers(1, 1000))
    def add(self, i, count, n):
        process = self.one(i)
        if process.own is not None:
            process.add(count, n)

    @precondition(lambda self: any(p.own for p in self.pool))
    @rule(deaths=st.lists(st.integers(1, 40), min_size=4, max_size=4))
    def three_deep(self, deaths):
        """Killed in a release, in its recovery, in the recovery of that, and in the recovery of the third."""
        victim = next(p for p in self.pool if p.own)
        victim.release(deaths[0])
        for fuse in deaths[1:]:
            self.machine.process().acquire(fuse)

    @rule(i=who)
    def reset(self, i):
        machine, process = self.machine, self.one(i)
        if process.rules.recover() is None or any(machine.state(s) != t.FREE for s in range(SLOTS_PER_DEVICE)):
            assert process.rules.reset() is False
            return
        observers, machine.observers = machine.observers, []  # a look across a reset has no one right answer
        seeds, machine.counted = machine.counted, [0] * len(COUNTS)
        machine._busy = True
        assert process.rules.reset() is True
        machine._busy = False
        assert machine.sum_now() == [0] * len(COUNTS), seeds
        for observer in observers:
            Observer(machine, observer.slot)

    @rule(loads=st.integers(1, 200))
    def observers_alone(self, loads):
        for observer in self.machine.observers:
            observer.advance(loads)

    @invariant()
    def holds(self):
        if hasattr(self, "machine"):
            self.machine.check()
            owned = [p.own for p in self.machine.processes if p.own]
            assert len(set(owned)) == len(owned), "two processes have one slot"
            for slot, generation in owned:
                assert self.machine.words[t.slot_index(slot)] == t.slot_word(generation, t.OWNED)

    def teardown(self):
        if hasattr(self, "machine"):
            self.machine.at_rest()


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestTableLonger(TableMachine.TestCase):
    settings = settings(max_examples=300, stateful_step_count=80, deadline=None)


# --- Every kill, three deep -----------------------------------------------------------------------------------------


def scene() -> tuple[Machine, Process]:
    """A process about to release, a bystander, and a slot whose owner is dead already."""
    machine = Machine()
    machine.others_count = 0
    victim, bystander, dead = machine.process(), machine.process(), machine.process()
    for n, process in enumerate((victim, bystander, dead), 1):
        process.acquire()
        process.add(0, n)
        process.add(1, 10 * n)
    dead.die()
    return machine, victim


def descend(machine: Machine, depth: int, deaths: tuple[int, ...], leaves: list[tuple[int, ...]]) -> None:
    """From this state another process takes the lock and is killed behind its 1st, 2nd, ... change."""
    fuse = 0
    while True:
        fuse += 1
        world = copy.deepcopy(machine)
        finished = world.process().acquire(fuse if depth else None) is not None
        if finished:
            leaves.append(deaths)
            bystander = world.processes[1]
            slot, generation = bystander.own
            assert world.words[t.slot_index(slot)] == t.slot_word(generation, t.OWNED)
            assert world.slabs[slot] == [bystander.pid, bystander.pid, 2, 20]
            assert t.Commit.unpack(world.words[t.W_COMMIT]).pending is None
            states = [world.state(s) for s in range(SLOTS_PER_DEVICE)]
            assert (states.count(t.OWNED), states.count(t.FREE)) == (2, SLOTS_PER_DEVICE - 2)
            assert world.totals[t.Commit.unpack(world.words[t.W_COMMIT]).active] == [4, 40]
            return
        descend(world, depth - 1, (*deaths, fuse), leaves)


def every_kill(depth: int) -> list[tuple[int, ...]]:
    leaves: list[tuple[int, ...]] = []
    fuse = 0
    while True:
        fuse += 1
        machine, victim = scene()
        if victim.release(fuse) is not None:
            return leaves
        descend(machine, depth, (fuse,), leaves)


def test_every_kill_of_a_release_and_of_its_recovery():
    leaves = every_kill(1)
    assert len(leaves) > 300
    assert max(len(x) for x in leaves) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_kill_three_deep():
    leaves = every_kill(2)
    assert len(leaves) > 5000
    assert max(len(x) for x in leaves) == 3


# --- Observers against the real reading of totals -------------------------------------------------------------------


class Turns:
    """Lets a writer in another thread make one change at a time, when the reader says so."""

    def __init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self.over = False

    def change(self) -> None:  # in the writer
        self._done.release()
        self._go.acquire()

    def run(self, work) -> threading.Thread:
        def main() -> None:
            self._go.acquire()
            work()
            self.over = True
            self._done.release()

        thread = threading.Thread(target=main, daemon=True)
        thread.start()
        return thread

    def advance(self, changes: int) -> None:  # in the reader
        for _ in range(changes):
            if self.over:
                return
            self._go.release()
            self._done.acquire()


class SlowReader:
    """The machine's memory as read by somebody slow: between two loads the writer gets on."""

    def __init__(self, machine: Machine, turns: Turns, rng: random.Random) -> None:
        self._machine, self._turns, self._random = machine, turns, rng

    def _pause(self) -> None:
        if self._random.random() < 0.06:
            self._turns.advance(self._random.choice((1, 2, 5, 15, 40)))

    def load(self, index: int, /) -> int:
        self._pause()
        return self._machine.words[index]

    def load_many(self, first: int, count: int, stride: int = 1, /) -> tuple[int, ...]:
        return tuple(self.load(first + i * stride) for i in range(count))

    def copy(self, active: int, /) -> bytearray:
        self._pause()
        return Source(self._machine).copy(active)

    def add(self, totals: bytearray, slot: int, /) -> None:
        self._pause()
        Source(self._machine).add(totals, slot)


def read_between_changes(seed: int, table: type[t.SlotTable] = t.SlotTable) -> int:
    """Looks of ``read_totals`` that came to an end while slots changed hands, each checked."""
    rng = random.Random(seed)
    machine, turns, looks = Machine(seed, table), Turns(), 0
    machine.check_sequence = False
    processes = [machine.process() for _ in range(3)]

    def work() -> None:
        for _ in range(12):
            process = rng.choice(processes)
            if process.own is None:
                process.acquire()
            else:
                process.release()

    plain = machine.changed
    machine.changed = lambda: (plain(), machine._busy or turns.change())  # type: ignore[method-assign]
    for process in processes[:2]:
        machine._busy = True
        process.acquire()
        process.add(0, 7)
        machine._busy = False
    thread = turns.run(work)
    slow = SlowReader(machine, turns, random.Random(seed + 1))
    while not turns.over:
        low = list(machine.counted)
        seen = t.read_totals(slow, slow, attempts=1)
        turns.advance(1)
        if seen is not None:
            looks += 1
            assert all(a <= b <= c for a, b, c in zip(low, seen, machine.counted, strict=True)), (low, list(seen))
    thread.join(10)
    assert not thread.is_alive()
    return looks


def test_totals_are_exact_to_a_reader_that_is_overtaken_between_any_two_loads():
    assert sum(read_between_changes(seed) for seed in range(100)) > 100


# --- The model has teeth --------------------------------------------------------------------------------------------


class NoSequence(t.SlotTable):
    """Two releases look like none to an observer."""

    def _count(self, slot):
        commit = t.Commit.unpack(self._words.load(t.W_COMMIT))
        self._slabs.roll_up(slot, commit.active, 1 - commit.active)
        self._words.store(t.W_COMMIT, t.Commit(0, 1 - commit.active, slot).pack())

    def _finish(self, slot):
        super()._finish(slot)
        commit = t.Commit.unpack(self._words.load(t.W_COMMIT))
        self._words.store(t.W_COMMIT, t.Commit(0, commit.active, None).pack())


class ForgetsPending(t.SlotTable):
    """A slab that is counted but not yet zero is counted again."""

    def recover(self):
        commit = t.Commit.unpack(self._words.load(t.W_COMMIT))
        if commit.pending is not None:
            self._words.store(t.W_COMMIT, t.Commit(commit.sequence + 1, commit.active, None).pack())
        return super().recover()


class FreesBeforeZero(t.SlotTable):
    def _finish(self, slot):
        generation, _ = t.split_slot_word(self.word(slot))
        self._words.store(t.slot_index(slot), t.slot_word(generation, t.FREE))
        super()._finish(slot)


class KeepsGeneration(t.SlotTable):
    """A reader can't tell the next owner from the last."""

    def acquire(self, owner, claiming):
        slot = next(iter(t.free_slots(self._words)), None)
        if slot is None or not self._locks.take(slot):
            return None
        for part, value in zip(t.OWNER_WORDS, owner, strict=True):
            self._words.store(t.slot_index(slot, part), value)
        generation = t.split_slot_word(self.word(slot))[0]
        self._words.store(t.slot_index(slot), t.slot_word(generation, t.OWNED))
        return slot, generation

    def _close(self, slot, generation):
        super()._close(slot, generation - 1)


class LosesTheDead(t.SlotTable):
    def recover(self):
        return []


class ZeroesBeforeItCounts(t.SlotTable):
    def _count(self, slot):
        self._slabs.zero(slot)
        super()._count(slot)


class OwnsBeforeItSaysWho(t.SlotTable):
    def acquire(self, owner, claiming):
        got = super().acquire(t.OwnerWords(0, 0, 0, 0), claiming)
        if got is not None:
            for part, value in zip(t.OWNER_WORDS, owner, strict=True):
                self._words.store(t.slot_index(got[0], part), value)
        return got


def storm(table: type[t.SlotTable], seed: int, steps: int = 60) -> Machine:
    """Random processes, deaths and observers without hypothesis."""
    machine = Machine(seed, table)
    machine.check_sequence = table is not NoSequence
    rng = random.Random(seed)
    for slot in (None, None, 0, 1, 2):
        Observer(machine, slot)
    pool = [machine.process() for _ in range(4)]
    for _ in range(steps):
        i = rng.randrange(len(pool))
        if not pool[i].alive:
            pool[i] = machine.process()
        fuse = rng.choice((None, rng.randrange(1, 40)))
        rng.choice((pool[i].acquire, pool[i].release, pool[i].acquire))(fuse, rng.choice((Killed, Interrupted)))
    machine.at_rest()
    return machine


def test_the_storm_lets_the_rules_pass_and_its_observers_do_look():
    assert sum(storm(t.SlotTable, seed).looks for seed in range(20)) > 1000


@pytest.mark.parametrize(
    "mutant",
    [ForgetsPending, FreesBeforeZero, KeepsGeneration, LosesTheDead, ZeroesBeforeItCounts, OwnsBeforeItSaysWho],
)
def test_the_storm_finds(mutant):
    def found() -> bool:
        for seed in range(50):
            try:
                storm(mutant, seed)
            except AssertionError:
                return True
        return False

    assert found()


def test_overtaken_readers_find_that_two_releases_look_like_none():
    def found() -> bool:
        for seed in range(400):
            try:
                read_between_changes(seed, NoSequence)
            except AssertionError:
                return True
        return False

    assert found()
