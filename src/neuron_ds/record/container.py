"""The file: messages into MCAP, and back out of a file that may be cut short, damaged or still growing.

Writing collects a second of messages into a compressed chunk, which a thread of its own hands to the disk. Reading goes
through the heads of the chunks, so that a file needs no end to be read. What is in a message is not its business.
"""

from __future__ import annotations

import errno
import io
import os
import queue
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, cast

from neuron_ds import __version__
from neuron_ds.errors import FormatError, NoSpace, NotSupported, SystemFailure
from neuron_ds.record import format as f

COMPRESSIONS = ("zstd", "lz4", "none")
MISSING = "mcap is not installed; pip install 'neuron-datastore[record]'"
#: Chunks that may wait for a slow disk before the recorder waits with them.
PATIENT_CHUNKS = 64
#: No chunk of ours is as large, whatever its head says.
MOST_BYTES = 1 << 30

_MAGIC = b"\x89MCAP0\r\n"
_HEAD = struct.Struct("<BQ")
#: Of a chunk: start and end time, size and CRC of what is in it, length of the name of its compression.
_CHUNK = struct.Struct("<QQQII")
_CHUNK_CODE, _DATA_END, _FOOTER, _LAST_CODE = 0x06, 0x0F, 0x02, 0x0F
_KINDS = tuple(f.SCHEMAS)


def need_mcap() -> None:
    """Raises NotSupported where the extra isn't installed."""
    try:
        import mcap  # noqa: F401  only whether it is there
    except ModuleNotFoundError:
        raise NotSupported(MISSING) from None


def _trouble(e: OSError, path: str) -> NoSpace | SystemFailure:
    full = e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full:
        return NoSpace("no room for more; what is whole stays readable: free space, or record elsewhere", path=path)
    return SystemFailure(f"can't be written: {e.strerror}; what is whole stays readable", path=path, code=e.errno)


# --- Writing ----------------------------------------------------------------------------------------------------------


class _Disk:
    """A file that is written by a thread: the caller never waits for a disk, unless that stays behind for long."""

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self._path = fd, path
        self._parts: list[bytes] = []
        self._at = 0
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.BoundedSemaphore(PATIENT_CHUNKS)
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="neuron-ds-disk", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> int:
        self._parts.append(data)
        self._at += len(data)
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        """Hand over what was written. Raises NoSpace or SystemFailure if that before didn't reach the disk."""
        if self._error:
            raise _trouble(self._error, self._path)
        if self._parts:
            self._room.acquire()
            self._queue.put(b"".join(self._parts))
            self._parts.clear()

    def close(self) -> None:
        """Wait until all of it is written."""
        self._queue.put(None)
        self._thread.join()
        os.close(self._fd)
        if self._error:
            raise _trouble(self._error, self._path)

    def _run(self) -> None:
        whole = 0  # so far the file has nothing that is cut
        while (data := self._queue.get()) is not None:
            try:
                view = memoryview(data)
                while view and not self._error:
                    view = view[os.write(self._fd, view) :]
                whole += len(data)
            except OSError as e:
                self._error = e
                with suppress(OSError):  # no regular file, or nothing works any more
                    os.ftruncate(self._fd, whole)
            finally:
                self._room.release()


