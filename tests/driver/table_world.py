"""A machine in miniature for the rules of the slot table: words, record locks, slabs, totals, and processes that die.

Whatever a process changes goes through ``Machine.changed``: there the invariants are checked, observers that read
without a lock come a little further, other producers count on, and the process may be killed or interrupted. It
knows ``driver/table.py`` and nothing of files, real processes or real slabs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from neuron_ds.driver import table as t
from neuron_ds.layout import SLOTS_PER_DEVICE

# The cells of a slab in miniature. The owner writes its pid into the marks; the counts are what totals are made of.
MARKS = (0, 1)
COUNTS = (2, 3)
CELLS = 4


class Killed(BaseException):
    """The process died behind a change; it changes nothing more."""


class Interrupted(BaseException):
    """An exception (Ctrl-C, say) that comes behind a change; the process lives on."""


@dataclass
class Slot:
    """What the machine remembers of a slot to judge by; the rules see none of it."""

    generation: int = 0
    owners: dict[int, int] = field(default_factory=dict)  #: generation -> pid


class Machine:
    """Shared memory and the kernel's record locks, with somebody looking at each change."""

    def __init__(self, seed: int = 0, table: type[t.SlotTable] = t.SlotTable) -> None:
        self.table = table
        self.words = [0] * t.TABLE_WORDS
        self.words[t.W_COMMIT] = t.Commit(0, 0, None).pack()
        self.slabs = [[0] * CELLS for _ in range(SLOTS_PER_DEVICE)]
        self.totals = [[0] * len(COUNTS) for _ in range(2)]
        self.holders: dict[int, int] = {}
        self.slots = [Slot() for _ in range(SLOTS_PER_DEVICE)]
        self.counted = [0] * len(COUNTS)  #: every add that was ever made
        self.processes: list[Process] = []
        self.observers: list[Observer] = []
        self.random = random.Random(seed)
        self.next_pid = 100
        self.looks = 0  #: finished looks of observers
        self.check_sequence = True
        self.others_count = 0.1  #: how probably a living owner counts on behind a change
        self._busy = False

    def process(self) -> Process:
        self.next_pid += 1
        self.processes.append(Process(self, self.next_pid))
        return self.processes[-1]

    def state(self, slot: int) -> int:
        return self.words[t.slot_index(slot)] & 0xFF

    # --- for the rules that only look

    def load(self, index: int, /) -> int:
        return self.words[index]

    def load_many(self, first: int, count: int, stride: int = 1, /) -> tuple[int, ...]:
        return tuple(self.words[first : first + count * stride : stride])

    # --- behind each change

    def changed(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self.check()
            for observer in list(self.observers):
                observer.advance(self.random.randrange(8))
            for process in self.processes:
                if process.own is not None and self.random.random() < self.others_count:
                    process.add(self.random.randrange(len(COUNTS)), self.random.randrange(1, 100))
        finally:
            self._busy = False

    def check(self) -> None:
        """What must hold behind any change, however many processes died on the way."""
        for slot, known in enumerate(self.slots):
            generation, state = t.split_slot_word(self.words[t.slot_index(slot)])
            assert generation >= known.generation, f"the generation of slot {slot} went back"
            known.generation = generation
            if state == t.FREE:
                assert not any(self.slabs[slot]), f"slot {slot} is free but not zero: {self.slabs[slot]}"
        assert self.sum_now() == self.counted, "a slab was counted twice or not at all"

    def sum_now(self) -> list[int]:
        """The totals by the rules for observers, in a look that takes no time."""
        totals = t.read_totals(self, Source(self), attempts=1)
        assert totals is not None
        return list(totals)

    def at_rest(self) -> None:
        """No slot is lost: once everybody is gone, all of them can be had again."""
        for process in self.processes:
            process.die()
        last = [self.process() for _ in range(SLOTS_PER_DEVICE)]
        taken = [p.acquire() for p in last]
        assert all(taken), "a slot is lost"
        assert len({p.own for p in last}) == SLOTS_PER_DEVICE
        for p in last:
            assert p.release()
        assert t.Commit.unpack(self.words[t.W_COMMIT]).pending is None
        assert [self.state(s) for s in range(SLOTS_PER_DEVICE)] == [t.FREE] * SLOTS_PER_DEVICE
        self.check()


class Source:
    """Totals and slabs as ``read_totals`` asks for them."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def copy(self, active: int, /) -> bytearray:
        return list(self.machine.totals[active])  # type: ignore[return-value]  # a list serves: only ``add`` looks

    def add(self, totals: bytearray, slot: int, /) -> None:
        for i, cell in enumerate(COUNTS):
            totals[i] += self.machine.slabs[slot][cell]


class Process:
    """One process: the rules over the machine's memory, what it recorded, and after how many changes it ends."""

    def __init__(self, machine: Machine, pid: int) -> None:
        self.machine, self.pid = machine, pid
        self.alive = True
        self.own: tuple[int, int] | None = None
        self.fuse: int | None = None
        self.end: type[BaseException] = Killed
        self.rolled_up: list[int] = []
        self.steps: list[str] = []
        self.rules = machine.table(_Words(self), _Locks(self), _Slabs(self), self.steps.append)

    def did(self) -> None:
        """A change was made; it may have been the last."""
        self.machine.changed()
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                self.fuse = None
                if self.end is Killed:
                    self.die()
                raise self.end

    def die(self) -> None:
        """The kernel drops every lock of the dead."""
        self.alive = False
        self.own = None
        for slot in [s for s, pid in self.machine.holders.items() if pid == self.pid]:
            del self.machine.holders[slot]

    def _run(self, work: Callable[[], object], fuse: int | None, end: type[BaseException]) -> object:
        """Under the table lock. True or False as the work says; None if the process did not come to its end."""
        self.fuse, self.end = fuse, end
        try:
            self.rules.recover()
            return work()
        except (Killed, Interrupted):
            return None
        finally:
            self.fuse = None

    def acquire(self, fuse: int | None = None, end: type[BaseException] = Killed) -> bool | None:
        """Claim a slot and mark its slab, unless there is one already. False when all are taken."""

        def work() -> bool:
            if self.own is not None:
                return True
            got = self.rules.acquire(t.OwnerWords(self.pid, 1, 2, 3), lambda claim: None)
            if got is None:
                assert all(self.machine.state(s) == t.OWNED for s in range(SLOTS_PER_DEVICE)), "refused too early"
                return False
            slot, generation = got
            assert generation not in self.machine.slots[slot].owners or (
                self.machine.slots[slot].owners[generation] == self.pid
            ), "given twice"
            assert not any(p is not self and p.own and p.own[0] == slot for p in self.machine.processes), "shared"
            for cell in MARKS:
                self.machine.slabs[slot][cell] = self.pid
                self.did()
            self.own = got
            return True

        return self._run(work, fuse, end)  # type: ignore[return-value]

    def release(self, fuse: int | None = None, end: type[BaseException] = Killed) -> bool | None:
        own, self.own = self.own, None  # the handles die before anything else happens
        if own is None:
            return False
        return self._run(lambda: self.rules.release(*own), fuse, end)  # type: ignore[return-value]

    def add(self, count: int, n: int) -> None:
        assert self.own is not None
        self.machine.slabs[self.own[0]][COUNTS[count]] += n
        self.machine.counted[count] += n
        self.machine.changed()


class _Words:
    def __init__(self, process: Process) -> None:
        self._process, machine = process, process.machine
        self.load, self.load_many = machine.load, machine.load_many

    def store(self, index: int, value: int, /) -> None:
        process, machine = self._process, self._process.machine
        if not process.alive:
            return
        if index == t.W_COMMIT and machine.check_sequence:
            before, now = (t.Commit.unpack(w).sequence for w in (machine.words[index], value))
            assert now > before, "a store of the commit word did not raise the sequence"
        slot, part = divmod(index - t.W_SLOTS, t.SLOT_STRIDE)
        if part == t.S_WORD and value & 0xFF == t.OWNED and 0 <= slot < SLOTS_PER_DEVICE:
            owners = machine.slots[slot].owners
            assert value >> 8 not in owners, "a slot was given twice under one generation"
            assert machine.state(slot) == t.FREE
            assert machine.holders.get(slot) == process.pid
            owners[value >> 8] = process.pid
        machine.words[index] = value
        process.did()


class _Locks:
    def __init__(self, process: Process) -> None:
        self._process = process

    def take(self, slot: int, /) -> bool:
        holder = self._process.machine.holders.setdefault(slot, self._process.pid)
        self._process.did()
        return holder == self._process.pid

    def drop(self, slot: int, /) -> None:
        if self._process.alive and self._process.machine.holders.get(slot) == self._process.pid:
            del self._process.machine.holders[slot]
            self._process.did()

    def is_held(self, slot: int, /) -> bool:
        return slot in self._process.machine.holders


class _Slabs:
    def __init__(self, process: Process) -> None:
        self._process = process

    def roll_up(self, slot: int, source: int, target: int, /) -> None:
        process, machine = self._process, self._process.machine
        if not process.alive:
            return
        assert target != t.Commit.unpack(machine.words[t.W_COMMIT]).active, "the copy that counts was touched"
        process.rolled_up.append(slot)
        for i, cell in enumerate(COUNTS):
            machine.totals[target][i] = machine.totals[source][i] + machine.slabs[slot][cell]
            process.did()

    def zero(self, slot: int, /) -> None:
        process, machine = self._process, self._process.machine
        if not process.alive:
            return
        assert machine.state(slot) != t.OWNED, "the slab of an owner was zeroed"
        for cell in range(CELLS):
            machine.slabs[slot][cell] = 0
            process.did()

    def zero_totals(self, copy: int, /) -> None:
        process, machine = self._process, self._process.machine
        assert copy != t.Commit.unpack(machine.words[t.W_COMMIT]).active, "the copy that counts was touched"
        for i in range(len(COUNTS)):
            machine.totals[copy][i] = 0
            process.did()


# --- Observers: written down a second time, from the rules, one load at a time --------------------------------------


class Observer:
    """Somebody who reads without a lock and is overtaken by changes between any two loads."""

    def __init__(self, machine: Machine, slot: int | None) -> None:
        self.machine = machine
        self.slot = slot
        self.floor = list(machine.counted)
        self._work = self._look()
        machine.observers.append(self)

    def advance(self, loads: int) -> None:
        for _ in range(loads):
            next(self._work)

    def _look(self) -> Generator[None, None, None]:
        while True:
            yield from self._look_at_totals() if self.slot is None else self._look_at_slab(self.slot)

    def _words(self, indices: list[int]) -> Generator[None, None, list[int]]:
        found = []
        for index in indices:
            found.append(self.machine.words[index])
            yield
        return found

    def _look_at_totals(self) -> Generator[None, None, None]:
        machine = self.machine
        self.floor = list(machine.counted)
        all_slots = [t.slot_index(s) for s in range(SLOTS_PER_DEVICE)]
        (commit,) = yield from self._words([t.W_COMMIT])
        slots = yield from self._words(all_slots)
        _, active, pending = t.Commit.unpack(commit)
        sums = []
        for i in range(len(COUNTS)):
            sums.append(machine.totals[active][i])
            yield
        for slot, word in enumerate(slots):
            if word & 0xFF != t.FREE and slot != pending:
                for i, cell in enumerate(COUNTS):
                    sums[i] += machine.slabs[slot][cell]
                    yield
        slots_again = yield from self._words(all_slots)
        (commit_again,) = yield from self._words([t.W_COMMIT])
        if (slots, commit) == (slots_again, commit_again):
            machine.looks += 1
            for low, seen, high in zip(self.floor, sums, machine.counted, strict=True):
                assert low <= seen <= high, f"an observer saw a total of {seen}, it was {low} to {high}"

    def _look_at_slab(self, slot: int) -> Generator[None, None, None]:
        machine = self.machine
        (before,) = yield from self._words([t.slot_index(slot)])
        (owner_pid,) = yield from self._words([t.slot_index(slot, t.S_PID)])
        cells = []
        for cell in range(CELLS):
            cells.append(machine.slabs[slot][cell])
            yield
        (after,) = yield from self._words([t.slot_index(slot)])
        generation, state = t.split_slot_word(before)
        if before == after and state == t.OWNED:
            machine.looks += 1
            owner = machine.slots[slot].owners[generation]
            assert owner_pid == owner, "an owner's words under another's generation"
            assert all(cells[c] in (0, owner) for c in MARKS), f"data of {cells[0]} under the generation of {owner}"
