"""The kernel driver beside what the conformance suite states: refusals, descriptors, what sysfs tells, and the choice
of a driver. Functions that are called through ``nodes.call`` run in a process of their own that meets the stand-in's
nodes."""

from __future__ import annotations

import errno
import gc
import os
import resource
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from neuron_ds import _core, datastore, layout
from neuron_ds.driver import get_driver, kernel
from neuron_ds.driver.kernel import KernelDriver
from neuron_ds.errors import (
    AccessDenied,
    BadIndex,
    DeviceBusy,
    NoDevice,
    NoSlab,
    NotReady,
    NotSupported,
    SystemFailure,
    TableBusy,
    WrongVersion,
)
from tests.processes import Child, Talk, as_root, outcome, result_of

NOBODY = 65534
OTHER_VERSION = layout.HEADER_WORD + (1 << 32)


@pytest.fixture
def dev(tmp_path, monkeypatch) -> Path:
    """A folder for nodes that are none."""
    (tmp_path / "dev").mkdir()
    monkeypatch.setenv(kernel.DEV_VARIABLE, str(tmp_path / "dev"))
    monkeypatch.setenv(kernel.SYSFS_VARIABLE, str(tmp_path / "sysfs"))
    return tmp_path / "dev"


def node_descriptors() -> dict[int, str]:
    """The descriptors of device nodes that this process has."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISCHR(os.stat(f"/proc/self/fd/{name}").st_mode):
                found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return {fd: path for fd, path in found.items() if os.path.basename(path).startswith("neuron")}


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def publish_and_wait(talk: Talk, header: int = layout.HEADER_WORD) -> None:
    producer = datastore.publish(0, tag="child")
    producer.core(0).inference_count.add(7)
    producer._lease.mapping.store(0, header)
    talk.say(os.getpid())
    talk.hear()


def look_and_wait(talk: Talk) -> None:
    get_driver().owners(0)
    talk.say(os.getpid())
    talk.hear()


# --- Nodes that can't be opened


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket is short
        try:
            s.bind(path.name)
        finally:
            os.chdir(here)


def as_unknown_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "no such node"),
        (as_socket, "no driver answers"),
        (as_unknown_device, "no Neuron device"),
        (Path.touch, "is no device node"),
        (Path.mkdir, "is a directory"),
    ],
    ids=["nothing", "socket", "null", "file", "directory"],
)
def test_what_is_no_device_says_so(dev, make, words):
    make(dev / "neuron0")
    driver, before = KernelDriver(), descriptors()
    for call in (driver.acquire, driver.owners, driver.totals, lambda n: driver.attach(n, os.getpid())):
        with pytest.raises(NoDevice, match=words) as refused:
            call(0)
        assert (refused.value.errno, refused.value.device) == (errno.ENODEV, 0)
        assert refused.value.path == str(dev / "neuron0")
        assert "module" in str(refused.value).rpartition("; ")[2]
    assert descriptors() == before


def unused_major() -> int:
    characters, _, _ = Path("/proc/devices").read_text().partition("Block")
    used = {words[0] for line in characters.splitlines() if (words := line.split())}
    return next(major for major in range(254, 239, -1) if str(major) not in used)


@as_root
def test_a_node_whose_module_is_not_loaded(dev):
    os.mknod(dev / "neuron0", 0o600 | stat.S_IFCHR, os.makedev(unused_major(), 0))
    with pytest.raises(NoDevice, match="no driver answers"):
        KernelDriver().owners(0)


@pytest.mark.parametrize("device", [-1, layout.MAX_DEVICES, 10**30])
def test_a_number_that_no_device_has(dev, device):
    driver = KernelDriver()
    for call in (driver.acquire, driver.owners, driver.totals):
        with pytest.raises(BadIndex, match="0 to 63"):
            call(device)
    with pytest.raises(NoDevice):
        driver.properties(device)


def open_as_nobody() -> list[Any]:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        get_driver().owners(0)
    except AccessDenied as e:
        return [e.errno, e.device, e.path, isinstance(e, PermissionError), str(e)]
    return []


@as_root
def test_a_node_of_somebody_else(nodes):
    nodes.node().chmod(0o660)
    number, device, path, is_permission, text = nodes.call(open_as_nobody)
    assert (number, device, path, is_permission) == (errno.EACCES, 0, str(nodes.node()), True)
    assert "join the node's group" in text


def test_a_device_that_the_container_may_not_use(dev):
    # What the kernel says where a cgroup's rules forbid it, which a test can't make.
    error = kernel._open_error(OSError(errno.EPERM, ""), 3, "/dev/neuron3")
    assert isinstance(error, AccessDenied)
    assert (error.errno, error.device) == (errno.EACCES, 3)
    assert "--device" in str(error)


def open_without_descriptors() -> int | None:
    get_driver()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        get_driver().owners(0)
    except SystemFailure as e:
        return e.errno
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return None


def test_another_failure_keeps_its_number(nodes):
    assert nodes.call(open_without_descriptors) == errno.EMFILE


def meet_a_full_device() -> list[str]:
    others = [Child(look_and_wait) for _ in range(layout.SLOTS_PER_DEVICE)]
    pids = [other.expect() for other in others]
    driver = get_driver()
    seen = []
    for call in (driver.owners, driver.acquire, driver.totals, lambda n: driver.attach(n, pids[0])):
        with pytest.raises(DeviceBusy) as busy:
            call(0)
        assert (busy.value.errno, busy.value.device) == (errno.EBUSY, 0)
        seen.append(str(busy.value))
    assert [o.pid for o in driver.owners(1)] == [os.getpid()]  # another device is another matter
    others[5].close()
    assert {o.pid for o in driver.owners(0)} == {*pids, os.getpid()} - {pids[5]}
    for other in others:
        other.close()
    return seen


def test_a_device_that_sixteen_have_open(nodes):
    seen = nodes.call(meet_a_full_device)
    assert len(seen) == 4
    assert all("monitors among them" in text for text in seen)


# --- Descriptors


def use_everything() -> dict[str, list[str]]:
    driver = get_driver()
    with Child(publish_and_wait) as child:
        pid = child.expect()
        for device in driver.devices():
            for _ in range(2):
                driver.properties(device)
                driver.owners(device)
                driver.totals(device)
                with datastore.publish(device) as producer:
                    producer.core(0).inference_count.add(1)
                    datastore.attach(os.getpid(), device).close()
        datastore.attach(pid, 0).snapshot()
    found = node_descriptors()
    return {"paths": sorted(found.values()), "kept": [p for fd, p in found.items() if os.get_inheritable(fd)]}


def test_a_process_has_one_descriptor_per_device(nodes):
    assert nodes.call(use_everything) == {"paths": [str(nodes.node(0)), str(nodes.node(1))], "kept": []}


def fork_beside_a_producer() -> dict[str, Any]:
    producer = datastore.publish(0, tag="parent")
    (fd,) = node_descriptors()

    def child(talk: Talk) -> dict[str, Any]:
        before = {o.pid for o in KernelDriver().owners(0)}
        own = set(node_descriptors()) - {fd}
        with datastore.publish(0, tag="child") as mine:
            pids = {o.pid for o in get_driver().owners(0) if o.state == "owned"}
            reader = datastore.attach(os.getppid(), 0)
            return {
                "attached": before == {os.getpid(), os.getppid()},
                "owners": pids == {os.getpid(), os.getppid()},
                "descriptors of its own": len(own),
                "its parent's is open": stat.S_ISCHR(os.fstat(fd).st_mode),
                "tags": [mine.snapshot().tag, reader.snapshot().tag],
                "the parent's handle": outcome(lambda: producer.core(0).inference_count.add(1)),
                "closing it": outcome(producer.close),
            }

    seen = result_of(child)
    seen["parent afterwards"] = [list(node_descriptors()) == [fd], producer.snapshot().tag, outcome(producer.close)]
    return seen


def test_a_forked_child_opens_its_own_and_leaves_its_parents(nodes):
    assert nodes.call(fork_beside_a_producer) == {
        "attached": True,
        "owners": True,
        "descriptors of its own": 1,
        "its parent's is open": True,
        "tags": ["child", "parent"],
        "the parent's handle": "ForkedChild",
        "closing it": "ok",
        "parent afterwards": [True, "parent", "ok"],
    }


def attach_thousands_of_times(how: str) -> list[int]:
    with Child(publish_and_wait, 0 if how == "refused" else layout.HEADER_WORD) as child:
        pid = child.expect()
        get_driver().owners(0)
        before = descriptors()
        for _ in range(2000):
            if how == "nobody":
                assert outcome(lambda: datastore.attach(os.getpid(), 0)) == "NoSlab"
            elif how == "refused":
                assert outcome(lambda: datastore.attach(pid, 0)) == "NotReady"
            elif how == "closed":
                datastore.attach(pid, 0).close()
            else:
                datastore.attach(pid, 0)
        return [before, descriptors()]


@pytest.mark.parametrize("how", ["closed", "forgotten", "nobody", "refused"])
def test_attaching_leaves_no_descriptor_behind(nodes, how):
    before, after = nodes.call(attach_thousands_of_times, how)
    assert after == before


def elsewhere(other: str) -> list[Any]:
    """A producer whose nodes are looked for in another folder by now."""
    producer = datastore.publish(0, tag="first")
    fds = node_descriptors()
    os.environ[kernel.DEV_VARIABLE] = other
    second = datastore.publish(0, tag="second")
    assert second is not producer
    second.close()
    alive = not producer.closed
    producer.close()
    os.environ[kernel.DEV_VARIABLE] = os.path.dirname(next(iter(fds.values())))
    states = [o.state for o in KernelDriver().owners(0)]
    return [alive, states, len(node_descriptors())]


def test_a_slab_is_given_back_where_it_was_taken(nodes):
    # Device 1 under the name of device 0, in a folder of its own.
    other = nodes.folder / "other"
    other.mkdir()
    (other / "neuron0").hardlink_to(nodes.node(1))
    assert nodes.call(elsewhere, str(other)) == [True, ["attached"], 2]


# --- Slabs


def attach_what_is_not_there() -> dict[str, str]:
    driver = get_driver()
    found = {}
    for pid in (os.getpid(), 1, 0, -1, 2**31 - 1, 2**31, 10**30):
        with pytest.raises(NoSlab) as refused:
            driver.attach(0, pid)
        assert (refused.value.errno, refused.value.device, refused.value.pid) == (errno.ENOENT, 0, pid)
    assert [o.state for o in driver.owners(0)] == ["attached"]  # and no look claimed a slab
    for name, call in {
        "slot": lambda: driver.attach(0, slot=0),
        "pid and slot": lambda: driver.attach(0, os.getpid(), slot=0),
        "nothing": lambda: driver.attach(0),
        "reset": lambda: driver.reset(0),
    }.items():
        with pytest.raises((NotSupported, BadIndex)) as refused:
            call()
        found[name] = refused.type.__name__
    return found


def test_what_can_not_be_attached(nodes):
    refused = {"slot": "NotSupported", "pid and slot": "NotSupported", "nothing": "BadIndex", "reset": "NotSupported"}
    assert nodes.call(attach_what_is_not_there) == refused


def attach_by_header(header: int) -> str:
    with Child(publish_and_wait, header) as child:
        pid = child.expect()
        with pytest.raises((NotReady, WrongVersion)) as refused:
            datastore.attach(pid, 0)
        assert (refused.value.device, refused.value.pid) == (0, pid)
    return refused.type.__name__


@pytest.mark.parametrize(("header", "kind"), [(0, "NotReady"), (1, "NotReady"), (OTHER_VERSION, "WrongVersion")])
def test_a_slab_that_can_not_be_read(nodes, header, kind):
    assert nodes.call(attach_by_header, header) == kind


def publish_beside_another_version(header: int) -> list[Any]:
    """Something else in this process has the slab, with a descriptor of its own."""
    fd = os.open(f"{kernel.dev_root()}/neuron0", os.O_RDWR | os.O_CLOEXEC)
    mapping = _core.map(fd, *_core.kernel_acquire(fd, 0), True, None)
    mapping.store(0, header)
    mapping.store(5, 55)
    try:
        datastore.publish(0).close()
        said = ""
    except WrongVersion as e:
        said = str(e)
    return [said, mapping.load(0) == header, mapping.load(5), [o.state for o in get_driver().owners(0)]]


def test_a_slab_of_another_version_in_this_process_is_left_alone(nodes):
    said, *rest = nodes.call(publish_beside_another_version, OTHER_VERSION)
    assert "publish from a process of its own" in said
    assert rest == [True, 55, ["owned"]]


def test_a_runtime_s_slab_is_joined_and_not_given_back(nodes):
    assert nodes.call(publish_beside_another_version, layout.HEADER_WORD) == ["", True, 55, ["owned"]]


def lose_the_slab() -> list[Any]:
    """Released behind the driver's back, as the close of a duplicate does."""
    old = datastore.publish(0, tag="old")
    (fd,) = node_descriptors()
    _core.kernel_release(fd, 0)
    new = datastore.publish(0, tag="new")
    same = datastore.publish(0)
    seen = [old.closed, new.closed, same.snapshot().tag, outcome(lambda: old.core(0).inference_count.add(1))]
    with Child(lambda talk: datastore.attach(os.getppid(), 0).snapshot().tag) as reader:
        seen.append(reader.expect())
    old.close()
    seen.append(new.closed)
    new.close()
    return [*seen, same.closed, [o.state for o in get_driver().owners(0)]]


