"""``neuron_k8s_info``: there where the configuration asks for it, with what kubelet and /proc say."""

from __future__ import annotations

import json
import time

from neuron_ds.identity import Identity
from neuron_ds.kubernetes import PodResources
from neuron_ds.monitor import Monitor, load
from tests.cli.helpers import Producer, run
from tests.devices import publish_and_wait
from tests.kubelet import answer, kubelet
from tests.monitor.schemas import check
from tests.processes import Child


def test_runtimes_of_pods_are_named(root, driver, tmp_path, monkeypatch):
    monkeypatch.setattr("neuron_ds.identity.identify", lambda pid: Identity("c", "u"))
    config = tmp_path / "monitor.conf"
    config.write_text('{"period": "20ms", "neuron_k8s_info": {}}')
    path = str(tmp_path / "kubelet.sock")
    with (
        kubelet(path, lambda: answer({"prod/serving-0/model": {"neuron": ["0"]}})),
        PodResources(path, period_s=0.05, haste_s=0.01) as pods,
        Child(publish_and_wait, root, "serving") as child,
        Monitor(load(str(config)), driver, sample_hz=0, pods=pods) as stream,
    ):
        child.expect()
        deadline = time.monotonic() + 20
        for line in stream.lines(lambda until_ns: time.sleep(max(0, until_ns - time.monotonic_ns()) / 1e9) or True):
            group = check(line)["neuron_k8s_info"]
            (runtime,) = group["neuron_runtimes"]
            if runtime["pod_name"]:
                break
            assert time.monotonic() < deadline
        assert runtime == {
            "pid": child.pid,
            "pod_uid": "u",
            "container_id": "c",
            "namespace": "prod",
            "pod_name": "serving-0",
            "container_name": "model",
        }
        assert group["error"] == ""
        assert group["period"] >= 0.01


def test_the_command_has_it_only_when_asked_for(tmp_path):
    config = tmp_path / "monitor.conf"
    config.write_text('{"neuron_k8s_info": {}}')
    with Producer(tmp_path / "ds"):
        asked = run("monitor", "--once", "-c", config, "--pod-resources", "/nowhere", directory=tmp_path / "ds")
        never = run("monitor", "--once", "--pod-resources", "/nowhere", directory=tmp_path / "ds")
    assert (asked.stderr, never.stderr) == ("", "")
    group = check(asked.stdout)["neuron_k8s_info"]
    assert group["neuron_runtimes"] == []
    assert group["error"] == "no names of pods from /nowhere: No such file or directory"
    assert "neuron_k8s_info" not in json.loads(never.stdout)
    check(never.stdout)
