"""The replay driver: a recording answers like a device, at its own speed or another, tick by tick, or standing still.

It plays into memory that readers map as they map any slab, and keeps a clock on which rates come out as they were. What
a file says is the recording's business; how the environment names one stands at the end.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from contextlib import AbstractContextManager
from typing import Self

from neuron_ds import _core, errors, layout
from neuron_ds.driver import DeviceProperties, Lease, Owner
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.errors import (
    AmbiguousPid,
    BadIndex,
    BadValue,
    NeuronDSError,
    NoDevice,
    NoDriver,
    NoSlab,
    NotSupported,
    ProducerGone,
    ReadOnly,
)
from neuron_ds.record import format as f
from neuron_ds.record.player import Moment
from neuron_ds.record.recording import Cursor, Recording

FILE_VARIABLE = "NEURON_DS_REPLAY"
SPEED_VARIABLE, AT_VARIABLE = "NEURON_DS_REPLAY_SPEED", "NEURON_DS_REPLAY_AT"
LOOP_VARIABLE, FOLLOW_VARIABLE = "NEURON_DS_REPLAY_LOOP", "NEURON_DS_REPLAY_FOLLOW"
SPEEDS = (0.01, 1000.0)
#: How often memory is brought up to date for those who only look at it, as a sampler of latencies does.
KEEP_UP_S = 0.01

_MOST_SLABS = layout.MAX_DEVICES * layout.SLOTS_PER_DEVICE


class _Slabs:
    """Memory that readers can map: a slab for each track, and a word that changes when the slab is given away."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("neuron-ds-replay", os.MFD_CLOEXEC)
        self._table = _core.map(-1, 0, _MOST_SLABS * 8, True, None)
        self._places: dict[int, int] = {}
        self._free: list[int] = []
        self._used = 0

    def take(self, track: int) -> _core.Mapping:
        if track in self._places:
            place = self._places[track]  # a loop's next round: readers go on
        elif self._free:
            place = self._free.pop(0)
        else:
            place, self._used = self._used, self._used + 1
            if place >= _MOST_SLABS:
                raise ValueError("more slabs than there can be slots")
            os.ftruncate(self._fd, self._used * layout.SLAB_SIZE)
        mapping = _core.map(self._fd, place * layout.SLAB_SIZE, layout.REQUIRED_SIZE, True, None)
        mapping.zero(0, layout.REQUIRED_WORDS)
        self._places[track] = place
        return mapping

    def drop(self, track: int) -> None:
        place = self._places.pop(track)
        self._table.store(place, self._table.load(place) + 1)
        self._free.append(place)

    def reading(self, track: int, label: tuple[int | None, int | None, int | None]) -> _core.Mapping:
        """A reader's mapping, good until the track is dropped."""
        place = self._places[track]
        mapping = _core.map(self._fd, place * layout.SLAB_SIZE, layout.SLAB_SIZE, False, label)
        mapping.guard(self._table, place, self._table.load(place), None, 0)
        return mapping

    def __del__(self) -> None:
        os.close(self._fd)


class ReplayClock:
    """The recording's time. With a speed it goes on by itself, else only where somebody waits, or looks once more."""

    def __init__(self, driver: ReplayDriver, start_ns: int, speed: float) -> None:
        self._driver = driver
        self._speed = speed
        self._from_ns, self._begun_ns = start_ns, time.monotonic_ns()

    @property
    def over(self) -> bool:
        return self._driver.over

    def now_ns(self) -> int:
        if not self._speed:
            return self._from_ns
        return self._from_ns + int((time.monotonic_ns() - self._begun_ns) * self._speed)

    def moment_ns(self) -> int | None:
        return self._driver.moment_ns

    def real_ns(self, then_ns: int) -> int:
        if not self._speed:
            self._driver.go_on(then_ns)
            return 0
        return self._begun_ns + int((then_ns - self._from_ns) / self._speed)

    def held(self) -> AbstractContextManager[object]:
        return self._driver.lock

    def set(self, now_ns: int) -> None:
        """Of a clock that doesn't go by itself: what it shows."""
        self._from_ns = now_ns