def test_a_slab_lost_behind_our_back_is_published_anew(nodes):
    assert nodes.call(lose_the_slab) == [True, False, "new", "Closed", "new", False, True, ["attached"]]


# --- Other pid namespaces

SHIFT = 1 << 22  # above every pid


def look_from_a_container() -> dict[str, Any]:
    """The calls answer as they do to a process whose pids the driver doesn't know: with the host's."""
    apps, acquire, pidfds = _core.kernel_apps, _core.kernel_acquire, []
    _core.kernel_apps = lambda fd: [(pid + SHIFT, *rest) for pid, *rest in apps(fd)]
    _core.kernel_acquire = lambda fd, pid: acquire(fd, pid and pid - SHIFT)
    os.pidfd_open = lambda pid, flags=0: pidfds.append(pid) or -1
    with Child(publish_and_wait) as child:
        pid = child.expect()
        owners = KernelDriver().owners(0)
        lease = KernelDriver().attach(0, pid + SHIFT)
    return {
        "foreign": [o.foreign for o in owners],
        "states": sorted(o.state for o in owners),
        "header": lease.mapping.header() == layout.HEADER_WORD,
        "pidfds": pidfds,
    }


def test_pids_of_the_host_are_foreign_and_never_taken_for_ours(nodes):
    seen = nodes.call(look_from_a_container)
    assert seen == {
        "foreign": [True, True],
        "states": ["attached", "owned"],
        "header": True,
        "pidfds": [],
    }


