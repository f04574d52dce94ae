"""The file: messages into MCAP, and back out of a file that may be cut short, damaged or still growing.

Writing collects a second of messages into a compressed chunk, which a thread of its own hands to the disk. Reading goes
through the heads of the chunks, so that a file needs no end to be read. What is in a message is not its business.
"""

from __future__ import annotations

import errno
import io
import os
import queue
import stat
import struct
import threading
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from typing import IO, Any, cast

from neuron_ds import __version__
from neuron_ds.errors import FormatError, NoSpace, NotSupported, SystemFailure
from neuron_ds.record import format as f

COMPRESSIONS = ("zstd", "lz4", "none")
MISSING = "mcap is not installed; pip install 'neuron-datastore[record]'"
#: Chunks that may wait for a slow disk before the recorder waits with them.
PATIENT_CHUNKS = 64
#: A chunk ends early where a second of messages is more than this.
CHUNK_BYTES = 64 << 20
#: No chunk of ours is as large, whatever its head says, nor has as many messages; one that is may be made to harm.
MOST_BYTES, MOST_MESSAGES = 256 << 20, 1 << 16
#: So many kinds of damage are told one by one.
MOST_HURT = 100

_MAGIC = b"\x89MCAP0\r\n"
_HEAD = struct.Struct("<BQ")
#: Of a chunk: start and end time, size and CRC of what is in it, length of the name of its compression.
_CHUNK = struct.Struct("<QQQII")
#: Of a message: channel, sequence, log time and publish time.
_MESSAGE = struct.Struct("<HIQQ")
_CHUNK_CODE, _DATA_END, _FOOTER, _LAST_CODE = 0x06, 0x0F, 0x02, 0x0F
_SCHEMA_CODE, _CHANNEL_CODE, _MESSAGE_CODE = 0x03, 0x04, 0x05
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


