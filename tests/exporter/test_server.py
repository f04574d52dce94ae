"""Real HTTP on loopback: forms by header, health, TLS and its certificate, and what is refused."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.registry import Collector

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError
from neuron_ds.exporter import NeuronCollector
from neuron_ds.exporter.server import Server, own_process
from neuron_ds.exporter.watch import Watch
from tests.devices import publish_and_wait
from tests.exporter.helpers import Scrape, fetch, fetch_scrape
from tests.processes import Child

FLEET = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
Serve = Callable[..., Server]
MakeWatch = Callable[..., Watch]
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


def test_classic_text_is_the_default(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    with datastore.publish(0, driver=driver, tag="t"):
        server = serve(watch(per_process=True), registry=own_process())
        status, headers, body = fetch(server)
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "Content-Encoding" not in headers
    found = Scrape(body.decode())
    assert found.get("execution_status_total", runtime_tag="t", status_type="completed") == 0
    assert found.get("neuron_ds_process_core_oob_total", core=7) == 0
    assert found.get("process_resident_memory_bytes") > 0
    assert b"# EOF" not in body


def test_an_idle_host_has_as_many_series_as_the_page_on_fleets_says(
    driver: SoftwareDriver, watch: MakeWatch, serve: Serve
) -> None:
    p = driver.probe(0, type="inf2")
    (row,) = re.findall(r"^\| inf2.xlarge \| 1, 2, 2 \| (\d+) ", FLEET.read_text(), re.MULTILINE)
    _, _, body = fetch(serve(watch(), registry=own_process()))
    assert (p.slab_cores, p.logical_cores) == (2, 2)
    assert sum(not line.startswith("#") for line in body.decode().splitlines()) == int(row)


def test_openmetrics_where_asked_for(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    with datastore.publish(0, driver=driver, tag='a"\\\nb'):
        server = serve(watch(per_process=True), registry=own_process())
        _, headers, body = fetch(server, Accept=f"{OPENMETRICS},text/plain;version=0.0.4;q=0.5")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    text = body.decode()
    assert text.endswith("\n# EOF\n")
    assert text.count("# EOF") == 1
    families = {f.name: f for f in parse_openmetrics(text)}
    assert families["execution_status"].type == "counter"
    assert families["instance"].type == "info"
    assert families["neuron_ds_process_core_oob"].samples[0].labels["runtime_tag"] == 'a"\\\\\\nb'


@pytest.mark.parametrize(
    ("header", "zipped"), [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)]
)
def test_gzip_when_asked(driver: SoftwareDriver, watch: MakeWatch, serve: Serve, header: str, zipped: bool) -> None:
    driver.probe(0)
    _, headers, body = fetch(serve(watch()), Accept_Encoding=header)
    assert (headers.get("Content-Encoding") == "gzip") is zipped
    assert Scrape(body.decode()).get("neuron_ds_devices") == 1


def test_an_old_client_gets_it_whole(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    driver.probe(0)
    server = serve(watch())
    with socket.create_connection(server.server_address[:2], timeout=20) as s:
        s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        data = b"".join(iter(lambda: s.recv(1 << 16), b""))
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert Scrape(body.decode()).get("neuron_ds_devices") == 1


def test_one_connection_serves_many_scrapes(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    import http.client

    driver.probe(0)
    connection = http.client.HTTPConnection(*serve(watch()).server_address[:2], timeout=20)
    for _ in range(3):
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        assert Scrape(gzip.decompress(response.read()).decode()).get("neuron_ds_devices") == 1
    connection.close()


class Client:
    """One connection that asks for /healthz, and is told what it hears."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(server.server_address[:2], timeout=20)

    def ask(self) -> bytes:
        """The beginning of the answer; nothing if the connection was ended."""
        heard = b""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
            while not heard.endswith(b"\r\n\r\nok\n") and (piece := self.socket.recv(1 << 16)):
                heard += piece
        return heard[:12]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


SERVED = b"HTTP/1.1 200"