class ReplayDriver:
    """Devices as they were. See docs/recording.md; close it, so that its thread ends.

    speed: of time; 0 for a tick with every pass. still: stay at the beginning. loop: at the end begin anew. follow: a
    file that still grows goes on where it ended.
    """

    name = "replay"
    can_reset = False

    def __init__(
        self,
        path: str | None = None,
        *,
        speed: float | None = None,
        at_ns: int | None = None,
        still: bool = False,
        loop: bool | None = None,
        follow: bool | None = None,
    ) -> None:
        """``path``: of the recording, else NEURON_DS_REPLAY's. ``at_ns``: where to begin, on the recording's clock.

        What isn't given the environment may say. Raises NoDriver, BadValue, FormatError, OSError.
        """
        path = path or os.environ.get(FILE_VARIABLE)
        if not path:
            raise NoDriver(f"the driver replay needs a recording; name it in {FILE_VARIABLE}, or with --from FILE")
        speed = _speed(os.environ.get(SPEED_VARIABLE, "1")) if speed is None else _speed(str(speed))
        self._loop = _is_set(LOOP_VARIABLE) if loop is None else loop
        self._follow = _is_set(FOLLOW_VARIABLE) if follow is None else follow
        self.lock = threading.RLock()
        self.recording = Recording(path)
        start_ns = self.recording.start_ns
        if at_ns is None and (told := os.environ.get(AT_VARIABLE)):
            at_ns = time_of(self.recording, told)
        if self._loop and self.recording.end_ns <= start_ns:
            self.recording.close()
            raise BadValue("is of a single moment, which can't be played over and over", path=path)
        at_ns = start_ns if at_ns is None else min(max(at_ns, start_ns), self.recording.end_ns)
        self._memory = _Slabs()
        self._shift_ns = 0  # how much later than in the file things are, from the second round of a loop on
        self._cursor = self._seek(at_ns)
        self._speed, self._still = 0.0 if still else speed, still
        self.clock = ReplayClock(self, at_ns, self._speed)
        self._fresh = True  # nobody has looked at this moment yet
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        _open.add(self)

    # --- time

    @property
    def path(self) -> str:
        return self.recording.path

    @property
    def moment_ns(self) -> int:
        """The time of the tick that is shown."""
        return self._cursor.player.time_ns + self._shift_ns

    @property
    def over(self) -> bool:
        """Whether the last tick is shown and nothing comes any more."""
        if self._still or self._loop or self._follow or self._cursor.next is not None:
            return False
        return not self._speed or self.clock.now_ns() >= self.recording.end_ns + self._shift_ns

    def _seek(self, at_ns: int) -> Cursor:
        """A cursor at the last tick at or before this time."""
        cursor = self.recording.cursor(at_ns, self._memory)
        if cursor.player.moment is None or (cursor.next is not None and cursor.next.time_ns == at_ns):
            cursor.step()
        return cursor

    def go_on(self, until_ns: int) -> None:
        """Show the state at this time; it is not gone back."""
        with self.lock:
            if self._loop and (behind_ns := until_ns - self.moment_ns) > 0:
                self._shift_ns += behind_ns // self._round_ns * self._round_ns  # no round is played that nobody sees
            while not self._still:
                while (coming := self._next()) is not None and coming.time_ns + self._shift_ns <= until_ns:
                    self._step()
                if coming is not None or not self._loop:
                    break
                self._begin_anew()
            if not self._speed and not self._still:
                self.clock.set(max(until_ns, self.clock.now_ns()))

    def catch_up(self) -> None:
        """Show the last tick that is in the file by now."""
        self.go_on(1 << 62)

    def _next(self) -> Moment | None:
        if self._cursor.next is None and self._follow:
            self.recording.more(self._cursor)
        return self._cursor.next

    def _step(self) -> None:
        self._cursor.step()
        self._fresh = True

    @property
    def _round_ns(self) -> int:
        recording = self.recording
        return recording.end_ns - recording.start_ns + recording.session.period_us * 1000

    def _begin_anew(self) -> None:
        """A loop's next round: the same once more, later."""
        self._shift_ns += self._round_ns
        before = set(self._cursor.player.tracks)
        self._cursor = self._seek(self.recording.start_ns)
        for track in before - self._cursor.player.tracks.keys():
            self._memory.drop(track)

    def _look(self) -> None:
        """A pass begins: show what is to be shown now."""
        with self.lock:
            if self._speed:
                self.go_on(self.clock.now_ns())
                if self._thread is None:
                    self._thread = threading.Thread(target=self._keep_up, name="neuron-ds-replay", daemon=True)
                    self._thread.start()
            elif not self._still:
                if not self._fresh:  # whoever was waited for has not been seen yet; else it is the next one's turn
                    if self._next() is None and self._loop:
                        self._begin_anew()
                    elif self._cursor.next is not None:
                        self._cursor.step()
                    self.clock.set(max(self.moment_ns, self.clock.now_ns()))
                self._fresh = False

    def _keep_up(self) -> None:
        while not self._stop.wait(KEEP_UP_S):
            self.go_on(self.clock.now_ns())

    def forked(self) -> None:
        """In a child process: go on by oneself. The thread is the parent's, and so is the memory it plays into."""
        self._stop, self._thread = threading.Event(), None
        self._memory = _Slabs()
        self._cursor = self._seek(self._cursor.player.time_ns)

    def close(self) -> None:
        """End what goes on by itself."""
        _open.discard(self)
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.recording.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- what a driver answers

    def _world(self) -> f.World:
        world = self._cursor.player.world
        if world is None:
            raise NoDevice("the recording tells nothing of this time", path=self.path)
        return world

    def _device(self, device: int) -> f.RecordedDevice:
        for known in self._world().devices:
            if known.device == device:
                return known
        raise NoDevice("no such device in the recording at this time", device=device, path=self.path)

    def devices(self) -> list[int]:
        with self.lock:
            self._look()
            return [d.device for d in self._world().devices]

    def properties(self, device: int) -> DeviceProperties:
        known = self._device(device)
        if known.properties is None:
            raise NoDevice(known.error or "what it is was not recorded", device=device, path=self.path)
        return known.properties

    def owners(self, device: int) -> list[Owner]:
        with self.lock:
            known = self._device(device)
            if known.error:
                raise NoDevice(known.error, device=device, path=self.path)
            return [self._cursor.player.owner(o) for o in self._world().owners if o.owner.device == device]

    def acquire(self, device: int) -> Lease:
        raise ReadOnly(
            "a recording can't be published in: unset NEURON_DS_DRIVER, or name another driver",
            device=device,
            path=self.path,
        )

    def attach(self, device: int, pid: int | None = None, *, slot: int | None = None, path: str | None = None) -> Lease:
        if slot is not None and not 0 <= slot < layout.SLOTS_PER_DEVICE:
            raise BadIndex(f"a device has slots 0 to {layout.SLOTS_PER_DEVICE - 1}", device=device)
        if slot is None and pid is None:
            raise BadIndex("attach needs a pid or a slot", device=device)
        with self.lock:
            known = self._device(device)
            wanted = (pid, slot, path)
            found = [o for o in self._world().owners if o.owner.device == device and _fits(o.owner, *wanted)]
            living = [o for o in found if o.track in self._cursor.player.tracks]
            if len(living) > 1:
                slots = ", ".join(str(o.owner.slot) for o in living)
                raise AmbiguousPid(f"stands in several slots: {slots}; attach by slot", device=device, pid=pid)
            if not living and found:
                raise _why(found[0])(f"as recorded: {found[0].error}", device=device, pid=pid, slot=slot)
            if not living:
                raise NoSlab("owned no slab on this device at this time", device=device, pid=pid, slot=slot)
            owner, track = living[0].owner, living[0].track
            assert track is not None
            mapping = self._memory.reading(track, (device, owner.pid, owner.slot))
            properties = known.properties or DeviceProperties(device, None, None, None, None, None, self.path)
            return Lease(device, owner.pid, mapping, properties, owner.slot, owner.generation)

    def release(self, lease: Lease) -> None:
        lease.mapping.close()

    def totals(self, device: int) -> DeviceTotals:
        with self.lock:
            self._device(device)
            totals = self._cursor.player.totals(device)
            if totals is None:
                raise NotSupported("its totals are not in the recording", device=device, path=self.path)
            return totals

    def reset(self, device: int) -> None:
        raise NotSupported("the totals of a recording can't be reset", device=device, path=self.path)


