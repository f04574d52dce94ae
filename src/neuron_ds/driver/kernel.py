"""The kernel driver: slabs of real devices, through ``/dev/neuronN`` (docs/driver.md, "The kernel driver").

A process has one descriptor per device for as long as it runs: every close(2) of one, a duplicate's too, makes the
driver release the process's slab, an in-process runtime's among them. So nothing here closes, duplicates or hands out
a device's descriptor, and the core maps. This module knows ioctls and the driver's sysfs; it stores nothing in a slab.
"""

from __future__ import annotations

import _thread
import errno
import os
import re
import stat
from pathlib import Path

from neuron_ds import _core
from neuron_ds.driver.base import DeviceProperties, Lease, Owner
from neuron_ds.driver.directory import PRESETS
from neuron_ds.driver.steps import step
from neuron_ds.driver.totals import WORDS, DeviceTotals
from neuron_ds.errors import (
    AccessDenied,
    BadIndex,
    DeviceBusy,
    NeuronDSError,
    NoDevice,
    NoSlab,
    NotSupported,
    ProducerGone,
    SlotsFull,
    SystemFailure,
    TableBusy,
    WrongVersion,
)
from neuron_ds.layout import (
    EXT_NC_STRIDE,
    HEADER_WORD,
    MAX_CORES,
    MAX_DEVICES,
    NC,
    NC_BY_NAME,
    SLOTS_PER_DEVICE,
    VERSION,
)

DEV_VARIABLE, DEFAULT_DEV = "NEURON_DS_DEV", "/dev"
SYSFS_VARIABLE, DEFAULT_SYSFS = "NEURON_DS_SYSFS", "/sys/devices/virtual/neuron_device"
LOGICAL_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"

_NODE = re.compile(r"neuron(0|[1-9][0-9]?)\Z")
_OTHER_INFO = ("flop_count", "inference_count", "model_load_count", "nc_time_in_use")
_MAC_COUNT = NC_BY_NAME["mac_count"].index
_ATTEMPTS = 16

# One descriptor per node, and one slab: threads open, acquire and release one after the other.
_descriptors: dict[str, int] = {}
_leases: dict[str, Lease] = {}  # this process's own slabs, by node
_foreign: set[int] = set()  # descriptors by which the driver knows us under a pid of another namespace, the host's
_lock = _thread.RLock()


def _forget() -> None:
    """A forked child forgets its parent's descriptors without closing them: a close would run the driver's flush, and
    the descriptor is the parent's attachment. None of the threads that may hold the lock is in it."""
    global _lock
    _descriptors.clear()
    _leases.clear()
    _foreign.clear()
    _lock = _thread.RLock()


os.register_at_fork(after_in_child=_forget)


def dev_root() -> str:
    return os.environ.get(DEV_VARIABLE) or DEFAULT_DEV


def sysfs_root() -> str:
    return os.environ.get(SYSFS_VARIABLE) or DEFAULT_SYSFS


def node_numbers(root: str | None = None) -> list[int]:
    """Numbers of the device nodes that exist, ascending; none where the directory isn't there or may not be listed.

    Raises OSError for want of a descriptor or memory: that says nothing about devices.
    """
    try:
        names = os.listdir(root or dev_root())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return sorted(n for name in names if (m := _NODE.match(name)) and (n := int(m.group(1))) < MAX_DEVICES)


