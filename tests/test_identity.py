"""Who a process is: cgroup lines of the container runtimes, and this very process."""

from __future__ import annotations

import os
import pwd
import resource

import pytest

from neuron_ds import datastore
from neuron_ds.collect import Collector
from neuron_ds.identity import Identities, Identity, identify, of_cgroups
from tests.processes import result_of

C = "0123456789abcdef" * 4
POD = "8f3c1d2e-4b5a-6978-8a9b-0c1d2e3f4a5b"
UNDERSCORED = POD.replace("-", "_")
STATIC = "4" * 32


@pytest.mark.parametrize(
    ("text", "container", "pod"),
    [
        ("", "", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "", ""),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/"
            f"cri-containerd-{C}.scope\n",
            C,
            POD,
        ),
        (f"0::/kubepods/besteffort/pod{POD}/{C}\n", C, POD),
        (f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{C}.scope/container\n", C, POD),
        (f"0::/kubepods/burstable/pod{STATIC}/{C}\n", C, STATIC),
        (f"0::/system.slice/docker-{C}.scope\n", C, ""),
        (f"12:cpu,cpuacct:/docker/{C}\n11:memory:/docker/{C}\n", C, ""),
        (f"0::/machine.slice/libpod-{C}.scope/container\n", C, ""),
        (f"1:name=systemd:/ecs/0a1b2c/{C}\n", C, ""),
        (f"0::/../../kubepods/pod{POD}/{C}\n", C, POD),
        (f"0::/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{C}\n", C, POD),
    ],
)
def test_cgroups_of_the_runtimes(text: str, container: str, pod: str) -> None:
    assert of_cgroups(text) == (container, pod)


def test_this_process() -> None:
    me = identify(os.getpid())
    assert me.user == pwd.getpwuid(os.geteuid()).pw_name
    assert "pytest" in me.command or "python" in me.command


def test_a_pid_that_is_gone_is_nobody() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert identify(pid) == Identity()


def _identified_without_descriptors(talk) -> list:
    kept = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, kept[1]))
    lacking = identify(os.getpid())
    resource.setrlimit(resource.RLIMIT_NOFILE, kept)
    return [lacking is None, identify(os.getpid()).user == pwd.getpwuid(os.geteuid()).pw_name]


def test_a_lack_of_descriptors_is_not_taken_for_an_answer() -> None:
    assert result_of(_identified_without_descriptors) == [True, True]


def test_who_could_not_be_looked_up_is_asked_for_again(driver, monkeypatch) -> None:
    answers = [Identity("c", "u"), None]
    monkeypatch.setattr("neuron_ds.identity.identify", lambda pid: answers.pop())
    with datastore.publish(0, driver=driver), Collector(driver) as collector:
        (owner,) = (p.owner for p in collector.collect().processes)
        identities = Identities()
        identities.look(collector.collect())
        assert identities.of(owner) == Identity()
        identities.look(collector.collect())
        assert identities.of(owner) == Identity("c", "u")
        identities.look(collector.collect())
        assert answers == []
    with Collector(driver) as collector:
        identities.look(collector.collect())
        assert identities.of(owner) == Identity()
