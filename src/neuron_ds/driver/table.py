"""The rules of the software driver's slot table: pure, without files, clocks or processes.

The table is an array of 8-byte words that only change by single atomic stores; whoever changes them holds the table
lock, observers read them without any. Every procedure here is a sequence of such stores, and a process may die
behind any of them: the next holder of the lock finishes what was begun (``recover``), so that each slab is
counted exactly once and none is lost. What must be done outside the words (liveness locks, slabs) is asked of the
objects handed in. See docs/driver.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from neuron_ds.layout import SLOTS_PER_DEVICE

# --- Words of the table -------------------------------------------------------------------------------------------

MAGIC = int.from_bytes(b"ndstable", "little")
LAYOUT_VERSION = 1
TABLE_WORDS = 512

W_MAGIC, W_VERSION, W_DEVICE, W_TYPE, W_CORES, W_MEMORY, W_LOGICAL = range(7)
W_NAME, NAME_WORDS = 8, 8
W_COMMIT = 32
W_SLOTS, SLOT_STRIDE = 64, 16

# Within a slot: its state and generation, the tick of its last release, and its owner, to be shown only.
S_WORD, S_TICK, S_PID, S_START, S_NAMESPACE, S_ACQUIRED = range(6)
OWNER_WORDS = range(S_PID, S_ACQUIRED + 1)

FREE, OWNED, CLOSING = range(3)
STATE_NAMES = ("free", "owned", "closing")
NO_SLOT = 0xFF
LAST_TICK = (1 << 64) - 1


def slot_word(generation: int, state: int) -> int:
    """Generation and state as the one word that decides: whoever reads it twice unchanged saw one owner."""
    return (generation << 8 | state) & 0xFFFF_FFFF_FFFF_FFFF


def split_slot_word(word: int) -> tuple[int, int]:
    """(generation, state)."""
    return word >> 8, word & 0xFF


def slot_index(slot: int, part: int = S_WORD) -> int:
    """Word index of a part of a slot."""
    return W_SLOTS + slot * SLOT_STRIDE + part


class Commit(NamedTuple):
    """Which copy of the totals counts, and which slot it counts though its slab is not yet zero.

    Every store raises the sequence, so that an observer notices two releases between its looks.
    """

    sequence: int
    active: int
    pending: int | None

    def pack(self) -> int:
        pending = NO_SLOT if self.pending is None else self.pending
        return (self.sequence << 16 | pending << 8 | self.active) & 0xFFFF_FFFF_FFFF_FFFF

    @classmethod
    def unpack(cls, word: int) -> Commit:
        pending = word >> 8 & 0xFF
        return cls(word >> 16, word & 1, None if pending == NO_SLOT else pending)


class OwnerWords(NamedTuple):
    """Who acquires, to be shown: pid and its namespace, the process's start, the time (monotonic, ns)."""

    pid: int
    start: int
    namespace: int
    acquired_ns: int


class SlotView(NamedTuple):
    """One slot as read: consistent if the slot word was the same before and behind."""

    slot: int
    word: int
    tick: int
    owner: OwnerWords

    @property
    def state(self) -> int:
        return self.word & 0xFF

    @property
    def generation(self) -> int:
        return self.word >> 8


# --- What the rules ask of the outside ------------------------------------------------------------------------------


class Words(Protocol):
    """The table's words: acquire loads, release stores."""

    def load(self, index: int, /) -> int: ...
    def load_many(self, first: int, count: int, stride: int = 1, /) -> tuple[int, ...]: ...
    def store(self, index: int, value: int, /) -> None: ...


class Locks(Protocol):
    """The liveness locks, one per slot; the kernel drops them at the death of their holder."""

    def take(self, slot: int, /) -> bool: ...
    def drop(self, slot: int, /) -> None: ...
    def is_held(self, slot: int, /) -> bool: ...


class Slabs(Protocol):
    """The slabs and the two copies of the totals."""

    def roll_up(self, slot: int, source: int, target: int, /) -> None:
        """totals[target] = totals[source] + the slab's counters."""

    def zero(self, slot: int, /) -> None:
        """The slab's header, then the rest of it."""

    def zero_totals(self, copy: int, /) -> None:
        """One copy of the totals, the one that does not count."""


