"""Every reason for seeing nothing, provoked for real, and what the doctor says of it.

Knows doctor and how to make each reason; nothing of how findings are printed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from neuron_ds import doctor, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import get_driver, kernel
from neuron_ds.driver import table as t
from tests.cli.helpers import Producer, environment, probe

NOBODY = 65534
#: Makes the directory a file system of 1 MiB in a mount namespace of its own, then asks the doctor.
SMALL = 'mount -t tmpfs -o size=1m,mode=700 tmpfs "$NEURON_DS_DIR" && exec "$0" -m neuron_ds.cli doctor --json'


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("NEURON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    monkeypatch.setenv(kernel.DEV_VARIABLE, str(tmp_path / "dev"))
    return tmp_path / "ds"


@pytest.fixture
def open_directory(monkeypatch):
    """A directory below one that everybody may enter: pytest's own are for their owner alone."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)
        monkeypatch.setenv("NEURON_DS_DIR", f"{above}/ds")
        yield Path(above) / "ds"


def levels(findings):
    """What is not ok; producers elsewhere on this machine are not the test's."""
    return {(f.level, f.subject) for f in findings if f.level != "ok" and f.subject != "elsewhere"}


def the(findings, subject):
    """The one finding on a subject that is not ok."""
    (finding,) = [f for f in findings if f.subject == subject and f.level != "ok"]
    assert finding.advice
    return finding


