"""The stream: its framing, its clients, and that none of them can hold up the others or the end."""

import json
import re
import socket
import time
from dataclasses import replace

import pytest

from neuron_ds.live.frame import Event
from neuron_ds.web import pump as pump_module
from neuron_ds.web import stream
from tests.web.helpers import Listener, Shown, cell, device, frame, get, one_who_never_reads, process


def test_the_framing(serve):
    server = serve(Shown(frame()))
    with Listener(server.port) as client:
        assert client.response.status == 200
        assert client.response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        lines = [client.response.readline().decode() for _ in range(12)]
    text = "".join(lines)
    assert text.startswith("retry: 1000\nevent: hello\nid: ")
    first, second = re.findall(r"event: (\w+)\nid: (\d+)\ndata: (.*)\n\n", text)[:2]
    assert (first[0], second[0]) == ("hello", "frame")
    assert json.loads(second[2])["number"] == int(second[1])


def test_a_full_picture_first_and_then_one_per_look(serve):
    event = Event(1, 5.0, "came", "long ago")  # too old to go out with a frame
    shown = Shown(frame([device(0, [cell(0, 0, utilization=0.5)])], events=[event]))
    server = serve(shown)
    with Listener(server.port) as client:
        events = client.events()
        name, _, hello = next(events)
        assert name == "hello"
        assert hello["names"]["cell"][0] == "core"
        assert hello["period_s"] == 0.1
        assert [e["text"] for e in hello["events"]] == ["long ago"]
        assert set(hello["history"]["utilization"]) <= {0.5}
        shown.now = frame([device(0, [cell(0, 0, utilization=0.75)])])
        numbers = []
        for _, number, data in events:
            numbers.append(number)
            if data["whole"][0] == 0.75:
                break
    assert numbers == sorted(set(numbers))


def test_all_clients_get_the_same_bytes(serve):
    server = serve(Shown(frame([device(0, [cell(0, 0, utilization=0.5)])])))
    with Listener(server.port) as one, Listener(server.port) as other:
        ones = {
            number: data for (name, number, data), _ in zip(one.events(), range(6), strict=False) if name == "frame"
        }
        others = {n: data for (name, n, data), _ in zip(other.events(), range(6), strict=False) if name == "frame"}
    both = ones.keys() & others.keys()
    assert both
    assert all(ones[number] == others[number] for number in both)


def test_who_does_not_read_holds_up_nobody(serve):
    """The one who doesn't read is sent far more than all buffers between us hold, and is not waited for."""
    large = [process(str(n + 1), [cell(0, 0)], tag="x" * 1000) for n in range(1000)]
    shown = Shown(frame(processes=large))
    server = serve(shown, period_s=0.02)
    with one_who_never_reads(server.port) as stuck, Listener(server.port) as client:
        seen = [number for (name, number, _), _ in zip(client.events(), range(20), strict=False) if name == "frame"]
        assert len(seen) >= 10
        assert len(server._hub) == 2
        waiting = [c._message for c in server._hub._clients]
        assert len(waiting) == 2  # one message each at the most
        stuck.settimeout(20)
        data = b""
        while b"event: frame" not in data.partition(b"event: hello")[2]:
            data += stuck.recv(1 << 16)
        assert data.startswith(b"HTTP/1.1 200 OK")


def test_a_client_has_room_for_one_message():
    import asyncio

    async def trial():
        client = stream.Client()
        for n in range(100):
            client.put(n + 1, b"%d" % n)
        assert await client.next() == b"99"
        client.put(7, b"older")
        client.put(101, b"last")
        assert client._message == b"last"
        client.end()
        assert await client.next() is None

    asyncio.run(trial())


def test_one_who_hears_nothing_hears_that_we_live(serve, monkeypatch):
    monkeypatch.setattr(stream, "SILENCE_S", 0.01)
    server = serve(Shown(frame()), period_s=60)
    with Listener(server.port) as client:
        while (line := client.response.readline()) != b": still here\n":
            assert line


def test_one_who_takes_nothing_is_let_go(serve, monkeypatch):
    monkeypatch.setattr(stream, "PATIENCE_S", 0.1)
    large = [process(str(n + 1), [cell(0, 0)], tag="x" * 1000) for n in range(3000)]
    server = serve(Shown(frame(processes=large)), period_s=0.02)
    with one_who_never_reads(server.port):
        deadline = time.monotonic() + 20
        while not len(server._hub):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        while len(server._hub):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_there_is_a_limit(serve, monkeypatch):
    monkeypatch.setattr(stream, "MOST_CLIENTS", 1)
    server = serve(Shown(frame()))
    with Listener(server.port) as client:
        client.next("hello")
        assert get(server.port, "/api/stream")[0] == 503


def test_nobody_watches_and_it_looks_rarely(serve, monkeypatch):
    """Two looks at the start, for rates; then one as soon as somebody comes."""
    monkeypatch.setattr(pump_module, "IDLE_S", 3600)
    shown = Shown(frame())
    server = serve(shown, period_s=0.01)
    shown.wait(2)
    with Listener(server.port) as client:
        client.next("frame")
        shown.wait(5)
    deadline = time.monotonic() + 20
    while len(server._hub):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert server._pump._pause_s(10) == 3600


def test_a_head_ends(serve):
    assert get(serve(Shown(frame())).port, "/api/stream", method="HEAD")[::2] == (200, b"")


def test_the_end_waits_for_nobody(serve):
    server = serve(Shown(frame(processes=[process("1", [cell(0, 0)], tag="x" * 1_000_000)])), period_s=0.02)
    with (
        Listener(server.port) as client,
        one_who_never_reads(server.port),
        socket.create_connection(("127.0.0.1", server.port)),
    ):
        client.next("frame")
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 5
        for _ in client.events():  # what was on its way, and then the end
            pass
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()


def test_a_look_that_fails_is_told_and_not_the_end(serve):
    said = []
    shown = Shown(frame())
    good = shown.frame

    def fails_once():
        if shown.looks == 2:
            shown.looks += 1
            raise RuntimeError("no luck")
        return good()

    shown.frame = fails_once
    server = serve(shown, told=said.append)
    with Listener(server.port) as client:
        while client.next("frame")["number"] < 4:
            pass
    assert said == ["a look failed: RuntimeError('no luck')"]


def test_closing_lets_the_source_go(serve):
    from neuron_ds.web.pump import Pump

    shown = Shown(replace(frame(), empty="x"))
    with Pump(shown, 1.0) as pump:
        pump.start(lambda picture: None)
        shown.wait(1)
    assert shown.closed
