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

from benches.harness import Reading
from benches.machine import SETTLED_S, readings

PERIODS = 10
CLIENTS = 2
LIMIT_PERCENT = 3


def comparisons() -> Iterator[Reading]:
    return readings("web", Server, LIMIT_PERCENT)


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
