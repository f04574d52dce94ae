"""Names of pods as labels: from kubelet's answer to the series, without anybody waiting for kubelet."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.watch import Watch
from neuron_ds.identity import Identity
from neuron_ds.kubernetes import PodResources
from tests.cli.helpers import Producer, run, start
from tests.devices import publish_and_wait
from tests.exporter.helpers import Scrape, scrape
from tests.kubelet import answer, kubelet
from tests.processes import Child

HELD = {"prod/serving-0/model": {"neuron": ["0"]}}
NOBODY = {"pod_uid": "", "namespace": "", "pod": "", "container": ""}
NAMES = {"pod_uid": "u", "namespace": "prod", "pod": "serving-0", "container": "model"}


def labels_of(found: Scrape) -> dict[str, str]:
    ((labels, _),) = found.all("neuron_ds_runtime_processes", runtime_tag="serving")
    return {name: labels[name] for name in NOBODY}


@pytest.mark.parametrize(("who", "names"), [(Identity("c", "u"), NAMES), (Identity(), NOBODY)])
def test_a_pods_process_has_names_and_a_hosts_has_none(
    root: str,
    driver: SoftwareDriver,
    watch: Callable[..., Watch],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: Identity,
    names: dict[str, str],
) -> None:
    monkeypatch.setattr("neuron_ds.identity.identify", lambda pid: who)
    path = str(tmp_path / "kubelet.sock")
    with (
        kubelet(path, lambda: answer(HELD)),
        PodResources(path, period_s=0.05, haste_s=0.01) as pods,
        Child(publish_and_wait, root, "serving") as child,
    ):
        child.expect()
        watched = watch(choices=["pod"], pods=pods)
        first, deadline = pods.asked, time.monotonic() + 20
        while labels_of(found := scrape(watched.report())) != names or pods.asked < first + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert found.get("execution_status_total", status_type="completed", **names) == 0
        child.kill()
        child.wait_zombie()
        assert scrape(watched.report()).all("neuron_ds_runtime_processes") == []


def test_a_kubelet_that_hangs_holds_up_no_scrape(
    root: str, watch: Callable[..., Watch], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuron_ds.identity.identify", lambda pid: Identity("c", "u"))
    path = str(tmp_path / "kubelet.sock")
    with (
        socket.socket(socket.AF_UNIX) as silent,
        Child(publish_and_wait, root, "serving") as child,
    ):
        silent.bind(path)
        silent.listen()
        child.expect()
        with PodResources(path, patience_s=600) as pods:
            watched = watch(choices=["pod"], pods=pods)
            for _ in range(3):
                assert labels_of(scrape(watched.report())) == {**NOBODY, "pod_uid": "u"}
            assert pods.asked == 0


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    options = ("--listen", "127.0.0.1:0", "--label", "pod", "--pod-resources", path)
    with (
        Producer(tmp_path / "ds", tag="serving"),
        kubelet(str(path), lambda: answer(HELD)) as asked,
        start("exporter", *options, directory=tmp_path / "ds") as process,
    ):
        url = process.stderr.readline().split()[1]
        deadline = time.monotonic() + 20
        while not asked:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        found = _get(url)
        process.terminate()
        assert (process.wait(20), process.stderr.read()) == (0, "")
    assert labels_of(found) == NOBODY, "the host's own processes are of no pod"


def test_the_command_without_a_kubelet_tells_why(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    options = ("--listen", "127.0.0.1:0", "--label", "pod", "--pod-resources", path)
    with Producer(tmp_path / "ds"), start("exporter", *options, directory=tmp_path / "ds") as process:
        lines = {process.stderr.readline() for _ in range(2)}
        process.terminate()
        assert process.wait(20) == 0
    assert f"neuron-ds: no names of pods from {path}: No such file or directory\n" in lines


def test_the_command_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['grpc'] = None\n")
    done = run(
        "exporter",
        *("--label", "pod", "--pod-resources", "/x"),
        directory=tmp_path / "ds",
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'neuron-datastore[kubernetes]'" in done.stderr


def _get(url: str) -> Scrape:
    import urllib.request

    with urllib.request.urlopen(url, timeout=20) as response:
        return Scrape(response.read().decode())
