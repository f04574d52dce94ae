"""The directories of the software driver: which to trust, how a device is made, what lies where in it.

A device is a folder ``neuronN`` with the files ``table``, ``totals``, ``slabs`` and ``owners``. It is built under a
temporary name and renamed, so that it exists whole or not at all. This module knows paths, modes and sizes; the
rules of the table and the meaning of a lock are not its business.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Sequence

from neuron_ds import _core
from neuron_ds.driver import table as t
from neuron_ds.driver.base import DeviceProperties
from neuron_ds.errors import (
    AccessDenied,
    BadIndex,
    BadValue,
    LayoutMismatch,
    NeuronDSError,
    NoDevice,
    NoSpace,
    SystemFailure,
    UnsafeDirectory,
)
from neuron_ds.layout import MAX_CORES, MAX_DEVICES, SLAB_SIZE, SLOTS_PER_DEVICE

TABLE, TOTALS, SLABS, OWNERS = "table", "totals", "slabs", "owners"
TABLE_SIZE = t.TABLE_WORDS * 8
#: One copy of the totals; there are two. csrc/nds_core.h says what is where in it.
TOTALS_WORDS = 2048
FILE_SIZES = {TABLE: TABLE_SIZE, TOTALS: 2 * TOTALS_WORDS * 8, SLABS: SLOTS_PER_DEVICE * SLAB_SIZE, OWNERS: 0}
DEVICE_BYTES = sum(FILE_SIZES.values())

GIB = 1 << 30
#: type: (number in the table, physical cores, memory in bytes, logical configuration)
PRESETS = {
    "trn1": (1, 2, 32 * GIB, 1),
    "inf2": (2, 2, 32 * GIB, 1),
    "trn2": (3, 8, 96 * GIB, 2),
}
DEFAULT_TYPE = "trn2"
_TYPE_NAMES = {number: name for name, (number, *_) in PRESETS.items()}

_DEVICE_NAME = re.compile(r"neuron(0|[1-9][0-9]?)\Z")
_LEFTOVER = ".new-"
_LEFTOVER_S = 60.0


def default_root() -> str:
    """This user's own directory."""
    return f"/dev/shm/neuron-ds-{os.geteuid()}"


def roots(environ: dict[str, str] | os._Environ[str] = os.environ) -> list[tuple[str, bool]]:
    """(path, told) of the directories to look in, the producer's own first.

    ``told`` directories were named by NEURON_DS_DIR (colon-separated) and may belong to anybody; without it the
    user's own and root's are looked in.
    """
    # Absolute, and without a slash at the end: that would lead through a symbolic link in spite of O_NOFOLLOW.
    named = [os.path.abspath(p) for p in environ.get("NEURON_DS_DIR", "").split(":") if p]
    if named:
        return [(p, True) for p in named]
    own, roots_own = default_root(), "/dev/shm/neuron-ds-0"
    return [(own, False)] if own == roots_own else [(own, False), (roots_own, False)]


