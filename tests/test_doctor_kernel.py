"""The kernel driver's reasons for seeing nothing, provoked on the stand-in or with nodes that are none, and what the
doctor says of each. Functions that are called through ``nodes.call`` run where the stand-in's nodes are."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuron_ds import _core, doctor, layout
from neuron_ds.doctor.nodes import holders_of
from neuron_ds.driver import _cache, kernel
from neuron_ds.errors import NoDevice
from tests.cli.helpers import Producer
from tests.processes import Child, Talk, as_root
from tests.standins import StandIn
from tests.test_doctor import levels, the

NOBODY = 65534
SHIFT = 1 << 22  # above every pid


@pytest.fixture
def dev(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder for nodes that are none, looked at by the kernel driver."""
    for name in [n for n in os.environ if n.startswith("NEURON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    monkeypatch.setenv("NEURON_DS_DRIVER", "kernel")
    monkeypatch.setenv(kernel.DEV_VARIABLE, str(tmp_path / "dev"))
    monkeypatch.setenv(kernel.SYSFS_VARIABLE, str(tmp_path / "sysfs"))
    (tmp_path / "dev").mkdir()
    _cache.clear()
    yield tmp_path / "dev"
    _cache.clear()


@pytest.fixture
def module(tmp_path) -> Path:
    """Where the kernel would show that the module is loaded, as it does by the folder's being there."""
    (tmp_path / "module").mkdir()
    return tmp_path / "module"


def examine(**more: str) -> list[dict[str, str]]:
    return [f.to_dict() for f in doctor.examine(**more)]


def findings_of(nodes: StandIn, function=examine, *arguments, **variables) -> list[doctor.Finding]:
    """The doctor's findings in a process that meets the nodes. All that is not ok comes with advice."""
    findings = [doctor.Finding(**f) for f in nodes.call(function, *arguments, **variables)]
    assert [f for f in findings if f.level != "ok" and not f.advice] == []
    return findings


def why(findings):
    (finding,) = [f for f in findings if f.subject == "driver"]
    assert finding.level == "ok"
    return finding.message


# --- Which driver, and what it hides


def test_the_choice_is_explained(nodes, tmp_path):
    nodes.producer()
    there = why(findings_of(nodes))
    assert there == f"kernel, because there is a device node in {nodes.folder}/dev"
    assert why(findings_of(nodes, NEURON_DS_DEV=str(tmp_path))).startswith("software, because there is no device node")
    assert why(findings_of(nodes, NEURON_DS_DRIVER="kernel")) == "kernel, as NEURON_DS_DRIVER says"


def test_software_chosen_beside_devices(nodes):
    nodes.producer()
    finding = the(findings_of(nodes, NEURON_DS_DRIVER="software"), "hardware")
    assert finding.message == f"2 accelerator nodes in {nodes.folder}/dev, but the driver chosen is software"
    assert "unset NEURON_DS_DRIVER" in finding.advice


def test_kernel_chosen_beside_software_producers(dev, tmp_path):
    with Producer(tmp_path / "ds") as producer:
        findings = doctor.examine()
    (finding,) = [f for f in findings if f.subject == "elsewhere" and f"process {producer.pid} " in f.message]
    assert finding.advice == f"set NEURON_DS_DRIVER=software NEURON_DS_DIR={tmp_path / 'ds'} to see it"


def test_a_module_without_nodes_is_hardware_that_auto_passes_by(dev, module, monkeypatch):
    monkeypatch.delenv("NEURON_DS_DRIVER")
    finding = the(doctor.examine(module=str(module)), "hardware")
    assert finding.level == "warn"
    assert "docker run --device" in finding.advice


# --- No node


def test_no_node_and_no_module(dev, tmp_path):
    findings = doctor.examine(module=str(tmp_path / "no-module"))
    assert levels(findings) == {("problem", "module")}
    assert str(dev) in the(findings, "module").message
    assert "modprobe neuron" in the(findings, "module").advice
    assert "NEURON_DS_DRIVER=software" in the(findings, "module").advice


def test_a_module_and_no_node(dev, module):
    findings = doctor.examine(module=str(module))
    assert levels(findings) == {("problem", "node")}
    assert "although the neuron module is loaded" in the(findings, "node").message
    assert "docker run --device" in the(findings, "node").advice


def test_no_folder_of_nodes(dev):
    dev.rmdir()
    findings = doctor.examine()
    assert levels(findings) == {("problem", "node")}
    assert "NEURON_DS_DEV" in the(findings, "node").advice


# --- Nodes that can't be opened


def as_socket(path: Path) -> None:
    """Opening a socket answers ENXIO, as a device node does that no driver is behind."""
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(path.parent)
        try:
            s.bind(path.name)
        finally:
            os.chdir(here)


@pytest.mark.parametrize(
    ("make", "words"),
    [(as_socket, "no driver answers"), (Path.touch, "is no device node"), (Path.mkdir, "container runtimes")],
    ids=["socket", "file", "directory"],
)
def test_a_node_that_nothing_is_behind(dev, tmp_path, module, make, words):
    make(dev / "neuron0")
    findings = doctor.examine(module=str(tmp_path / "no-module"))
    assert levels(findings) == {("problem", "module")}
    assert words in the(findings, "module").message
    assert "is not loaded" in the(findings, "module").message
    assert "module" in the(findings, "module").advice
    findings = doctor.examine(module=str(module))
    assert levels(findings) == {("problem", "node")}
    assert words in the(findings, "node").message


def examine_as_nobody() -> list[dict[str, str]]:
    os.stat(f"{kernel.dev_root()}/neuron0")  # the stand-in opens its files while it may
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    return examine()


@as_root
def test_a_node_that_may_not_be_opened(nodes):
    nodes.node(0).chmod(0o640)
    findings = findings_of(nodes, examine_as_nobody)
    finding = the(findings, "permission")
    assert finding.level == "problem"
    assert str(nodes.node(0)) in finding.message
    assert f"mode 640, of root and group root; you are uid {NOBODY}" in finding.message
    assert "run as root" in finding.advice
    assert [f.level for f in findings if f.subject == "device"] == ["ok"]  # the other one


def fill() -> list[Child]:
    def stay(talk: Talk) -> None:
        kernel.KernelDriver().owners(0)
        talk.say(os.getpid())
        talk.hear()

    return [Child(stay) for _ in range(layout.SLOTS_PER_DEVICE)]


def examine_a_full_device(proc: str) -> list[dict[str, str]]:
    holders = fill()
    pids = [child.expect() for child in holders]
    try:
        return [*examine(proc=proc), {"level": "ok", "subject": "pids", "message": ",".join(map(str, pids))}]
    finally:
        for child in holders:
            child.close()


def test_a_device_that_sixteen_have_open(nodes):
    findings = findings_of(nodes, examine_a_full_device, "/proc")
    busy = the(findings, "busy")
    assert busy.level == "problem"
    assert busy.message.startswith(f"device 0: {layout.SLOTS_PER_DEVICE} processes have it open")
    (pids,) = [f.message for f in findings if f.subject == "pids"]
    assert all(f"pid {pid} (" in busy.message for pid in pids.split(","))
    assert "monitors take places too" in busy.advice
    assert "can't be seen" not in busy.message
    assert [f.level for f in findings if f.subject == "device"] == ["ok"]  # the other one


def test_a_full_device_whose_processes_can_not_be_seen(nodes, tmp_path):
    busy = the(findings_of(nodes, examine_a_full_device, str(tmp_path)), "busy")
    assert f"{layout.SLOTS_PER_DEVICE} of them that can't be seen by you" in busy.message
    assert "root in the host's pid namespace" in busy.advice


def hold_and_look(path: str) -> list[list[int]]:
    """The holders of a node: not by its name, and not this process's descriptor of another."""
    fd = os.open(path, os.O_RDWR)
    here = holders_of(path, "/proc")
    os.close(fd)
    return [here, holders_of(path, "/proc"), [os.getpid()]]


def test_the_holders_of_a_node(nodes, tmp_path):
    here, afterwards, me = nodes.call(hold_and_look, str(nodes.node(1)))
    assert (here, afterwards) == (me, [])
    assert holders_of(str(tmp_path / "nothing"), "/proc") == []


# --- Who is there


def test_a_producer_is_nothing_to_worry_about(nodes):
    producer = nodes.producer(tag="serving")
    findings = findings_of(nodes)
    assert levels(findings) == set()
    (seen,) = [f.message for f in findings if f.subject == "producer"]
    assert str(producer.pid) in seen
    assert "serving" in seen
    first = next(f.message for f in findings if f.subject == "device")
    assert "trn2, 1 of 16 slots used, 2 of 16 places taken (one by this command)" in first


def test_nobody_publishes(nodes):
    findings = findings_of(nodes)
    assert levels(findings) == {("problem", "producer")}
    assert "Neuron runtime" in the(findings, "producer").advice


def test_a_process_that_is_attached_and_publishes_nothing(nodes):
    nodes.producer()
    monitor = nodes.monitor(0, 1)
    finding = the(findings_of(nodes), "attached")
    assert finding.level == "warn"
    name = Path(f"/proc/{monitor.pid}/comm").read_text().strip()
    assert finding.message == f"pid {monitor.pid} ({name}) has devices 0, 1 open and publishes nothing there"
    assert "one of 16 places" in finding.advice


def test_no_sysfs(nodes, tmp_path):
    nodes.producer()
    findings = findings_of(nodes, NEURON_DS_SYSFS=str(tmp_path))
    assert levels(findings) == {("warn", "sysfs")}
    assert "devices 0, 1" in the(findings, "sysfs").message
    assert "NEURON_DS_SYSFS" in the(findings, "sysfs").advice
    assert "unknown type" in next(f.message for f in findings if f.subject == "device")


# --- Containers without the host's pids


def examine_in_a_container() -> list[dict[str, str]]:
    """The driver's answers as they are to a process in another pid namespace: with the host's pids."""
    apps, acquire = _core.kernel_apps, _core.kernel_acquire
    _core.kernel_apps = lambda fd: [(pid + SHIFT, *rest) for pid, *rest in apps(fd)]
    _core.kernel_acquire = lambda fd, pid: acquire(fd, pid and pid - SHIFT)
    return examine()


def test_a_container_without_the_hosts_pids(nodes):
    monitor = nodes.monitor(0)
    findings = findings_of(nodes, examine_in_a_container)
    finding = the(findings, "namespace")
    assert finding.level == "warn"
    assert str(monitor.pid + SHIFT) in finding.message
    assert "hostPID: true" in finding.advice
    assert "--slot" not in finding.advice
    assert "attached" not in {f.subject for f in findings}


def examine_with_strangers() -> list[dict[str, str]]:
    """One of the pids listed is nobody's here, and one was only there at the first look."""
    apps, asked = _core.kernel_apps, []

    def with_strangers(fd: int) -> list[tuple[int, int, int, int]]:
        asked.append(fd)
        brief = [(SHIFT + 2, 0, 0, 0)] if len(asked) < 4 else []
        return [*apps(fd), (SHIFT + 1, 0, 0, 0), *brief]

    _core.kernel_apps = with_strangers
    return examine()


def test_pids_that_do_not_exist_here(nodes):
    nodes.producer()
    findings = findings_of(nodes, examine_with_strangers)
    finding = the(findings, "namespace")
    assert finding.message.endswith(f"do not exist here: pid {SHIFT + 1}")
    assert "hostPID: true" in finding.advice
    assert levels(findings) == {("warn", "namespace")}


def test_a_driver_that_is_gone_is_no_traceback(dev, module, monkeypatch):
    def gone(self, device):
        raise NoDevice("no such node; load the neuron module", device=device)

    (dev / "neuron0").touch()
    monkeypatch.setattr(kernel.KernelDriver, "properties", gone)
    assert levels(doctor.examine(module=str(module))) == {("problem", "node")}