def examine_as_nobody():
    """The doctor's findings for a user who owns nothing; in a child, because there is no way back."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            doctor.hardware(get_driver())  # what is imported late must be imported while it can be
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(write, json.dumps([f.to_dict() for f in doctor.examine()]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as f:
        data = f.read()
    os.waitpid(pid, 0)
    return [doctor.Finding(**f) for f in json.loads(data)]


# --- There is something to see


def test_a_producer_is_nothing_to_worry_about(directory):
    with Producer(directory, tag="serving") as producer:
        findings = doctor.examine()
    assert not [f for f in findings if f.level == "problem"]
    (seen,) = [f for f in findings if f.subject == "producer"]
    assert str(producer.pid) in seen.message
    assert "serving" in seen.message


def test_the_variables_that_matter_are_shown(directory, monkeypatch):
    monkeypatch.setenv("NEURON_PROCESS_TAG", "mine")
    monkeypatch.setenv("UNRELATED", "yes")
    messages = [f.message for f in doctor.environment()]
    assert f"NEURON_DS_DIR={directory}" in messages
    assert "NEURON_PROCESS_TAG=mine" in messages
    assert not any("UNRELATED" in m for m in messages)


def test_without_variables_it_says_so(monkeypatch, directory):
    monkeypatch.delenv("NEURON_DS_DIR")
    monkeypatch.delenv(kernel.DEV_VARIABLE)
    (finding,) = doctor.environment()
    assert "defaults" in finding.message


# --- Driver and hardware


def test_a_driver_that_does_not_exist(directory, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DRIVER", "imaginary")
    findings = doctor.examine()
    assert levels(findings) == {("problem", "driver")}
    assert "imaginary" in the(findings, "driver").message


def test_a_group_that_does_not_exist(directory, monkeypatch):
    monkeypatch.setenv("NEURON_DS_GROUP", "no-such-group")
    assert "no-such-group" in the(doctor.environment(), "environment").message


def test_accelerators_that_are_not_looked_at(directory, tmp_path, monkeypatch):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    (tmp_path / "dev" / "neuron1").touch()
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    finding = the(doctor.examine(), "hardware")
    assert finding.level == "warn"
    assert finding.message.startswith("2 accelerator nodes")


# --- Directories


def test_no_directory(directory):
    findings = doctor.examine()
    assert levels(findings) == {("problem", "directory"), ("problem", "device")}
    assert str(directory) in the(findings, "directory").message
    assert "simulate" in the(findings, "directory").advice


def test_a_directory_that_may_not_be_read(open_directory):
    probe(open_directory)
    os.chmod(open_directory, 0)
    findings = examine_as_nobody()
    assert "may not be read" in the(findings, "directory").message
    assert "group access" in the(findings, "directory").advice


def test_a_device_that_may_not_be_read(open_directory):
    probe(open_directory)
    os.chmod(open_directory, 0o755)
    os.chmod(open_directory / "neuron0", 0)
    finding = the(examine_as_nobody(), "permission")
    assert finding.level == "problem"
    assert "may not be read" in finding.message
    assert "NEURON_DS_GROUP" in finding.advice


def test_a_device_that_others_can_change(directory):
    probe(directory)
    os.chmod(directory / "neuron0", 0o777)
    assert "chmod" in the(doctor.examine(), "directory").advice


@pytest.mark.parametrize("name", [d.TABLE, d.OWNERS, d.SLABS])
def test_a_file_that_may_not_be_read(open_directory, name):
    probe(open_directory)
    for path in (open_directory, open_directory / "neuron0"):
        os.chmod(path, 0o755)
    for file in d.FILE_SIZES:
        os.chmod(open_directory / "neuron0" / file, 0 if file == name else 0o644)
    findings = examine_as_nobody()
    assert levels(findings) == {("problem", "permission")}
    assert "NEURON_DS_GROUP" in the(findings, "permission").advice


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_directory_that_others_can_change(directory, mode):
    probe(directory)
    os.chmod(directory, mode)
    finding = the(doctor.examine(), "directory")
    assert f"{mode:o}" in finding.message
    assert "chmod" in finding.advice


def test_a_symbolic_link(directory, tmp_path):
    probe(tmp_path / "real")
    directory.symlink_to(tmp_path / "real")
    assert "symbolic link" in the(doctor.examine(), "directory").message


def test_a_directory_deleted_under_its_producer(directory):
    with Producer(directory) as producer:
        shutil.rmtree(directory)
        finding = next(f for f in doctor.examine() if f.subject == "gone" and str(producer.pid) in f.message)
        assert finding.level == "problem"
        assert str(directory) in finding.message
        # Made anew, it is another one: who published before stays unseen.
        probe(directory)
        again = next(f for f in doctor.examine() if f.subject == "gone" and str(producer.pid) in f.message)
        assert again.level == "problem"
        os.kill(producer.pid, signal.SIGKILL)


def test_a_producer_in_another_directory(directory, tmp_path):
    with Producer(tmp_path / "other") as producer:
        findings = doctor.examine()
    finding = next(f for f in findings if f.subject == "elsewhere" and str(producer.pid) in f.message)
    assert finding.level == "warn"
    assert finding.advice == f"set NEURON_DS_DIR={tmp_path / 'other'} to see it"


def test_producers_of_one_directory_are_told_together(directory, tmp_path):
    with Producer(tmp_path / "other") as one, Producer(tmp_path / "other") as two:
        (finding,) = [f for f in doctor.examine() if f.advice.startswith(f"set NEURON_DS_DIR={tmp_path / 'other'} ")]
    first, second = sorted((one.pid, two.pid))
    assert finding.message.startswith(f"processes {first}, {second} publish in {tmp_path / 'other'} (as they see it)")


# --- Room


def test_a_full_file_system(directory):
    directory.mkdir(mode=0o700)
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", SMALL, sys.executable],
        env=environment(directory),
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert done.returncode == 1
    findings = [doctor.Finding(**f) for f in json.loads(done.stdout)["findings"]]
    finding = the(findings, "space")
    assert finding.level == "problem"
    assert f"{d.DEVICE_BYTES:,}" in finding.message
    assert "larger /dev/shm" in finding.advice


def test_a_full_file_system_is_no_problem_for_a_device_that_is_there(directory, monkeypatch):
    real = os.statvfs(directory.parent)
    full = os.statvfs_result((*real[:3], 0, 0, *real[5:10]))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    probe(directory)
    assert the(doctor.examine(), "space").level == "warn"


# --- Devices


def test_no_device(directory):
    d.make_root(str(directory))
    assert levels(doctor.examine()) == {("problem", "device")}


def test_no_producer(directory):
    probe(directory)
    assert levels(doctor.examine()) == {("problem", "producer")}


def test_a_table_of_another_version(directory):
    probe(directory)
    with open(directory / "neuron0" / d.TABLE, "r+b") as f:
        f.seek(t.W_VERSION * 8)
        f.write((t.LAYOUT_VERSION + 1).to_bytes(8, "little"))
    findings = doctor.examine()
    assert levels(findings) == {("problem", "version")}
    message = the(findings, "version").message
    assert f"version {t.LAYOUT_VERSION + 1}" in message
    assert f"version {t.LAYOUT_VERSION}" in message


# --- Slots and slabs


def test_all_slots_taken(directory):
    producers = [Producer(directory) for _ in range(layout.SLOTS_PER_DEVICE)]
    try:
        finding = the(doctor.examine(), "slots")
        assert finding.level == "problem"
        assert all(str(p.pid) in finding.advice for p in producers)
        producers[3].kill()
        assert the(doctor.examine(), "slots").level == "warn"
    finally:
        for p in producers:
            p.__exit__()


def test_a_dead_owner(directory):
    with Producer(directory) as producer:
        producer.kill()
        findings = doctor.examine()
    assert levels(findings) == {("warn", "slots"), ("problem", "producer")}
    assert f"pid {producer.pid}" in the(findings, "slots").message
    assert "recovers" in the(findings, "slots").advice


STOP_IN_RELEASE = """
import os, signal
from neuron_ds.driver.steps import set_hook
print(producer.slot, flush=True)
set_hook(lambda name: name == "release.closing" and os.kill(os.getpid(), signal.SIGSTOP))
producer.close()
"""


def test_a_release_that_does_not_end(directory):
    with Producer(directory, then=STOP_IN_RELEASE) as producer:
        os.waitid(os.P_PID, producer.pid, os.WSTOPPED | os.WNOWAIT)
        finding = the(doctor.examine(), "slots")
        assert "releasing" in finding.message
        producer.kill()


def test_another_pid_namespace(directory):
    with Producer(directory, prefix=("unshare", "-rpf")):
        findings = doctor.examine()
    finding = the(findings, "namespace")
    assert "pid 1 (slot 0)" in finding.message
    assert "--slot" in finding.advice
    assert not [f for f in findings if f.level == "problem"]


def test_a_slab_of_another_version(directory):
    word = layout.HEADER_WORD + (1 << 32)
    with Producer(directory, then=f"producer._lease.mapping.store(0, {word})"):
        finding = the(doctor.examine(), "version")
    assert finding.level == "problem"
    assert str(layout.VERSION + 1) in finding.message


def test_a_slab_without_a_header_is_just_starting(directory):
    with Producer(directory, then="producer._lease.mapping.store(0, 1)"):
        finding = the(doctor.examine(), "producer")
    assert finding.level == "warn"


def test_an_older_runtime(directory):
    at = layout.older_nc_offset(0, 40) // 8 + 1
    with Producer(directory, then=f"producer._lease.mapping.store({at}, 1)"):
        assert "older runtime" in the(doctor.examine(), "layout").message


def test_a_torn_record(directory):
    at = layout.PROCESS_INFO.offset // 8 + 3
    with Producer(directory, then=f"producer._lease.mapping.store({at}, 1)"):
        assert "torn" in the(doctor.examine(), "records").message
