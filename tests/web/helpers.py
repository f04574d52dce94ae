"""What the web tests share: hand-made frames, a Live that shows them, and a client of the stream.

Knows the shape of a Frame; nothing of how the page draws it.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from neuron_ds.collect import Sample
from neuron_ds.diagnose.finding import Finding
from neuron_ds.diagnose.looks import Look
from neuron_ds.live.frame import Cell, DeviceFrame, Event, Frame, HostFrame, ProcessFrame, SlabFrame

GIB = 1 << 30
HOST = HostFrame(8, 0.25, 0.05, 64 * GIB, 16 * GIB)


def cell(device: int, core: int, **more: object) -> Cell:
    return Cell(device, core, (2 * core, 2 * core + 1))._replace(**more)


def process(id: str, cells: Sequence[Cell], **more: object) -> ProcessFrame:
    """A process with a slab on each device that its cells are of."""
    devices = sorted({c.device for c in cells})
    slabs = tuple(
        SlabFrame((d, 0, 1, int(id), "/x"), d, 0, "", tuple(c for c in cells if c.device == d), (1, 2, 3, 4), 1)
        for d in devices
    )
    return ProcessFrame(
        id, int(id), False, f"tag-{id}", "running", "", slabs, 10.0, 0.0, 0, 0.5, 1e12, 1500, 2500,
        (GIB, 0, 0, 0, 0), (0, 0, 0, 1 << 20), 0.1, 0.05, "2.31.99",
    )._replace(**more)  # fmt: skip


def frame(
    devices: Sequence[DeviceFrame] = (),
    processes: Sequence[ProcessFrame] = (),
    *,
    wall_s: float = 1000.0,
    events: Sequence[Event] = (),
    findings: Sequence[Finding] = (),
    empty: str = "",
) -> Frame:
    now_ns = time.monotonic_ns()
    return Frame(
        now_ns, wall_s, 1.0, tuple(devices), tuple(processes), HOST, tuple(events), tuple(findings), empty, "",
        Sample(now_ns, (), ""), Look(now_ns, {}, {}),
    )  # fmt: skip


def device(number: int, cells: Sequence[Cell], **more: object) -> DeviceFrame:
    return replace(DeviceFrame(number, "trn2", tuple(cells), 96 * GIB, (0,) * 5, (0,) * 4, 1, ""), **more)


class Shown:
    """Stands for a Live: gives the frame that the test has set, with the time of the look."""

    title = "hand-made frames"

    def __init__(self, first: Frame) -> None:
        self.now, self.looks, self.closed = first, 0, False
        self._looked = threading.Condition()

    def frame(self) -> Frame:
        with self._looked:
            self.looks += 1
            self._looked.notify_all()
            return replace(self.now, time_ns=time.monotonic_ns(), wall_s=self.now.wall_s + self.looks)

    def wait(self, looks: int) -> None:
        """Until so many looks were taken."""
        with self._looked:
            assert self._looked.wait_for(lambda: self.looks >= looks, 20)

    def close(self) -> None:
        self.closed = True


class Listener:
    """One client of the stream, over a real connection; reads only when asked to."""

    def __init__(self, port: int, path: str = "/api/stream", **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self.connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        self.response = self.connection.getresponse()

    def events(self) -> Iterator[tuple[str, int, dict]]:
        """(name, id, data) as they come, until the server ends the stream."""
        fields: dict[str, str] = {}
        while line := self.response.readline():
            text = line.decode().removesuffix("\n")
            if not text:
                if "data" in fields:
                    yield fields["event"], int(fields["id"]), json.loads(fields["data"])
                fields = {}
            elif not text.startswith(":"):
                name, _, value = text.partition(": ")
                assert name not in fields, text
                fields[name] = value

    def next(self, name: str) -> dict:
        """The next event of that name."""
        return next(data for found, _, data in self.events() if found == name)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.response.close()


def get(port: int, path: str = "/", *, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers by lower-case name, body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def one_who_never_reads(port: int) -> socket.socket:
    """A client of the stream with next to no room for what it is sent."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect(("127.0.0.1", port))
    s.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return s