class KernelDriver:
    """Real devices. ``NEURON_DS_DEV`` and ``NEURON_DS_SYSFS`` name other roots than /dev and the driver's sysfs."""

    name = "kernel"
    can_reset = False

    # --- nodes -------------------------------------------------------------------------------------------------------

    def devices(self) -> list[int]:
        return node_numbers()

    def _node(self, device: int) -> tuple[str, int]:
        """(path, descriptor) of a node, opened once per process. Opening attaches the process to the device."""
        if not 0 <= device < MAX_DEVICES:
            raise BadIndex(f"devices are numbered 0 to {MAX_DEVICES - 1}", device=device)
        path = f"{dev_root()}/neuron{device}"
        with _lock:
            fd = _descriptors.get(path)
            if fd is None:
                fd = _descriptors[path] = _open(device, path)
        return path, fd

    def properties(self, device: int) -> DeviceProperties:
        path = f"{dev_root()}/neuron{device}"
        if device not in node_numbers():
            raise NoDevice(f"no such node; {_NO_NODE}", device=device, path=path)
        base = Path(sysfs_root()) / f"neuron{device}"
        instance = _read_text(base / "info/architecture/instance_type")
        kind = instance.partition(".")[0].lower() if instance else None
        preset = PRESETS.get(kind or "")
        cores = _read_int(base / "core_count")
        logical = os.environ.get(LOGICAL_VARIABLE, "")
        return DeviceProperties(
            device=device,
            type=kind,
            name=_read_text(base / "info/architecture/device_name"),
            cores=cores if cores is not None else (preset[1] if preset else None),
            memory_bytes=preset[2] if preset else None,
            logical_config=int(logical) if logical in ("1", "2") else (preset[3] if preset else None),
            path=path,
        )

    # --- producers ---------------------------------------------------------------------------------------------------

    def acquire(self, device: int) -> Lease:
        with _lock:
            return self._acquire(device)

    def _acquire(self, device: int) -> Lease:
        path, fd = self._node(device)
        try:
            offset, size = _core.kernel_acquire(fd, 0)
        except SystemFailure as e:
            raise _acquire_error(e, device, os.getpid(), path) from None
        step("acquire.owned")
        own = _leases.pop(path, None)
        if own is not None and own.mapping.state == "producer":
            if own.private == offset and (own.fresh or own.mapping.header()):
                _leases[path] = own
                return own
            own.mapping.kill()  # given back behind our back, as by the close of a duplicate: it may be another's by now
        mapping = _core.map(fd, offset, size, True, (device, os.getpid(), None))
        step("acquire.mapped")
        header = mapping.header()
        if header not in (0, HEADER_WORD):
            mapping.close()
            raise WrongVersion(
                f"something in this process publishes there already, with the header {header:#018x}, and this package "
                f"knows version {VERSION}; publish from a process of its own",
                device=device,
                pid=os.getpid(),
            )
        # A header that stands already is an in-process runtime's: its slab is not ours to give back.
        fresh = header == 0
        lease = Lease(device, os.getpid(), mapping, self.properties(device), None, None, True, fresh, offset)
        if fresh:
            _leases[path] = lease
        return lease

    def release(self, lease: Lease) -> None:
        try:
            with _lock:  # an acquire that came between would get the slab that is given back here
                state = lease.mapping.state
                lease.mapping.kill()
                path = lease.properties.path
                if state == "producer" and _leases.get(path) is lease:
                    del _leases[path]
                    _core.kernel_release(_descriptors[path], 0)
        finally:
            lease.mapping.close()

    # --- readers -----------------------------------------------------------------------------------------------------

    def attach(self, device: int, pid: int | None = None, *, slot: int | None = None, path: str | None = None) -> Lease:
        if slot is not None:
            raise NotSupported(
                "the kernel driver attaches by pid, not by slot; neuron-ds ls shows the pids", device=device, slot=slot
            )
        if pid is None:
            raise BadIndex("attach needs a pid", device=device)
        path, fd = self._node(device)
        if not 0 < pid < 1 << 31:  # 0 would claim a slab
            raise NoSlab(_NO_SLAB, device=device, pid=pid)
        pidfd = -1 if fd in _foreign else _pidfd(pid)  # a pid of the host's may be anybody's here
        try:
            offset, size = _core.kernel_acquire(fd, pid)
            mapping = _core.map(fd, offset, size, False, (device, pid, None))
        except BaseException as e:
            if pidfd >= 0:
                os.close(pidfd)
            if isinstance(e, SystemFailure):
                raise _acquire_error(e, device, pid, path) from None
            raise
        mapping.guard_kernel(fd, pid, offset, pidfd)
        return Lease(device, pid, mapping, self.properties(device), None, None, False, True, offset)

    def owners(self, device: int) -> list[Owner]:
        """Every attached process; one that publishes nothing (another monitor, say) has the state "attached"."""
        path, fd = self._node(device)
        result = []
        for pid in _attached(fd):
            try:
                _core.kernel_acquire(fd, pid)
                state = "owned"
            except SystemFailure as e:
                if e.errno != errno.ENOENT:
                    raise _acquire_error(e, device, pid, path) from None
                state = "attached"
            result.append(Owner(device, None, pid, True, foreign=fd in _foreign, state=state, path=path))
        return result

    # --- totals ------------------------------------------------------------------------------------------------------

    def totals(self, device: int) -> DeviceTotals:
        """The driver's sysfs, which counts the processes that have ended, plus the living slabs."""
        path, fd = self._node(device)
        for _ in range(_ATTEMPTS):
            before = self._freed(device)
            words = bytearray(WORDS * 8)
            living = self._add_living(device, fd, words)
            if living is None or self._freed(device) != before or self._living(fd) != living:
                continue
            view = memoryview(words).cast("Q")
            for index, value in before.items():
                view[index] += value
            return DeviceTotals(device, view)
        raise TableBusy("processes come and go faster than the totals can be read; try again", device=device, path=path)

    def _add_living(self, device: int, fd: int, words: bytearray) -> dict[int, int] | None:
        living = self._living(fd)
        for pid in living:
            try:
                lease = self.attach(device, pid)
            except (NoSlab, ProducerGone):
                return None
            try:
                lease.mapping.add_to(words, 0, True)
                lease.mapping.check()
            except ProducerGone:
                return None
            finally:
                lease.mapping.close()
        return living

    @staticmethod
    def _living(fd: int) -> dict[int, int]:
        """{pid: offset} of the processes that own a slab."""
        found = {}
        for pid in _attached(fd):
            try:
                found[pid] = _core.kernel_acquire(fd, pid)[0]
            except SystemFailure:
                continue
        return found

    @staticmethod
    def _freed(device: int) -> dict[int, int]:
        """{word of the totals: value} of what the driver's sysfs shows."""
        found = {}
        for core in range(MAX_CORES):
            base = Path(sysfs_root()) / f"neuron{device}" / f"neuron_core{core}" / "stats"
            if not base.is_dir():
                break
            for counter in NC:
                if counter.sysfs:
                    group = "other_info" if counter.sysfs in _OTHER_INFO else "status"
                    value = _read_int(base / group / counter.sysfs / "total")
                    if value is not None:
                        found[core * EXT_NC_STRIDE + counter.index] = value // (2 if counter.index == _MAC_COUNT else 1)
        return found

    def reset(self, device: int) -> None:
        raise NotSupported(
            "the totals of a real device are the kernel's; only the software driver's can be reset", device=device
        )


