"""ls, show, check and doctor: what they print, how they end, and that bad input gets one line and never a traceback.

Knows the command and real producers; the rules of the format and the reasons of the doctor are tested in their rooms.
"""

import json
import os
import random

import pytest

from neuron_ds import layout
from tests.cli.helpers import Producer, probe

# --- Bad input, to show and to check


def short(path):
    path.write_bytes(b"nds\0")


def one_byte_short(path):
    path.write_bytes(layout.HEADER_WORD.to_bytes(8, "little").ljust(layout.REQUIRED_SIZE - 1, b"\0"))


def noise(path):
    path.write_bytes(random.Random(3).randbytes(layout.SLAB_SIZE))


def zeros(path):
    path.write_bytes(bytes(layout.REQUIRED_SIZE))


def other_version(path):
    path.write_bytes((layout.HEADER_WORD + (1 << 32)).to_bytes(8, "little").ljust(layout.REQUIRED_SIZE, b"\0"))


def huge(path):
    with open(path, "wb") as f:
        f.truncate(1 << 40)


BAD_FILES = {
    "empty": (lambda path: path.touch(), "0 bytes"),
    "short": (short, "4 bytes"),
    "one byte short": (one_byte_short, str(layout.REQUIRED_SIZE)),
    "random": (noise, "no slab"),
    "unstamped": (zeros, "not stamped"),
    "other version": (other_version, str(layout.VERSION + 1)),
    "huge": (huge, "not stamped"),
    "directory": (lambda path: path.mkdir(), "a directory"),
    "missing": (lambda path: None, "No such file"),
    "loop": (lambda path: path.symlink_to(path), "symbolic links"),
}


