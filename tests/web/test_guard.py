"""Who may ask: names on loopback, tokens elsewhere, and what every answer says to the browser."""

import pytest

from neuron_ds.errors import BadValue, SystemFailure
from neuron_ds.web.guard import host_of, is_loopback
from neuron_ds.web.pump import Pump
from neuron_ds.web.server import WebServer, listen
from tests.web.helpers import Listener, Shown, frame, get

TOKEN = "a-token-of-some-length"


@pytest.fixture
def open_server(serve):
    return serve(Shown(frame()))


@pytest.fixture
def closed_server(serve):
    return serve(Shown(frame()), token=TOKEN)


@pytest.mark.parametrize(
    ("header", "ours"),
    [
        ("localhost", True),
        ("LOCALHOST:8800", True),
        ("localhost.:1", True),
        ("127.0.0.1:9", True),
        ("127.1.2.3", True),
        ("[::1]:8800", True),
        ("", False),
        ("evil.example", False),
        ("localhost.evil.example:8800", False),
        ("127.0.0.1.evil.example", False),
        ("10.0.0.1", False),
        ("[fe80::1]:8800", False),
        ("[::1", True),
        ("0.0.0.0", False),
    ],
)
def test_names_of_this_machine(header, ours):
    assert is_loopback(host_of(header)) is ours


@pytest.mark.parametrize("path", ["/", "/api/frame", "/api/stream", "/metrics", "/app.js", "/healthz"])
def test_another_name_is_refused_on_loopback(open_server, path):
    status, _, body = get(open_server.port, path, Host="evil.example")
    assert (status, body) == (421, b"this server is called localhost; use that name\n")


def test_every_answer_is_sealed(open_server):
    for path, expected in {"/": 200, "/app.js": 200, "/nothing": 404, "/api/report": 404, "/healthz": 200}.items():
        status, headers, _ = get(open_server.port, path)
        assert status == expected, path
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] in ("no-store", "no-cache")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_only_reading(open_server, method):
    status, headers, _ = get(open_server.port, "/api/frame", method=method)
    assert (status, headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/app.py", "/..%2fapp.py", "/vendor/../../app.py", "/app.py"]
)
def test_files_of_the_page_and_no_others(open_server, path):
    assert get(open_server.port, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/api/frame", "/api/stream", "/metrics", "/api/report", "/app.js"])
def test_without_the_token_there_is_nothing(closed_server, path):
    for shown in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}, {"Cookie": "x=y; ;=="}):
        status, headers, body = get(closed_server.port, path, **shown)
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert TOKEN.encode() not in body


def test_a_probe_needs_no_token(closed_server):
    assert get(closed_server.port, "/healthz")[::2] == (200, b"ok\n")


def test_the_token_becomes_a_cookie(closed_server):
    status, headers, _ = get(closed_server.port, f"/?token={TOKEN}&x=1")
    assert (status, headers["location"]) == (303, "/?x=1")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    status, _, body = get(closed_server.port, "/", Cookie=cookie.partition(";")[0])
    assert (status, body[:15]) == (200, b"<!doctype html>")


def test_the_token_does_not_lead_to_another_host(closed_server):
    for path in ("//evil.example/", "/\\evil.example/"):
        _, headers, _ = get(closed_server.port, f"{path}?token={TOKEN}")
        assert headers["location"].startswith("/evil.example")


def test_the_token_as_a_header(closed_server):
    assert get(closed_server.port, "/", Authorization=f"Bearer {TOKEN}")[0] == 200
    with Listener(closed_server.port, Authorization=f"bearer {TOKEN}") as client:
        assert client.next("hello")["title"] == "hand-made frames"


def test_with_a_token_any_name_will_do(closed_server):
    assert get(closed_server.port, "/", Host="gpu-host-7:80", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_token_of_odd_characters_is_wrong(closed_server):
    assert get(closed_server.port, "/?token=%ff%00%E2%82%AC")[0] == 401
    assert get(closed_server.port, "/", Authorization="Bearer \xff")[0] == 401


def test_another_address_needs_a_token():
    with (
        listen("0.0.0.0", 0) as listening,
        Pump(Shown(frame()), 1.0) as pump,
        pytest.raises(BadValue, match="needs a token"),
    ):
        WebServer(pump, listening, title="")


def test_an_address_that_cannot_be_had():
    with listen("127.0.0.1", 0) as taken, pytest.raises(SystemFailure, match="Address already in use"):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(SystemFailure, match="no name of a host"):
        listen("a" * 70 + "." * 3, 0)


def test_the_address(open_server):
    assert open_server.url == f"http://127.0.0.1:{open_server.port}/"
