"""What a collector gets: the values that a scrape has at that moment, by the environment's settings, come what may."""

from __future__ import annotations

import datetime
import ipaddress
import os
import queue
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import BadValue
from neuron_ds.exporter import otlp
from neuron_ds.exporter.collector import metrics
from neuron_ds.exporter.families import COUNTER, FAMILIES
from neuron_ds.exporter.otlp import Push
from neuron_ds.exporter.watch import Watch
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.devices import publish_and_wait
from tests.exporter.receiver import INSTANCE, GrpcReceiver, HttpReceiver, Key, is_sum
from tests.processes import Child

MakeWatch = Callable[..., Watch]
NEVER_MS = "3600000"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the caller's; a push at the start and one at the end, unless a test says otherwise."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", NEVER_MS)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    with HttpReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        yield receiver


@pytest.fixture
def push() -> Iterator[Callable[..., Push]]:
    """Make a Push; it is closed before the receiver is."""
    with ExitStack() as stack:
        yield lambda watch, **options: stack.enter_context(Push(watch, **options))


def as_prometheus_has_it(watch: Watch, report) -> dict[Key, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for metric in metrics(report, watch.shared_labels)
        for sample in metric.samples
    }


def frozen(watch: Watch, monkeypatch: pytest.MonkeyPatch):
    """One report, whoever asks and however often."""
    report = watch.report()
    monkeypatch.setattr(watch, "report", lambda: report)
    return report


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_every_value_is_that_of_a_scrape(
    root: str, watch: MakeWatch, push: Callable[..., Push], monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    work = Workload(pattern=PATTERNS["erring"](), seed=4, cores=((0, 0), (0, 5)), tag="serving")
    with (
        start(work, events=300, speed=None, directory=root) as process,
        GrpcReceiver() if protocol == "grpc" else HttpReceiver() as receiver,
    ):
        process.wait_played()
        watched = watch(per_process=True, choices=("user",))
        process.advance(300)
        report = frozen(watched, monkeypatch)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        push(watched).close()
        got = receiver.next()
    wanted = as_prometheus_has_it(watched, report)
    assert got.series() == wanted
    assert len(wanted) > 600
    assert sum(wanted[key] > 0 for key in wanted if key[0] == "execution_errors_total") >= 1
    for family in FAMILIES:
        if metric := got.metrics.get(family.sample):
            assert metric.description == family.help
            assert is_sum(metric) if family.kind == COUNTER else metric.HasField("gauge"), family
    assert (got.scope.name, bool(got.scope.version)) == ("neuron_ds", True)
    assert all(set(INSTANCE) <= {name for name, _ in labels} for _, labels in got.series())


def test_a_value_beyond_63_bits(
    driver: SoftwareDriver, watch: MakeWatch, receiver: HttpReceiver, push: Callable[..., Push]
) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:
        producer.core(1).mac_count.set(2**64 - 2**20)
        producer.core(2).mac_count.set(2**53 + 1)
        push(watch())
        got = receiver.next()
    assert got.value("neuron_ds_core_mac_count_total", neuron_device=0, core=1) == 2**64 - 2**20
    assert got.one("neuron_ds_core_mac_count_total", neuron_device=0, core=2).as_int == 2**53 + 1


def test_names_are_the_same_behind_a_collector() -> None:
    """The rule by which collectors and Prometheus make names: the unit if it isn't there, _ratio, _total."""
    words = {"s": "seconds", "By": "bytes", "1": ""}
    for family in FAMILIES:
        unit = otlp._UNITS.get(family.name.rpartition("_")[2], "")
        tokens = family.sample.split("_")
        if (word := words.get(unit, "")) and word not in tokens:
            tokens.append(word)
        if family.kind == COUNTER:
            tokens = [t for t in tokens if t != "total"] + ["total"]
        elif unit == "1":
            tokens = [t for t in tokens if t != "ratio"] + ["ratio"]
        assert "_".join(tokens) == family.sample


def test_a_large_report_goes_in_several_requests(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(otlp, "REQUEST_POINTS", 100)
    with datastore.publish(0, driver=driver, tag="t"):
        watched = watch(per_process=True)
        report = frozen(watched, monkeypatch)
        push(watched).close()
    found, times, requests = {}, set(), 0
    while not receiver.got.empty():
        got = receiver.next()
        assert sum(len(got.points(name)) for name in got.metrics) <= 100
        found |= got.series()
        times |= {p.time_unix_nano for name in got.metrics for p in got.points(name)}
        requests += 1
    assert found == as_prometheus_has_it(watched, report)
    assert len(times) == 2, "two pushes, each of one moment"
    assert requests >= 10


# --- Comings and goings -----------------------------------------------------------------------------------------------


def test_a_process_that_left_is_gone_at_the_next_push(
    root: str, driver: SoftwareDriver, watch: MakeWatch, receiver: HttpReceiver, push: Callable[..., Push]
) -> None:
    driver.probe(0)
    with datastore.publish(0, driver=driver, tag="stays"), Child(publish_and_wait, root, "leaves") as child:
        child.expect()
        pushed = push(watch(per_process=True))
        first = receiver.next()
        assert first.tags() == {"stays", "leaves"}
        child.kill()
        child.wait()
        pushed.close()
        last = receiver.next()
    assert last.tags() == {"stays"}
    assert not last.points("neuron_ds_process_info", pid=child.pid)
    assert {k for k, _ in first.series() if k.startswith("neuron_ds_core_")} == {
        k for k, _ in last.series() if k.startswith("neuron_ds_core_")
    }


def counts_and_waits(talk, root: str, tag: str) -> None:
    with datastore.publish(0, driver=SoftwareDriver(root), tag=tag) as producer:
        talk.say("published")
        while (more := talk.hear()) is not None:
            producer.core(0).infer_completed.add(more)
            talk.say("counted")


def test_when_a_count_began(
    root: str,
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    completed = {"name": "execution_status_total", "runtime_tag": "t", "status_type": "completed"}
    before_ns = time.time_ns()
    driver.probe(0)
    watched = watch()
    began_ns = time.time_ns()
    with Child(counts_and_waits, root, "t") as child:
        child.expect()
        child.ask(5)
        push(watched).close()
        first, second = receiver.next(), receiver.next()
    one, two = first.one(**completed), second.one(**completed)
    assert (one.as_int, two.as_int) == (5, 5)
    assert before_ns <= one.start_time_unix_nano <= began_ns + 10**6 < one.time_unix_nano < two.time_unix_nano
    # The calendar is read once per series: what it does later moves no beginning.
    assert two.start_time_unix_nano == one.start_time_unix_nano
    looks = [got.one("neuron_ds_looks_total") for got in (first, second)]
    assert before_ns <= looks[0].start_time_unix_nano == looks[1].start_time_unix_nano <= began_ns
    totals = [got.one("neuron_ds_core_infer_completed_total", core=0) for got in (first, second)]
    # Nobody knows when a device's totals began: their first point is one without a length.
    assert totals[0].start_time_unix_nano == totals[0].time_unix_nano == totals[1].start_time_unix_nano


def test_a_tag_that_returns_between_two_pushes_begins_anew(
    root: str, driver: SoftwareDriver, watch: MakeWatch, receiver: HttpReceiver, push: Callable[..., Push]
) -> None:
    completed = {"name": "execution_status_total", "runtime_tag": "t", "status_type": "completed"}
    driver.probe(0)
    watched = watch()
    with Child(counts_and_waits, root, "t") as child:
        child.expect()
        child.ask(5)
        pushed = push(watched)
        first = receiver.next().one(**completed)
        child.kill()
        child.wait()
    watched.end_window()
    with Child(counts_and_waits, root, "t") as child:
        child.expect()
        child.ask(7)  # more than before: by the value alone nobody could tell
        pushed.close()
        last = receiver.next().one(**completed)
    assert (first.as_int, last.as_int) == (5, 7)
    assert first.time_unix_nano < last.start_time_unix_nano < last.time_unix_nano


# --- The environment --------------------------------------------------------------------------------------------------


def test_settings_are_honoured(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.probe(0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{receiver.endpoint}/base/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-scope=one")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=prod,service.name=unused,host.name=h1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "accelerators")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    pushed = push(watch())
    got = [receiver.next() for _ in range(4)][-1]
    assert (pushed.endpoint, pushed.interval_s) == (f"{receiver.endpoint}/base/v1/metrics", 0.02)
    assert got.path == "/base/v1/metrics"
    assert (got.headers["authorization"], got.headers["x-scope"]) == ("Bearer abc", "one")
    assert got.headers["content-encoding"] == "gzip"
    wanted = {"deployment.environment": "prod", "service.name": "accelerators", "host.name": "h1"}
    assert wanted.items() <= got.resource.items()
    assert got.resource["service.instance.id"]


def test_settings_for_metrics_go_before_those_for_everything(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.probe(0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.endpoint.replace('//', '//u:secret@')}/as/is")
    pushed = push(watch())
    assert receiver.next().path == "/as/is"
    assert pushed.endpoint == f"{receiver.endpoint}/as/is", "a password is not told"


def test_headers_over_grpc(
    driver: SoftwareDriver, watch: MakeWatch, push: Callable[..., Push], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.probe(0)
    with GrpcReceiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-scope=two")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        push(watch()).close()
        got = receiver.next()
    assert got.headers["x-scope"] == "two"
    assert got.resource["service.name"] == "neuron-ds-exporter"


def test_delta_tells_what_was_taken_once(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    completed = {"name": "execution_status_total", "runtime_tag": "t", "status_type": "completed"}
    core = {"name": "neuron_ds_core_infer_completed_total", "neuron_device": 0, "core": 0}
    with datastore.publish(0, driver=driver, tag="t") as producer:
        producer.core(0).infer_completed.add(1000)  # before anybody looked
        watched = watch()
        producer.core(0).infer_completed.add(3)
        told = queue.Queue[str]()
        pushed = push(watched, told=told.put)
        got = [receiver.next()]
        assert is_sum(got[0].metrics[completed["name"]], "DELTA")
        assert (got[0].value(**completed), got[0].value(**core)) == (3, 0)
        receiver.status = 400  # refused, and so not lost
        assert "400" in told.get(timeout=20)
        producer.core(0).infer_completed.add(4)
        receiver.status = 200
        assert "pushed again" in told.get(timeout=20)
        producer.core(0).infer_completed.add(5)
        pushed.close()
        while not receiver.got.empty():
            got.append(receiver.next())
    points = [each.one(**completed) for each in got]
    assert sum(p.as_int for p in points) == 12
    assert sum(each.value(**core) for each in got) == 9
    assert all(b.start_time_unix_nano == a.time_unix_nano for a, b in pairwise(points))


def certificate_of_loopback(folder: Path) -> tuple[str, ssl.SSLContext]:
    """(file of a self-signed certificate for 127.0.0.1, a server's context with it)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "both.pem").write_bytes(certificate.public_bytes(pem) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "both.pem")
    return str(folder / "cert.pem"), context


def test_tls_with_a_certificate_of_ones_own(
    driver: SoftwareDriver,
    watch: MakeWatch,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    driver.probe(0)
    certificate, context = certificate_of_loopback(tmp_path)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # the library would trust nobody else
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
    told = queue.Queue[str]()
    with HttpReceiver(tls=context) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        push(watch(), told=told.put).close()
        assert "/v1/metrics: certificate verify failed: self-signed certificate; it is" in told.get(timeout=20)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certificate)
        push(watch(), told=told.put).close()
        assert receiver.next().value("neuron_ds_devices") == 1
    assert told.empty()


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "there are http/protobuf and grpc"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "give milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "give milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "nan", "give milliseconds"),
        ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "/nowhere/ca.pem", "No such file or directory"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/nowhere/key.pem", "No such file or directory"),
    ],
)
def test_settings_that_cannot_be_used(
    driver: SoftwareDriver, watch: MakeWatch, monkeypatch: pytest.MonkeyPatch, name: str, value: str, what: str
) -> None:
    driver.probe(0)
    monkeypatch.setenv(name, value)
    with pytest.raises(BadValue, match=what) as caught:
        Push(watch())
    assert f"{name}={value}" in str(caught.value)


def test_a_timeout_that_is_none_over_grpc(
    driver: SoftwareDriver, watch: MakeWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.probe(0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(BadValue, match="OTEL_EXPORTER_OTLP_.*soon"):
        Push(watch())


def test_grpc_without_its_package(driver: SoftwareDriver, watch: MakeWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.probe(0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.metric_exporter", None)
    with pytest.raises(BadValue, match="pip install opentelemetry-exporter-otlp-proto-grpc"):
        Push(watch())


# --- Trouble ----------------------------------------------------------------------------------------------------------


def test_a_receiver_that_is_down_is_told_once_and_found_again(
    driver: SoftwareDriver, watch: MakeWatch, push: Callable[..., Push], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.probe(0)
    with HttpReceiver() as down:
        port = down.server_port
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1.5")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    told = queue.Queue[str]()
    failed = threading.Semaphore(0)
    reason = otlp._reason
    monkeypatch.setattr(otlp, "_reason", lambda said: (failed.release(), reason(said))[1])
    pushed = push(watch(), told=told.put)
    for _ in range(2):
        assert failed.acquire(timeout=20)
    line = told.get(timeout=20)
    assert "Connection refused; it is tried again every 0.02 s" in line
    assert f"127.0.0.1:{port}/v1/metrics" in line
    assert told.empty()
    with HttpReceiver(port) as back:
        assert back.next().value("neuron_ds_devices") == 1
        assert "pushed again" in told.get(timeout=20)
        pushed.close()
    assert told.empty()


def test_over_grpc_too(
    driver: SoftwareDriver, watch: MakeWatch, push: Callable[..., Push], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.probe(0)
    with HttpReceiver() as down:
        port = down.server_port
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")
    told = queue.Queue[str]()
    pushed = push(watch(), told=told.put)
    assert "UNAVAILABLE" in told.get(timeout=20)
    pushed.close()
    assert told.empty()


def test_each_kind_of_trouble_is_told(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.probe(0)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10")
    watched, told = watch(), queue.Queue[str]()
    receiver.status = 401
    push(watched, told=told.put)
    assert "401" in told.get(timeout=20)
    receiver.status = 404
    assert "404" in told.get(timeout=20)
    receiver.status = 401  # known already
    good = watched.report
    monkeypatch.setattr(watched, "report", lambda: 1 // 0)
    assert "ZeroDivisionError" in told.get(timeout=20)
    monkeypatch.setattr(watched, "report", good)
    receiver.status = 200
    assert "pushed again" in told.get(timeout=20)


def test_a_receiver_that_hangs_does_not_hold_up_the_end(
    driver: SoftwareDriver,
    watch: MakeWatch,
    receiver: HttpReceiver,
    push: Callable[..., Push],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver.probe(0)
    monkeypatch.setattr(otlp, "LAST_PUSH_S", 0.2)
    receiver.hold.clear()
    told: list[str] = []
    pushed = push(watch(), told=told.append)
    pushed.close()
    (line,) = told
    assert "the last push isn't through after 0.2 s" in line
    receiver.hold.set()
    pushed._thread.join(20)
    assert told == [line]