# --- Rules that only look -------------------------------------------------------------------------------------------


def free_slots(words: Words) -> list[int]:
    """The free slots in the order of claims: never-used ones (tick 0) by index, then those longest released."""
    ticks = words.load_many(slot_index(0, S_TICK), SLOTS_PER_DEVICE, SLOT_STRIDE)
    slots = enumerate(words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE))
    return sorted((slot for slot, word in slots if split_slot_word(word)[1] == FREE), key=ticks.__getitem__)


def damage(words: Words) -> str | None:
    """What makes the table one that no rule can go on from, or None. Only the changing rules need to ask."""
    slots = words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE)
    for slot, word in enumerate(slots):
        if split_slot_word(word)[1] > CLOSING:
            return f"slot {slot} has the state {split_slot_word(word)[1]}"
    pending = Commit.unpack(words.load(W_COMMIT)).pending
    if pending is not None:
        if pending >= SLOTS_PER_DEVICE:
            return f"slot {pending} is to be finished, and there are {SLOTS_PER_DEVICE}"
        if split_slot_word(slots[pending])[1] == OWNED:
            return f"slot {pending} is to be finished, and is owned"
    if max(words.load_many(slot_index(0, S_TICK), SLOTS_PER_DEVICE, SLOT_STRIDE)) >= LAST_TICK:
        return "the ticks of the slots are used up"
    return None


def next_tick(words: Words) -> int:
    """The tick a release stamps: only the order within a device shows."""
    return max(words.load_many(slot_index(0, S_TICK), SLOTS_PER_DEVICE, SLOT_STRIDE)) + 1


def read_slots(words: Words) -> list[SlotView]:
    """All slots as they are, without a lock: a slot that changed while it was read is read again, a few times."""
    flat = words.load_many(W_SLOTS, SLOTS_PER_DEVICE * SLOT_STRIDE)
    again = words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE)
    return [
        _view(slot, flat[slot * SLOT_STRIDE : (slot + 1) * SLOT_STRIDE])
        if flat[slot * SLOT_STRIDE] == again[slot]
        else read_slot(words, slot)
        for slot in range(SLOTS_PER_DEVICE)
    ]


def read_slot(words: Words, slot: int) -> SlotView:
    """One slot. If it keeps changing the last look is given: its word alone is exact then."""
    for _ in range(4):
        part = words.load_many(slot_index(slot), SLOT_STRIDE)
        if words.load(slot_index(slot)) == part[S_WORD]:
            break
    return _view(slot, part)


def _view(slot: int, part: Sequence[int]) -> SlotView:
    return SlotView(slot, part[S_WORD], part[S_TICK], OwnerWords(*part[S_PID : S_ACQUIRED + 1]))


class TotalsSource(Protocol):
    """The two copies of the totals and the slabs behind them, for an observer."""

    def copy(self, active: int, /) -> bytearray:
        """A private copy of the totals that count."""

    def add(self, totals: bytearray, slot: int, /) -> None:
        """Add what a slab that is not yet counted holds."""


def read_totals(words: Words, source: TotalsSource, attempts: int = 64) -> bytearray | None:
    """Released and living slabs summed, each exactly once, without a lock. None if the table never held still."""
    for _ in range(attempts):
        commit = words.load(W_COMMIT)
        slots = words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE)
        _, active, pending = Commit.unpack(commit)
        totals = source.copy(active)
        for slot, word in enumerate(slots):
            if split_slot_word(word)[1] != FREE and slot != pending:
                source.add(totals, slot)
        if words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE) == slots and words.load(W_COMMIT) == commit:
            return totals
    return None


# --- Rules that change the table ------------------------------------------------------------------------------------


