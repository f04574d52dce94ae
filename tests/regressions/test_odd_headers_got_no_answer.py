"""An ``Accept`` with a version that is no number got no answer at all, and weights of 0 were not heeded."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import SystemFailure
from neuron_ds.exporter.server import Server
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE, fetch

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ASKED = "application/openmetrics-text"


@pytest.fixture
def server(driver: SoftwareDriver) -> Iterator[Server]:
    driver.probe(0)
    told: list[str] = []
    with (
        Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch,
        Server(watch, "127.0.0.1", 0, told=told.append) as server,
    ):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    assert told == []


@pytest.fixture
def say(server: Server) -> Callable[[str], bytes]:
    """Send a request as it stands; all that comes until the server closes."""

    def say(request: str) -> bytes:
        with socket.create_connection(server.server_address[:2], timeout=20) as connection:
            connection.sendall(request.replace("\n", "\r\n").encode())
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    return say


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (f"{ASKED};version=abc", CLASSIC),
        (f"{ASKED};version=99", CLASSIC),
        (f"{ASKED};version=99, {ASKED};version=0.0.1;q=0.5", OPENMETRICS),
        (f'{ASKED}; version="1.0.0"', f"{OPENMETRICS}; escaping=underscores"),
        (f"{ASKED};version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.3", f"{OPENMETRICS}; escaping=allow-utf-8"),
        (f"{ASKED.upper()}; Q=1", OPENMETRICS),
        (f"{ASKED};q=0", CLASSIC),
        (f"{ASKED};q=0.1, text/plain", CLASSIC),
        (f"text/plain, {ASKED}", OPENMETRICS),
        ("text/plain;version=x.y", CLASSIC),
        (";;,=,q", CLASSIC),
    ],
)
def test_every_accept_gets_a_form(server: Server, accept: str, form: str) -> None:
    status, headers, body = fetch(server, Accept=accept)
    assert (status, headers["Content-Type"]) == (200, form)
    assert body.endswith(b"# EOF\n") == (form != CLASSIC)


@pytest.mark.parametrize(
    ("accepted", "zipped"),
    [
        ("*;q=0, gzip", True),
        ("gzip;q=0, *", False),
        ("gzip;x=1;q=0", False),
        ("gzip;q=nan", False),
        ("br, *;q=0.1", True),
    ],
)
def test_the_coding_named_counts_before_the_star(server: Server, accepted: str, zipped: bool) -> None:
    _, headers, _ = fetch(server, Accept_Encoding=accepted)
    assert (headers.get("Content-Encoding") == "gzip") == zipped


def test_a_list_in_several_lines(say: Callable[[str], bytes]) -> None:
    answer = say(f"GET /metrics HTTP/1.0\nAccept: text/plain;q=0.5\nAccept: {ASKED}\n\n")
    assert f"Content-Type: {OPENMETRICS}".encode() in answer


def test_the_oldest_protocol_has_no_chunks(say: Callable[[str], bytes]) -> None:
    assert say("GET /metrics\n\n").startswith(b"# HELP ")


def test_a_body_is_no_request(say: Callable[[str], bytes]) -> None:
    body = "GET /metrics HTTP/1.1\n\n"
    for method, status in (("GET", b"200 OK"), ("POST", b"405 Method Not Allowed")):
        answer = say(f"{method} /healthz HTTP/1.1\nHost: a\nContent-Length: {len(body) + 2}\n\n{body}")
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


@pytest.mark.parametrize("host", ["a" * 70, ".", "a..b"])
def test_what_is_no_name_of_a_host(server: Server, host: str) -> None:
    with pytest.raises(SystemFailure, match="no name of a host"):
        Server(server.watch, host, 0)