def _pidfd(pid: int) -> int:
    """A descriptor that tells whether this very process ended, -1 where it can't be had."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1


_NO_NODE = "load the neuron module (modprobe neuron), or pass the device into the container"
_NO_SLAB = "owns no slab on this device; neuron-ds ls shows who does"


def _open(device: int, path: str) -> int:
    """Open the node, which attaches the process. Raises NoDevice, AccessDenied, DeviceBusy."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as e:
        raise _open_error(e, device, path) from None
    if not stat.S_ISCHR(os.fstat(fd).st_mode):
        os.close(fd)  # no node: nothing was attached
        raise NoDevice(f"is no device node; remove it, then {_NO_NODE}", device=device, path=path)
    try:
        if os.getpid() not in _attached(fd):
            _foreign.add(fd)
    except SystemFailure as e:
        os.close(fd)  # of some other kind of device
        raise NoDevice(
            f"what answers there is no Neuron device, or its driver is too old ({e.message}); {_NO_NODE}",
            device=device,
            path=path,
        ) from None
    return fd


def _open_error(e: OSError, device: int, path: str) -> NeuronDSError:
    match e.errno:
        case errno.EBUSY:
            return DeviceBusy(
                f"{SLOTS_PER_DEVICE} processes have the device open, as many as the driver lets in, monitors among "
                "them; end one of them",
                device=device,
                path=path,
            )
        case errno.EACCES:
            return AccessDenied(
                "the node may not be opened read-write by you; run as root or join the node's group",
                device=device,
                path=path,
            )
        case errno.EPERM:
            return AccessDenied(
                "this container may not use the device; give it the device (docker run --device, the device plugin in "
                "Kubernetes), the node alone is not enough",
                device=device,
                path=path,
            )
        case errno.ENOENT:
            return NoDevice(f"no such node; {_NO_NODE}", device=device, path=path)
        case errno.ENODEV | errno.ENXIO:
            return NoDevice(
                "the node exists, but no driver answers; load the neuron module (modprobe neuron)",
                device=device,
                path=path,
            )
        case errno.EISDIR:
            return NoDevice(
                "is a directory, which container runtimes make where the host has no such node; "
                "load the neuron module on the host",
                device=device,
                path=path,
            )
    return SystemFailure(f"opening the node: {os.strerror(e.errno or 0)}", device=device, path=path, code=e.errno)


def _attached(fd: int) -> list[int]:
    """Pids of the attached processes, each once."""
    return list(dict.fromkeys(pid for pid, *_ in _core.kernel_apps(fd) if pid > 0))


def _acquire_error(e: SystemFailure, device: int, pid: int, path: str) -> NeuronDSError:
    if e.errno == errno.ENOENT:
        return NoSlab(_NO_SLAB, device=device, pid=pid)
    if e.errno == errno.ENOMEM:
        return SlotsFull(
            f"all {SLOTS_PER_DEVICE} slots are taken; end a process that publishes", device=device, pid=pid
        )
    return SystemFailure(f"{e.message} through {path}", device=device, pid=pid, code=e.errno)


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _read_int(path: Path) -> int | None:
    text = _read_text(path)
    return int(text) if text is not None and text.isdecimal() else None