class FileSink:
    """A new recording. ``put`` messages in the order of their times, ``flush`` every second, ``close`` it."""

    def __init__(self, path: str, *, compression: str = "zstd", force: bool = False) -> None:
        """Raises SystemFailure where it exists (unless ``force``) or can't be made, NotSupported without the extra."""
        need_mcap()
        from mcap.writer import CompressionType, IndexType, Writer

        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
        try:
            fd = os.open(path, flags, 0o600)  # slabs are for their owner only, and so is what was in them
        except FileExistsError:
            raise SystemFailure("exists already; --force replaces it", path=path, code=errno.EEXIST) from None
        except OSError as e:
            raise SystemFailure(f"can't be made: {e.strerror}", path=path, code=e.errno) from None
        self.path = path
        self._disk = _Disk(fd, path)
        kinds = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}
        self._writer: Any = Writer(
            cast(IO[bytes], self._disk),
            chunk_size=MOST_BYTES // 4,
            compression=kinds[compression],
            index_types=IndexType.CHUNK,
        )
        self._writer.start(f.PROFILE, f"neuron-datastore {__version__}")
        self._channels = {}
        for kind in _KINDS:  # always in this order, so that a reader of a damaged file knows their numbers
            encoding = f.JSON_ENCODING if kind == f.WORLD else f.BINARY_ENCODING
            schema_encoding = "jsonschema" if kind == f.WORLD else "text"
            schema = self._writer.register_schema(f.schema_name(kind), schema_encoding, f.SCHEMAS[kind].encode())
            self._channels[kind] = self._writer.register_channel(f.topic(kind), encoding, schema)
        self._sequence = 0

    @property
    def size_bytes(self) -> int:
        """How long the file is, or will be once the disk has it."""
        return self._disk.tell()

    def put(self, kind: str, log_ns: int, monotonic_ns: int, data: bytes) -> None:
        self._writer.add_message(self._channels[kind], log_ns, data, monotonic_ns, self._sequence)
        self._sequence = self._sequence + 1 & 0xFFFF_FFFF

    def flush(self) -> None:
        """End the chunk. Raises NoSpace or SystemFailure."""
        self._writer.flush()

    def abandon(self) -> None:
        """End without an index, after an error: what the disk has is whole. Raises nothing."""
        with suppress(OSError):
            self._disk.close()

    def close(self) -> None:
        """Write the index and wait for the disk. Raises NoSpace or SystemFailure."""
        try:
            self._writer.finish()
            self._disk.flush()
        except BaseException:
            self.abandon()
            raise
        self._disk.close()