def _made(path: str, force: bool) -> int:
    """A new file, for its owner only, as slabs are: also where there was one that others may read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | (0 if force else os.O_EXCL)
    fd = os.open(path, flags, 0o600)  # a pipe that nobody reads from is an error, and not waited for
    try:
        os.set_blocking(fd, True)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


class FileSink:
    """A new recording. ``put`` messages in the order of their times, ``flush`` every second, ``close`` it."""

    def __init__(self, path: str, *, compression: str = "zstd", force: bool = False) -> None:
        """Raises SystemFailure where it exists (unless ``force``) or can't be made, NotSupported without the extra."""
        need_mcap()
        from mcap.writer import CompressionType, IndexType, Writer

        try:
            fd = _made(path, force)
        except FileExistsError:
            raise SystemFailure("exists already; --force replaces it", path=path, code=errno.EEXIST) from None
        except OSError as e:
            raise SystemFailure(f"can't be made: {e.strerror}", path=path, code=e.errno) from None
        self.path = path
        self._disk = _Disk(fd, path)
        kinds = {"zstd": CompressionType.ZSTD, "lz4": CompressionType.LZ4, "none": CompressionType.NONE}
        self._writer: Any = Writer(
            cast(IO[bytes], self._disk),
            chunk_size=CHUNK_BYTES,
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
        self._hurt: dict[str, None] = {}
        self._end = ""  # why the file ends where it does
        self._at, self._last_ns = len(_MAGIC), 0  # what stands before was looked at
        self._channels = dict(enumerate(_KINDS, 1))
        # a pipe that nobody writes to would be waited for
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(self._fd)
            if stat.S_ISDIR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
                raise FormatError("is no file that could be a recording: a directory or a pipe", path=path)
            self.size = status.st_size
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
        more = ["and more of this kind"] if len(self._hurt) >= MOST_HURT else []
        return (*self._hurt, *more, self._end) if self._end else (*self._hurt, *more)

    def hurt(self, text: str) -> None:
        """Something turned out not to be whole."""
        if len(self._hurt) < MOST_HURT:
            self._hurt[text] = None

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
        step = 1 << 12
        while at < self.size:
            window = self._read(at, step + back + 16)
            for where in merge(*(_all(window, name) for name in names)):
                start = at + where - back
                if where >= back and window[where - back] == _CHUNK_CODE and self._fits(start):
                    (_, length) = _HEAD.unpack(self._read(start, _HEAD.size))
                    if start + _HEAD.size + length <= self.size:
                        return start
            at, step = at + step, min(step * 2, 1 << 20)
        return None

    def find(self, log_ns: int) -> int:
        """The last chunk that begins at this time or before; 0 where none does."""
        return max(0, bisect_right(self._starts, log_ns) - 1)

    def messages(self, index: int) -> list[Message]:
        """What is in a chunk; of one that isn't whole nothing, and ``damage`` says so. Raises FormatError for what is
        whole and of another version."""
        span = self.spans[index]
        try:
            records = _records(_unpacked(self._read(span.offset + _HEAD.size, span.size - _HEAD.size)))
            schemas, channels = _named(records)
        except Exception as e:  # whatever its libraries make of damaged bytes
            self.hurt(f"the chunk at byte {span.offset} is damaged ({type(e).__name__}): it is left out")
            return []
        for number, schema in channels:
            try:
                self._channels[number] = f.kind_of(schemas.get(schema, ""))
            except FormatError as e:
                raise FormatError(e.message, path=self.path) from None
        found = []
        for code, data in records:
            if code == _MESSAGE_CODE:
                channel, sequence, log_ns, _ = _MESSAGE.unpack_from(data)
                if channel in self._channels:
                    found.append(Message(self._channels[channel], sequence, log_ns, data[_MESSAGE.size :]))
        return found

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _unpacked(chunk: bytes) -> bytes:
    """What is in a chunk, never more than its head says. Raises ValueError, or what its libraries raise."""
    _, _, size, crc, name_size = _CHUNK.unpack_from(chunk)
    at = _CHUNK.size + name_size
    name, packed = chunk[_CHUNK.size : at], chunk[at + 8 :]
    if size > MOST_BYTES:
        raise ValueError("far too large")
    if name == b"zstd":
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed)) as reader:
            data = reader.read(size + 1)
    elif name == b"lz4":
        import lz4.frame  # type: ignore[import-untyped]  # comes with mcap

        data = lz4.frame.LZ4FrameDecompressor().decompress(packed, max_length=size + 1)
    elif not name:
        data = packed
    else:
        raise ValueError("an unknown compression")
    if len(data) != size or (crc and zlib.crc32(data) != crc):
        raise ValueError("not what was written")
    return data


def _records(data: bytes) -> list[tuple[int, bytes]]:
    """The code and bytes of each record. Raises ValueError, struct.error."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data):
        code, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if not code or at + length > len(data) or (code == _MESSAGE_CODE and length < _MESSAGE.size):
            raise ValueError("a record makes no sense")
        if len(found) >= MOST_MESSAGES:
            raise ValueError("far too many messages")
        found.append((code, data[at : at + length]))
        at += length
    return found


def _named(records: list[tuple[int, bytes]]) -> tuple[dict[int, str], list[tuple[int, int]]]:
    """(names of schemas by number, (number, schema) of each channel). Raises what mcap makes of nonsense."""
    from mcap.data_stream import ReadDataStream
    from mcap.records import Channel, Schema

    schemas, channels = {}, []
    for code, data in records:
        if code == _SCHEMA_CODE:
            schema = Schema.read(ReadDataStream(io.BytesIO(data)))
            schemas[schema.id] = schema.name
        elif code == _CHANNEL_CODE:
            channel = Channel.read(ReadDataStream(io.BytesIO(data)))
            channels.append((channel.id, channel.schema_id))
    return schemas, channels


def _all(data: bytes, wanted: bytes) -> Iterator[int]:
    at = data.find(wanted)
    while at >= 0:
        yield at
        at = data.find(wanted, at + 1)