# --- Totals


def come_and_go(talk: Talk, rounds: int) -> None:
    for _ in range(rounds):

        def once(inner: Talk) -> int:
            producer = datastore.publish(0, tag="brief")
            producer.core(1).inference_count.add(7)
            producer.core(1).mac_count.add(5)
            if os.getpid() % 2:
                producer.close()
            return 0

        result_of(once)
    talk.say("done")


def watch_totals(children: int, rounds: int) -> list[Any]:
    driver, seen = get_driver(), [0]
    working = [Child(come_and_go, rounds) for _ in range(children)]
    for child in working:
        while not child._pending and not _has_said(child):
            try:
                seen.append(driver.totals(0).core(1)["inference_count"])
            except TableBusy:
                continue
        child.expect()
        child.close()
    totals = driver.totals(0).core(1)
    return [seen == sorted(seen), totals["inference_count"], totals["mac_count"], len(seen) > 1]


def _has_said(child: Child) -> bool:
    import select

    return bool(select.select([child._read_fd], [], [], 0)[0])


def test_totals_only_grow_while_processes_come_and_go(nodes):
    assert nodes.call(watch_totals, 3, 12) == [True, 3 * 12 * 7, 3 * 12 * 5, True]


# --- What sysfs tells


def test_properties_come_from_sysfs(dev, tmp_path, monkeypatch):
    monkeypatch.delenv(kernel.LOGICAL_VARIABLE, raising=False)
    (dev / "neuron3").touch()
    architecture = tmp_path / "sysfs/neuron3/info/architecture"
    architecture.mkdir(parents=True)
    (architecture / "instance_type").write_text("Inf2.48xlarge\n")
    (architecture / "device_name").write_text("Inferentia2\n")
    (tmp_path / "sysfs/neuron3/core_count").write_text("2\n")
    p = KernelDriver().properties(3)
    assert (p.type, p.name, p.cores, p.logical_config) == ("inf2", "Inferentia2", 2, 1)
    assert (p.memory_bytes, p.path) == (32 << 30, str(dev / "neuron3"))
    monkeypatch.setenv(kernel.LOGICAL_VARIABLE, "2")
    assert KernelDriver().properties(3).logical_cores == 1
    (architecture / "instance_type").write_text("Unheard1\n")
    (tmp_path / "sysfs/neuron3/core_count").write_text("many\n")
    p = KernelDriver().properties(3)
    assert (p.type, p.cores, p.memory_bytes) == ("unheard1", None, None)