# --- Reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk: where it is in the file and the times of its first and last message."""

    offset: int
    size: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message. sequence: rises by one from message to message, modulo 2^32."""

    kind: str
    sequence: int
    log_ns: int
    data: bytes


class File:
    """A recording's chunks. ``damage`` says what is wrong with it, and grows when chunks turn out not to be whole."""

    def __init__(self, path: str) -> None:
        """Raises FormatError where it is no MCAP file or nothing in it is whole, OSError where it can't be opened."""
        need_mcap()
        self.path = path
        self.finished = False
        self._hurt: list[str] = []
        self._end = ""  # why the file ends where it does
        self._at, self._last_ns = len(_MAGIC), 0  # what stands before was looked at
        self._channels = dict(enumerate(_KINDS, 1))
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.size = os.fstat(self._fd).st_size
            magic = self._read(0, len(_MAGIC))
            if magic != _MAGIC:
                raise FormatError("this is no recording: it doesn't begin as an MCAP file does", path=path)
            self.spans = list(self._scan())
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise
        self._starts = [span.start_ns for span in self.spans]

    def _read(self, offset: int, size: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def _scan(self) -> Iterator[Span]:
        """The chunks by their heads. What makes no sense is told and skipped up to the next head that does."""
        self._end = ""
        while (at := self._at) < self.size:
            head = self._read(at, _HEAD.size + _CHUNK.size)
            code, length = _HEAD.unpack_from(head) if len(head) >= _HEAD.size else (0, 0)
            size = _HEAD.size + length
            if not 0 < code <= _LAST_CODE or at + size > self.size or (code == _CHUNK_CODE and not self._fits(at)):
                found = self._next_chunk(at + 1)
                if found is None:
                    cut = f"cut short or damaged at byte {at} of {self.size}"
                    self._end = f"{cut}: what stands before it is read"
                    return
                self.hurt(f"damaged from byte {at} to {found}: that is left out")
                self._at = found
                continue
            if code in (_DATA_END, _FOOTER):
                self.finished = True
                return
            if code == _CHUNK_CODE:
                start_ns, end_ns = _CHUNK.unpack_from(head, _HEAD.size)[:2]
                if not self._last_ns <= start_ns <= end_ns:
                    self.hurt(f"the chunk at byte {at} has times that can't be")
                    start_ns = end_ns = self._last_ns
                self._last_ns = end_ns
                yield Span(at, size, start_ns, end_ns)
            self._at += size
        self._end = "was not finished: its recorder was killed, or still writes"

    @property
    def damage(self) -> tuple[str, ...]:
        """What is not whole, in words."""
        return (*self._hurt, self._end) if self._end else tuple(self._hurt)

    def hurt(self, text: str) -> None:
        """Something turned out not to be whole."""
        if text not in self._hurt:
            self._hurt.append(text)

    def refresh(self) -> bool:
        """Whether the file has grown by chunks since."""
        if self.finished:
            return False
        self.size = os.fstat(self._fd).st_size
        found = list(self._scan())
        self.spans += found
        self._starts += [span.start_ns for span in found]
        return bool(found)

    def _fits(self, at: int) -> bool:
        """Whether the head of a chunk agrees with itself."""
        head = self._read(at, _HEAD.size + _CHUNK.size + 16)
        if len(head) < _HEAD.size + _CHUNK.size + 8:
            return False
        (_, length), (*_, name) = _HEAD.unpack_from(head), _CHUNK.unpack_from(head, _HEAD.size)
        where = _HEAD.size + _CHUNK.size + name
        if name > 8 or len(head) < where + 8:
            return False
        return bool(length == _CHUNK.size + name + 8 + struct.unpack_from("<Q", head, where)[0])

    def _next_chunk(self, at: int) -> int | None:
        """Where the next chunk begins, by the look of its head."""
        back = _HEAD.size + _CHUNK.size - 4  # what is searched for are length and name of the compression
        names = [struct.pack("<I", len(name)) + name for name in (b"zstd", b"lz4")]
        step = 1 << 20
        while at < self.size:
            window = self._read(at, step + back + 16)
            for where in sorted(w for name in names for w in _all(window, name)):
                start = at + where - back
                if where >= back and window[where - back] == _CHUNK_CODE and self._fits(start):
                    (_, length) = _HEAD.unpack(self._read(start, _HEAD.size))
                    if start + _HEAD.size + length <= self.size:
                        return start
            at += step
        return None

    def find(self, log_ns: int) -> int:
        """The last chunk that begins at this time or before; 0 where none does."""
        return max(0, bisect_right(self._starts, log_ns) - 1)

    def messages(self, index: int) -> list[Message]:
        """What is in a chunk; of one that isn't whole nothing, and ``damage`` says so. Raises FormatError for what is
        whole and of another version."""
        from mcap.data_stream import ReadDataStream
        from mcap.records import Channel, Chunk, Schema
        from mcap.records import Message as Record
        from mcap.stream_reader import breakup_chunk

        span = self.spans[index]
        try:
            data = self._read(span.offset + _HEAD.size, span.size - _HEAD.size)
            if _CHUNK.unpack_from(data)[2] > MOST_BYTES:
                raise ValueError("far too large")
            records: list[Any] = breakup_chunk(Chunk.read(ReadDataStream(io.BytesIO(data))), validate_crc=True)
        except Exception as e:  # whatever its libraries make of damaged bytes
            self.hurt(f"the chunk at byte {span.offset} is damaged ({type(e).__name__}): it is left out")
            return []
        schemas = {r.id: r.name for r in records if isinstance(r, Schema)}
        for record in records:
            if isinstance(record, Channel):
                try:
                    self._channels[record.id] = f.kind_of(schemas.get(record.schema_id, ""))
                except FormatError as e:
                    raise FormatError(e.message, path=self.path) from None
        return [
            Message(self._channels[r.channel_id], r.sequence, r.log_time, r.data)
            for r in records
            if isinstance(r, Record) and r.channel_id in self._channels
        ]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)
