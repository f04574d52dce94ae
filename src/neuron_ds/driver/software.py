"""The software driver: devices without hardware, root or daemon, in shared memory.

It finds the directories that may be used, opens each device once per process (``opened``) and answers who has which
slab. It stores zeros in slabs and nothing else. See docs/driver.md.
"""

from __future__ import annotations

import _thread
import os
import time
from functools import cache

from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.base import DeviceProperties, Lease, Owner
from neuron_ds.driver.opened import OpenDevice
from neuron_ds.driver.steps import step
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.errors import (
    AccessDenied,
    AmbiguousPid,
    BadIndex,
    DirectoryGone,
    LayoutMismatch,
    NoDevice,
    NoSlab,
    ProducerGone,
    SlotsFull,
    StillOwned,
)
from neuron_ds.layout import SLOTS_PER_DEVICE

# What this process has open, by path. Threads must not open a directory twice: record locks don't hold between them.
_open: dict[tuple[str, bool], OpenDevice] = {}
_opening = _thread.RLock()  # a signal handler may attach, too


def _forget() -> None:
    """A forked child has nothing open, none of the threads that may hold a lock, and a start of its own."""
    global _opening
    _open.clear()
    _opening = _thread.RLock()
    _namespace.cache_clear()
    _start_ticks.cache_clear()


os.register_at_fork(after_in_child=_forget)


@cache
def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0  # no /proc: pids are shown as they are


