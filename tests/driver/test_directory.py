"""The software driver's directories: how devices are made, whom to trust, and what happens when they go."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    AccessDenied,
    BadValue,
    LayoutMismatch,
    NeuronDSError,
    NoDevice,
)
from tests.devices import USES, entries, files_of, mode, probe_and_die, put_word
from tests.processes import Child, Program, Talk, result_of, unshare

# --- Properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "cores", "memory", "logical_config", "logical_cores"),
    [("trn1", 2, 32 << 30, 1, 2), ("inf2", 2, 32 << 30, 1, 2), ("trn2", 8, 96 << 30, 2, 4)],
)
def test_presets(driver, root, type, cores, memory, logical_config, logical_cores):
    made = driver.probe(3, type=type)
    assert made == driver.properties(3)
    assert (made.type, made.cores, made.memory_bytes, made.logical_config) == (type, cores, memory, logical_config)
    assert (made.device, made.name, made.logical_cores) == (3, f"{type}-3", logical_cores)
    assert made.path == f"{root}/neuron3"


def test_the_first_publish_makes_device_0_a_trn2(driver):
    assert driver.devices() == []
    with datastore.publish(0, driver=driver) as producer:
        assert (producer.properties.type, producer.properties.cores) == ("trn2", 8)
    assert driver.devices() == [0]
    with pytest.raises(NoDevice, match="device 0 alone"):
        datastore.publish(1, driver=driver)


def test_departures_from_a_preset(driver):
    made = driver.probe(0, type="trn2", cores=16, memory_bytes=1 << 40, logical_config=1, name="größer")
    assert (made.cores, made.memory_bytes, made.logical_config, made.name) == (16, 1 << 40, 1, "größer")
    with datastore.publish(0, driver=driver) as producer:
        producer.core(15).counter(94).set(5)
        assert producer.snapshot().nc(15, 94) == 5
    assert driver.probe(1, type="trn2", cores=1).logical_config == 1
    assert driver.probe(2, type="trn1", logical_config=2).logical_cores == 1
    assert driver.probe(3, name="x" * 64).name == "x" * 64


def test_a_device_that_is_there_keeps_its_properties(driver):
    driver.probe(0, type="trn1")
    assert driver.probe(0, type="trn2").type == "trn1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"type": "h100"}, "'h100' is unknown; it is one of trn1, inf2, trn2"),
        ({"cores": 0}, "1 to 16 physical cores, not 0"),
        ({"cores": 17}, "1 to 16 physical cores, not 17"),
        ({"logical_config": 3}, "1 or 2 physical cores per logical core"),
        ({"logical_config": 0}, "1 or 2 physical cores per logical core"),
        ({"cores": 3, "logical_config": 2}, "divides the 3 cores"),
        ({"memory_bytes": -1}, "not -1 bytes"),
        ({"memory_bytes": 1 << 63}, "bytes"),
        ({"name": "x" * 65}, "65 bytes long; it holds 64"),
        ({"name": "é" * 33}, "66 bytes long; it holds 64"),
    ],
)
def test_bad_properties(driver, root, wrong, message):
    with pytest.raises(BadValue, match=message) as bad:
        driver.probe(0, **wrong)
    assert bad.value.errno == errno.EINVAL
    assert entries(root) == []


def test_64_devices_and_no_more(tmp_path):
    driver = SoftwareDriver(str(tmp_path / "d"))
    for device in range(layout.MAX_DEVICES):
        driver.probe(device, type="trn1")
    assert driver.devices() == list(range(layout.MAX_DEVICES))
    with datastore.publish(63, driver=driver) as producer:
        assert [o.device for o in driver.owners(63)] == [63]
        assert producer.snapshot().device == 63
    with pytest.raises(NeuronDSError, match="0 to 63"):
        driver.probe(64)


def test_what_else_lies_in_a_root_is_no_device(driver, root):
    driver.probe(7)
    for name in ("neuron", "neuron01", "neuron64", "neuron100", "neuronx", ".new-neuron1-1-aa", "xneuron1"):
        os.mkdir(f"{root}/{name}", 0o700)
    assert driver.devices() == [7]


# --- Made whole or not at all ---------------------------------------------------------------------------------------


def test_files_and_modes(driver, root):
    driver.probe(0)
    assert entries(root) == ["neuron0"]
    assert {name: os.stat(f"{root}/neuron0/{name}").st_size for name in entries(f"{root}/neuron0")} == d.FILE_SIZES
    assert [mode(p) for p in (root, f"{root}/neuron0", *files_of(root))] == [0o700, 0o700] + [0o600] * 4
    allocated = sum(os.stat(p).st_blocks * 512 for p in files_of(root))
    assert allocated >= d.DEVICE_BYTES, "memory that is not reserved now is a crash later"


def test_umask_does_not_open_or_close_anything(root):
    def work(talk: Talk) -> list[int]:
        os.umask(0o777)
        try:
            SoftwareDriver(root).probe(0)
        except AccessDenied:  # a user other than root locks itself out
            return []
        os.umask(0)
        SoftwareDriver(root + "-2").probe(0)
        return [mode(p) for p in (root + "-2", f"{root}-2/neuron0", *files_of(root + "-2"))]

    assert result_of(work) in ([0o700, 0o700] + [0o600] * 4, [])


FULL = """
import os, subprocess
from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError
mount = sys.argv[1]
os.mkdir(mount, 0o700)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", mount], check=True)
root = mount + "/devices"
for call in (lambda: SoftwareDriver(root).probe(0), lambda: datastore.publish(0, driver=SoftwareDriver(root))):
    try:
        call()
    except NeuronDSError as e:
        say(type(e).__name__, e.errno, str(e), os.listdir(root))
    else:
        say("nothing was raised")
