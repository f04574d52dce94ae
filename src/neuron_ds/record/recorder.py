"""The recorder: looks at all slabs at a steady rate and tells a sink what changed.

The look itself is one call of the core (``Tape``). Around it the recorder keeps the world up to date: which devices
there are, who has which slot, what totals say; that is done a device at a time, so that no look waits for all of them.
It knows the clock and the driver; files and triggers it doesn't.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from neuron_ds import __version__, _core
from neuron_ds.collect import Key, key_of
from neuron_ds.datastore import Reader, attach
from neuron_ds.driver import DeviceProperties, Driver, Owner, Who, get_driver
from neuron_ds.driver.totals import WORDS
from neuron_ds.errors import BadValue, NeuronDSError
from neuron_ds.identity import identify
from neuron_ds.listing import command_line
from neuron_ds.record import format as f

RATES_HZ = (1.0, 1000.0)
KEYFRAME_S = 10.0
#: A tick that begins so much after its time is recorded as late.
LATE_US = 1000
BATCH_US = 100_000
FLUSH_US = 1_000_000
SCAN_US = 100_000
TOTALS_US = 1_000_000
#: Longest sleep, so that a wish to end is heeded soon.
NAP_S = 0.05
#: A keyframe waits so many batches for a moment in which no record is torn.
PATIENT_BATCHES = 5


class Sink(Protocol):
    """Where messages go, in the order of their times."""

    def put(self, kind: str, log_ns: int, monotonic_ns: int, data: bytes) -> None: ...

    def flush(self) -> None: ...


class _Device:
    """What is known of one device between scans."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.properties: DeviceProperties | None = None
        self.owners: dict[Key, f.RecordedOwner] = {}
        self.slots_used = 0
        self.error = ""
        self.totals: tuple[int, ...] = (0,) * WORDS
        self.scanned_us = self.totalled_us = 0