@pytest.fixture
def two(driver: SoftwareDriver, watch: MakeWatch, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    """A server with room for two connections, and what it says."""
    monkeypatch.setattr("neuron_ds.exporter.server.MOST_CONNECTIONS", 2)
    driver.probe(0)
    told: list[str] = []
    return serve(watch(), told=told.append), told


def test_the_longest_idle_connection_gives_way(two: tuple[Server, list[str]]) -> None:
    server, told = two

    def served(client: Client) -> bool:
        """Whether it gets an answer, and that its thread knows it to be idle again."""
        answer, deadline = client.ask(), time.monotonic() + 20
        while any(c.served for c in list(server.room._connections.values())):
            assert time.monotonic() < deadline
        return answer == SERVED

    with Client(server) as first, Client(server) as second:
        assert served(first)
        assert served(second)
        assert served(first)
        with Client(server) as third:
            assert served(third)
            assert second.ask() == b""  # its last request was before the first's
            assert served(first)
            assert served(third)
            with Client(server) as fourth:
                assert served(fourth)
    assert told == ["2 connections are open; the longest idle gives way to the next"]


def test_who_never_ends_a_request_keeps_nobody_out(two: tuple[Server, list[str]]) -> None:
    server, _ = two
    stop = threading.Event()

    def drip() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), Client(server) as client:
                client.socket.sendall(b"GET /healthz HTTP/1.1\r\n")
                while not stop.wait(0.005):
                    client.socket.sendall(b"x")

    threads = [threading.Thread(target=drip) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            with Client(server) as client:
                assert client.ask() == SERVED
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_who_never_ends_a_handshake_keeps_nobody_out(
    driver: SoftwareDriver, watch: MakeWatch, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuron_ds.exporter.server.MOST_CONNECTIONS", 2)
    driver.probe(0)
    server = serve(watch(), tls=write_certificate(tmp_path, "h"))
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with Client(server), Client(server), Client(server):  # they say nothing
        for _ in range(5):
            assert fetch(server, "/healthz", tls=trusting)[0] == 200
            socket.create_connection(server.server_address[:2], timeout=20).close()


def test_who_is_being_served_does_not_give_way(two: tuple[Server, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    server, told = two
    began, go_on, body = threading.Semaphore(0), threading.Event(), server.body

    def held(*arguments: object) -> Iterator[bytes]:
        began.release()
        go_on.wait(20)
        yield from body(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(server, "body", held)
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(fetch(server)[2])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert began.acquire(timeout=20)
    with Client(server) as third:
        assert third.ask() == b""
    assert told == ["2 connections are open and being served; others are turned away"]
    go_on.set()
    for thread in threads:
        thread.join()
    assert all(b"neuron_ds_devices_listed" in body for body in found)
    assert len(found) == 2


def test_health_and_the_page(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    driver.probe(0)
    watched = watch()
    server = serve(watched)
    assert fetch(server, "/healthz")[::2] == (200, b"ok\n")
    status, headers, body = fetch(server, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"href=/metrics" in body
    assert fetch(server, "/nothing")[0] == 404
    assert fetch(server, "/metrics", method="POST")[0] == 405
    assert fetch(server, "/metrics", method="HEAD")[::2] == (200, b"")
    watched.close()
    assert fetch(server, "/healthz")[::2] == (503, b"closed\n")
    assert fetch(server)[0] == 500


def test_many_scrape_at_once(driver: SoftwareDriver, watch: MakeWatch, serve: Serve) -> None:
    with datastore.publish(0, driver=driver, tag="t"):
        server = serve(watch(per_process=True))
        found: list[float] = []
        threads = [
            threading.Thread(target=lambda: found.append(fetch_scrape(server).get("neuron_ds_devices")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert found == [1] * 8


def test_a_process_dies_and_its_series_are_gone_at_the_next_scrape(
    root: str, driver: SoftwareDriver, watch: MakeWatch, serve: Serve
) -> None:
    with Child(publish_and_wait, root, "mortal") as child:
        child.expect()
        server = serve(watch())
        assert fetch_scrape(server).all("neuroncore_utilization_ratio", runtime_tag="mortal")
        child.kill()
        child.wait_zombie()
        found = fetch_scrape(server)
        assert not [1 for _, labels, _ in found.series if "runtime_tag" in labels]
        assert found.get("neuron_ds_core_inference_count_total", core=0) == 111


def test_a_failing_collector_of_the_registry_fails_no_scrape(
    driver: SoftwareDriver, watch: MakeWatch, serve: Serve
) -> None:
    class Failing(Collector):
        def collect(self):
            raise RuntimeError("out of order")

        def describe(self):
            return []

    driver.probe(0)
    registry, said = CollectorRegistry(), []
    registry.register(Failing())
    found = fetch_scrape(serve(watch(), registry=registry, told=said.append))
    assert found.get("neuron_ds_devices") == 1
    assert len(said) == 1
    assert "out of order" in said[0]


def test_a_collector_for_ones_own_registry(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="mine") as producer:
        registry = CollectorRegistry(auto_describe=True)
        Counter("requests", "of the user's own", registry=registry).inc(3)
        with NeuronCollector(watch=watch()) as collector:
            registry.register(collector)
            producer.core(0).infer_completed.add(4)
            found = Scrape(generate_latest(registry).decode())
            with pytest.raises(ValueError, match="Duplicated"):
                registry.register(collector)
        left = Scrape(generate_latest(registry).decode())
    assert left.get("requests_total") == 3
    assert left.all("execution_status_total") == []
    assert found.get("requests_total") == 3
    assert found.get("execution_status_total", runtime_tag="mine", status_type="completed") == 4


# --- TLS --------------------------------------------------------------------------------------------------------------


def write_certificate(folder: Path, name: str) -> tuple[str, str]:
    """A self-signed certificate for 127.0.0.1 and its key, as files that take the place of those before."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "cert.pem", folder / "key.pem"
    for path, data in zip(paths, (certificate.public_bytes(pem), private), strict=True):
        (folder / "new").write_bytes(data)
        os.replace(folder / "new", path)
    return str(paths[0]), str(paths[1])


def common_name(server: Server) -> str:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(server.server_address[:2], timeout=20) as raw,
        context.wrap_socket(raw) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


def test_tls_follows_its_files(driver: SoftwareDriver, watch: MakeWatch, serve: Serve, tmp_path: Path) -> None:
    driver.probe(0)
    files, said = write_certificate(tmp_path, "first"), []
    server = serve(watch(), tls=files, told=said.append)
    trusting = ssl.create_default_context(cafile=files[0])
    trusting.check_hostname = False
    status, _, body = fetch(server, tls=trusting)
    assert (status, Scrape(body.decode()).get("neuron_ds_devices")) == (200, 1)
    assert server.url.startswith("https://127.0.0.1:")
    write_certificate(tmp_path, "second")
    assert common_name(server) == "CN=second"
    (tmp_path / "cert.pem").write_text("no certificate")
    assert common_name(server) == "CN=second"
    assert common_name(server) == "CN=second"
    assert len([line for line in said if "the old one stays" in line]) == 1


def test_a_client_that_says_nothing_holds_up_nobody(
    driver: SoftwareDriver, watch: MakeWatch, serve: Serve, tmp_path: Path
) -> None:
    driver.probe(0)
    server = serve(watch(), tls=write_certificate(tmp_path, "first"))
    with socket.create_connection(server.server_address[:2]):
        assert common_name(server) == "CN=first"


@pytest.mark.parametrize("which", ["missing", "rubbish", "another's key"])
def test_a_certificate_that_cannot_be_used_is_refused(watch: MakeWatch, tmp_path: Path, which: str) -> None:
    cert, key = write_certificate(tmp_path, "first")
    if which == "missing":
        os.unlink(key)
    elif which == "rubbish":
        Path(cert).write_text("rubbish")
    else:
        (tmp_path / "other").mkdir()
        _, key = write_certificate(tmp_path / "other", "other")
    with pytest.raises(NeuronDSError, match=r"certificate can't be used.*--tls-cert"):
        Server(watch(), "127.0.0.1", 0, tls=(cert, key))


def test_a_certificate_without_its_key_is_told_to_be_that(watch: MakeWatch, tmp_path: Path) -> None:
    """It was a "pem lib" once."""
    cert, key = write_certificate(tmp_path, "first")
    with pytest.raises(NeuronDSError, match="its file holds no private key; --tls-key names the key's file"):
        Server(watch(), "127.0.0.1", 0, tls=(cert, None))
    Path(cert).write_text(Path(key).read_text() + Path(cert).read_text())
    Server(watch(), "127.0.0.1", 0, tls=(cert, None)).server_close()


@pytest.mark.parametrize("there", ["127.0.0.1", "0.0.0.0"])
def test_an_occupied_port_is_refused(watch: MakeWatch, there: str) -> None:
    with socket.create_server((there, 0)) as taken:
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", ""):
            with pytest.raises(NeuronDSError, match=f":{port}: Address already in use"):
                Server(watch(), host, port)