@cache
def _start_ticks() -> int:
    try:
        with open("/proc/self/stat", "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0  # shown only


class SoftwareDriver:
    """Devices in directories: ``NEURON_DS_DIR``, else this user's own below /dev/shm (readers also root's)."""

    name = "software"
    can_reset = True

    def __init__(self, directory: str | None = None) -> None:
        """``directory`` stands for NEURON_DS_DIR; the environment is looked at anew in every call otherwise."""
        self._directory = directory

    # --- finding devices ---------------------------------------------------------------------------------------------

    def roots(self) -> list[tuple[str, bool]]:
        return d.roots() if self._directory is None else d.roots({"NEURON_DS_DIR": self._directory})

    def probe(
        self,
        device: int = 0,
        *,
        type: str = d.DEFAULT_TYPE,
        cores: int | None = None,
        memory_bytes: int | None = None,
        logical_config: int | None = None,
        name: str | None = None,
    ) -> DeviceProperties:
        """Make a device in the producer's directory if it is not there yet; its properties either way.

        type: trn1, inf2 (2 cores, 32 GiB) or trn2 (8 physical cores, 96 GiB, logical configuration 2); the rest
        departs from the preset. Raises BadValue, NoSpace, UnsafeDirectory.
        """
        root, told = self.roots()[0]
        d.device_name(device)
        d.make_root(root)
        fd = d.open_root(root, produce=True, told=told)
        try:
            d.make_device(
                root,
                fd,
                device,
                type=type,
                cores=cores,
                memory_bytes=memory_bytes,
                logical_config=logical_config,
                name=name,
            )
        finally:
            os.close(fd)
        return self._device(root, told, device, produce=True).properties

    def devices(self) -> list[int]:
        found: set[int] = set()
        refused = None
        for root, told in self.roots():
            try:
                fd = d.open_root(root, produce=False, told=told)
            except FileNotFoundError:
                continue
            except AccessDenied as e:
                refused = refused or e
                continue
            try:
                found.update(d.device_numbers(fd))
            finally:
                os.close(fd)
        if refused and not found:
            raise refused
        return sorted(found)

    def properties(self, device: int) -> DeviceProperties:
        return self._readable(device)[0].properties

    def _device(self, root: str, told: bool, device: int, *, produce: bool) -> OpenDevice:
        """The device at a path, opened once per process. Raises DirectoryGone if it was replaced while in use."""
        path = f"{root}/{d.device_name(device)}"
        with _opening:
            for writable in (True, False) if not produce else (True,):
                known = _open.get((path, writable))
                if known is None:
                    continue
                if known.is_at(path):
                    if known.is_intact():
                        return known
                    if known.lease is not None:
                        known.lease.mapping.kill()  # without its lock it may be another's by now
                        known.lease = None
                if known.lease is not None and known.lease.mapping.state == "producer":
                    raise DirectoryGone(
                        "the directory was deleted or replaced while this process publishes in it; nobody can see the "
                        "slab any more: close it and publish again (systemd-logind's RemoveIPC does this at logout)",
                        device=device,
                        path=path,
                    )
                del _open[path, writable]
            for key in [key for key, dev in _open.items() if dev.lease is None and not dev.is_at(key[0])]:
                del _open[key]  # vanished: a process that runs for long must not collect their descriptors
            opened = OpenDevice(root, told, device, produce=produce)
            for known in _open.values():  # another path to the same directory: still one slab and one set of locks
                if (known.identity, known.produce) == (opened.identity, produce) and known.is_intact():
                    opened = known
                    break
            _open[path, produce] = opened
            return opened

    def _readable(self, device: int) -> list[OpenDevice]:
        """The device in every root that has it. Raises NoDevice where none has, or why it can't be read."""
        found: dict[tuple[int, int], OpenDevice] = {}
        refused = None
        roots = self.roots()
        for root, told in roots:
            try:
                dev = self._device(root, told, device, produce=False)
            except NoDevice:
                continue
            except (AccessDenied, LayoutMismatch) as e:
                refused = refused or e  # one bad directory must not hide the others
                continue
            found.setdefault(dev.identity, dev)
        if refused and not found:
            raise refused
        if not found:
            where = ", ".join(root for root, _ in roots)
            raise NoDevice(f"no such device in {where}; neuron-ds doctor tells more", device=device)
        return list(found.values())

    # --- producers ---------------------------------------------------------------------------------------------------

    def acquire(self, device: int) -> Lease:
        root, told = self.roots()[0]
        try:
            dev = self._device(root, told, device, produce=True)
        except NoDevice:
            if device != 0:
                d.device_name(device)
                raise NoDevice(
                    "does not exist; by default there is device 0 alone: probe it, or neuron-ds simulate --devices",
                    device=device,
                    path=root,
                ) from None
            self.probe(0)
            dev = self._device(root, told, device, produce=True)
        with dev.table_lock() as got:
            rules = dev.begin(got)
            own = dev.lease
            if own is not None and own.slot is not None and own.generation is not None:
                if own.mapping.state == "producer" and rules.word(own.slot) == t.slot_word(own.generation, t.OWNED):
                    return own
                own.mapping.kill()
                dev.lease = None
                rules.release(own.slot, own.generation)  # if still ours: a close was interrupted before it noted that
            owner = t.OwnerWords(os.getpid(), _start_ticks(), _namespace(), time.monotonic_ns())
            claimed = rules.acquire(owner, dev.abandoned.append)
            if claimed is None:
                raise SlotsFull(
                    f"all {SLOTS_PER_DEVICE} slots are taken; end a process that publishes (neuron-ds ls names them)",
                    device=device,
                    pid=os.getpid(),
                    path=dev.path,
                )
            slot, generation = claimed
            try:
                mapping = dev.slabs.map(slot, write=True, pid=os.getpid())
                step("acquire.mapped")
            except BaseException:
                dev.give_back()
                raise
            lease = Lease(device, os.getpid(), mapping, dev.properties, slot, generation, True, True, dev)
            dev.lease = lease
            dev.abandoned.remove(claimed)
        return lease  # not dev.lease: another thread may have closed it by now

    def release(self, lease: Lease) -> None:
        state = lease.mapping.state
        lease.mapping.kill()
        dev = lease.private
        try:
            if state == "producer" and isinstance(dev, OpenDevice) and lease.slot is not None:
                assert lease.generation is not None
                dev.abandoned.append((lease.slot, lease.generation))  # whoever of us takes the lock next gives it back
                if dev.lease is lease:
                    dev.lease = None
                with dev.table_lock() as got:
                    dev.begin(got)  # which does it
        finally:
            lease.mapping.close()

    # --- readers -----------------------------------------------------------------------------------------------------

    def attach(self, device: int, pid: int | None = None, *, slot: int | None = None, path: str | None = None) -> Lease:
        devices = [dev for dev in self._readable(device) if path in (None, dev.path)]
        if not devices:
            raise NoDevice("no such device there any more; list the owners again", device=device, path=path)
        if slot is not None:
            if not 0 <= slot < SLOTS_PER_DEVICE:
                raise BadIndex(f"a device has slots 0 to {SLOTS_PER_DEVICE - 1}", device=device)
            taken = [dev for dev in devices if dev.rules.word(slot) & 0xFF != t.FREE and _fits(dev, slot, pid)]
            if len(taken) > 1:
                listed = ", ".join(dev.path for dev in taken)
                raise AmbiguousPid(
                    f"the slot is taken in several directories: {listed}; name one in NEURON_DS_DIR, or as path",
                    device=device,
                    pid=pid,
                    slot=slot,
                )
            return self._attach_slot((taken or devices)[0], slot, pid)
        if pid is None:
            raise BadIndex("attach needs a pid or a slot", device=device)
        matches = [(dev, view) for dev in devices for view in self._slots_of(dev, pid)]
        if len(matches) > 1:  # or it changed its slot while we looked: what is still as it was, was so at one time
            matches = [(dev, view) for dev, view in matches if dev.rules.word(view.slot) == view.word]
        if len(matches) > 1:
            own = _namespace()
            mine = [(dev, view) for dev, view in matches if view.owner.namespace == own]
            if len(mine) != 1:
                listed = ", ".join(f"{dev.path} slot {view.slot}" for dev, view in matches)
                raise AmbiguousPid(f"stands in several slots: {listed}; attach by slot", device=device, pid=pid)
            matches = mine
        if not matches:
            raise NoSlab("owns no slab on this device; neuron-ds ls shows who does", device=device, pid=pid)
        return _reading(*matches[0])

    @staticmethod
    def _slots_of(dev: OpenDevice, pid: int) -> list[t.SlotView]:
        """Slots whose owner lives and has this pid in its own namespace."""
        pids = dev.table.load_many(t.slot_index(0, t.S_PID), SLOTS_PER_DEVICE, t.SLOT_STRIDE)
        views = [t.read_slot(dev.table, slot) for slot, its in enumerate(pids) if its == pid]
        return [v for v in views if (v.state, v.owner.pid) == (t.OWNED, pid) and dev.owners.holder(v.slot) is not None]

    @staticmethod
    def _attach_slot(dev: OpenDevice, slot: int, pid: int | None) -> Lease:
        view = t.read_slot(dev.table, slot)
        wanted = view.owner.pid if pid is None else pid
        if view.state == t.FREE:
            raise NoSlab("the slot is free", device=dev.device, slot=slot, pid=pid)
        if view.state != t.OWNED or dev.owners.holder(slot) is None or view.owner.pid != wanted:
            raise ProducerGone("has released its slab or died", device=dev.device, pid=wanted, slot=slot)
        return _reading(dev, view)

    def owners(self, device: int) -> list[Owner]:
        now, own, result = time.monotonic_ns(), _namespace(), []
        for dev in self._readable(device):
            for view in t.read_slots(dev.table):
                if view.state != t.FREE:
                    result.append(_owner(dev, view, now, own))
        return result

    # --- totals ------------------------------------------------------------------------------------------------------

    def totals(self, device: int) -> DeviceTotals:
        """Of the first directory that has the device: totals of several hosts' directories don't add up."""
        return self._readable(device)[0].read_totals()

    def reset(self, device: int) -> None:
        root, told = self.roots()[0]
        dev = self._device(root, told, device, produce=True)
        with dev.table_lock() as got:
            if not dev.begin(got).reset():
                living = [str(o.pid) for o in self.owners(device) if o.path == dev.path]
                who = "processes still publish" if len(living) > 1 else "a process still publishes"
                raise StillOwned(f"{who}; end {', '.join(living)} first", device=device, path=dev.path)


def _reading(dev: OpenDevice, view: t.SlotView) -> Lease:
    """A reader's lease, good as long as the slot's word is what was seen."""
    mapping = dev.slabs.map(view.slot, write=False, pid=view.owner.pid)
    mapping.guard(dev.table, t.slot_index(view.slot), view.word, dev.owners, view.slot)
    return Lease(dev.device, view.owner.pid, mapping, dev.properties, view.slot, view.generation, False, True, dev)


def _fits(dev: OpenDevice, slot: int, pid: int | None) -> bool:
    return pid is None or dev.table.load(t.slot_index(slot, t.S_PID)) == pid


def _owner(dev: OpenDevice, view: t.SlotView, now: int, namespace: int) -> Owner:
    pid, _, its_namespace, acquired_ns = view.owner
    state = view.state
    return Owner(
        device=dev.device,
        slot=view.slot,
        pid=pid,
        alive=dev.owners.holder(view.slot) is not None,
        foreign=its_namespace != namespace,
        state=t.STATE_NAMES[state] if state < len(t.STATE_NAMES) else "damaged",
        generation=view.generation,
        age_s=max(0, now - acquired_ns) / 1e9,
        path=dev.path,
        namespace=its_namespace or None,
    )