def open_root(path: str, *, produce: bool, told: bool) -> int:
    """A descriptor of a directory that may be trusted.

    Raises FileNotFoundError where it does not exist, UnsafeDirectory (EACCES) for a symlink, a directory of somebody
    else or one that others can write, AccessDenied where it may not be read.
    """
    fd = _open_dir(path)
    try:
        st = os.fstat(fd)
        owners = {os.geteuid()} if produce else {os.geteuid(), 0}
        if st.st_uid not in owners and (produce or not told):
            raise UnsafeDirectory(
                f"belongs to uid {st.st_uid}, not to you (uid {os.geteuid()}); "
                + ("publish in a directory of your own" if produce else "name it in NEURON_DS_DIR if you trust it"),
                path=path,
            )
        if st.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeDirectory(
                f"mode {stat.S_IMODE(st.st_mode):o} lets group or others write; chmod go-w it first", path=path
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


_READER_ADVICE = "run as its owner, or have its producers give you group access with NEURON_DS_GROUP"


def _open_dir(path: str, dir_fd: int | None = None, *, shown: str = "", device: int | None = None) -> int:
    """A descriptor of a directory; ``shown`` is what errors call it."""
    shown = shown or path
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnsafeDirectory(
                "is a symbolic link or no directory; name the real directory", device=device, path=shown
            ) from None
        if e.errno in (errno.EACCES, errno.EPERM):
            raise AccessDenied(f"may not be read by you; {_READER_ADVICE}", device=device, path=shown) from None
        if e.errno == errno.ENOENT:
            raise
        raise _system(e, shown, "opening the directory", device) from None


def make_root(path: str) -> None:
    """Make the user's own directory, mode 0700, or 0750 for the group of NEURON_DS_GROUP."""
    group = reader_group()
    try:
        os.mkdir(path, 0o700 if group is None else 0o750)
    except FileExistsError:
        return
    except OSError as e:
        raise _system(e, path, "making the directory") from None
    if group is not None:
        fd = _open_dir(path)  # once, not by its name each time: others may be able to rename it in its parent
        try:
            os.fchown(fd, -1, group)
            os.fchmod(fd, 0o750)
        except OSError as e:
            raise _system(e, path, "giving the directory to the group of NEURON_DS_GROUP") from None
        finally:
            os.close(fd)


def reader_group() -> int | None:
    """The gid that may read what this process makes (NEURON_DS_GROUP: name or number), or None."""
    name = os.environ.get("NEURON_DS_GROUP")
    if not name:
        return None
    if name.isdecimal():
        most = 0xFFFF_FFFE  # the kernel's gid_t; the number above means "leave the group as it is"
        if len(name) > 10 or int(name) > most:
            raise BadValue(f"NEURON_DS_GROUP is {name}; the number of a group is 0 to {most}")
        return int(name)
    import grp

    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise BadValue(f"NEURON_DS_GROUP names no group: {name!r}") from None


def device_numbers(root_fd: int) -> list[int]:
    """The devices in a root, ascending."""
    found = (_DEVICE_NAME.match(name) for name in os.listdir(root_fd))
    return sorted(n for m in found if m and (n := int(m.group(1))) < MAX_DEVICES)


def device_name(device: int) -> str:
    """The folder of a device. Raises BadIndex (EINVAL) for a number outside 0-63."""
    if not 0 <= device < MAX_DEVICES:
        raise BadIndex(f"devices are numbered 0 to {MAX_DEVICES - 1}", device=device)
    return f"neuron{device}"


def open_device(root: str, root_fd: int, device: int) -> int:
    """A descriptor of a device's folder. Raises NoDevice, or UnsafeDirectory where others could change it."""
    path = f"{root}/{device_name(device)}"
    try:
        fd = _open_dir(device_name(device), root_fd, shown=path, device=device)
    except FileNotFoundError:
        raise NoDevice("does not exist; simulate or publish makes it", device=device, path=root) from None
    if os.fstat(fd).st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise UnsafeDirectory("group or others can write it; chmod go-w it first", device=device, path=path)
    return fd


def open_file(device_fd: int, name: str, *, write: bool) -> int:
    """A descriptor of one of a device's files, never through a symlink. Raises OSError; see ``unusable``."""
    # Not blocking: where somebody put a FIFO in its place, opening it must not wait.
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    return os.open(name, flags, dir_fd=device_fd)


def unusable(e: OSError, device: int, path: str, *, produce: bool) -> NeuronDSError:
    """What to raise when the folder of a device is there but one of its files can't be used."""
    if isinstance(e, NeuronDSError) and not isinstance(e, SystemFailure):
        return e
    if e.errno == errno.ENOENT:
        return LayoutMismatch("the directory lacks a file; remove it", device=device, path=path)
    if e.errno == errno.ELOOP:
        return UnsafeDirectory("one of its files is a symbolic link; remove the directory", device=device, path=path)
    if e.errno in (errno.EACCES, errno.EPERM) and not produce:
        return AccessDenied(f"its files may not be read by you; {_READER_ADVICE}", device=device, path=path)
    return _system(e, path, "opening the device", device)


# --- Making a device ------------------------------------------------------------------------------------------------


def make_device(
    root: str,
    root_fd: int,
    device: int,
    *,
    type: str = DEFAULT_TYPE,
    cores: int | None = None,
    memory_bytes: int | None = None,
    logical_config: int | None = None,
    name: str | None = None,
) -> bool:
    """Probe a device: make it whole. False if it was there already, or another process was faster.

    Raises BadValue for properties no device has, NoSpace (ENOSPC) naming the bytes needed when the file system is full.
    """
    words = _property_words(device, type, cores, memory_bytes, logical_config, name)
    final = device_name(device)
    try:
        os.stat(final, dir_fd=root_fd, follow_symlinks=False)
        return False
    except FileNotFoundError:
        pass
    _remove_leftovers(root_fd)
    temporary = f"{_LEFTOVER}{final}-{os.getpid()}-{os.urandom(4).hex()}"
    group = reader_group()
    try:
        os.mkdir(temporary, 0o700, dir_fd=root_fd)
        fd = _open_dir(temporary, root_fd)
        try:
            _make_files(fd, words, group)
            if group is not None:
                os.chown(fd, -1, group)
                os.chmod(fd, 0o750)
        finally:
            os.close(fd)
        os.rename(temporary, final, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    except OSError as e:
        _remove_tree(root_fd, temporary)
        if e.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        if isinstance(e, NeuronDSError):
            raise
        raise _system(e, f"{root}/{final}", "making the device", device) from None
    return True


def _property_words(
    device: int, type: str, cores: int | None, memory: int | None, logical: int | None, name: str | None
) -> list[int]:
    if type not in PRESETS:
        raise BadValue(f"device type {type!r} is unknown; it is one of {', '.join(PRESETS)}", device=device)
    number, preset_cores, preset_memory, preset_logical = PRESETS[type]
    cores = preset_cores if cores is None else cores
    memory = preset_memory if memory is None else memory
    logical = min(preset_logical, cores) if logical is None else logical
    try:
        label = (name or f"{type}-{device}").encode("utf-8", "surrogateescape")
    except (UnicodeEncodeError, AttributeError):
        raise BadValue(f"the name is {name!r}; it is UTF-8 text", device=device) from None
    if not 1 <= cores <= MAX_CORES:
        raise BadValue(f"a device has 1 to {MAX_CORES} physical cores, not {cores}", device=device)
    if logical not in (1, 2) or cores % logical:
        raise BadValue(
            f"the logical configuration is 1 or 2 physical cores per logical core and divides the {cores} cores, "
            f"not {logical}",
            device=device,
        )
    if not 0 <= memory < 1 << 63:
        raise BadValue(f"the memory of a device is not {memory} bytes", device=device)
    if len(label) > t.NAME_WORDS * 8:
        raise BadValue(f"the name is {len(label)} bytes long; it holds {t.NAME_WORDS * 8}", device=device)
    words = [0] * t.TABLE_WORDS
    words[t.W_MAGIC], words[t.W_VERSION], words[t.W_DEVICE] = t.MAGIC, t.LAYOUT_VERSION, device
    words[t.W_TYPE], words[t.W_CORES], words[t.W_MEMORY], words[t.W_LOGICAL] = number, cores, memory, logical
    padded = label.ljust(t.NAME_WORDS * 8, b"\0")
    for i in range(t.NAME_WORDS):
        words[t.W_NAME + i] = int.from_bytes(padded[i * 8 : i * 8 + 8], "little")
    words[t.W_COMMIT] = t.Commit(0, 0, None).pack()
    return words


def _make_files(device_fd: int, words: Sequence[int], group: int | None) -> None:
    for name, size in FILE_SIZES.items():
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=device_fd)
        try:
            if size:
                os.posix_fallocate(fd, 0, size)
            if name == TABLE:
                os.pwrite(fd, b"".join(w.to_bytes(8, "little") for w in words), 0)
            if group is not None:
                os.fchown(fd, -1, group)
                os.fchmod(fd, 0o640)
        finally:
            os.close(fd)


def _remove_leftovers(root_fd: int) -> None:
    """Remove what a process killed while probing left, once it is old enough to be nobody's work in progress."""
    for name in os.listdir(root_fd):
        if name.startswith(_LEFTOVER):
            try:
                if time.time() - os.stat(name, dir_fd=root_fd, follow_symlinks=False).st_mtime > _LEFTOVER_S:
                    # Another name first: were its maker only stopped, it could still make half of this a device.
                    doomed = f"{_LEFTOVER}{os.urandom(8).hex()}"
                    os.rename(name, doomed, src_dir_fd=root_fd, dst_dir_fd=root_fd)
                    _remove_tree(root_fd, doomed)
            except FileNotFoundError:
                continue


def _remove_tree(root_fd: int, name: str) -> None:
    try:
        fd = _open_dir(name, root_fd)
    except OSError:
        return
    try:
        for file in os.listdir(fd):
            os.unlink(file, dir_fd=fd)
        os.rmdir(name, dir_fd=root_fd)
    except OSError:
        pass  # somebody else is removing it too
    finally:
        os.close(fd)


def _system(e: OSError, path: str, doing: str, device: int | None = None) -> NeuronDSError:
    if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return NoSpace(
            f"{doing} needs {DEVICE_BYTES:,} bytes and the file system is full; "
            "make room, give the container a larger /dev/shm, or set NEURON_DS_DIR",
            device=device,
            path=path,
        )
    if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(
            f"{doing}: {os.strerror(e.errno)}; "
            "ask its owner for group access, or set NEURON_DS_DIR to a directory of your own",
            device=device,
            path=path,
        )
    return SystemFailure(f"{doing}: {os.strerror(e.errno or 0)}", device=device, path=path, code=e.errno)


# --- Reading a device's properties ----------------------------------------------------------------------------------


def read_properties(words: _core.Mapping, device: int, path: str) -> DeviceProperties:
    """The properties in a mapped table. Raises LayoutMismatch (EPROTO), both versions named."""
    head = words.load_many(0, t.W_NAME + t.NAME_WORDS)
    if head[t.W_MAGIC] != t.MAGIC or head[t.W_VERSION] != t.LAYOUT_VERSION:
        found = f"version {head[t.W_VERSION]}" if head[t.W_MAGIC] == t.MAGIC else "no slot table at all"
        raise LayoutMismatch(
            f"the table is {found}, this driver knows version {t.LAYOUT_VERSION}; "
            "end the processes of the other version and remove the directory",
            device=device,
            path=path,
        )
    if not 1 <= head[t.W_CORES] <= MAX_CORES or head[t.W_LOGICAL] not in (1, 2):
        raise LayoutMismatch(
            f"the table is damaged: {head[t.W_CORES]} cores, {head[t.W_LOGICAL]} to a logical one; "
            "remove the directory",
            device=device,
            path=path,
        )
    label = b"".join(w.to_bytes(8, "little") for w in head[t.W_NAME : t.W_NAME + t.NAME_WORDS])
    return DeviceProperties(
        device=device,
        type=_TYPE_NAMES.get(head[t.W_TYPE]),
        name=label.rstrip(b"\0").decode("utf-8", "surrogateescape"),
        cores=head[t.W_CORES],
        memory_bytes=head[t.W_MEMORY],
        logical_config=head[t.W_LOGICAL],
        path=path,
    )
