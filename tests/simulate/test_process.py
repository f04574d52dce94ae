"""One real process: exact counts while it holds, and every way to halt and end it."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from neuron_ds import attach, errors, owners
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import AccessDenied, BadIndex, BadValue, NeuronDSError, NoDriver, ProducerGone, SlotsFull
from neuron_ds.simulate import PATTERNS, Workload, start
from neuron_ds.simulate.devices import driver_name
from neuron_ds.simulate.launch import Lines
from tests.simulate.helpers import differences

IDLE = Workload(pattern=PATTERNS["idle"]())
BUSY = Workload(cores=((0, 0), (0, 1)), seed=9)


def test_it_is_ready_once_its_slab_is_published():
    with start(BUSY, events=0) as process, attach(process.pid, 0) as reader:
        assert process.pid != os.getpid()
        assert reader.slot == process.slots[0]
        assert reader.snapshot().tag == process.tag == "bert-serving-0"
        assert process.wait_played() == 0
        assert differences(process) == []


def test_it_shows_exactly_what_is_expected_wherever_it_is_halted():
    with start(BUSY, events=1000, speed=None) as process:
        assert process.wait_played() == 1000
        assert differences(process) == []
        assert process.advance(57) == 1057
        assert differences(process) == []
        process.resume()
        halted = process.pause()
        assert halted >= 1057
        assert differences(process) == []
        assert process.pause() == halted, "it is halted already"
        assert process.resume(until=halted + 500).wait_played() == halted + 500
        assert differences(process) == []
        report = process.end()
    assert (report.events, report.exit_code, report.error) == (halted + 500, 0, "")


def test_it_can_be_halted_in_real_time():
    with start(BUSY, speed=20.0) as process:
        process.advance(200)
        process.resume()
        process.pause()
        assert differences(process) == []


def test_while_it_runs_nobody_can_say_what_it_shows():
    with start(IDLE) as process, pytest.raises(NeuronDSError, match="is running.*pause it first"):
        process.expected()


def test_a_script_that_ends_leaves_the_process_with_its_slab():
    with start(IDLE, events=10_000, speed=None) as process:
        played = process.wait_played()
        assert 0 < played < 10_000
        assert process.advance(5) == played
        assert differences(process) == []
        process.resume()
        assert process.pause() == played


def test_ended_it_has_given_its_slab_back():
    with start(IDLE) as process:
        assert [o.pid for o in owners(0)] == [process.pid]
    assert owners(0) == []
    assert process.report.error == ""
    assert process.end() is process.report


def test_killed_its_slot_is_left_to_be_recovered():
    with start(IDLE) as process:
        report = process.kill()
        assert (report.exit_code, report.error, report.events) == (-signal.SIGKILL, "was killed by SIGKILL", None)
        assert [(o.pid, o.alive) for o in owners(0)] == [(process.pid, False)]
    with start(IDLE):
        assert process.pid not in [o.pid for o in owners(0)]
    with pytest.raises(ProducerGone, match="was killed by SIGKILL"):
        process.resume(until=5).wait_played()


def test_frozen_it_stands_still_and_thawed_it_goes_on():
    with start(BUSY, speed=None) as process, attach(process.pid, 0) as reader:
        process.freeze()
        assert reader.snapshot().to_dict()["nc"] == reader.snapshot().to_dict()["nc"]
        with pytest.raises(NeuronDSError, match="is frozen"):
            process.pause()
        process.thaw()
        process.pause()
        assert differences(process) == []


def test_frozen_it_can_still_be_ended():
    with start(BUSY, speed=None) as process:
        process.freeze()
        assert process.end().error == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number):
    with start(BUSY) as process:
        os.kill(process.pid, number)
        with pytest.raises(ProducerGone, match="has ended"):
            process.wait_played()
    assert (process.report.exit_code, process.report.error) == (0, "")
    assert owners(0) == []


def test_it_outlives_the_thread_that_asked_for_it():
    started = []
    thread = threading.Thread(target=lambda: started.append(start(BUSY, events=0)))
    thread.start()
    thread.join()
    with started[0] as process:
        assert process.advance(20) == 20


def test_a_process_on_two_devices_has_a_slab_on_each():
    workload = Workload(pattern=PATTERNS["training"](), cores=((0, 6), (1, 0), (1, 1)))
    with start(workload, events=300, speed=None) as process:
        process.wait_played()
        assert set(process.slots) == {0, 1}
        assert process.expected()[1].nc(1, "infer_completed") > 0
        assert differences(process) == []


def test_a_directory_stands_for_the_variable(tmp_path):
    with start(IDLE, directory=str(tmp_path / "elsewhere")) as process:
        assert owners(0, SoftwareDriver(str(tmp_path / "elsewhere")))[0].pid == process.pid


# --- what is refused --------------------------------------------------------------------------------------------------


def test_another_driver_of_the_environment_is_refused(monkeypatch, home):
    monkeypatch.setenv("NEURON_DS_DRIVER", "kernel")
    with pytest.raises(NoDriver, match="names the driver 'kernel'.*ask for that driver by name"):
        start(IDLE)
    assert not home.exists()
    with start(IDLE, driver="software") as process:
        assert owners(0, SoftwareDriver())[0].pid == process.pid


@pytest.mark.parametrize("value", ["", "auto", "software"])
def test_the_environment_may_name_the_software_driver(value):
    assert driver_name(None, {"NEURON_DS_DRIVER": value}) == driver_name(None, {}) == "software"


def test_an_unknown_driver_is_named():
    with pytest.raises(NoDriver, match="'nonesuch'"):
        start(IDLE, driver="nonesuch")


def test_what_keeps_the_process_from_publishing_is_raised_here(home):
    with pytest.raises(BadValue, match="tag is 300 bytes long"):
        start(Workload(tag="t" * 300))
    with pytest.raises(BadIndex, match=r"core 4 does not exist.*trn1 and has 2"):
        start(Workload(cores=((1, 4),)), type="trn1")
    home.chmod(0o777)
    with pytest.raises(AccessDenied, match="chmod go-w"):
        start(IDLE)


@pytest.mark.slow
def test_the_seventeenth_process_gets_the_drivers_error():
    processes = [start(IDLE, events=0) for _ in range(16)]
    with pytest.raises(SlotsFull, match="all 16 slots are taken") as e:
        start(IDLE)
    assert e.value.errno == errors.SlotsFull.code
    for process in processes:
        process.end()


# --- by hand ----------------------------------------------------------------------------------------------------------


def by_hand(*arguments, **options):
    command = [sys.executable, "-m", "neuron_ds.simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=30, **options)


def test_by_hand_it_ends_after_so_many_events():
    result = by_hand("inference", "--events", "400", "--speed", "inf", "--cores", "0/0-1")
    said = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(s["state"], s["events"]) for s in said] == [("ready", 0), ("played", 400), ("ended", 400)]
    assert (result.returncode, result.stderr) == (0, "")


def test_by_hand_it_ends_after_so_long():
    result = by_hand("idle", "--seconds", "0.05", "--cores", "2/0")
    assert json.loads(result.stdout.splitlines()[-1])["state"] == "ended"
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sleeping"], "no pattern is called 'sleeping'"),
        (["idle", "--cores", "0/9"], "core 9 does not exist"),
        (["idle", "--driver", "nonesuch"], "no driver is called 'nonesuch'"),
    ],
)
def test_by_hand_an_error_is_one_line(arguments, says):
    result = by_hand(*arguments)
    assert result.returncode == 1
    assert says in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_by_hand_bad_arguments_are_status_2():
    assert by_hand("idle", "--speed", "0").returncode == 2
    assert by_hand().returncode == 2


def test_by_hand_nobody_need_listen():
    command = [sys.executable, "-m", "neuron_ds.simulate", "inference", "--events", "50", "--speed", "inf"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_lines_come_whole_and_end():
    reader, writer = os.pipe()
    lines = Lines(reader)
    assert lines.next(0) is None
    os.write(writer, b"one\ntw")
    assert lines.next(0) == b"one"
    assert lines.next(0) is None
    assert not lines.ended
    os.write(writer, b"o\nthree\n")
    assert [lines.next(0), lines.next(0), lines.next(0)] == [b"two", b"three", None]
    os.close(writer)
    assert lines.next(0) is None
    assert lines.ended
    os.close(reader)
