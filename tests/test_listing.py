"""What there is to see, of real producers in a directory of the test's own: taken, dead, unreadable.

Knows listing and the software driver; nothing of how anything is printed.
"""

import json
import os

import pytest

from neuron_ds import listing
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NoDevice
from neuron_ds.records import Version
from tests.cli.helpers import Producer, probe

NEURON_LS_KEYS = (
    "neuron_device bdf cpu_affinity numa_node connected_to nc_count memory_size neuroncore_ids neuron_processes".split()
)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    return tmp_path / "ds"


@pytest.fixture
def driver(directory):
    return SoftwareDriver(str(directory))


def break_table(directory, device=0):
    """Make the table one of another version of the driver."""
    with open(directory / f"neuron{device}" / d.TABLE, "r+b") as f:
        f.seek(t.W_VERSION * 8)
        f.write((t.LAYOUT_VERSION + 1).to_bytes(8, "little"))


def test_nothing_there_is_nothing_listed(driver):
    assert listing.survey(driver) == []
    assert listing.devices(driver) == []
    with pytest.raises(NoDevice):
        listing.owners(0, driver)


def test_the_environment_decides_where_nobody_else_does(directory):
    probe(directory, 0, type="trn1")
    assert [p.type for p in listing.devices()] == ["trn1"]
    assert listing.owners(0) == []
    assert listing.processes(0) == []


def test_a_producer_is_listed_with_what_its_slab_says(directory, driver):
    with Producer(directory, tag="serving") as producer:
        (item,) = listing.survey(driver)
        (process,) = item.processes
    assert (item.device, item.slots_used, item.error) == (0, 1, "")
    assert (process.tag, process.runtime_version, process.error) == ("serving", Version(2, 31, 99), "")
    assert (process.owner.pid, process.owner.slot, process.owner.alive) == (producer.pid, producer.slot, True)
    assert process.owner.age_s >= 0
    assert process.command is not None
    assert "neuron_ds.publish" in process.command


def test_a_dead_producer_keeps_its_slot_and_shows_nothing(directory, driver):
    with Producer(directory, tag="serving") as producer:
        producer.kill()
        (process,) = listing.processes(0, driver)
    assert process.owner.alive is False
    assert (process.tag, process.command) == (None, None)
    assert "recovers" in process.error


def test_a_slab_that_cannot_be_read_says_why(directory, driver):
    with Producer(directory, then="producer._lease.mapping.store(0, 0)"):
        (process,) = listing.processes(0, driver)
    assert process.tag is None
    assert process.error


def test_a_broken_device_does_not_hide_the_others(directory, driver):
    probe(directory, 0)
    probe(directory, 1)
    break_table(directory)
    first, second = listing.survey(driver)
    assert first.properties is None
    assert str(t.LAYOUT_VERSION + 1) in first.error
    assert second.properties is not None
    entries = listing.to_neuron_ls([first, second])
    assert entries[0]["error"] == first.error
    assert entries[0]["nc_count"] is None
    assert entries[1]["neuroncore_ids"] == [4, 5, 6, 7]  # as everywhere else: device times cores of a device


def test_the_shape_of_neuron_ls(directory, driver):
    probe(directory, 0, type="inf2")
    probe(directory, 1)
    with Producer(directory, 1, tag="serving") as producer:
        first, second = json.loads(json.dumps(listing.to_neuron_ls(listing.survey(driver))))
    assert list(first)[: len(NEURON_LS_KEYS)] == NEURON_LS_KEYS
    assert (first["neuron_device"], first["nc_count"], first["neuroncore_ids"]) == (0, 2, [0, 1])
    assert first["memory_size"] == 32 << 30
    assert first["neuron_processes"] == []
    # Eight physical cores, two to a logical one, and numbered on from the first device's.
    assert (second["nc_count"], second["neuroncore_ids"]) == (4, [4, 5, 6, 7])
    assert (second["connected_to"], second["bdf"], second["numa_node"], second["cpu_affinity"]) == (None, "", "", "")
    (process,) = second["neuron_processes"]
    assert process["pid"] == producer.pid
    assert process["neuron_runtime_version"] == "2.31.99"
    assert len(process["command"]) == listing.COMMAND_LIMIT
    assert process["command"].startswith("python")
    assert process["command"].endswith("...")


def test_wide_leaves_the_command_whole(directory, driver):
    with Producer(directory):
        ((entry,),) = [e["neuron_processes"] for e in listing.to_neuron_ls(listing.survey(driver), wide=True)]
    assert "neuron_ds.publish" in entry["command"]
    assert not entry["command"].endswith("...")


@pytest.mark.parametrize("tag", ["\x1b[31mred", "two\nlines", "caf\udce9", "back\\slash"])
def test_odd_tags_leave_for_json_escaped(directory, driver, tag):
    with Producer(directory, tag=tag):
        survey = listing.survey(driver)
    assert survey[0].processes[0].tag == tag
    text = listing.to_neuron_ls(survey)[0]["neuron_processes"][0]["tag"]
    assert text.isprintable()
    text.encode("utf-8")


def test_a_command_that_proc_does_not_tell_is_absent():
    assert listing.command_line(2**22 + 1) is None
    assert "pytest" in listing.command_line(os.getpid())


@pytest.mark.parametrize(("text", "limit", "expected"), [("abcd", 4, "abcd"), ("abcdefgh", 7, "abcd..."), ("", 4, "")])
def test_shorten(text, limit, expected):
    assert listing.shorten(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("abcd", 4, "abcd"), ("abcdefghij", 7, "ab...ij"), ("abcdefghij", 8, "ab...hij"), ("", 4, "")],
)
def test_shorten_in_the_middle(text, limit, expected):
    assert listing.shorten_middle(text, limit) == expected
    assert len(listing.shorten_middle("x" * 100)) == listing.COMMAND_LIMIT


@pytest.mark.parametrize(
    ("command", "expected"),
    [("/usr/bin/python3 /opt/serve.py", "python3 /opt/serve.py"), ("sh", "sh"), ("/x/", "/x/"), ("", ""), ("-", "-")],
)
def test_a_command_in_brief(command, expected):
    assert listing.brief(command) == expected
