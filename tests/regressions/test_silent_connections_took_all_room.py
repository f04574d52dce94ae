"""Connections that never asked for anything stayed for ever, and with 256 of them the page had no room for anybody."""

import socket

import pytest

from neuron_ds.web import server
from tests.web.conftest import serve  # noqa: F401  # a fixture
from tests.web.helpers import Listener, Shown, cell, device, frame, get

HALF = b"GET /healthz HTTP/1.1\r\nHost: local"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def port(serve, monkeypatch):  # noqa: F811
    monkeypatch.setattr(server, "ASK_S", 0.3)
    return serve(Shown(frame([device(0, [cell(0, 0)])]))).port


@pytest.mark.parametrize("said", [b"", HALF, WHOLE + HALF])
def test_who_asks_nothing_is_let_go(port, said):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
        silent.sendall(said)
        heard = b"".join(iter(lambda: silent.recv(1 << 16), b""))  # ends when the server closes
    assert heard.count(b"200 OK") == said.count(WHOLE)


def test_who_listens_stays(port):
    with Listener(port) as listener:
        numbers = [listener.next("frame")["number"] for _ in range(12)]  # a tenth of a second each
    assert numbers == sorted(set(numbers))
    assert get(port, "/healthz")[0] == 200
