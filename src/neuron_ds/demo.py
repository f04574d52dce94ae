"""The demonstration: simulated producers in a private directory, one of them killed, and what a monitor sees of it all.

``Demo`` sets the stage and gives one ``Scene`` after the other; each is made as any monitor would make it, through
driver and readers alone. It knows the simulator and the API; how a scene is drawn is not its business.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from neuron_ds import layout
from neuron_ds.datastore import attach
from neuron_ds.driver import DeviceProperties
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError, ProducerGone
from neuron_ds.runtime import DeviceMemory, Status
from neuron_ds.simulate import DEMO, Fleet, Plan, SimulatedProcess, plan
from neuron_ds.snapshot import Snapshot

DEVICES = 2
#: When, as a part of the whole time, one producer is killed, and when another one comes.
KILL_AT, COME_AT = 0.4, 0.6

#: Its directories begin so. Each is locked (flock) by its demo as long as that lives.
PREFIX = "neuron-ds-demo-"

_NEVER_RAN = (Status.BAD_INPUT, Status.QUEUE_FULL)
_EXECUTIONS = tuple(int(s) for s in Status if s not in _NEVER_RAN)
_ERRORS = tuple(int(s) for s in Status if s is not Status.SUCCESS)
_MEMORY = tuple(int(m) for m in DeviceMemory)


@dataclass(frozen=True, slots=True)
class CoreUse:
    """One physical core as one process uses it. Rates are None in the first scene of a process."""

    core: int
    busy: float | None  #: part of the time between two scenes, 0 to 1
    executions_s: float | None
    latency_us: int  #: total latency of the last execution
    errors: int
    memory_bytes: int
    models: tuple[str, ...]

    @property
    def idle(self) -> bool:
        """Whether nothing has ever run on it."""
        return not (self.busy or self.executions_s or self.latency_us or self.errors)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """One taken slot. ``note`` says why nothing is shown of it, "" if something is."""

    device: int
    slot: int
    pid: int
    tag: str
    cores: tuple[CoreUse, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a monitor sees at one moment, and what has happened so far."""

    elapsed_s: float
    devices: tuple[DeviceProperties, ...]
    processes: tuple[ProcessUse, ...]
    events: tuple[str, ...] = field(default=())


class Demo:
    """The stage: made on entry, with all producers publishing; gone without a trace on leaving, however that comes."""

    def __init__(self, seconds: float = 10.0, *, seed: int = 7) -> None:
        self.seconds = seconds
        self._seed = seed
        self._fleets: list[Fleet] = []
        self._events: list[str] = []
        self._last: dict[tuple[int, int, int], Snapshot] = {}
        self._tags: dict[tuple[int, int], str] = {}
        self._victim: SimulatedProcess | None = None
        self._newcomer: SimulatedProcess | None = None
        self.directory = ""
        self._lock = -1

    def __enter__(self) -> Self:
        sweep(place := _place() or tempfile.gettempdir())
        self.directory, self._lock = _make_directory(place)
        try:
            self._driver = SoftwareDriver(self.directory)
            self._start(plan(DEMO, devices=DEVICES, seed=self._seed))
        except BaseException:
            self._clear()
            raise
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def _start(self, what: Plan) -> Fleet:
        fleet = Fleet(what, driver="software", directory=self.directory)
        fleet.__enter__()
        self._fleets.append(fleet)
        return fleet

    def _clear(self) -> None:
        try:
            while self._fleets:
                self._fleets.pop().__exit__(None, None, None)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            os.close(self._lock)

    @property
    def producers(self) -> list[SimulatedProcess]:
        """Every producer that was started, also the one that was killed."""
        return [process for fleet in self._fleets for process in fleet]

    def scenes(self, interval_s: float) -> Iterator[Scene]:
        """A scene now and then one every ``interval_s``, until the time is up and all has happened."""
        number = 0
        while True:
            elapsed = time.monotonic() - self._began
            self._play(elapsed)
            yield self._look(elapsed)
            number += 1
            if elapsed >= self.seconds and self._newcomer is not None:
                return
            until = min(self._began + number * interval_s, self._began + self.seconds)
            time.sleep(max(0.0, until - time.monotonic()))

    # --- what happens ------------------------------------------------------------------------------------------------

    def _play(self, elapsed: float) -> None:
        if self._victim is None and elapsed >= self.seconds * KILL_AT:
            victim = self._victim = self.producers[0]
            victim.kill()
            self._tell(elapsed, f"kill -9 {victim.pid} ({victim.tag}): its numbers are shown no more, its slot is dead")
        elif self._victim is not None and self._newcomer is None and elapsed >= self.seconds * COME_AT:
            (device, first), *_, (_, last) = self._victim.workload.cores
            item = f"inference@{device}/{first}-{last},tag=newcomer"
            (self._newcomer,) = self._start(plan([item], devices=DEVICES, seed=self._seed + 1))
            self._tell_recovery(elapsed, self._newcomer, self._victim)

    def _tell_recovery(self, elapsed: float, newcomer: SimulatedProcess, victim: SimulatedProcess) -> None:
        for device, slot in newcomer.slots.items():
            self._tell(elapsed, f"pid {newcomer.pid} ({newcomer.tag}) publishes, in slot {slot} of device {device}")
        for device, slot in victim.slots.items():
            holder = next((o.pid for o in self._driver.owners(device) if o.slot == slot), None)
            if holder != victim.pid:
                state = "zeroed and free" if holder is None else f"zeroed and now pid {holder}'s"
                self._tell(elapsed, f"slot {slot} of device {device} was recovered on the way: {state}")

    def _tell(self, elapsed: float, what: str) -> None:
        self._events.append(f"{elapsed:4.1f} s  {what}")

    # --- what a monitor sees -----------------------------------------------------------------------------------------

    def _look(self, elapsed: float) -> Scene:
        seen: dict[tuple[int, int, int], Snapshot] = {}
        properties, processes = [], []
        for device in self._driver.devices():
            properties.append(self._driver.properties(device))
            for owner in self._driver.owners(device):
                assert owner.slot is not None  # the software driver always tells
                cores: tuple[CoreUse, ...] = ()
                note = ""
                try:
                    with attach(owner.pid, device, slot=owner.slot, driver=self._driver) as reader:
                        snapshot = reader.snapshot()
                except ProducerGone:
                    note = "dead: the next publish here recovers its slot"
                except NeuronDSError as e:
                    note = e.message
                else:
                    use = (device, owner.slot, snapshot.generation or 0)
                    seen[use] = snapshot
                    self._tags[device, owner.pid] = snapshot.tag or ""
                    cores = core_uses(self._last.get(use), snapshot)
                tag = self._tags.get((device, owner.pid), "")
                processes.append(ProcessUse(device, owner.slot, owner.pid, tag, cores, note))
        self._last = seen
        return Scene(elapsed, tuple(properties), tuple(processes), tuple(self._events))


