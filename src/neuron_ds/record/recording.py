"""A recording as Samples: what a Collector would have seen, at every tick or at a step of one's own.

``Recording`` finds the messages of a time in its file and has them played (``player``). What is not whole in the file
is left out, and said. It knows no driver and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

from neuron_ds.collect import Sample
from neuron_ds.driver import DeviceProperties
from neuron_ds.errors import FormatError
from neuron_ds.record import format as f
from neuron_ds.record.container import File, Message
from neuron_ds.record.player import Memory, Moment, Player


class Cursor:
    """A player and what comes next in its file."""

    def __init__(self, player: Player, moments: Iterator[Moment]) -> None:
        self.player, self._moments = player, moments
        self.next = next(moments, None)  #: the next tick, None at the end

    def go_on(self, moments: Iterator[Moment]) -> None:
        """What comes next, where nothing came any more."""
        self._moments = moments
        self.next = next(moments, None)

    def step(self) -> Moment | None:
        """Go to the next tick; None at the end. A tick that turns out to be damaged is passed by."""
        while (moment := self.next) is not None:
            self.next = next(self._moments, None)
            if self.player.moment is moment:
                return moment
        return None


def _times(data: bytes) -> list[Moment]:
    """The ticks of a message, without what they change; those that make no sense left out."""
    found: list[Moment] = []
    player = Player()
    player.begin()
    with suppress(FormatError):
        found.extend(player.feed(Message(f.TICKS, 0, 0, data)))
    return found


class Recording:
    """A file of ``neuron-ds record``. Times are nanoseconds of the monotonic clock of the host it was made on.

    ``damage``: what is not whole in the file, in words; it grows while damaged parts are come upon. ``start_ns`` and
    ``end_ns``: its first and last tick. ``devices``: as of its first moment. Close it, or use it as a context manager.
    """

    def __init__(self, path: str) -> None:
        """Raises FormatError where nothing can be read of it, OSError, NotSupported without the extra."""
        self.path = path
        self._file = File(path)
        try:
            found = self._first()
            if found is None:
                why = self._file.damage[0] if self._file.damage else "it is empty"
                raise FormatError(f"nothing can be read of it: {why}", path=path)
            self.session, self.devices, self.start_ns = found
            self.end_ns, self.counts = self._last()
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def open(cls, path: str) -> Self:
        """The same as calling the class."""
        return cls(path)

    @property
    def damage(self) -> tuple[str, ...]:
        return self._file.damage

    @property
    def wall_start_ns(self) -> int:
        """Time since 1970 of ``start_ns``, by the clock of the host it was made on."""
        return self.wall_ns(self.start_ns)

    def wall_ns(self, time_ns: int) -> int:
        return time_ns + self.session.wall_offset_ns

    def _first(self) -> tuple[f.Session, tuple[DeviceProperties, ...], int] | None:
        player = Player()
        cursor = Cursor(player, self._play(player, 0))
        while (moment := cursor.step()) is not None and player.world is None:
            pass  # nobody knows whose it is
        world = player.world
        if moment is None or world is None:
            return None
        return world.session, tuple(d.properties for d in world.devices if d.properties is not None), moment.time_ns

    def _last(self) -> tuple[int, f.Counts]:
        """The last tick that can be told, and the counts as of the last world that is whole."""
        end_ns, counts = self.start_ns, None
        for index in range(len(self._file.spans) - 1, -1, -1):
            for message in reversed(self._file.messages(index)):
                if message.kind == f.WORLD and counts is None:
                    with suppress(FormatError):
                        counts = f.World.from_json(message.data).counts
                if message.kind == f.TICKS:
                    end_ns = max([end_ns, *(m.time_ns for m in _times(message.data))])
            if end_ns > self.start_ns and counts:
                break
        return end_ns, counts or f.Counts()

    # --- moments

    def _base(self, index: int) -> int:
        """The chunk to begin with, so that all is known from this one on: that with the last keyframe before."""
        while index > 0 and not any(m.kind == f.KEYFRAME for m in self._file.messages(index)):
            index -= 1
        return index

    def _play(self, player: Player, index: int) -> Iterator[Moment]:
        """Every tick from a chunk on. What can't be played is told in ``damage`` and left out."""
        for number in range(index, len(self._file.spans)):
            messages = self._file.messages(number)
            if not messages:
                player.lose()
            for message in messages:
                if number == 0 and message.sequence == 0:
                    player.begin()
                try:
                    yield from player.feed(message)
                except FormatError as e:
                    at = self._file.spans[number].offset
                    self._file.hurt(f"the chunk at byte {at} can't be played: {e.message}")

    def cursor(self, at_ns: int | None = None, memory: Memory | None = None) -> Cursor:
        """A cursor whose next tick is the first one at this time or later."""
        at_ns = self.start_ns if at_ns is None else at_ns
        player = Player(memory)
        cursor = Cursor(player, self._play(player, self._base(self._file.find(self.wall_ns(at_ns)))))
        while cursor.next is not None and cursor.next.time_ns < at_ns:
            cursor.step()
        return cursor

    def more(self, cursor: Cursor) -> bool:
        """Of a file that still grows: whether there is a next tick now, where there was none."""
        known = len(self._file.spans)
        if cursor.next is None and self._file.refresh():
            self.end_ns, self.counts = self._last()
            cursor.go_on(self._play(cursor.player, known))
        return cursor.next is not None

    def marks(self) -> list[tuple[int, str]]:
        """(when, what) was marked as having happened: by a flight recorder, as why it wrote the file."""
        found = []
        for index in range(len(self._file.spans)):
            for message in self._file.messages(index):
                if message.kind == f.WORLD:
                    with suppress(FormatError):
                        world = f.World.from_json(message.data)
                        if world.mark:
                            found.append((world.time_us * 1000, world.mark))
        return found

    def moments(self, start_ns: int | None = None, end_ns: int | None = None) -> Iterator[tuple[Player, Moment]]:
        """Every tick from ``start_ns`` to ``end_ns``, both included, with the player (always the same) standing there.

        For what doesn't need all slabs at every tick: ``player.sample()`` makes a Sample of it.
        """
        cursor = self.cursor(start_ns)
        while cursor.next is not None and (end_ns is None or cursor.next.time_ns <= end_ns):
            if (moment := cursor.step()) is not None:
                yield cursor.player, moment

    def samples(self, start_ns: int | None = None, end_ns: int | None = None, *, every_ns: int = 0) -> Iterator[Sample]:
        """A Sample for every tick, or for the first one in every ``every_ns``, up to ``end_ns`` (included).

        Owners are foreign, since their pids mean nothing here; who they are is in the world (``moments``).
        """
        due_ns = 0
        for player, moment in self.moments(start_ns, end_ns):
            if moment.time_ns >= due_ns:
                if every_ns:
                    due_ns = moment.time_ns + every_ns - (moment.time_ns - self.start_ns) % every_ns
                yield player.sample()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
