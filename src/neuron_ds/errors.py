"""Every error this package raises on purpose.

One base, ``NeuronDSError``; it is an OSError, and each kind with an errno is also Python's own class for that
errno, so ``except FileNotFoundError`` works. Every error carries ``device``, ``pid`` and ``slot`` where they
are known, and a message that ends in what to do next. This module imports nothing of the package.
"""

from __future__ import annotations

import errno as _errno
import os


class NeuronDSError(OSError):
    """Base of all. ``device``, ``pid``, ``slot`` and ``path`` are None where they do not apply."""

    code: int = _errno.EINVAL

    def __init__(
        self,
        message: str,
        *,
        device: int | None = None,
        pid: int | None = None,
        slot: int | None = None,
        path: str | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(self.code if code is None else code, message)
        self.message = message
        self.device, self.pid, self.slot, self.path = device, pid, slot, path

    def __str__(self) -> str:
        where = [f"{k} {v}" for k in ("device", "pid", "slot", "path") if (v := getattr(self, k)) is not None]
        if len(where) == 1 and self.path is not None:
            where = [str(self.path)]  # as the system's own errors name a file
        return f"{', '.join(where)}: {self.message}" if where else self.message

    def __reduce__(self) -> tuple[object, ...]:
        state = (self.message, self.device, self.pid, self.slot, self.path, self.errno)
        return _rebuild, (type(self), *state)


def _rebuild(
    kind: type[NeuronDSError],
    message: str,
    device: int | None,
    pid: int | None,
    slot: int | None,
    path: str | None,
    code: int | None,
) -> NeuronDSError:
    return kind(message, device=device, pid=pid, slot=slot, path=path, code=code)


# --- The caller asked for something that is not there or not allowed ---------------------------------------------


class BadIndex(NeuronDSError):
    """A device, core, counter, slot or kind that is none (EINVAL)."""


class BadValue(NeuronDSError):
    """A value that its field cannot hold; names field and limit (EINVAL)."""


class ReadOnly(NeuronDSError, PermissionError):
    """A write through a reader (EPERM)."""

    code = _errno.EPERM


class ModelsFull(NeuronDSError):
    """A 65th model (ENOSPC)."""

    code = _errno.ENOSPC


class Closed(NeuronDSError):
    """A handle used after close, through whichever handle the close came (EBADF)."""

    code = _errno.EBADF


class ForkedChild(Closed):
    """A handle of the parent used in a forked child, which owns nothing (EBADF)."""


# --- The slab is not what it should be ---------------------------------------------------------------------------


class FormatError(NeuronDSError):
    """Bytes that are not a readable slab (EINVAL)."""


class TooShort(FormatError):
    """Fewer bytes than the blob needs."""


class NotReady(FormatError):
    """The header is not stamped (yet)."""


class WrongVersion(FormatError):
    """The signature stands, but the version is another; names both."""


class TornRecord(NeuronDSError, BlockingIOError):
    """A record that matched its hash in neither of two reads, and no earlier copy to show (EAGAIN)."""

    code = _errno.EAGAIN


# --- The driver's answers ------------------------------------------------------------------------------------------


class NoDriver(NeuronDSError):
    """No driver of the wanted name (ENODEV)."""

    code = _errno.ENODEV


class NoDevice(NeuronDSError):
    """The device does not exist (ENODEV)."""

    code = _errno.ENODEV


class NoSlab(NeuronDSError, FileNotFoundError):
    """The process owns no slab on this device (ENOENT)."""

    code = _errno.ENOENT


class AmbiguousPid(NeuronDSError):
    """Several slots, in several pid namespaces, carry this pid; attach by slot (ENOTUNIQ)."""

    code = _errno.ENOTUNIQ


class SlotsFull(NeuronDSError):
    """All 16 slots of the device are taken (ENOMEM)."""

    code = _errno.ENOMEM


class StillOwned(NeuronDSError):
    """A process still publishes on the device (EBUSY)."""

    code = _errno.EBUSY


class DeviceBusy(NeuronDSError):
    """As many processes as the driver lets in have the device open; monitors take places too (EBUSY)."""

    code = _errno.EBUSY


class NotSupported(NeuronDSError):
    """This driver cannot do that (EOPNOTSUPP)."""

    code = _errno.EOPNOTSUPP


class ProducerGone(NeuronDSError, ProcessLookupError):
    """The producer released its slab or died; the slab may belong to another by now (ESRCH)."""

    code = _errno.ESRCH


class AccessDenied(NeuronDSError, PermissionError):
    """The directory or node may not be opened by this user (EACCES)."""

    code = _errno.EACCES


class UnsafeDirectory(AccessDenied):
    """A directory that another user could have prepared or can change."""


class DirectoryGone(NeuronDSError):
    """The device's directory was deleted or replaced under us (ESTALE)."""

    code = _errno.ESTALE


class LayoutMismatch(NeuronDSError):
    """A device directory written by another version of the software driver, or a damaged one (EPROTO)."""

    code = _errno.EPROTO


class TableBusy(NeuronDSError, TimeoutError):
    """The table lock was not to be had in time; names the holder (ETIMEDOUT)."""

    code = _errno.ETIMEDOUT


class NoSpace(NeuronDSError):
    """The shared memory file system is full; names the size needed (ENOSPC)."""

    code = _errno.ENOSPC


class SystemFailure(NeuronDSError):
    """A system call failed in a way no other class names; ``errno`` is the call's."""


# --- From the C core -----------------------------------------------------------------------------------------------

# Reasons as csrc/python/binding.h numbers them.
_CORE_KINDS: dict[int, tuple[type[NeuronDSError], str]] = {
    1: (Closed, "this handle is closed; publish or attach again"),
    2: (ForkedChild, "this handle belongs to the parent process; publish or attach in the child"),
    3: (ReadOnly, "readers may not write; only the producer's own process can"),
    4: (BadIndex, "no such core, counter, slot or word"),
    5: (TooShort, "the mapping is smaller than a slab"),
    6: (ProducerGone, "the producer has released its slab or died; list the owners again"),
}


def from_core(reason: int, detail: str, label: tuple[int | None, int | None, int | None] | None) -> NeuronDSError:
    """The error for a reason of the C core. ``label`` is (device, pid, slot) as the mapping was given it."""
    device, pid, slot = label or (None, None, None)
    if reason < 0:
        text = f"{detail}: {os.strerror(-reason)}" if detail else os.strerror(-reason)
        return SystemFailure(text, device=device, pid=pid, slot=slot, code=-reason)
    kind, text = _CORE_KINDS[reason]
    return kind(f"{detail}; {text}" if detail else text, device=device, pid=pid, slot=slot)