class Recorder:
    """Records one tick after another into a sink. Not for several threads at once; close it."""

    def __init__(
        self,
        sink: Sink,
        driver: Driver | None = None,
        *,
        rate_hz: float = 100.0,
        pids: Collection[int] = (),
        devices: Collection[int] = (),
        keyframe_s: float = KEYFRAME_S,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """``pids``, ``devices``: only these; all by default. ``keyframe_s``: how often everything is told anew.

        Raises BadValue (EINVAL) for a rate that can't be.
        """
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            raise BadValue(f"a rate of {rate_hz} Hz: give {RATES_HZ[0]:g} to {RATES_HZ[1]:g}")
        self._sink, self._driver = sink, driver or get_driver()
        self._pids, self._wanted = frozenset(pids), frozenset(devices)
        self._now_ns = now_ns
        self._period_us = round(1e6 / rate_hz)
        self._keyframe_us = round(keyframe_s * 1e6)
        self._tape = _core.tape()
        self._devices: dict[int, _Device] = {}
        self._turn: list[int] = []  # devices in the order in which they are scanned
        self._error = ""
        self._readers: dict[int, Reader] = {}
        self._next_track = 0
        self._world: f.World | None = None
        self._held = b""  # the last tick, taken from the tape already
        now_us = self._now_ns() // 1000
        self.started_us = self.last_us = self._base_us = now_us
        self._flushed_us = self._keyframed_us = self._listed_us = now_us
        self._waited = 0  # batches that a keyframe has waited
        self.ticks = self.late = self.missed = 0
        self.session = f.Session(
            self._driver.name,
            self._period_us,
            time.time_ns() - time.monotonic_ns(),
            f"neuron-datastore {__version__}",
            platform.node(),
            _boot_id(),
        )
        self._list_devices()
        for device in self._devices.values():
            self._scan(device)
            self._total(device, tell=False)
        self.keyframe()

    # --- what others may look at

    @property
    def world(self) -> f.World:
        """Who and what is there, as of the last scan."""
        assert self._world is not None
        return self._world

    @property
    def tracks(self) -> dict[int, Owner]:
        """The slabs that are being read, by their track."""
        return {o.track: o.owner for o in self.world.owners if o.track in self._readers and o.track is not None}

    def raw(self, track: int) -> bytes:
        """The bytes of a slab as of the last tick."""
        return self._tape.copy(track)

    # --- ticks

    def tick(self, due_us: int | None = None, missed: int = 0) -> None:
        """Look once, now. ``due_us``: when it should have been; ``missed``: ticks that were left out before it."""
        slow = self._period_us >= SCAN_US
        if slow:
            self._look_around()
        now_us = self._now_ns() // 1000
        late_us = 0 if due_us is None else now_us - due_us
        late_us = late_us if late_us >= LATE_US else 0
        before = self._tape.pending
        gone = self._tape.look(now_us - self.last_us - self._period_us, late_us, missed)
        self.ticks += 1
        self.missed += missed
        self.late += late_us > 0
        if gone:
            self._lose(gone, before)
        self.last_us = now_us
        if now_us - self._base_us >= BATCH_US:
            self.cut()
            self._flush()
        if not slow:
            self._look_around()

    def run(self, stopped: Callable[[], bool], seconds: float | None = None) -> None:
        """Tick at the rate until ``stopped`` says so, or for so long. Ticks that were missed are not made up for."""
        period = self._period_us / 1e6
        due = time.monotonic()
        end = None if seconds is None else due + seconds
        missed = 0
        while end is None or due < end:
            while (wait := due - time.monotonic()) > 0:
                if stopped():
                    return
                time.sleep(min(wait, NAP_S))
            if stopped():
                return
            self.tick(int(due * 1e6), missed)
            due += period
            behind = time.monotonic() - due
            missed = max(0, int(behind / period)) if behind > 0 else 0
            due += missed * period

    def mark(self, text: str) -> None:
        """Say in the recording that something happened now."""
        self._tell_world(mark=text)

    def finish(self) -> None:
        """Tell what has not been told yet, with the counts as they are in the end: one look at least."""
        if not self.ticks:
            self.tick()
        self.cut()
        for device in self._devices.values():
            self._total(device)
        self._tell_world(anyway=True)
        self._sink.flush()

    def close(self) -> None:
        """Detach from everything."""
        for track, reader in self._readers.items():
            self._tape.remove(track)
            reader.close()
        self._readers.clear()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- telling

    def _put(self, kind: str, time_us: int, data: bytes) -> None:
        monotonic_ns = time_us * 1000
        self._sink.put(kind, monotonic_ns + self.session.wall_offset_ns, monotonic_ns, data)

    def cut(self) -> None:
        """Tell the ticks since the last cut."""
        data, self._held = self._held + self._tape.take(), b""
        if data:
            head = f.number(self._base_us) + f.number(self._period_us)
            self._put(f.TICKS, self._base_us, head + data)
        self._base_us = self.last_us

    def _flush(self) -> None:
        """End a second, or begin one with a keyframe where it is time for that."""
        now_us = self.last_us
        due = now_us - self._keyframed_us >= self._keyframe_us
        if due and self._tape.torn and self._waited < PATIENT_BATCHES:
            self._waited += 1
            due = False
        if due or now_us - self._flushed_us >= FLUSH_US:
            self._sink.flush()
            self._flushed_us = now_us
        if due:
            self.keyframe()

    def keyframe(self) -> None:
        """Tell all there is, so that whoever begins to read here lacks nothing."""
        self.cut()
        self._tell_world(anyway=True)
        self._put(f.KEYFRAME, self.last_us, f.number(self.last_us) + self._tape.whole())
        blocks = [f.number((d.number + 1) * 2 + 1) + f.changes((0,) * WORDS, d.totals) for d in self._devices.values()]
        self._put(f.TOTALS, self.last_us, b"".join((f.number(self.last_us), *blocks, b"\0")))
        self._keyframed_us, self._waited = self.last_us, 0

    def _tell_world(self, *, anyway: bool = False, mark: str = "") -> None:
        devices = [self._devices[number] for number in sorted(self._devices)]
        world = f.World(
            self.last_us,
            self.session,
            tuple(f.RecordedDevice(d.number, d.properties, d.slots_used, d.error) for d in devices),
            tuple(o for d in devices for o in d.owners.values()),
            f.Counts(self.ticks, self.late, self.missed),
            self._error,
            mark,
        )
        if anyway or mark or not f.same(self._world, world):
            self.cut()
            self._world = world
            self._put(f.WORLD, self.last_us, world.to_json())

    # --- looking around

    def _look_around(self) -> None:
        """One thing at a tick, so that none waits for long; at a slow rate as much as it takes."""
        now_us = self.last_us
        if now_us - self._listed_us >= FLUSH_US:
            self._listed_us = now_us
            if self._list_devices():
                self._tell_world()
        for _ in range(1 + len(self._turn) * self._period_us // SCAN_US if self._turn else 0):
            device = self._devices[self._turn[0]]
            if now_us - device.totalled_us >= TOTALS_US:
                self._total(device)
            elif now_us - device.scanned_us >= SCAN_US:
                self._turn.append(self._turn.pop(0))
                if self._scan(device):
                    self._tell_world()

    def _list_devices(self) -> bool:
        """Whether anything about which devices there are has changed."""
        try:
            numbers, error = self._driver.devices(), ""
        except OSError as e:
            numbers, error = [], str(e)
        wanted = [n for n in numbers if not self._wanted or n in self._wanted]
        if (wanted, error) == (sorted(self._devices), self._error):
            return False
        self._error = error
        for number in self._devices.keys() - set(wanted):
            self._forget(self._devices.pop(number), {})
        for number in wanted:
            self._devices.setdefault(number, _Device(number))
        self._turn = sorted(self._devices)
        return True

    def _scan(self, device: _Device) -> bool:
        """Look who has the slots of a device; whether that has changed."""
        device.scanned_us = self.last_us
        was = (device.properties, device.owners, device.slots_used, device.error)
        try:
            device.properties = self._driver.properties(device.number)
            found, device.error = self._driver.owners(device.number), ""
        except OSError as e:
            found, device.error = [], str(e)
        device.slots_used = len(found)
        now = {key_of(o): o for o in found if o.state != "attached" and (not self._pids or o.pid in self._pids)}
        known = device.owners
        self._forget(device, now)
        device.owners = {key: self._owner(owner, known.get(key)) for key, owner in now.items()}
        return was != (device.properties, device.owners, device.slots_used, device.error)

    def _forget(self, device: _Device, now: dict[Key, Owner]) -> None:
        """Detach from those that are not there any more, or have no slab any more."""
        for key, recorded in device.owners.items():
            owner = now.get(key)
            gone = owner is None or owner.alive is False or owner.state != "owned"
            if gone and recorded.track is not None and recorded.track in self._readers:
                self._tape.remove(recorded.track)
                self._readers.pop(recorded.track).close()

    def _owner(self, owner: Owner, known: f.RecordedOwner | None) -> f.RecordedOwner:
        """What is told of an owner, which is what was told while nothing has changed."""
        who = _who(owner) if known is None else known.owner.who
        ageless = replace(owner, age_s=None, who=who)
        if known is None:
            acquired_us = None if owner.age_s is None else self._now_ns() // 1000 - round(owner.age_s * 1e6)
            known = f.RecordedOwner(ageless, acquired_us=acquired_us)
        elif ageless != known.owner:
            known = replace(known, owner=ageless)
        if owner.alive is False or owner.state != "owned":
            dead = "its producer died; the next publish recovers the slot" if owner.alive is False else owner.state
            return replace(known, track=None, error=dead, error_kind="")
        if known.track in self._readers:
            return known
        try:
            reader = attach(owner.pid, owner.device, slot=owner.slot, path=owner.path, driver=self._driver)
        except OSError as e:
            error = str(e) if isinstance(e, NeuronDSError) else f"device {owner.device}, pid {owner.pid}: {e.strerror}"
            return replace(known, track=None, error=error, error_kind=type(e).__name__)
        track, self._next_track = self._next_track, self._next_track + 1
        self._readers[track] = reader
        self._tape.add(track, reader._lease.mapping)
        return replace(known, track=track, error="", error_kind="")

    def _lose(self, gone: list[int], before: int) -> None:
        """Slabs were given away: whoever reads must know before the tick that found it out."""
        data = self._held + self._tape.take()
        cut = len(self._held) + before
        for track in gone:
            self._readers.pop(track).close()
        numbers = {owner.device for owner in (o.owner for o in self.world.owners if o.track in gone)}
        last = data[cut:]
        if data[:cut]:
            self._put(f.TICKS, self._base_us, f.number(self._base_us) + f.number(self._period_us) + data[:cut])
            self._base_us = self.last_us
        for number in numbers & self._devices.keys():
            self._scan(self._devices[number])
        self._tell_world()
        self._base_us, self._held = self.last_us, last

    def _total(self, device: _Device, *, tell: bool = True) -> None:
        device.totalled_us = self.last_us
        try:
            words = self._driver.totals(device.number).words
        except OSError:
            return  # the next time; that they stand still is no fault
        if tell and words != device.totals:
            block = f.number((device.number + 1) * 2) + f.changes(device.totals, words)
            self._put(f.TOTALS, self.last_us, f.number(self.last_us) + block + b"\0")
        device.totals = words


def _who(owner: Owner) -> Who | None:
    """What the driver or /proc says of a process; None of one in another pid namespace."""
    if owner.who is not None or owner.foreign:
        return owner.who
    found = identify(owner.pid)
    command = command_line(owner.pid) or ""
    return Who(command) if found is None else Who(command, found.user, found.container_id, found.pod_uid)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def hurry() -> None:
    """Let this thread run before all others of the host, so that looks are in time. Raises OSError where it may not."""
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def default_name(prefix: str = "neuron-ds", when: float | None = None) -> str:
    """A name for a file that is made now."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(when))}.mcap"
