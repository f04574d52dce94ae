"""The file that an export is written to: it is there as a whole under its name, or not at all.

It is written under another name beside the place where it belongs and renamed at the end. What is no regular file (a
pipe, a device) is written to as it is. Nothing is known here of what is written.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, cast

from neuron_ds.errors import NoSpace, SystemFailure

STDOUT = "standard output"
#: Text of counters shrinks to a tenth already at this, ten times as fast as at the highest.
GZIP_LEVEL = 4


@contextmanager
def writing(path: str, *, force: bool = False, compress: bool = False) -> Iterator[IO[bytes]]:
    """A binary file to write to. An error or an interrupt inside leaves nothing of it behind.

    Raises SystemFailure where it exists (unless ``force``) or can't be written, NoSpace where the disk is full.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = None
    if mode is not None and stat.S_ISDIR(mode):
        raise SystemFailure("is a directory; name a file", path=path, code=errno.EISDIR)
    in_place = mode is not None and not stat.S_ISREG(mode)
    if mode is not None and not in_place and not force:
        raise SystemFailure("exists already; --force replaces it", path=path, code=errno.EEXIST)
    target = os.path.realpath(path)  # a link stays a link
    folder, name = os.path.split(target)
    temporary = target if in_place else os.path.join(folder, f".{name[:200]}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CLOEXEC | (0 if in_place else os.O_CREAT | os.O_EXCL)
    try:
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as e:
        raise _trouble(e, path) from None
    try:
        with os.fdopen(descriptor, "wb", buffering=1 << 18) as file, _compressed(file, compress) as out:
            yield out
        if not in_place:
            os.replace(temporary, target)
    except BaseException as e:
        if not in_place:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(e, OSError) and (e.errno in _FULL or getattr(e, "filename", None) == temporary):
            raise _trouble(e, path) from None
        raise


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def _compressed(file: IO[bytes], compress: bool) -> Iterator[IO[bytes]]:
    if not compress:
        yield file
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=file, mtime=0) as packed:
        yield cast(IO[bytes], packed)


def _trouble(e: OSError, path: str) -> NoSpace | SystemFailure:
    if e.errno in _FULL:
        return NoSpace("no room for it, and nothing of it was kept: free space, or write elsewhere", path=path)
    return SystemFailure(f"can't be written: {e.strerror or e}", path=path, code=e.errno)
