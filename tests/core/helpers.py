"""What the tests of the C core share: slabs to map, children to run code in, records to publish.

Knows the layout and the core; knows no driver and no Snapshot.
"""

import os
import pickle
import signal
import struct
from collections.abc import Callable
from typing import Any

from neuron_ds import _core, layout

PROCESS_INFO = layout.MAX_MODELS
PROCESS_INFO_EXT = layout.MAX_MODELS + 1
RECORDS = layout.MAX_MODELS + 2
ABSENT, UNPUBLISHED, EXACT, RETRIED, STALE, TORN = range(6)

#: One record of each kind: the number, its object type and its size.
KINDS = [
    (5, layout.OBJECT_MODEL_NODE, layout.MODEL_SIZE),
    (PROCESS_INFO, layout.OBJECT_PROCESS_INFO, layout.PROCESS_INFO_SIZE),
    (PROCESS_INFO_EXT, layout.OBJECT_PROCESS_INFO_EXT, layout.PROCESS_INFO_EXT_SIZE),
]
KIND_NAMES = ["model", "process_info", "process_info_ext"]
PRIME, BASIS, M32 = 0x01000193, 0x811C9DC5, 0xFFFFFFFF


def offset_of(record: int) -> int:
    """Byte offset of a record by its number."""
    if record < layout.MAX_MODELS:
        return layout.model_offset(record)
    return (layout.PROCESS_INFO if record == PROCESS_INFO else layout.PROCESS_INFO_EXT).offset


def size_of(record: int) -> int:
    return KINDS[max(0, record - layout.MAX_MODELS + 1)][2]


def fnv1a(data: bytes, state: int = BASIS) -> int:
    """FNV-1a-32, written down a second time."""
    for byte in data:
        state = (state ^ byte) * PRIME & M32
    return state


def with_zero_hash(record: bytes, at: int, alphabet: range = range(256)) -> bytes:
    """The record with five bytes from `at` chosen so that its hash comes out 0: meet in the middle.

    A step of the hash can be undone, so the state before the last bytes is known; two bytes are tried forwards
    from the front and three backwards from the back until the states meet.
    """
    inverse = pow(PRIME, -1, 1 << 32)
    front = fnv1a(bytes(4) + record[4:at])
    forwards = {((front ^ a) * PRIME & M32 ^ b) * PRIME & M32: bytes((a, b)) for a in alphabet for b in alphabet}
    back = 0
    for byte in reversed(record[at + 5 :]):
        back = back * inverse & M32 ^ byte
    for e in alphabet:
        one = back * inverse & M32 ^ e
        for d in alphabet:
            two = one * inverse & M32 ^ d
            for c in alphabet:
                found = forwards.get(two * inverse & M32 ^ c)
                if found is not None:
                    return record[:at] + found + bytes((c, d, e)) + record[at + 5 :]
    raise AssertionError("no such bytes")


class Slab:
    """The memory of one slab, to be mapped as often as a test likes. It outlives nobody: close it."""

    def __init__(self, data: bytes = b"", size: int = layout.REQUIRED_SIZE) -> None:
        self.fd = os.memfd_create("slab", os.MFD_CLOEXEC)
        self.size = size
        os.ftruncate(self.fd, size)
        self.write(0, data)

    def write(self, offset: int, data: bytes) -> None:
        """Bytes put there behind the core's back, as no producer would."""
        os.pwrite(self.fd, data, offset)

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        return os.pread(self.fd, self.size if size is None else size, offset)

    def producer(self, label: tuple[int | None, int | None, int | None] | None = (3, 4242, 7)) -> _core.Mapping:
        return _core.map(self.fd, 0, self.size, True, label)

    def reader(self, label: tuple[int | None, int | None, int | None] | None = (3, 4242, 7)) -> _core.Mapping:
        return _core.map(self.fd, 0, self.size, False, label)

    def tear(self, record: int) -> None:
        """Change the last byte of a record, so that its hash no longer holds."""
        at = offset_of(record) + size_of(record) - 1
        self.write(at, bytes([self.read(at, 1)[0] ^ 0x40]))

    def close(self) -> None:
        os.close(self.fd)


class Child:
    """A forked process that runs `work` and hands its result back; a crash or an exception fails the test."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not the test's own time limit
            signal.alarm(60)  # whatever happens, it ends
            try:
                outcome = pickle.dumps((True, work()))
            except BaseException as e:
                outcome = pickle.dumps((False, repr(e)))
            try:
                with os.fdopen(write, "wb") as f:
                    f.write(outcome)
            finally:
                os._exit(0)
        os.close(write)

    def kill(self) -> int:
        """Kill it, and give the exit code it ended with."""
        os.kill(self.pid, signal.SIGKILL)
        os.close(self._read)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def result(self) -> Any:
        with os.fdopen(self._read, "rb") as f:
            outcome = f.read()
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, f"the child ended with {os.waitstatus_to_exitcode(status)}"
        ok, value = pickle.loads(outcome)
        assert ok, f"the child raised {value}"
        return value


def in_child(work: Callable[[], Any]) -> Any:
    """The result of `work` as a forked child has it."""
    return Child(work).result()


def error_of(call: Callable[[], Any]) -> str:
    """The class name of what the call raises, '' if nothing."""
    try:
        call()
    except Exception as e:
        return type(e).__name__
    return ""


def uniform_record(record: int, value: int) -> bytes:
    """A record whose every byte behind the hash is the same: any mixture of two shows."""
    return bytes(4) + bytes([value]) * (size_of(record) - 4)


def is_uniform(data: bytes) -> bool:
    return data[4:] == data[4:5] * (len(data) - 4)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)