def core_uses(before: Snapshot | None, now: Snapshot) -> tuple[CoreUse, ...]:
    """The cores that a process has ever used or has a model on, with their rates since an earlier snapshot."""
    models: dict[int, list[str]] = {}
    for model in now.models.values():
        models.setdefault(model.nc_index, []).append(model.name)
    interval_us = 0.0
    if before is not None and before.time_ns is not None and now.time_ns is not None:
        interval_us = (now.time_ns - before.time_ns) / 1e3
    time_in_use = layout.NC_BY_NAME["time_in_use"].index
    latency = layout.NC_BY_NAME["latency_total"].index
    uses = []
    for core in range(layout.MAX_CORES):
        counters = now.nc_counters(core)
        executions = sum(counters[i] for i in _EXECUTIONS)
        if not (executions or counters[time_in_use] or core in models):
            continue
        busy = executions_s = None
        if before is not None and interval_us > 0:
            earlier = before.nc_counters(core)
            busy = min(1.0, (counters[time_in_use] - earlier[time_in_use]) / interval_us)
            executions_s = (executions - sum(earlier[i] for i in _EXECUTIONS)) / interval_us * 1e6
        uses.append(
            CoreUse(
                core=core,
                busy=busy,
                executions_s=executions_s,
                latency_us=counters[latency],
                errors=sum(counters[i] for i in _ERRORS),
                memory_bytes=sum(counters[i] for i in _MEMORY),
                models=tuple(models.get(core, ())),
            )
        )
    return tuple(uses)


# --- The directory ------------------------------------------------------------------------------------------------


def sweep(place: str) -> None:
    """Remove what demos left that were killed: their directories, which nobody locks any more."""
    try:
        names = [name for name in os.listdir(place) if name.startswith(PREFIX)]
    except OSError:
        return
    for path in (os.path.join(place, name) for name in names):
        fd = _locked(path)
        if fd is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(fd)


def _make_directory(place: str) -> tuple[str, int]:
    """A private directory and the lock on it. Another demo's sweep may be faster than the lock: then another one."""
    while True:
        path = tempfile.mkdtemp(prefix=PREFIX, dir=place)
        fd = _locked(path)
        if fd is not None:
            return path, fd


def _locked(path: str) -> int | None:
    """A descriptor that locks a directory of ours; None if another process does, or it is gone, or no such thing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        st, there = os.fstat(fd), os.lstat(path)
        if (
            st.st_uid == os.geteuid()
            and stat.S_ISDIR(there.st_mode)
            and (st.st_dev, st.st_ino) == (there.st_dev, there.st_ino)
        ):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _place() -> str | None:
    """Shared memory where it has room, unless TMPDIR says otherwise; else wherever temporary files go."""
    if os.environ.get("TMPDIR"):
        return None
    try:
        st = os.statvfs("/dev/shm")
        if os.access("/dev/shm", os.W_OK) and st.f_bavail * st.f_frsize > DEVICES * d.DEVICE_BYTES:
            return "/dev/shm"
    except OSError:
        pass
    return None
