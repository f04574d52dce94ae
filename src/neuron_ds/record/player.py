"""The player: messages in their order, into memory, as one moment after another.

It stands at one tick and knows all that was there then: who, which slab, how its records were read, what the totals
were. What can't be told for want of what came before it leaves out. It knows no file, no driver and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from neuron_ds import _core, layout
from neuron_ds.collect import DeviceSample, ProcessSample, Sample
from neuron_ds.driver import Owner, Who
from neuron_ds.driver.totals import WORDS, DeviceTotals
from neuron_ds.errors import FormatError
from neuron_ds.record import format as f
from neuron_ds.record.container import Message
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, RECORDS, Origin, RecordState, Snapshot

_FIRST = bytearray(RECORDS)
_FIRST[RECORD_PROCESS_INFO] = _FIRST[RECORD_PROCESS_INFO_EXT] = RecordState.UNPUBLISHED
_MOST_TRACKS = layout.MAX_DEVICES * layout.SLOTS_PER_DEVICE
_STATES = frozenset(int(s) for s in RecordState)


def _extent(record: int) -> tuple[int, int]:
    """Byte offset and size of a record."""
    if record < layout.MAX_MODELS:
        return layout.model_offset(record), layout.MODEL_SIZE
    region = layout.PROCESS_INFO if record == RECORD_PROCESS_INFO else layout.PROCESS_INFO_EXT
    return region.offset, region.size


class Track:
    """One producer's use of a slab, at the moment at which the player stands."""

    def __init__(self, mapping: _core.Mapping) -> None:
        self.mapping = mapping
        self.states = bytearray(_FIRST)
        self.stale: dict[int, bytes] = {}
        self._raw: bytes | None = None

    def play(self, data: bytes, at: int, *, has_states: bool, whole: bool) -> int:
        """A block from behind its head on; the offset behind it. Raises ValueError, IndexError for nonsense."""
        if whole:
            self.states[:] = _FIRST
        if has_states:
            count, at = data[at], at + 1
            for record, state in zip(data[at : at + 2 * count : 2], data[at + 1 : at + 2 * count : 2], strict=True):
                self._change(record, state, whole)
            at += 2 * count
        if whole:
            self.stale = {r: kept for r, kept in self.stale.items() if self.states[r] == RecordState.STALE}
        self._raw = None
        return _core.apply_changes(self.mapping, data, at, whole)

    def _change(self, record: int, state: int, whole: bool) -> None:
        if record >= RECORDS or state not in _STATES:
            raise ValueError("no such record or state")
        if state != RecordState.STALE:
            self.stale.pop(record, None)
        elif record not in self.stale:
            if whole or self.states[record] != RecordState.EXACT:
                state = RecordState.TORN  # what was shown in its place is not in what was played
            else:
                offset, size = _extent(record)
                self.stale[record] = self.mapping.copy(offset // 8, -(-size // 8))[:size]
        self.states[record] = state

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = self.mapping.copy(0, layout.REQUIRED_WORDS)
        return self._raw

    def snapshot(self, origin: Origin, time_ns: int) -> Snapshot:
        return Snapshot(self.raw, origin, time_ns, bytes(self.states), dict(self.stale) or None)


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick of a recording. late_us: 0 unless a millisecond or more; missed: ticks left out before it."""

    time_ns: int
    late_us: int
    missed: int


class Memory(Protocol):
    """Where slabs are played into."""

    def take(self, track: int) -> _core.Mapping:
        """Zeroed and writable, for the slab of this track."""

    def drop(self, track: int) -> None:
        """That slab is nobody's any more."""


class PrivateMemory:
    """Memory that nobody else looks at."""

    def take(self, track: int) -> _core.Mapping:
        return _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)

    def drop(self, track: int) -> None:
        pass