@pytest.mark.parametrize("name", ["show", "check"])
@pytest.mark.parametrize(("make", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_gets_one_line(command, tmp_path, name, make, words):
    path = tmp_path / "slab"
    make(path)
    line = command(name, path).line
    assert words in line
    assert str(path) in line


@pytest.mark.parametrize("name", ["show", "check"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_unreadable_is_2_and_prints_no_data(command, golden, name, as_json):
    assert command(name, golden.path("future-version"), *as_json).code == 2
    assert command(name, golden.path("uncommitted"), *as_json).code == 2
    assert command(name, golden.path("truncated"), *as_json).code == 2


@pytest.mark.parametrize("name", ["show", "check"])
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_a_device_is_no_file(command, name, path):
    assert "a device" in command(name, path).line


@pytest.mark.parametrize("name", ["show", "check"])
@pytest.mark.parametrize("pid", ["1", "0", "99999999", "9" * 30])
def test_a_pid_without_a_slab(command, name, pid):
    outcome = command(name, pid)
    assert outcome.code == 2
    assert f"pid {int(pid)}" in outcome.line


@pytest.mark.parametrize("name", ["show", "check"])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "name a pid"),
        (["--slot", "3"], "no such device"),
        (["--slot", "16"], "slots 0 to 15"),
        (["1", "--device", "64"], "0 to 63"),
        (["1", "--device", "-1"], "0 to 63"),
        (["slab", "--device", "0"], "is a file"),
        (["slab", "--slot", "0"], "is a file"),
        (["--slot", "x"], "not a valid integer"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_arguments_that_fit_nothing(command, directory, name, args, words):
    if args == ["--slot", "16"]:
        probe(directory)
    outcome = command(name, *args)
    assert outcome.code == 2
    assert words in outcome.line.lower()


@pytest.mark.parametrize("name", ["show", "check"])
def test_a_process_that_died(command, directory, name):
    with Producer(directory) as producer:
        producer.kill()
        assert command(name, producer.pid).code == 2
        assert "died" in command(name, "--slot", producer.slot).line
        for args in ([producer.pid], [producer.pid, "-d", "0"]):
            assert f"died; its slot {producer.slot} awaits recovery by the next publish" in command(name, *args).line


@pytest.mark.parametrize("name", ["show", "check"])
def test_a_slab_whose_header_is_gone(command, directory, name):
    with Producer(directory, then="producer._lease.mapping.store(0, 1)") as producer:
        outcome = command(name, producer.pid)
    assert outcome.code == 2
    assert f"pid {producer.pid}" in outcome.line


# --- ls


def test_no_device_is_a_reason_and_1(command, directory):
    outcome = command("ls")
    assert outcome.code == 1
    assert str(directory) in outcome.line
    assert "doctor" in outcome.line
    assert command("ls", "--json").out == ""


def test_ls_shows_devices_slots_and_owners(command, directory):
    probe(directory, 1, type="inf2")
    with Producer(directory, tag="serving") as producer:
        outcome = command("ls")
        entries = json.loads(command("ls", "-j").out)
    assert outcome.code == 0
    assert outcome.err == ""
    for word in (str(producer.pid), "serving", "2.31.99", "1 of 16 slots used", "0 of 16 slots used", "inf2"):
        assert word in outcome.out
    assert [len(e["neuron_processes"]) for e in entries] == [1, 0]


def test_ls_tells_the_dead_from_the_living(command, directory):
    with Producer(directory) as producer:
        producer.kill()
        assert "dead" in command("ls").out
        ((process,),) = [e["neuron_processes"] for e in json.loads(command("ls", "-j").out)]
    assert process["alive"] is False
    assert process["tag"] is None


def test_devices_that_cannot_be_read_are_2(command, directory, monkeypatch):
    probe(directory)
    directory.chmod(0o777)
    for name in (["ls"], ["sysfs"], ["show", "1"], ["reset", "--yes"]):
        outcome = command(*name)
        assert outcome.code == 2, name
        assert "lets group or others write" in outcome.line
    assert command("doctor").code == 1  # a problem found is its answer
    monkeypatch.setenv("NEURON_DS_DRIVER", "imaginary")
    assert command("ls").code == 2


def test_ls_begins_commands_with_the_program_and_keeps_their_end(command, directory):
    with Producer(directory):
        row = command("ls").out.splitlines()[-1]
    assert "  python" in row
    assert row.endswith("release")


def test_ls_cuts_commands_unless_wide(command, directory):
    with Producer(directory):
        assert "neuron_ds.publish" not in command("ls").out
        assert "neuron_ds.publish" in command("ls", "--wide").out


def test_a_tag_cannot_command_a_terminal(command, directory):
    with Producer(directory, tag="\x1b]0;mine\x07\n\udcff"):
        for args in (["ls"], ["ls", "-j"], ["show", "--slot", "0"], ["doctor"]):
            out = command(*args).out
            assert "\x1b" not in out
            assert "\x07" not in out
            assert "x1b" in out


# --- show


def test_show_json_has_the_shape_of_the_golden_one(command, golden):
    expected = golden.json("full")
    outcome = command("show", golden.path("full"), "--json")
    shown = json.loads(outcome.out)
    assert outcome.code == 0
    assert {key: shown[key] for key in expected} == expected


def test_show_json_names_counters_of_the_cores_there_are(command, directory):
    probe(directory, 0, type="inf2")
    then = "producer.core(1).inference_count.add(3); producer.core(0).counter(80).set(5)"
    with Producer(directory, then=then) as producer:
        shown = json.loads(command("show", producer.pid, "--json").out)
    counters = shown["counters"]
    assert list(counters) == ["device", "cores"]
    assert list(counters["cores"]) == ["0", "1"]
    assert counters["cores"]["1"]["inference_count"] == 3
    assert counters["cores"]["1"].keys() == {c.name for c in layout.NC if c.kind != layout.RESERVED}
    assert counters["cores"]["0"].keys() - counters["cores"]["1"].keys() == {"reserved_80"}
    assert counters["device"].keys() == {c.name for c in layout.ND if c.kind != layout.RESERVED}


def test_the_named_counters_of_a_file_are_those_of_its_arrays(command, golden):
    shown = json.loads(command("show", golden.path("full"), "--json").out)
    assert len(shown["counters"]["cores"]) == layout.MAX_CORES
    for core, named in shown["counters"]["cores"].items():
        assert all(shown["nc"][int(core)][layout.NC_BY_NAME[name].index] == value for name, value in named.items())


def test_what_nobody_has_published_is_not_zero(command, tmp_path):
    path = tmp_path / "slab"
    path.write_bytes(layout.HEADER_WORD.to_bytes(8, "little").ljust(layout.REQUIRED_SIZE, b"\0"))
    lines = {line.split()[0]: line.split()[1:] for line in command("show", path).out.splitlines()}
    assert lines["runtime"] == lines["framework"] == lines["fal"] == ["-"]


def test_models_without_memory_have_no_table_of_it(command, directory):
    with Producer(directory, then="producer.add_model(ModelNode.build(model_id=7, name='bert'))") as producer:
        text = command("show", producer.pid).out
    assert "bert" in text
    assert "memory of models" not in text


def test_a_missing_record_is_null(command, golden):
    shown = json.loads(command("show", golden.path("sparse"), "--json").out)
    assert shown["process_info_ext"] is None
    assert shown["process_info"]["tag"] == golden.json("sparse")["process_info"]["tag"]
    assert [m["slot"] for m in shown["models"]] == [0, 5, 63]


def test_a_torn_record_is_not_shown_and_says_so(command, golden):
    shown = json.loads(command("show", golden.path("torn"), "--json").out)
    assert [m["slot"] for m in shown["models"]] == [0, 63]
    assert shown["records"]["model_5"] == "torn"
    text = command("show", golden.path("torn")).out
    assert "model slot 5 is torn" in text
    assert "model slot 6 is not published" in text


@pytest.mark.parametrize("name", ["full", "sparse", "torn", "odd", "older"])
def test_every_golden_slab_can_be_shown(command, golden, name):
    outcome = command("show", golden.path(name))
    assert outcome.code == 0
    assert outcome.err == ""
    assert outcome.out.isascii() or name == "odd"


def test_show_names_counters_with_their_units(command, directory):
    then = """
core = producer.core(5)
core.time_in_use.add(1234567)
core.latency_total.set(777)
core.mem_usage_tensors_device.add(3 << 30)
producer.nd.feature_bitmap.or_(3)
producer.add_model(ModelNode.build(model_id=7, name="bert", nc_index=5, mem_usage=[[(0, 0)] * 12, [(1 << 20, 2)] * 12]))
"""
    with Producer(directory, tag="serving", then=then) as producer:
        text = command("show", producer.pid).out
    for words in (
        "core 5 (half of logical core 2)",
        "1,234,567 us",
        "777 us",
        "3 GiB (3,221,225,472)",
        "0x3",
        "2.31.99",
        "bert",
        "12 MiB",
        "this project's reading",
        "serving",
        "3 exact",
    ):
        assert words in text
    assert "infer_completed" not in text


def test_digits_are_a_pid_unless_written_as_a_path(command, golden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "123").write_bytes(golden.bytes("sparse"))
    assert command("show", "123").code == 2
    assert command("show", "./123").code == 0
    assert command("check", "./123").code == 0


def test_the_device_is_found_by_the_pid(command, directory):
    probe(directory, 0)
    probe(directory, 1)
    with Producer(directory, 1) as producer:
        shown = json.loads(command("show", producer.pid, "--json").out)
        assert (shown["device"], shown["pid"], shown["slot"]) == (1, producer.pid, 0)
        assert command("show", producer.pid, "--device", 0).code == 2


def test_a_pid_on_two_devices_says_which_is_shown(command, directory):
    probe(directory, 0)
    probe(directory, 1)
    with Producer(directory, 1, then="other = neuron_ds.publish(0)") as producer:
        outcome = command("show", producer.pid, "--json")
        assert json.loads(outcome.out)["device"] == 0
        assert "also publishes on device 1" in outcome.err
        assert json.loads(command("show", producer.pid, "-d", 1, "-j").out)["device"] == 1


def test_the_raw_bytes_go_to_a_file(command, directory, tmp_path, golden):
    target = tmp_path / "raw"
    assert command("show", golden.path("odd"), "--raw", target).code == 0
    assert target.read_bytes() == golden.bytes("odd")
    outcome = command("show", golden.path("full"), "--raw", target)
    assert outcome.code == 2
    assert "--force" in outcome.line
    assert target.read_bytes() == golden.bytes("odd")
    assert command("show", golden.path("full"), "--raw", target, "--force").code == 0
    assert target.read_bytes() == golden.bytes("full")


def test_a_live_dump_is_a_slab(command, directory, tmp_path):
    with Producer(directory, tag="serving") as producer:
        assert command("show", producer.pid, "--raw", tmp_path / "raw").code == 0
    assert json.loads(command("show", tmp_path / "raw", "--json").out)["tag"] == "serving"
    assert command("check", tmp_path / "raw").code == 0


def test_raw_and_json_are_two_answers(command, golden, tmp_path):
    assert command("show", golden.path("full"), "--json", "--raw", tmp_path / "raw").code == 2
    assert not (tmp_path / "raw").exists()


def test_raw_into_a_directory_that_is_not_there(command, golden, tmp_path):
    assert "No such file" in command("show", golden.path("full"), "--raw", tmp_path / "no" / "raw").line


# --- check


@pytest.mark.parametrize(
    ("name", "code"), [("full", 0), ("sparse", 0), ("odd", 0), ("older", 0), ("torn", 1), ("uncommitted", 2)]
)
def test_check_of_the_golden_slabs(command, golden, name, code):
    assert command("check", golden.path(name)).code == code


def test_check_names_rule_and_offset(command, golden):
    outcome = command("check", golden.path("torn"))
    (fault,) = [line for line in outcome.out.splitlines() if line.startswith("fault")]
    assert f"{layout.model_offset(5):#07x}" in fault
    assert str(layout.model_offset(5)) in fault
    assert "hash" in fault
    assert "1 fault" in outcome.err


def test_check_json(command, golden):
    outcome = command("check", golden.path("torn"), "--json")
    value = json.loads(outcome.out)
    assert (value["faults"], value["source"]) == (1, str(golden.path("torn")))
    assert len(value["findings"]) == value["faults"] + value["notes"]
    assert {"kind": "fault", "rule": "hash", "offset": layout.model_offset(5)}.items() <= value["findings"][0].items()


def test_many_findings_of_one_rule_are_told_short_unless_all_are_wanted(command, golden):
    some, every = (command("check", golden.path("full"), *a).out.splitlines() for a in ([], ["--all"]))
    assert len(some) == 7
    assert "875 more" in some[-1]
    assert len(every) == 881


def test_what_stands_behind_the_blob_is_checked_in_files(command, golden, tmp_path):
    path = tmp_path / "slab"
    path.write_bytes(golden.bytes("sparse").ljust(layout.SLAB_SIZE, b"\0"))
    assert command("check", path).code == 0
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"x")
    outcome = command("check", path, "--json")
    assert outcome.code == 1
    assert json.loads(outcome.out)["findings"][-1]["offset"] == layout.SLAB_SIZE - 1


def test_a_file_that_goes_on_is_looked_at_as_far_as_a_slab_goes(command, golden, tmp_path):
    path = tmp_path / "slabs"
    path.write_bytes(golden.bytes("sparse").ljust(layout.SLAB_SIZE, b"\0") + b"x")
    outcome = command("check", path)
    assert outcome.code == 0
    assert "goes on behind the slab" in outcome.err


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        (layout.REQUIRED_WORDS + 5, "tail"),
        (layout.SLAB_SIZE // 8 - 1, "tail"),
        (layout.PROCESS_INFO.offset // 8 + 3, "hash"),
    ],
)
def test_faults_of_a_live_slab(command, directory, word, rule):
    with Producer(directory, then=f"producer._lease.mapping.store({word}, 1)") as producer:
        outcome = command("check", producer.pid, "--json")
    assert outcome.code == 1
    assert [f["rule"] for f in json.loads(outcome.out)["findings"] if f["kind"] == "fault"] == [rule]


REWRITE = """
import threading
models = [ModelNode.build(model_id=i, name=str(i) * 200) for i in range(2)]
handle = producer.add_model(models[0])
def rewrite():
    while True:
        for model in models:
            handle.update(model)
threading.Thread(target=rewrite, daemon=True).start()
"""


def test_a_record_that_is_being_rewritten_is_no_fault(command, directory):
    with Producer(directory, then=REWRITE) as producer:
        assert [command("check", producer.pid).code for _ in range(20)] == [0] * 20
        producer.kill()


# --- doctor


def test_doctor_says_what_to_do(command, directory):
    outcome = command("doctor")
    assert outcome.code == 1
    assert outcome.err == ""
    assert str(directory) in outcome.out
    assert "-> start a producer" in outcome.out


def test_doctor_is_content_with_a_producer(command, directory):
    with Producer(directory):
        outcome = command("doctor", "--json")
    assert outcome.code == 0
    value = json.loads(outcome.out)
    assert value["healthy"] is True
    assert {"level", "subject", "message", "advice"} == set(value["findings"][0])
