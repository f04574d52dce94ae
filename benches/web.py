"""What ``neuron-ds web`` takes of a processor while 256 slabs are written and two clients look on.

It is the command in a process of its own, with its own period of two seconds; two connections read its stream, as two
pages would. Looks, JSON, sampler and sending count; what a browser does with it doesn't.
"""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from benches.crowd import runtimes
from benches.fixtures import MANY_DEVICES, directory
from benches.harness import Reading

PERIODS = 10
CLIENTS = 2
#: Until both clients have had their first pictures, and histories have begun.
SETTLED_S = 4.0
_PERCENT = "%"


@dataclass(frozen=True)
class Case:
    """So many processes with so many slabs and cores each; on each of those so many executions a second."""

    processes: int
    devices_each: int
    cores_each: int
    rate_hz: float
    limit_percent: float


CASES = {
    "web, 16 processes on 16 devices each": Case(16, MANY_DEVICES, 1, 5, 3),
    "web, 256 processes": Case(256, 1, 1, 5, 3),
}


def comparisons() -> Iterator[Reading]:
    for name, case in CASES.items():
        with ExitStack() as stack:
            path = stack.enter_context(directory(devices=MANY_DEVICES))
            stack.enter_context(
                runtimes(
                    path,
                    processes=case.processes,
                    devices=MANY_DEVICES,
                    devices_each=case.devices_each,
                    cores_each=case.cores_each,
                    rate_hz=case.rate_hz,
                )
            )
            server = stack.enter_context(Server(path))
            yield Reading(name, "processor time / time", server.percent, case.limit_percent, _PERCENT)


class Server:
    """The command on a directory, with clients that read. A context: it ends with it."""

    def __init__(self, path: str, *options: str) -> None:
        import psutil

        self._process = subprocess.Popen(
            [sys.executable, "-m", "neuron_ds", "web", "--listen", "127.0.0.1:0", "--no-imds", *options],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"NEURON_DS_DIR": path},
        )
        assert self._process.stderr is not None
        said = self._process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        if found is None:
            raise RuntimeError(f"the server did not start: {said.strip()}")
        self._proc = psutil.Process(self._process.pid)
        self.bytes_read = [0] * CLIENTS
        self._readers = [
            threading.Thread(target=self._read, args=(i, int(found[1])), daemon=True) for i in range(CLIENTS)
        ]
        for reader in self._readers:
            reader.start()
        time.sleep(SETTLED_S)

    def _read(self, i: int, port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/api/stream")
        answer = connection.getresponse()
        while data := answer.read1(1 << 16):
            self.bytes_read[i] += len(data)

    def percent(self) -> float:
        """Of one core, over whole periods."""
        before = list(self.bytes_read)
        began, used_s = time.monotonic(), self._used_s()
        time.sleep(PERIODS)
        percent = 100 * (self._used_s() - used_s) / (time.monotonic() - began)
        if self._process.poll() is not None or any(map(int.__eq__, before, self.bytes_read)):
            raise RuntimeError("the server fell silent before its time")
        return percent

    def _used_s(self) -> float:
        times = self._proc.cpu_times()
        return float(times.user + times.system)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()
