"""Processes that make the raw calls on a device node, and the golden slot traces replayed by them.

An agent does what it is told, one JSON message each way over a socket, and each call is exactly one system call on the
node. Knows the interface of the driver; knows nothing of what is behind the node, so it serves a real one as well:

    python tests/standin/replay.py NODE TRACE...
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from neuron_ds import layout

ACQUIRE, RELEASE, APPS, TABLE = 0x80084E47, 0x80084E48, 0x80084E07, 0x80084EFA
ARGUMENT = struct.Struct("<i4xQI4x")
APPS_HEAD, APP_SIZE = struct.Struct("<H2xII4x"), 152
SLOT = struct.Struct("<i4xQQ")
TABLE_SIZE = 8 + SLOT.size * layout.SLOTS_PER_DEVICE
READ, WRITE, SHARED, PRIVATE = 1, 2, 1, 2  # of mmap
MESSAGE_BYTES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]


def _checked(result: int) -> int:
    if ctypes.c_int64(result).value == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Agent:
    """The calls, in the process that makes them. What they give is something JSON can carry."""

    def __init__(self, channel: socket.socket | None = None) -> None:
        self.channel = channel

    # --- descriptors

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CLOEXEC) -> int:
        return os.open(path, flags)

    def close(self, fd: int) -> None:
        os.close(fd)

    def close_range(self, first: int, last: int) -> None:
        _checked(_libc.close_range(first, last, 0))

    def dup(self, fd: int) -> int:
        return os.dup(fd)

    def dup2(self, fd: int, to: int, inheritable: bool = True) -> None:
        os.dup2(fd, to, inheritable)  # dup2 or dup3

    def dup_from(self, fd: int, least: int) -> int:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)

    def keep_over_exec(self, fd: int) -> None:
        os.set_inheritable(fd, True)

    def stat(self, path: str) -> list[int]:
        found = os.stat(path)
        return [found.st_mode, found.st_size]

    def fstat(self, fd: int) -> list[int]:
        found = os.fstat(fd)
        return [found.st_mode, found.st_size]

    def read_file(self, path: str) -> str:
        return Path(path).read_text()

    # --- the driver's calls

    def ioctl(self, fd: int, number: int, address: int) -> None:
        _checked(_libc.ioctl(fd, number, address))

    def acquire(self, fd: int, pid: int = 0) -> list[int]:
        """Where to map and how much."""
        argument = ctypes.create_string_buffer(ARGUMENT.pack(pid, 0, 0), ARGUMENT.size)
        self.ioctl(fd, ACQUIRE, ctypes.addressof(argument))
        return list(ARGUMENT.unpack(argument.raw)[1:])

    def release(self, fd: int, pid: int = 0) -> None:
        argument = ctypes.create_string_buffer(ARGUMENT.pack(pid, 0, 0), ARGUMENT.size)
        self.ioctl(fd, RELEASE, ctypes.addressof(argument))

    def apps(self, fd: int, capacity: int = 16) -> list[int]:
        """The attached processes."""
        argument = ctypes.create_string_buffer(APPS_HEAD.size + capacity * APP_SIZE)
        APPS_HEAD.pack_into(argument, 0, 0xF, capacity, 0)
        self.ioctl(fd, APPS, ctypes.addressof(argument))
        size = APPS_HEAD.unpack_from(argument)[2]
        return [struct.unpack_from("<i", argument, APPS_HEAD.size + i * APP_SIZE)[0] for i in range(size)]

    def table(self, fd: int) -> dict[str, Any]:
        """For tests: the number of roll-ups, and owner, tick and first device counter of each slot."""
        argument = ctypes.create_string_buffer(TABLE_SIZE)
        self.ioctl(fd, TABLE, ctypes.addressof(argument))
        slots = [SLOT.unpack_from(argument, 8 + SLOT.size * i) for i in range(layout.SLOTS_PER_DEVICE)]
        return {"roll_ups": struct.unpack_from("<Q", argument)[0], "slots": slots}

    # --- memory

    def map(
        self, fd: int, offset: int, size: int = layout.SLAB_SIZE, access: int = READ | WRITE, flags: int = SHARED
    ) -> int:
        return _checked(_libc.mmap(None, size, access, flags, fd, offset) if size else -1)

    def unmap(self, address: int, size: int = layout.SLAB_SIZE) -> None:
        _checked(_libc.munmap(address, size))

    def load(self, address: int, word: int) -> int:
        return ctypes.c_uint64.from_address(address + word * 8).value

    def store(self, address: int, word: int, value: int) -> None:
        ctypes.c_uint64.from_address(address + word * 8).value = value

    def is_zero(self, address: int) -> bool:
        return not any(ctypes.string_at(address, layout.SLAB_SIZE))

    # --- processes

    def pid(self) -> int:
        return os.getpid()

    def fork(self, channel: int) -> int:
        child = os.fork()
        if child == 0:
            if self.channel:
                self.channel.close()
            serve(socket.socket(fileno=channel))
        os.close(channel)
        return child

    def run(self, *command: str) -> int:
        """Another program in a child, made by vfork or posix_spawn."""
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode

    def exec(self, path: str = sys.executable) -> None:
        """This program anew in this process. What is not close-on-exec stays open."""
        assert self.channel, "there is nobody to serve"
        self.channel.set_inheritable(True)
        os.execv(path, [path, os.path.abspath(__file__), "--agent", str(self.channel.fileno())])

    def leave(self) -> None:
        """End by itself, closing nothing."""
        os._exit(0)


def serve(channel: socket.socket) -> None:
    """Answer until the other side has gone."""
    agent = Agent(channel)
    while True:
        message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 1)
        if not message:
            os._exit(0)
        do, arguments, named = json.loads(message)
        try:
            answer: dict[str, Any] = {"value": getattr(agent, do)(*fds, *arguments, **named)}
        except OSError as e:
            answer = {"errno": e.errno, "text": str(e)}
        channel.send(json.dumps(answer).encode())


class Process:
    """This side of an agent: ``p.acquire(fd)`` is done there, and raises OSError here where it failed there."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.channel, self.pid = channel, pid
        channel.settimeout(60)
        self._end = os.pidfd_open(pid)
        self._children: list[Process] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(Agent, name):
            raise AttributeError(name)
        return lambda *arguments, **named: self._ask(name, arguments, named)

    def tell(self, name: str, arguments: tuple[Any, ...] = (), named: Any = None, fds: tuple[int, ...] = ()) -> None:
        """Ask for a call and don't wait for it."""
        socket.send_fds(self.channel, [json.dumps([name, arguments, named or {}]).encode()], fds)

    def _ask(self, name: str, arguments: tuple[Any, ...], named: Any, fds: tuple[int, ...] = ()) -> Any:
        self.tell(name, arguments, named, fds)
        return self._answer(name)

    def _answer(self, name: str) -> Any:
        message = self.channel.recv(MESSAGE_BYTES)
        if not message:
            raise EOFError(f"process {self.pid} ended in {name}")
        answer = json.loads(message)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["text"])
        return answer["value"]

    def fork(self) -> Process:
        """A forked child, with what it inherits."""
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            child = Process(here, self._ask("fork", (), None, (there.fileno(),)))
        self._children.append(child)
        return child

    def exec(self, path: str = sys.executable) -> None:
        """The agent anew by exec; back when it answers."""
        assert self._ask("exec", (path,), None) == self.pid  # which is what a new one says first

    def leave(self) -> None:
        self.tell("leave")
        self.ended()

    def kill(self) -> None:
        """SIGKILL; back when the process is a zombie or gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended()

    def ended(self) -> None:
        """Wait for the end, which a zombie has reached."""
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if not poll.poll(60_000):
            raise TimeoutError(f"process {self.pid} doesn't end")

    def dismiss(self) -> None:
        """End it and all that it forked. A second time does nothing."""
        while self._children:
            self._children.pop().dismiss()
        if self._end < 0:
            return
        try:
            signal.pidfd_send_signal(self._end, signal.SIGKILL)
            self.ended()
        except ProcessLookupError:
            pass
        os.close(self._end)
        self._end = -1
        self.channel.close()


class Root(Process):
    """The first process, whose forks all others are. Use it in a with statement."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, os.path.abspath(__file__), "--agent", str(there.fileno())]
            self._program = subprocess.Popen(
                command, env=os.environ | (environment or {}), pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
            )
        super().__init__(here, self._program.pid)
        self._answer("the start")

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()
        self._program.wait()