#: Those that are not closed: a fork waits until none of their threads plays, so that the child finds them whole.
_open: weakref.WeakSet[ReplayDriver] = weakref.WeakSet()
_held: list[ReplayDriver] = []


def _hold() -> None:
    for driver in list(_open):
        driver.lock.acquire()
        _held.append(driver)


def _let_go() -> None:
    while _held:
        _held.pop().lock.release()


def _go_on_in_child() -> None:
    for driver in _held:
        driver.forked()
    _let_go()


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_go_on_in_child)


def _why(recorded: f.RecordedOwner) -> type[NeuronDSError]:
    """The class of the error with which the recorder could not read a slab."""
    kind = getattr(errors, recorded.error_kind, ProducerGone)
    return kind if isinstance(kind, type) and issubclass(kind, NeuronDSError) else ProducerGone


def _fits(owner: Owner, pid: int | None, slot: int | None, path: str | None) -> bool:
    return pid in (None, owner.pid) and slot in (None, owner.slot) and path in (None, owner.path)


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _speed(text: str) -> float:
    try:
        speed = 0.0 if text == "step" else float(text)
    except ValueError:
        speed = -1.0
    if speed == 0 or SPEEDS[0] <= speed <= SPEEDS[1]:
        return speed
    raise BadValue(f"a speed of {text}: give {SPEEDS[0]:g} to {SPEEDS[1]:g}, or 0 (step) for a tick with every look")