class SlotTable:
    """The procedures. Every one must be called with the table lock held, ``recover`` first of all."""

    def __init__(self, words: Words, locks: Locks, slabs: Slabs, step: Callable[[str], None]) -> None:
        self._words, self._locks, self._slabs, self._step = words, locks, slabs, step

    def word(self, slot: int) -> int:
        return self._words.load(slot_index(slot))

    def recover(self) -> list[int]:
        """Finish what others began: the pending slot, slots half released, owners that died. Returns the slots."""
        done = []
        pending = Commit.unpack(self._words.load(W_COMMIT)).pending
        if pending is not None:
            self._step("recover.pending")
            self._finish(pending)
            done.append(pending)
        for slot, word in enumerate(self._words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE)):
            generation, state = split_slot_word(word)
            if state == CLOSING:
                self._step("recover.closing")
                self._count(slot)
                self._finish(slot)
                done.append(slot)
            elif state == OWNED and not self._locks.is_held(slot):
                self._step("recover.dead")
                self._close(slot, generation)
                done.append(slot)
        return done

    def acquire(self, owner: OwnerWords, claiming: Callable[[tuple[int, int]], object]) -> tuple[int, int] | None:
        """Claim a slot: (slot, generation), or None when all are taken.

        ``claiming`` is called with it before it is owned, so that an interrupted caller can give it back.
        """
        for slot in free_slots(self._words):
            self._step("acquire.begin")
            try:
                if self._locks.take(slot):  # else somebody holds the byte of a free slot: not ours to take
                    return slot, self._own(slot, owner, claiming)
            except BaseException:
                self._locks.drop(slot)  # interrupted: as if we had died, so that the next holder recovers the slot
                raise
        return None

    def _own(self, slot: int, owner: OwnerWords, claiming: Callable[[tuple[int, int]], object]) -> int:
        self._step("acquire.locked")
        for part, value in zip(OWNER_WORDS, owner, strict=True):
            self._words.store(slot_index(slot, part), value)
        self._step("acquire.owner")
        generation = split_slot_word(self.word(slot))[0] + 1
        claiming((slot, generation))
        self._words.store(slot_index(slot), slot_word(generation, OWNED))
        self._step("acquire.owned")
        return generation

    def release(self, slot: int, generation: int) -> bool:
        """Give a slot back that was acquired with this generation. False, and nothing touched, if it is not ours."""
        if self.word(slot) != slot_word(generation, OWNED):
            return False
        try:
            self._close(slot, generation)
        finally:  # also if interrupted: what is left of it falls to the next holder
            self._locks.drop(slot)
        self._step("release.unlocked")
        return True

    def reset(self) -> bool:
        """Start the totals from zero. False, and nothing touched, while an owner lives."""
        states = self._words.load_many(W_SLOTS, SLOTS_PER_DEVICE, SLOT_STRIDE)
        if any(split_slot_word(word)[1] != FREE for word in states):
            return False
        commit = Commit.unpack(self._words.load(W_COMMIT))
        other = 1 - commit.active
        self._slabs.zero_totals(other)
        self._step("reset.zeroed")
        self._words.store(W_COMMIT, Commit(commit.sequence + 1, other, None).pack())
        self._step("reset.committed")
        return True

    # The steps of a release, numbered as in docs/driver.md. A process killed before 3 leaves a CLOSING slot that is not
    # counted yet; killed behind it, a pending one that is.

    def _close(self, slot: int, generation: int) -> None:
        self._words.store(slot_index(slot), slot_word(generation + 1, CLOSING))  # 1
        self._step("release.closing")
        self._count(slot)
        self._finish(slot)

    def _count(self, slot: int) -> None:
        commit = Commit.unpack(self._words.load(W_COMMIT))
        other = 1 - commit.active
        self._slabs.roll_up(slot, commit.active, other)  # 2
        self._step("release.rolled_up")
        self._words.store(W_COMMIT, Commit(commit.sequence + 1, other, slot).pack())  # 3: this counts it
        self._step("release.counted")

    def _finish(self, slot: int) -> None:
        self._slabs.zero(slot)  # 4
        self._step("release.zeroed")
        generation, _ = split_slot_word(self.word(slot))
        self._words.store(slot_index(slot, S_TICK), next_tick(self._words))  # 5
        self._step("release.ticked")
        self._words.store(slot_index(slot), slot_word(generation, FREE))  # 6
        self._step("release.free")
        commit = Commit.unpack(self._words.load(W_COMMIT))
        self._words.store(W_COMMIT, Commit(commit.sequence + 1, commit.active, None).pack())  # 7
        self._step("release.committed")
