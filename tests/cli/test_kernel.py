"""ls, show, check and doctor on device nodes: what differs from devices in directories, on the stand-in.

Knows the command and processes that meet the nodes; the doctor's reasons are tested in their room.
"""

import json

import pytest

from neuron_ds import layout


def data(done):
    """The standard output of a command that had nothing to complain about, as JSON."""
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def complaint(done, code=2):
    """The one line of an error; nothing else may have been printed."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("neuron-ds: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


# --- ls


def test_ls_shows_who_publishes_and_who_only_looks(nodes):
    producer, monitor = nodes.producer(tag="serving"), nodes.monitor(0)
    done = nodes.command("ls")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("\n\n")
    assert first.splitlines()[0].endswith("96 GiB  1 of 16 slots used")
    rows = {int(line.split()[1]): line for line in first.splitlines()[2:]}
    mine = (rows.keys() - {producer.pid, monitor.pid}).pop()
    assert rows[producer.pid].split()[0] == "-"  # there is no telling the slot
    assert "2.31.99  serving" in rows[producer.pid]
    assert "attached" not in rows[producer.pid]
    assert rows[monitor.pid].endswith("attached, publishes nothing")
    assert rows[mine].endswith("attached, publishes nothing (this command)")
    assert "0 of 16 slots used" in second


def test_the_json_of_ls(nodes):
    producer, monitor = nodes.producer(1, tag="serving"), nodes.monitor(1)
    first, second = data(nodes.command("ls", "--json"))
    assert (first["type"], first["name"], first["path"]) == ("trn2", "Trainium2", str(nodes.node(0)))
    assert (first["nc_count"], first["physical_nc_count"], first["memory_size"]) == (4, 8, 96 << 30)
    assert (first["neuroncore_ids"], second["neuroncore_ids"]) == ([0, 1, 2, 3], [4, 5, 6, 7])
    assert (first["slots_used"], second["slots_used"]) == (0, 1)
    processes = {p["pid"]: p for p in second["neuron_processes"]}
    owner, looker = processes[producer.pid], processes[monitor.pid]
    assert (owner["state"], owner["slot"], owner["tag"], owner["alive"]) == ("owned", None, "serving", True)
    assert (owner["neuron_runtime_version"], owner["age_s"], owner["other_pid_namespace"]) == ("2.31.99", None, False)
    assert (looker["state"], looker["tag"], looker["neuron_runtime_version"]) == ("attached", None, "")
    assert "error" not in looker  # nothing was to be read


def test_one_process_is_listed_on_every_device_it_has_open(nodes):
    monitor = nodes.monitor(0, 1)
    for device in data(nodes.command("ls", "--json")):
        assert monitor.pid in {p["pid"] for p in device["neuron_processes"]}


def test_a_full_device_does_not_hide_the_others(nodes):
    for _ in range(layout.SLOTS_PER_DEVICE):
        nodes.monitor(0)
    producer = nodes.producer(1)
    done = nodes.command("ls", "--json")
    assert done.returncode == 0
    assert "16 processes have the device open" in done.stderr
    first, second = json.loads(done.stdout)
    assert (first["neuron_processes"], first["slots_used"]) == (None, None)
    assert "monitors among them" in first["error"]
    # What it is sysfs tells all the same, so the other's cores keep their numbers.
    assert (first["type"], first["neuroncore_ids"]) == ("trn2", [0, 1, 2, 3])
    assert second["neuroncore_ids"] == [4, 5, 6, 7]
    assert producer.pid in {p["pid"] for p in second["neuron_processes"]}
    text = nodes.command("ls")
    assert (text.returncode, text.stdout.splitlines()[0].endswith("96 GiB  not readable")) == (0, True)


def test_no_device_that_can_be_read(nodes, tmp_path):
    assert "no Neuron device: there is no device node in " in complaint(
        nodes.command("ls", NEURON_DS_DEV=str(tmp_path), NEURON_DS_DRIVER="kernel"), 1
    )
    (tmp_path / "neuron0").touch()
    assert "is no device node" in complaint(nodes.command("ls", NEURON_DS_DEV=str(tmp_path)))


# --- show and check


def test_show_finds_the_device_of_a_pid(nodes):
    producer = nodes.producer(1, tag="serving")
    shown = data(nodes.command("show", producer.pid, "--json"))
    assert (shown["device"], shown["pid"], shown["slot"], shown["generation"]) == (1, producer.pid, None, None)
    assert shown["tag"] == "serving"
    assert shown["nc"][0][layout.NC_BY_NAME["inference_count"].index] == 5
    text = nodes.command("show", producer.pid)
    assert text.stdout.startswith(f"device 1, pid {producer.pid}\n")
    assert "inference_count  5" in text.stdout


def test_check_holds_a_live_slab_against_the_format(nodes):
    producer = nodes.producer()
    done = nodes.command("check", producer.pid)
    assert (done.returncode, done.stderr) == (0, f"neuron-ds: device 0, pid {producer.pid}: 0 faults, 0 notes\n")


def test_a_dump_can_be_read_elsewhere(nodes, tmp_path):
    producer = nodes.producer(tag="serving")
    assert nodes.command("show", producer.pid, "--raw", tmp_path / "raw").returncode == 0
    assert data(nodes.command("show", tmp_path / "raw", "--json", NEURON_DS_DEV=str(tmp_path)))["tag"] == "serving"


@pytest.mark.parametrize("name", ["show", "check"])
def test_what_has_no_slab(nodes, name):
    monitor = nodes.monitor(0)
    assert f"pid {monitor.pid}: owns no slab" in complaint(nodes.command(name, monitor.pid))
    assert "owns no slab" in complaint(nodes.command(name, monitor.pid, "--device", 1))
    assert "owns no slab" in complaint(nodes.command(name, "9" * 30, "--device", 0))
    assert "by pid, not by slot" in complaint(nodes.command(name, "--slot", 0))
    assert "by pid, not by slot" in complaint(nodes.command(name, monitor.pid, "--device", 0, "--slot", 0))
    assert "no such node" in complaint(nodes.command(name, monitor.pid, "--device", 7))
    assert "0 to 63" in complaint(nodes.command(name, monitor.pid, "--device", 64))


def test_a_process_that_died(nodes):
    producer = nodes.producer()
    producer.end()
    assert "owns no slab" in complaint(nodes.command("show", producer.pid))
    assert producer.pid not in {p["pid"] for p in data(nodes.command("ls", "-j"))[0]["neuron_processes"]}


# --- doctor


def test_doctor_is_content_with_a_producer(nodes):
    assert nodes.command("doctor").returncode == 1
    nodes.producer()
    value = data(nodes.command("doctor", "--json"))
    assert value["healthy"] is True


def test_doctor_tells_of_a_monitor_and_what_to_do(nodes):
    nodes.producer()
    monitor = nodes.monitor(0)
    done = nodes.command("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("warn") and f"pid {monitor.pid} (" in line)
    assert "has device 0 open and publishes nothing there" in lines[at]
    assert lines[at + 1].lstrip().startswith("-> a monitor does so")