# --- How a time is written --------------------------------------------------------------------------------------------

#: A hundred years: more digits say nothing, and no clock has them.
MOST_S = 100 * 365.25 * 86400
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(text: str) -> float:
    """Seconds, as in 90, 1.5s, 500ms, 5m or 1h30m. Raises BadValue."""
    import re

    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    seconds = math.inf
    if parts and "".join(n + unit for n, unit in parts) == text:
        seconds = sum(float(n) * _UNITS_S[unit] for n, unit in parts)
    elif re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    if seconds <= MOST_S:
        return seconds
    raise BadValue(f"{text!r} is no duration; as in 90, 500ms, 5m or 1h30m")


def time_of(recording: Recording, text: str) -> int:
    """A time on a recording's clock: 1m30s from its start, -10s from its end, or a time of day or date (ISO 8601).

    Without a zone it is the zone of this host; a time of day is the first behind its start. The second in which it
    starts is its start. Raises BadValue.
    """
    from datetime import datetime

    try:
        if text.startswith("-"):
            return recording.end_ns - round(seconds_of(text[1:]) * 1e9)
        if ":" not in text:
            return recording.start_ns + round(seconds_of(text) * 1e9)
        day = "" if "T" in text or " " in text else f"{datetime.fromtimestamp(recording.wall_start_ns / 1e9):%Y-%m-%dT}"
        when = datetime.fromisoformat(day + text).timestamp()
    except (ValueError, OverflowError, OSError):  # BadValue is one, too
        raise BadValue(f"{text!r} is no time; as in 90, 1m30s, -10s, 14:05:30 or 2026-01-31T14:05:30+01:00") from None
    found, second = round(when * 1e9) - recording.session.wall_offset_ns, 1_000_000_000
    if day and found <= recording.start_ns - second:
        found += 86_400 * second
    return recording.start_ns if 0 < recording.start_ns - found < second else found
