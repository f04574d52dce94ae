"""Who a process is: cgroup lines of the container runtimes, and this very process."""

from __future__ import annotations

import os
import pwd

import pytest

from neuron_ds.exporter.identity import identify, of_cgroups

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
    assert set(identify(pid).__getstate__()) == {""}