def test_without_sysfs_nothing_is_invented(dev):
    (dev / "neuron0").touch()
    p = KernelDriver().properties(0)
    assert (p.type, p.name, p.cores, p.memory_bytes, p.logical_cores) == (None, None, None, None, None)


def test_only_nodes_are_devices(dev):
    for name in ("neuron0", "neuron11", "neuron63", "neuron64", "neuron01", "neuron", "neuron1x", "xneuron1"):
        (dev / name).touch()
    assert KernelDriver().devices() == [0, 11, 63]


# --- The choice


def chosen() -> str:
    return get_driver().name


def refused_by_auto() -> str:
    return outcome(lambda: datastore.publish(0))


def test_auto_takes_the_kernel_driver_where_there_is_a_node(nodes, tmp_path):
    assert nodes.call(chosen) == "kernel"
    assert nodes.call(chosen, NEURON_DS_DRIVER="auto") == "kernel"
    assert nodes.call(chosen, NEURON_DS_DRIVER="software") == "software"
    assert nodes.call(chosen, NEURON_DS_DEV=str(tmp_path)) == "software"
    assert nodes.call(chosen, NEURON_DS_DEV=str(tmp_path / "nowhere")) == "software"
    assert nodes.call(chosen, NEURON_DS_DEV=str(tmp_path), NEURON_DS_DRIVER="kernel") == "kernel"


def test_auto_never_falls_back(nodes, tmp_path):
    (tmp_path / "neuron0").touch()
    assert nodes.call(refused_by_auto, NEURON_DS_DEV=str(tmp_path)) == "NoDevice"
    assert not Path(nodes.environment["NEURON_DS_DIR"]).exists()
