"""Real processes that do as they are told, by the system calls of the device alone.

Knows the numbers and structs of docs/driver.md (written out once more on purpose: what checks the stand-in shares
nothing with what it checks) and no rule. A process answers over a socket; what it raised is raised again here.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pickle
import select
import signal
import socket
import struct
from typing import Any, ClassVar

from neuron_ds.layout import SLAB_SIZE, nd_index

ACQUIRE, RELEASE, APPS, TABLE = 0x80084E47, 0x80084E48, 0x80084E07, 0x80084EFA
ARG = struct.Struct("<iIQII")
APPS_HEAD, APP_SIZE, MOST_APPS = struct.Struct("<HHIII"), 152, 16
TABLE_HEAD, TABLE_SLOT = struct.Struct("<Q"), struct.Struct("<iIQQ")
FIRST = nd_index(0)
RW = mmap.PROT_READ | mmap.PROT_WRITE

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


# --- Processes that do as they are told -----------------------------------------------------------------------------


class Hands:
    """What a process can be told to do. An OSError goes back to whoever told it."""

    def open(self, device: int, flags: int = os.O_RDWR | os.O_CLOEXEC) -> int:
        return os.open(f"/dev/neuron{device}", flags)

    def close(self, fd: int) -> None:
        os.close(fd)

    def dup(self, fd: int) -> int:
        return os.dup(fd)

    def ioctl(self, fd: int, number: int, address: int) -> None:
        fcntl.ioctl(fd, number, address)

    def acquire(self, fd: int, pid: int = 0) -> tuple[int, int]:
        """(mmap offset, size)."""
        arg = bytearray(ARG.pack(pid, 0, 0, 0, 0))
        fcntl.ioctl(fd, ACQUIRE, arg)
        return ARG.unpack(arg)[2:4]

    def release(self, fd: int, pid: int = 0) -> None:
        fcntl.ioctl(fd, RELEASE, bytearray(ARG.pack(pid, 0, 0, 0, 0)))

    def apps(self, fd: int, capacity: int = MOST_APPS) -> list[int]:
        arg = bytearray(b"\xff" * (APPS_HEAD.size + MOST_APPS * APP_SIZE))
        APPS_HEAD.pack_into(arg, 0, 0xF, 0, capacity, 0, 0)
        fcntl.ioctl(fd, APPS, arg)
        size = APPS_HEAD.unpack_from(arg)[3]
        end = APPS_HEAD.size + size * APP_SIZE
        assert set(arg[end:]) <= {0xFF}, "written behind the entries"
        return [struct.unpack_from("<i", arg, at)[0] for at in range(APPS_HEAD.size, end, APP_SIZE)]

    def map(
        self, fd: int, offset: int, size: int = SLAB_SIZE, protection: int = RW, flags: int = mmap.MAP_SHARED
    ) -> int:
        address = libc.mmap(None, size, protection, flags, fd, offset)
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")
        return int(address)

    def unmap(self, address: int) -> None:
        assert libc.munmap(address, SLAB_SIZE) == 0

    def claim(self, fd: int) -> int:
        """Acquire and map: the address."""
        return self.map(fd, *self.acquire(fd))

    def read(self, address: int, word: int) -> int:
        return ctypes.c_uint64.from_address(address + word * 8).value

    def write(self, address: int, word: int, value: int) -> None:
        ctypes.c_uint64.from_address(address + word * 8).value = value

    def write_all(self, address: int, values: dict[int, int]) -> None:
        for word, value in values.items():
            self.write(address, word, value)

    def fill(self, address: int) -> None:
        """Every word of the slab different from zero."""
        ctypes.memset(address, 0xA5, SLAB_SIZE)

    def is_zero(self, address: int) -> bool:
        return ctypes.string_at(address, SLAB_SIZE) == bytes(SLAB_SIZE)

    def read_in_child(self, address: int) -> int:
        """The signal that ends a forked child reading there; 0 if none does."""
        child = os.fork()
        if child == 0:
            self.read(address, 0)
            os._exit(0)
        return os.WTERMSIG(os.waitpid(child, 0)[1])

    def become_nobody(self) -> None:
        os.setgid(65534)
        os.setuid(65534)

    def run_other_program(self) -> None:
        os.execv("/bin/busybox", ["sleep", "1000"])


class Process:
    """A process of its own, told by ``process.do(...)``; forked from this one or from another Process."""

    listener = socket.socket(socket.AF_UNIX)
    everyone: ClassVar[list[Process]] = []

    def __init__(self, parent: Process | None = None) -> None:
        if parent:
            parent.do("fork")
        elif os.fork() == 0:
            serve()
        self.link, _ = Process.listener.accept()
        self.pid = receive(self.link)
        self.pidfd = os.pidfd_open(self.pid)
        self.is_ours = parent is None
        self.signal: int | None = None
        Process.everyone.append(self)

    def do(self, what: str, *args: Any) -> Any:
        send(self.link, (what, args))
        good, answer = receive(self.link)
        if not good:
            raise answer
        return answer

    def wait(self) -> None:
        """Until it has ended, files and all; then ``signal`` is what ended it, where we are its parent."""
        select.select([self.pidfd], [], [])
        os.close(self.pidfd)
        self.link.close()
        if self.is_ours:
            self.signal = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        Process.everyone.remove(self)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def exit(self) -> None:
        send(self.link, ("exit", ()))
        self.wait()


def serve() -> None:
    """The life of a Process."""
    hands = Hands()
    link = connect()
    while True:
        what, args = receive(link)
        if what == "exit":
            os._exit(0)
        if what == "fork":
            if os.fork() == 0:
                link.close()
                link = connect()
            else:
                send(link, (True, None))
            continue
        try:
            answer = True, getattr(hands, what)(*args)
        except (OSError, AssertionError) as error:
            answer = False, error
        send(link, answer)


def connect() -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.connect(Process.listener.getsockname())
    send(link, os.getpid())
    return link


def send(link: socket.socket, value: Any) -> None:
    data = pickle.dumps(value)
    link.sendall(len(data).to_bytes(4, "little") + data)


def receive(link: socket.socket) -> Any:
    size = int.from_bytes(receive_exactly(link, 4), "little")
    return pickle.loads(receive_exactly(link, size))


def receive_exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise EOFError("the process has ended")
        data += part
    return data
