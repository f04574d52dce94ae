"""The command: what it says where it can't begin, and that it ends well when told to."""

from __future__ import annotations

import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.cli.helpers import Producer, one_line, probe, run, start
from tests.exporter.helpers import Scrape


def test_it_serves_until_told_to_stop(tmp_path: Path) -> None:
    directory = tmp_path / "ds"
    with (
        Producer(directory, tag="t", then="producer.core(0).infer_completed.add(3)"),
        start(
            "exporter", "--listen", "127.0.0.1:0", "--per-process", "--label", "user", directory=directory
        ) as process,
    ):
        line = process.stderr.readline()
        assert line.startswith("neuron-ds: http://127.0.0.1:")
        with urllib.request.urlopen(line.split()[1], timeout=20) as answer:
            found = Scrape(answer.read().decode())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert found.get("neuron_ds_process_core_infer_completed_total", core=0) == 3
    ((labels, _),) = found.all("neuron_ds_process_info")
    assert labels["user"]


def test_no_device(tmp_path: Path) -> None:
    done = run("exporter", "--listen", "127.0.0.1:0", directory=tmp_path / "ds")
    assert done.returncode == 1
    assert "no Neuron device" in one_line(done, 1)


def test_no_device_that_can_be_read(tmp_path: Path) -> None:
    probe(tmp_path / "ds")
    with open(tmp_path / "ds" / "neuron0" / "table", "r+b") as f:
        f.write(b"\xff" * 64)
    done = run("exporter", "--listen", "127.0.0.1:0", directory=tmp_path / "ds")
    assert done.returncode == 2
    assert "device 0" in one_line(done)


def test_a_directory_that_cannot_be_trusted(tmp_path: Path) -> None:
    probe(tmp_path / "ds")
    (tmp_path / "ds").chmod(0o777)
    done = run("exporter", "--listen", "127.0.0.1:0", directory=tmp_path / "ds")
    assert done.returncode == 2
    assert "chmod go-w" in one_line(done)


def test_an_occupied_port(tmp_path: Path) -> None:
    probe(tmp_path / "ds")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("exporter", "--listen", f"127.0.0.1:{port}", directory=tmp_path / "ds")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}: Address already in use" in one_line(done)


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--tls-cert", "/nowhere/cert.pem"), "/nowhere/cert.pem: No such file or directory"),
        (("--tls-key", "key.pem"), "--tls-key without --tls-cert"),
        (("--listen", "nonsense"), "is no HOST:PORT"),
        (("--listen", "::1:8000"), "in brackets"),
        (("--listen", "127.0.0.1:99999"), "is no HOST:PORT"),
        (("--label", "colour"), "colour"),
        (("--window", "0"), "window"),
        (("--pod-resources", "/nowhere"), "without --label pod"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, args: tuple[str, ...], what: str) -> None:
    probe(tmp_path / "ds")
    listen = () if "--listen" in args else ("--listen", "127.0.0.1:0")
    done = run("exporter", *listen, *args, directory=tmp_path / "ds")
    assert done.returncode == 2
    assert what in one_line(done)