class Player:
    """Plays messages in their order and stands at a moment."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or PrivateMemory()
        self.world: f.World | None = None
        self.moment: Moment | None = None  #: where it stands; None before the first tick
        self.tracks: dict[int, Track] = {}
        self._totals: dict[int, _core.Mapping] = {}
        self._told: dict[int, DeviceTotals] = {}
        self._sequence: int | None = None
        self._lost = True  # until a keyframe, or the beginning: what is played now has no base
        self._waiting: list[Callable[[], object]] = []  # what is true from the next tick on

    @property
    def time_ns(self) -> int:
        return self.moment.time_ns if self.moment else 0

    def begin(self) -> None:
        """What comes next stands at the beginning of a file: everything starts from zero."""
        self._lost, self._sequence = False, None

    def lose(self) -> None:
        """Something is missing: what comes before the next keyframe can't be told."""
        self._lost = True
        self._waiting.clear()  # of no use, or without a base; a keyframe comes with a world of its own

    def feed(self, message: Message) -> Iterator[Moment]:
        """The ticks of a message, each *before* the player goes there, which it does when the next one is asked for.

        Raises FormatError for nonsense, and is lost then.
        """
        if self._sequence is not None and message.sequence != self._sequence:
            self.lose()
        self._sequence = message.sequence + 1 & 0xFFFF_FFFF
        data = message.data
        try:
            if message.kind == f.WORLD:
                self._waiting.append(partial(self._set_world, f.World.from_json(data)))
            elif message.kind == f.KEYFRAME:
                self._lost = False
                self._waiting.append(partial(self._keyframe, data))
            elif self._lost:
                return
            elif message.kind == f.TOTALS:
                self._waiting.append(partial(self._play_totals, data))
            else:
                yield from self._ticks(data)
        except FormatError:
            self.lose()
            raise
        except (ValueError, IndexError) as e:
            self.lose()
            raise FormatError(f"a message makes no sense: {e}") from None

    def _set_world(self, world: f.World) -> None:
        self.world = world
        named = {o.track for o in world.owners}
        for track in self.tracks.keys() - named:
            del self.tracks[track]
            self._memory.drop(track)

    def _ticks(self, data: bytes) -> Iterator[Moment]:
        base_us, at = f.read_number(data, 0)
        period_us, at = f.read_number(data, at)
        time_us, end = base_us, len(data)
        while at < end:
            head, at = f.read_number(data, at)
            late_us = missed = 0
            if head & 1:
                late_us, at = f.read_number(data, at)
                missed, at = f.read_number(data, at)
            time_us += period_us + f.unzigzag(head >> 1)
            if not 0 <= time_us < f.MOST_US:
                raise ValueError("a time that can't be")
            moment = Moment(time_us * 1000, late_us, missed)
            yield moment
            waiting, self._waiting = self._waiting, []
            for change in waiting:
                change()
            at = self._blocks(data, at, whole=False)
            self.moment = moment

    def _keyframe(self, data: bytes) -> None:
        _, at = f.read_number(data, 0)
        self._blocks(data, at, whole=True)

    def _blocks(self, data: bytes, at: int, *, whole: bool) -> int:
        number = -1
        while True:
            head, at = f.read_number(data, at)
            if not head:
                return at
            number += head >> 1
            track = self.tracks.get(number)
            if track is None:
                if len(self.tracks) >= _MOST_TRACKS:
                    raise ValueError("more slabs than there are slots")
                track = self.tracks[number] = Track(self._memory.take(number))
            at = track.play(data, at, has_states=bool(head & 1), whole=whole)

    def _play_totals(self, data: bytes) -> None:
        _, at = f.read_number(data, 0)
        while True:
            head, at = f.read_number(data, at)
            if not head:
                return
            device, whole = (head >> 1) - 1, bool(head & 1)
            if device >= layout.MAX_DEVICES or (not whole and device not in self._totals):
                raise ValueError("totals of a device that isn't there")
            words = self._totals.get(device)
            if words is None:
                words = self._totals[device] = _core.map(-1, 0, WORDS * 8, True, None)
            self._told.pop(device, None)
            at = _core.apply_changes(words, data, at, whole)

    # --- what is there at this moment

    def totals(self, device: int) -> DeviceTotals | None:
        """None where they were never recorded."""
        if device not in self._told and device in self._totals:
            self._told[device] = DeviceTotals.from_words(device, self._totals[device].copy(0, WORDS))
        return self._told.get(device)

    def owner(self, recorded: f.RecordedOwner) -> Owner:
        """As a driver tells it: with its age, and foreign, for its pid means nothing where this is read.

        Always with a ``who``, so that nobody asks another.
        """
        age_s = None if recorded.acquired_us is None else max(0.0, self.time_ns / 1e9 - recorded.acquired_us / 1e6)
        return replace(recorded.owner, foreign=True, age_s=age_s, who=recorded.owner.who or Who())

    def sample(self) -> Sample:
        """All of it, as a Collector gives it."""
        world = self.world
        if world is None:
            return Sample(self.time_ns, (), "nothing is recorded before this moment")
        processes: dict[int, list[ProcessSample]] = {}
        for recorded in world.owners:
            processes.setdefault(recorded.owner.device, []).append(self._process(recorded))
        devices = tuple(
            DeviceSample(
                d.device,
                d.properties,
                tuple(processes.get(d.device, ())),
                None if d.error else self.totals(d.device),
                d.slots_used,
                d.error,
            )
            for d in world.devices
        )
        return Sample(self.time_ns, devices, world.error)

    def _process(self, recorded: f.RecordedOwner) -> ProcessSample:
        owner = self.owner(recorded)
        track = None if recorded.track is None else self.tracks.get(recorded.track)
        if track is None:
            error = recorded.error or "its slab had not been looked at yet"
            return ProcessSample(owner, None, error, error_kind=recorded.error_kind)
        origin = Origin(owner.device, owner.pid, owner.slot, owner.generation)
        return ProcessSample(owner, track.snapshot(origin, self.time_ns), "")