# --- the golden traces


def _order(ticks: list[int], base: int) -> list[int]:
    """Ticks as an order, from 1; 0 where a slot wasn't released since the base."""
    later = sorted({tick for tick in ticks if tick > base})
    return [later.index(tick) + 1 if tick > base else 0 for tick in ticks]


class _Replay:
    """One trace on one node, by one process per caller: each inherits its descriptor from an opener."""

    def __init__(self, root: Process, node: str, trace: dict[str, Any]) -> None:
        self.root, self.node, self.steps = root, node, trace["steps"]
        self.numbers = sorted({step["caller"] for step in self.steps} | {step["pid"] for step in self.steps} - {0})
        self.witness = root.fork()
        # Open for writing only, it is attached to nothing and holds nothing open, so it sees a last close.
        self.watching = self.witness.open(node, os.O_WRONLY | os.O_CLOEXEC)
        self.base = max(slot[1] for slot in self.table()["slots"])
        self.roll_ups = self.table()["roll_ups"]
        self.places: dict[int, int] = {}
        self.open()

    def table(self) -> dict[str, Any]:
        return dict(self.witness.table(self.watching))

    def open(self) -> None:
        self.opener = self.root.fork()
        self.fd = self.opener.open(self.node)
        self.callers = {number: self.opener.fork() for number in self.numbers}
        self.pids = {0: 0} | {number: caller.pid for number, caller in self.callers.items()}

    def last_close(self) -> None:
        for process in [*self.callers.values(), self.opener]:
            process.close(self.fd)

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """Do it, and say what came of it in the words of the trace."""
        caller, pid = self.callers[step["caller"]], self.pids[step["pid"]]
        errno, place = 0, None
        try:
            if step["op"] == "last_close":
                self.last_close()
            elif step["op"] == "release":
                caller.release(self.fd, pid)
            else:
                place, size = caller.acquire(self.fd, pid)
                if not pid:
                    address = caller.map(self.fd, place, size)
                    caller.store(address, layout.nd_index(0), caller.pid)
                    caller.unmap(address, size)
        except OSError as e:
            errno = e.errno or -1
        table = self.table()
        owners = [slot[0] for slot in table["slots"]]
        slot = -1 if place is None else owners.index(pid or caller.pid)
        if place is not None and self.places.setdefault(slot, place) != place:
            raise AssertionError(f"slot {slot} is mapped at {place:#x} and at {self.places[slot]:#x}")
        rolled_up, self.roll_ups = table["roll_ups"] - self.roll_ups, table["roll_ups"]
        order = _order([slot[1] for slot in table["slots"]], self.base)
        counters = [slot[2] for slot in table["slots"]]
        return {
            "errno": errno,
            "slot": slot,
            "rolled_up": rolled_up,
            "table": [*zip(owners, order, counters, strict=True)],
        }

    def expected(self, step: dict[str, Any]) -> dict[str, Any]:
        order = _order([tick for _, tick, _ in step["table"]], 0)
        table = [
            (self.pids[owner], place, self.pids[counter])
            for (owner, _, counter), place in zip(step["table"], order, strict=True)
        ]
        return {"errno": step["errno"], "slot": step["slot"], "rolled_up": int(step["rolled_up"]), "table": table}

    def compare(self) -> Iterator[None]:
        for i, step in enumerate(self.steps):
            found, wanted = self.step(step), self.expected(step)
            if found != wanted:
                asked = {key: step[key] for key in ("caller", "op", "pid")}
                raise AssertionError(f"step {i} {asked}: found {found}, the trace has {wanted}")
            if step["op"] == "last_close":
                self.opener.dismiss()
                self.open()
            yield


def replay(root: Process, node: str, trace: dict[str, Any]) -> int:
    """Replay a trace on a node that nobody else has open, and return the number of steps.

    The node is fresh, or its last event was a last close: then its slots are free, and the least of their ticks
    is slot 0's, which is the order in which never-used slots are taken.
    """
    return sum(1 for _ in _Replay(root, node, trace).compare())


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--agent"]:
        channel = socket.socket(fileno=int(arguments[1]))
        channel.send(json.dumps({"value": os.getpid()}).encode())
        serve(channel)
    node, *traces = arguments
    for path in traces:
        with Root() as root:
            print(f"{path}: {replay(root, node, json.loads(Path(path).read_text()))} steps")


if __name__ == "__main__":
    main(sys.argv[1:])
