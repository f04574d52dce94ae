"""Real processes for tests: started, talked to over pipes, stopped and killed, and gone when their test is.

``Child`` forks this process and runs a function; ``Program`` is a fresh interpreter with a piece of source. Both say
and hear JSON values, one a line, so that a test waits for what happened and never for a while. This module knows
nothing of slabs.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

PATIENCE_S = 60.0

_PRELUDE = """
import json, os, signal, sys
signal.alarm(600)
def say(*values):
    os.write(1, (json.dumps(values[0] if len(values) == 1 else values) + "\\n").encode())
def hear():
    line = sys.stdin.readline()
    if not line:
        os._exit(0)  # the test is gone
    return json.loads(line)
"""


class _Talker:
    """One process, and a line of talk each way."""

    def __init__(self, pid: int, read_fd: int, write_fd: int) -> None:
        self.pid = pid
        self._read_fd, self._write_fd = read_fd, write_fd
        self._pending = b""
        self._status: int | None = None

    # --- talk

    def expect(self, patience_s: float = PATIENCE_S) -> Any:
        """The next value that the process says. Fails the test if it ends or stays silent instead."""
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._read_fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"process {self.pid} said nothing for {patience_s} s"
            chunk = os.read(self._read_fd, 1 << 16)
            assert chunk, f"process {self.pid} ended ({self.wait()}) without a word"
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        value = json.loads(line)
        assert not (isinstance(value, dict) and "raised" in value), f"the child raised:\n{value['raised']}"
        return value

    def tell(self, value: Any = None) -> None:
        os.write(self._write_fd, json.dumps(value).encode() + b"\n")

    def ask(self, value: Any = None) -> Any:
        self.tell(value)
        return self.expect()

    # --- life and death

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def stop(self) -> None:
        """Stop it, and wait until it has."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wait_zombie(self) -> None:
        """Wait until it is dead, and leave it unburied."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def wait(self) -> int:
        """Its exit status, or minus the signal that killed it."""
        if self._status is None:
            _, status = os.waitpid(self.pid, 0)
            self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def end(self) -> int:
        """Kill it, whatever it does, and bury it."""
        if self._status is None:
            self.kill()
        return self.wait()

    def close(self) -> None:
        self.end()
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Talk:
    """The child's end: ``say`` a value, ``hear`` one."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._in = os.fdopen(read_fd, "rb", buffering=0)
        self._out = write_fd

    def say(self, *values: Any) -> None:
        os.write(self._out, json.dumps(values[0] if len(values) == 1 else values).encode() + b"\n")

    def hear(self) -> Any:
        line = self._in.readline()
        if not line:
            os._exit(0)
        return json.loads(line)


class Child(_Talker):
    """A forked process that runs ``work(talk, *args)`` and says what it returns, unless that is None."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        from_child, to_parent = os.pipe()
        from_parent, to_child = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(from_child)
            os.close(to_child)
            run_and_exit(work, Talk(from_parent, to_parent), args)
        os.close(to_parent)
        os.close(from_parent)
        super().__init__(pid, from_child, to_child)


def run_and_exit(work: Callable[..., Any], talk: Talk, args: Sequence[Any]) -> None:
    """The life of a forked child: nothing of the test process runs on in it."""
    signal.alarm(600)  # whatever happens, it ends
    status = 1
    try:
        result = work(talk, *args)
        if result is not None:
            talk.say(result)
        status = 0
    except BaseException:
        talk.say({"raised": traceback.format_exc()})
    finally:
        os._exit(status)


class Program(_Talker):
    """A fresh interpreter that runs a source with ``say`` and ``hear`` at hand; ``wrapper`` is put before it."""

    def __init__(self, source: str, *args: str, wrapper: Sequence[str] = (), env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", _PRELUDE + source, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        super().__init__(self.process.pid, self.process.stdout.fileno(), self.process.stdin.fileno())

    def wait(self) -> int:
        self._status = self.process.wait()
        return self._status

    def close(self) -> None:
        self.end()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._read_fd = self._write_fd = -1


def result_of(work: Callable[..., Any], *args: Any) -> Any:
    """What ``work(talk, *args)`` returns in a forked child."""
    with Child(work, *args) as child:
        return child.expect()


def outcome(call: Callable[[], Any]) -> str:
    """ "ok", or the class name of what was raised: what a child can say of a call."""
    try:
        call()
    except Exception as e:
        return type(e).__name__
    return "ok"


def run_threads(work: Callable[[], Any], n: int) -> list[BaseException]:
    """Run n threads that begin together; what they raised."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(n)

    def main() -> None:
        barrier.wait()
        try:
            work()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=main) for _ in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    return errors


@functools.cache
def unshare(*what: str) -> list[str]:
    """A wrapper that starts a program in new namespaces, also for an ordinary user where users may make them."""
    for user in ([], ["--user", "--map-root-user"]):
        wrapper = ["unshare", *user, *what]
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run([*wrapper, "true"], check=True, capture_output=True)
            return wrapper
    pytest.skip(f"nobody may make namespaces here: unshare {' '.join(what)} fails, also in a user namespace")


#: For tests whose children become other users.
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def resident_kib(name: str) -> int:
    """What this process has resident of mappings of files whose path ends so; of one that is deleted too."""
    found, ours = 0, False
    with open("/proc/self/smaps") as f:
        for line in f:
            first = line.split(maxsplit=1)[0]
            if not first.endswith(":"):
                ours = line.rstrip().removesuffix(" (deleted)").endswith(name)
            elif ours and first == "Rss:":
                found += int(line.split()[1])
    return found


def become(uid: int, groups: tuple[int, ...] = ()) -> None:
    """Another user for good, with no more than these groups."""
    os.setgroups(groups)
    os.setgid(uid)
    os.setuid(uid)


def adopt_orphans() -> None:
    """Become the reaper of grandchildren whose parent dies (PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


def process_state(pid: int) -> str:
    """The letter of /proc/PID/stat: R, S, T, Z; "" when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0].decode()
    except FileNotFoundError:
        return ""
