"""The DaemonSet is whole: it is what Kubernetes takes for one, has what the exporter needs, and nothing more."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from neuron_ds.cli.exporter import exporter
from neuron_ds.kubernetes import DEFAULT_SOCKET

KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
NAMESPACE, DAEMONSET = yaml.safe_load_all((KUBERNETES / "daemonset.yaml").read_text())
POD: dict[str, Any] = DAEMONSET["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]


def test_every_file_parses() -> None:
    for path in KUBERNETES.parent.rglob("*.y*ml"):
        assert [document for document in yaml.safe_load_all(path.read_text()) if document], path


def test_its_parts_belong_together() -> None:
    assert (DAEMONSET["apiVersion"], DAEMONSET["kind"]) == ("apps/v1", "DaemonSet")
    assert DAEMONSET["metadata"]["namespace"] == NAMESPACE["metadata"]["name"]
    assert NAMESPACE["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    labels = DAEMONSET["spec"]["template"]["metadata"]["labels"]
    assert DAEMONSET["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (scraped,) = yaml.safe_load((KUBERNETES / "scrape.yml").read_text())["scrape_configs"]
    (discovery,) = scraped["kubernetes_sd_configs"]
    assert discovery["namespaces"]["names"] == [NAMESPACE["metadata"]["name"]]
    kept = [rule["regex"] for rule in scraped["relabel_configs"] if rule.get("action") == "keep"]
    assert kept == [f"{labels['app.kubernetes.io/name']};{CONTAINER['ports'][0]['name']}"]


def test_it_may_see_the_host_and_no_more() -> None:
    assert POD["hostPID"] is True
    assert POD["automountServiceAccountToken"] is False
    assert not POD.keys() & {"hostNetwork", "hostIPC", "serviceAccountName", "initContainers"}
    security = CONTAINER["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["privileged"] is True, "for the nodes alone; so every capability has to go before it starts"
    command = CONTAINER["command"]
    assert command[0] == "setpriv"
    assert {"--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs"} <= set(command)
    assert command[command.index("--") + 1 :] == ["neuron-ds"]


def test_what_it_mounts_is_kubelets_socket_and_read_only() -> None:
    (mount,) = CONTAINER["volumeMounts"]
    (volume,) = POD["volumes"]
    directory = str(Path(DEFAULT_SOCKET).parent)
    assert mount == {"name": volume["name"], "mountPath": directory, "readOnly": True}
    assert volume["hostPath"] == {"path": directory, "type": "Directory"}


def test_its_arguments_are_the_commands() -> None:
    name, *arguments = CONTAINER["args"]
    assert name == "exporter"
    with exporter.make_context("exporter", list(arguments)) as context:
        assert context.params["listen"] == ("", CONTAINER["ports"][0]["containerPort"])
        assert context.params["labels"] == ("pod",)
        assert context.params["pod_resources"] == DEFAULT_SOCKET


def test_it_is_limited_and_probed() -> None:
    assert CONTAINER["resources"]["limits"].keys() == CONTAINER["resources"]["requests"].keys() == {"cpu", "memory"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"] == {"path": "/healthz", "port": CONTAINER["ports"][0]["name"]}
    assert {"key": "aws.amazon.com/neuron", "operator": "Exists"} in POD["tolerations"]
    (term,) = POD["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert all(each["key"] == "node.kubernetes.io/instance-type" for each in term["matchExpressions"])


def test_what_its_comments_show_works_too() -> None:
    text = (KUBERNETES / "daemonset.yaml").read_text()
    (line,) = [line for line in text.splitlines() if "pip install" in line]
    assert shlex.split(line)[-1] == "neuron-datastore[exporter,kubernetes]"
    shown = re.sub(r"# (- name: shm|  mountPath|  readOnly|  hostPath)", r"\1", text)
    (_, changed) = yaml.safe_load_all(shown)
    spec = changed["spec"]["template"]["spec"]
    assert [m["name"] for m in spec["containers"][0]["volumeMounts"]] == ["pod-resources", "shm"]
    assert [v["name"] for v in spec["volumes"]] == ["pod-resources", "shm"]