subprocess.run(["mount", "-o", "remount,size=16m", mount], check=True)
with datastore.publish(0, driver=SoftwareDriver(root)) as producer:
    say(producer.slot)
"""


def test_a_full_file_system_is_an_error_with_the_size_and_leaves_nothing(root):
    with Program(FULL, root, wrapper=unshare("--mount")) as program:
        for _ in range(2):
            name, code, message, left = program.expect()
            assert (name, code, left) == ("NoSpace", errno.ENOSPC, [])
            assert f"needs {d.DEVICE_BYTES:,} bytes" in message
            assert "/dev/shm" in message
            assert f"{root}/devices/neuron0" in message
        assert program.expect() == 0  # and with room it works, in the same process


def test_many_processes_probe_one_device_at_once(root, driver):
    def work(talk: Talk) -> None:
        own = SoftwareDriver(root)
        talk.say("ready")
        talk.hear()
        producer = datastore.publish(0, driver=own)
        talk.say([producer.slot, os.stat(f"{root}/neuron0").st_ino])
        talk.hear()

    children = [Child(work) for _ in range(layout.SLOTS_PER_DEVICE)]
    try:
        for child in children:
            child.expect()
        for child in children:
            child.tell("go")
        answers = [child.expect() for child in children]
        assert sorted(slot for slot, _ in answers) == list(range(layout.SLOTS_PER_DEVICE))
        assert {inode for _, inode in answers} == {os.stat(f"{root}/neuron0").st_ino}
        assert entries(root) == ["neuron0"]
        assert sorted(o.pid for o in driver.owners(0)) == sorted(child.pid for child in children)
    finally:
        for child in children:
            child.close()


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("mkdir", 2),
        ("posix_fallocate", 1),
        ("posix_fallocate", 2),
        ("posix_fallocate", 3),
        ("pwrite", 1),
        ("rename", 1),
    ],
)
def test_killed_while_probing(root, driver, call, number):
    with Child(probe_and_die, root, call, number, signal.SIGKILL) as child:
        assert child.wait() == -signal.SIGKILL
    assert driver.devices() == []
    with pytest.raises(NoDevice):
        driver.properties(0)
    left = entries(root)
    assert all(name.startswith(".new-neuron0-") for name in left)
    assert len(left) == (call != "mkdir")
    driver.probe(0)
    assert entries(root) == [*left, "neuron0"], "what is fresh may still be somebody's work"
    for name in left:
        os.utime(f"{root}/{name}", (time.time() - 3600,) * 2)
    driver.probe(1)
    assert entries(root) == ["neuron0", "neuron1"]


# --- Tables of another kind -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
def test_another_version_is_refused_and_both_are_named(driver, device0, use):
    put_word(f"{device0}/{d.TABLE}", t.W_VERSION, 7)
    with pytest.raises(LayoutMismatch, match=r"version 7, this driver knows version 1.*remove the directory") as other:
        USES[use](driver)
    assert (other.value.errno, other.value.path) == (errno.EPROTO, device0)
