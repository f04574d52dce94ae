"""The command with --otlp: that it pushes, ends well, and says in a line what it can't use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.helpers import Producer, environment, one_line, probe, run, start
from tests.exporter.helpers import Scrape
from tests.exporter.receiver import INSTANCE, HttpReceiver

NEVER_MS = "3600000"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the caller's."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def receiver() -> Iterator[HttpReceiver]:
    with HttpReceiver() as receiver:
        yield receiver


def otel(receiver: HttpReceiver, **more: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_METRIC_EXPORT_INTERVAL": NEVER_MS, **more}


COUNT_ON_A_LINE = """
core = producer.core(0).infer_completed
core.add(3)
import threading
threading.Thread(target=lambda: (sys.stdin.readline(), core.add(4), print("counted", flush=True)), daemon=True).start()
"""


def test_the_command_pushes_once_more_at_the_end(tmp_path: Path, receiver: HttpReceiver) -> None:
    core = {"name": "neuron_ds_core_infer_completed_total", "core": 0}
    with (
        Producer(tmp_path / "ds", tag="t", then=COUNT_ON_A_LINE) as producer,
        start("exporter", "--otlp", "--listen", "none", directory=tmp_path / "ds", env=otel(receiver)) as cmd,
    ):
        assert receiver.next().value(**core) == 3
        producer.process.stdin.write("more\n")
        producer.process.stdin.flush()
        assert producer.process.stdout.readline() == "counted\n"
        cmd.send_signal(signal.SIGTERM)
        out, err = cmd.communicate(timeout=20)
        last = receiver.next()
    assert (cmd.returncode, out) == (0, "")
    assert err == f"neuron-ds: otlp: every 3600 s to {receiver.endpoint}/v1/metrics\n"
    assert last.value(**core) == 7
    assert last.value("execution_status_total", runtime_tag="t", status_type="completed") == 4
    assert receiver.got.empty()


def test_the_command_serves_beside_it(tmp_path: Path, receiver: HttpReceiver) -> None:
    with (
        Producer(tmp_path / "ds", tag="t"),
        start("exporter", "--otlp", "--listen", "127.0.0.1:0", directory=tmp_path / "ds", env=otel(receiver)) as cmd,
    ):
        assert "otlp: every" in cmd.stderr.readline()
        url = cmd.stderr.readline().split()[1]
        got = receiver.next()
        with urllib.request.urlopen(url, timeout=20) as answer:
            scraped = Scrape(answer.read().decode())
        cmd.send_signal(signal.SIGTERM)
        assert cmd.wait(20) == 0
    pushed = {(name, labels - {x for x in labels if x[0] in INSTANCE}) for name, labels in got.series()}
    # What the exporter itself uses is only served.
    served = {
        (n, frozenset(x)) for n, labels, _ in scraped.series if not n.startswith("process_") for x in [labels.items()]
    }
    assert pushed == served


def test_the_command_outlives_a_receiver_that_never_was(tmp_path: Path) -> None:
    with HttpReceiver() as down:
        endpoint = down.endpoint
    probe(tmp_path / "ds")
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_METRIC_EXPORT_INTERVAL": "20",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1.5",
    }
    with start("exporter", "--otlp", "--listen", "none", directory=tmp_path / "ds", env=env) as cmd:
        assert "otlp: every 0.02 s" in cmd.stderr.readline()
        assert "Connection refused" in cmd.stderr.readline()
        cmd.send_signal(signal.SIGTERM)
        out, err = cmd.communicate(timeout=20)
    assert (cmd.returncode, out, err) == (0, "", "")


def test_the_command_with_the_sdk_disabled(tmp_path: Path, receiver: HttpReceiver) -> None:
    probe(tmp_path / "ds")
    env = otel(receiver, OTEL_SDK_DISABLED="TRUE")
    with start("exporter", "--otlp", "--listen", "none", directory=tmp_path / "ds", env=env) as cmd:
        assert "OTEL_SDK_DISABLED is set: nothing is pushed" in cmd.stderr.readline()
        cmd.send_signal(signal.SIGTERM)
        out, err = cmd.communicate(timeout=20)
    assert (cmd.returncode, out, err) == (0, "", "")
    assert receiver.got.empty()


@pytest.mark.parametrize(
    ("args", "env", "what"),
    [
        (("--listen", "none"), {}, "--listen none leaves nothing to do"),
        (("--otlp", "--listen", "none", "--tls-cert", "c.pem"), {}, "--tls-cert without a server"),
        (("--otlp", "--listen", "none"), {"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, "PROTOCOL=smoke"),
        (("--otlp", "--listen", "none"), {"OTEL_METRIC_EXPORT_INTERVAL": "soon"}, "INTERVAL=soon"),
        (
            ("--otlp", "--listen", "none"),
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_COMPRESSION": "brotli"},
            "brotli",
        ),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, args: tuple[str, ...], env: dict[str, str], what: str) -> None:
    probe(tmp_path / "ds")
    assert what in one_line(run("exporter", *args, directory=tmp_path / "ds", env=env))


def test_the_command_without_the_extra(tmp_path: Path) -> None:
    probe(tmp_path / "ds")
    code = "import sys; sys.modules['opentelemetry'] = None; from neuron_ds.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "exporter", "--otlp"],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(tmp_path / "ds"),
    )
    assert "opentelemetry is not installed; pip install 'neuron-datastore[otlp]'" in one_line(done)
