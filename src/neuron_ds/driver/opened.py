"""What one process has open of a device of the software driver: mappings, locks, and its own slot above all.

It binds the rules of ``table`` to real mappings and record locks of one directory. Which directory that is, and who
asks, is not its business: ``software`` decides. It stores zeros in slabs and nothing else.
"""

from __future__ import annotations

import os
import stat

from neuron_ds import _core
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.base import Lease
from neuron_ds.driver.steps import step
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.errors import LayoutMismatch, NoDevice, TableBusy
from neuron_ds.layout import SLAB_SIZE, SLOTS_PER_DEVICE

#: The byte of ``owners`` that is the table lock; bytes 0-15 are the liveness locks of the slots.
TABLE_LOCK = SLOTS_PER_DEVICE
LOCK_WAIT_S = 2.0


class _Locks:
    """The liveness locks of a device as the table's rules want them."""

    def __init__(self, file: _core.LockFile) -> None:
        self.take = file.take
        self.drop = file.drop
        self._holder = file.holder

    def is_held(self, slot: int) -> bool:
        return self._holder(slot) is not None


class _Slabs:
    """The slabs and totals of a device as the table's rules want them; mapped only while they are touched."""

    def __init__(self, device: int, fd: int, totals: _core.Mapping) -> None:
        self._device, self._fd, self._totals = device, fd, totals
        self._rolled_up: tuple[int, _core.Mapping] | None = None  # the slab that is to be zeroed next

    def map(self, slot: int, *, write: bool, pid: int | None = None) -> _core.Mapping:
        return _core.map(self._fd, slot * SLAB_SIZE, SLAB_SIZE, write, (self._device, pid, slot))

    def roll_up(self, slot: int, source: int, target: int) -> None:
        slab = self.map(slot, write=True)
        self._rolled_up = slot, slab
        self._totals.roll_up(source, target, slab)

    def zero(self, slot: int) -> None:
        known, self._rolled_up = self._rolled_up, None
        slab = known[1] if known is not None and known[0] == slot else self.map(slot, write=True)
        slab.zero(0, 1)
        step("release.header")
        slab.zero(1, SLAB_SIZE // 8 - 1)
        slab.close()

    def zero_totals(self, copy: int) -> None:
        self._totals.zero(copy * d.TOTALS_WORDS, d.TOTALS_WORDS)


class _Totals:
    """The totals and slabs of a device as an observer reads them."""

    def __init__(self, device: OpenDevice) -> None:
        self._totals, self._holder = device.totals, device.owners.holder
        self._slabs = _core.map(device.slabs_fd, 0, d.FILE_SIZES[d.SLABS], False, (device.device, None, None))

    def copy(self, active: int) -> bytearray:
        return bytearray(self._totals.copy(active * d.TOTALS_WORDS, d.TOTALS_WORDS))

    def add(self, totals: bytearray, slot: int) -> None:
        alive = self._holder(slot) is not None  # the gauges of the dead are nobody's memory any more
        self._slabs.add_to(totals, slot * SLAB_SIZE // 8, alive)

    def rest(self) -> None:
        """Until the next reading: whoever reads the slabs too would else have each of them in memory twice."""
        self._slabs.drop_pages()


def _identity(fd: int) -> tuple[int, int] | None:
    """What a descriptor is of, None if of nothing."""
    try:
        st = os.fstat(fd)
    except OSError:
        return None
    return st.st_dev, st.st_ino


class OpenDevice:
    """What this process knows of one device directory."""

    def __init__(self, root: str, told: bool, device: int, *, produce: bool) -> None:
        self.root, self.device, self.produce = root, device, produce
        self.path = f"{root}/{d.device_name(device)}"
        try:
            root_fd = d.open_root(root, produce=produce, told=told)
        except FileNotFoundError:
            raise NoDevice("the directory does not exist; publish makes it", device=device, path=root) from None
        try:
            fd = d.open_device(root, root_fd, device)
        finally:
            os.close(root_fd)
        try:
            st = os.fstat(fd)
            self.identity = st.st_dev, st.st_ino
            self.table = self._map(fd, d.TABLE)
            self.properties = d.read_properties(self.table, device, self.path)
            self.totals = self._map(fd, d.TOTALS)
            self.owners = _core.open_lock_file(fd, d.OWNERS)
            slabs_fd = self._open(fd, d.SLABS)
            self._slabs_identity = _identity(slabs_fd)
            self.slabs_fd = slabs_fd
        except OSError as e:
            raise d.unusable(e, device, self.path, produce=produce) from None
        finally:
            os.close(fd)
        self.slabs = _Slabs(device, self.slabs_fd, self.totals)
        self.rules = t.SlotTable(self.table, _Locks(self.owners), self.slabs, step)
        self._observed: _Totals | None = None
        self._lock = _core.table_lock(self.owners, TABLE_LOCK)
        self.lease: Lease | None = None  # this process's own slab
        #: (slot, generation) of claims not finished and of slabs not given back yet: the next lock-taking does.
        self.abandoned: list[tuple[int, int]] = []

    def _open(self, fd: int, name: str) -> int:
        file = d.open_file(fd, name, write=self.produce)
        st = os.fstat(file)
        if not stat.S_ISREG(st.st_mode) or st.st_size < d.FILE_SIZES[name]:
            os.close(file)
            fault = "cut short" if stat.S_ISREG(st.st_mode) else "no regular file"
            raise LayoutMismatch(f"{name} is {fault}; remove the directory", device=self.device, path=self.path)
        return file

    def _map(self, fd: int, name: str) -> _core.Mapping:
        file = self._open(fd, name)
        try:
            return _core.map(file, 0, d.FILE_SIZES[name], self.produce, (self.device, None, None))
        finally:
            os.close(file)

    def __del__(self) -> None:
        if (fd := getattr(self, "slabs_fd", None)) is not None and _identity(fd) == self._slabs_identity:
            os.close(fd)

    def is_intact(self) -> bool:
        """False once somebody closed descriptors behind our back, as a process that becomes a daemon does.

        Every lock is gone then, so a slab of ours is not ours any more.
        """
        return self.owners.intact and _identity(self.slabs_fd) == self._slabs_identity

    def read_totals(self) -> DeviceTotals:
        """The device's totals. Raises TableBusy if the table never held still."""
        if self._observed is None:
            self._observed = _Totals(self)
        words = t.read_totals(self.table, self._observed)
        self._observed.rest()
        if words is None:
            raise TableBusy(
                "slots change hands faster than the totals can be read; try again", device=self.device, path=self.path
            )
        return DeviceTotals.from_words(self.device, words)

    def is_at(self, path: str) -> bool:
        """Whether the path leads to the directory that is mapped here."""
        try:
            st = os.stat(path, follow_symlinks=False)
        except OSError:
            return False
        return (st.st_dev, st.st_ino) == self.identity

    def table_lock(self) -> _core.TableLock:
        """The table lock, to be entered: ``with dev.table_lock() as got: rules = dev.begin(got)``."""
        self._lock.wait_s = LOCK_WAIT_S
        return self._lock

    def begin(self, got: bool | None) -> t.SlotTable:
        """The rules, with everything that others left unfinished finished first. Raises TableBusy, LayoutMismatch."""
        if not got:
            raise self._busy(nested=got is None)
        step("table.locked")
        if (damage := t.damage(self.table)) is not None:
            raise LayoutMismatch(
                f"the table is damaged: {damage}; end the processes that use it and remove the directory",
                device=self.device,
                path=self.path,
            )
        self.rules.recover()  # first: a release of ours would overwrite the commit word that names a pending slot
        self.give_back()
        return self.rules

    def give_back(self) -> None:
        """Release what was claimed and is not in use, under the table lock."""
        own = None if self.lease is None else (self.lease.slot, self.lease.generation)
        for claim in tuple(self.abandoned):
            if claim != own:
                self.rules.release(*claim)
            self.abandoned.remove(claim)

    def _busy(self, *, nested: bool) -> TableBusy:
        holder = self.owners.holder(TABLE_LOCK)
        if nested:
            who, advice = "this very thread of this process", "do not call from its signal handlers or finalizers"
        elif holder is None:
            who, advice = "others, in turn", "try again"
        elif holder == os.getpid():
            who, advice = "another thread of this process", "look what it waits for"
        else:
            who = f"process {holder}" if holder else "a process in another pid namespace"
            advice = "it may be stopped: continue or kill it"
        return TableBusy(
            f"{who} had the table lock for {LOCK_WAIT_S:g} s; {advice}",
            device=self.device,
            path=self.path,
            pid=holder or None,
        )
