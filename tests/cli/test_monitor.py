"""The command ``monitor`` as a process: its lines, its options, its signals, and what it says when it can't go on."""

import array
import fcntl
import json
import os
import signal
import subprocess
import termios
import time

import pytest

from neuron_ds.cli import main
from tests.cli.helpers import Producer, probe, run, start
from tests.monitor.schemas import check, runtime_of

#: The first line is promised within two seconds; a loaded machine may start an interpreter slowly.
FIRST_S = 6.0


@pytest.fixture
def device(directory):
    probe(directory)
    return directory


def test_one_line_and_the_end(directory):
    with Producer(directory, tag="serving") as producer:
        done = run("monitor", "--once", directory=directory)
        assert (done.returncode, done.stderr) == (0, "")
        runtime = runtime_of(check(done.stdout), producer.pid)
    assert runtime["neuron_runtime_tag"] == "serving"
    assert runtime["error"] == ""
    assert runtime["report"]["memory_used"]["neuron_runtime_used_bytes"]["host"] > 1 << 20
    assert runtime["report"]["memory_used"]["loaded_models"] == []


def test_the_first_line_is_soon_there_and_sigterm_ends_it_well(device):
    began = time.monotonic()
    with start("monitor", directory=device) as process:
        check(process.stdout.readline())
        assert time.monotonic() - began < FIRST_S
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stdout.read() == ""
        assert process.stderr.read() == ""
        assert time.monotonic() - began < FIRST_S + 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_end_it_as_well(device, number):
    with start("monitor", directory=device) as process:
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(10) == 0
        assert process.stderr.read() == ""


def test_so_many_lines_at_the_period(device):
    began = time.monotonic()
    done = run("monitor", "--count", "3", "--period", "300ms", directory=device)
    reports = [check(line + "\n") for line in done.stdout.splitlines()]
    assert (done.returncode, len(reports)) == (0, 3)
    assert time.monotonic() - began > 0.9
    assert reports[2]["system_data"]["vcpu_usage"]["period"] == pytest.approx(0.3, abs=0.25)


def test_a_reader_that_goes_away_ends_it_at_once(device):
    with start("monitor", "--period", "1h", directory=device) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 141
        assert process.stderr.read() == ""


def test_a_reader_that_takes_nothing_does_not_keep_it_from_ending(directory):
    read, write = os.pipe()
    with Producer(directory), start("monitor", "--period", "10ms", directory=directory, stdout=write) as process:
        os.close(write)
        try:
            _wait_until_full(read)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
        finally:
            process.kill()
    os.close(read)


def _wait_until_full(fd):
    """Until nothing more comes, though it is due every 10 ms."""
    before, deadline = -1, time.monotonic() + 30
    while (unread := _unread(fd)) != before or not unread:
        assert time.monotonic() < deadline
        before = unread
        time.sleep(0.5)


def _unread(fd):
    size = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, size)
    return size[0]


def test_no_device_is_an_answer_and_a_directory_that_cannot_be_used_is_none(tmp_path):
    nothing = run("monitor", "--once", directory=tmp_path / "ds")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr == "neuron-ds: no Neuron device; neuron-ds doctor tells more\n"
    probe(tmp_path / "ds")
    (tmp_path / "ds").chmod(0o777)
    unusable = run("monitor", "--once", directory=tmp_path / "ds")
    listed = run("ls", directory=tmp_path / "ds")
    assert (unusable.returncode, unusable.stdout) == (listed.returncode, listed.stdout) == (2, "")
    assert unusable.stderr.count("\n") == 1
    assert "chmod go-w" in unusable.stderr


def test_pretty(device):
    done = run("monitor", "--once", "--pretty", directory=device)
    assert done.stdout.count("\n") > 50
    check(json.dumps(json.loads(done.stdout)) + "\n")


def test_models_can_be_left_out(directory):
    with Producer(directory) as producer:
        done = run("monitor", "--once", "--no-loaded-models", directory=directory)
        assert "loaded_models" not in runtime_of(check(done.stdout), producer.pid)["report"]["memory_used"]


def test_a_configuration(directory, tmp_path):
    path = tmp_path / "monitor.conf"
    path.write_text('{"neuron_runtimes": [{"tag_filter": "^serv", "metrics": [{"type": "memory_used"}]}], "perod": 1}')
    with Producer(directory, tag="serving") as producer, Producer(directory, tag="other"):
        done = run("monitor", "-c", path, "--once", directory=directory)
    (runtime,) = check(done.stdout, strict=False)["neuron_runtime_data"]
    assert (runtime["pid"], list(runtime["report"])) == (producer.pid, ["memory_used"])
    assert done.stderr == f"neuron-ds: {path}: perod means nothing here and is ignored\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [("{", "line 1, column 2"), ('{"period": "soon"}', "period: 'soon'"), ('{"system_metrics": [{}]}', "metrics[0]")],
)
def test_a_bad_configuration_is_one_line(command, device, tmp_path, text, place):
    path = tmp_path / "monitor.conf"
    path.write_text(text)
    outcome = command("monitor", "-c", path)
    assert outcome.code == 1
    assert place in outcome.line
    assert str(path) in outcome.line


def test_a_configuration_that_is_not_there_is_one_line(command, device):
    outcome = command("monitor", "-c", "/nowhere/x")
    assert outcome.code == 1
    assert outcome.line == "/nowhere/x: No such file or directory"


def test_no_device_is_one_line(command):
    outcome = command("monitor")
    assert outcome.code == 1
    assert "no Neuron device" in outcome.line


def test_no_device_may_be_all_right(command):
    outcome = command("monitor", "--once", "--without-device")
    assert (outcome.code, outcome.err) == (0, "")
    assert "no Neuron device" in check(outcome.out)["neuron_hardware_info"]["error"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--period", "x"], "--period: 'x' is no duration"),
        (["--period", "0"], "10ms to 24h"),
        (["--once", "--count", "2"], "use one of them"),
        (["--count", "0"], "--count"),
        (["--sample-hz", "2000"], "--sample-hz"),
        (["--verbose", "5"], "--verbose"),
    ],
)
def test_options_that_can_not_be(command, device, options, word):
    outcome = command("monitor", *options)
    assert outcome.code == 2
    assert word in outcome.line


@pytest.mark.parametrize("verbose", [["--verbose=2"], ["--verbose", "2"]])
def test_talk_is_on_standard_error_only(command, directory, verbose):
    with Producer(directory, tag="serving"):
        outcome = command("monitor", "--once", *verbose)
    check(outcome.out)
    assert "runtime serving" in outcome.err
    assert "reported in" in outcome.err
    assert "processor time" in outcome.err


def test_a_level_needs_no_number(command, device):
    assert "processor time" in command("monitor", "--verbose", "--once").err


def test_no_standard_output_at_all(device):
    with start("monitor", directory=device, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(1)) as process:
        assert process.wait(30) == 2
        assert process.stderr.read() == "neuron-ds: there is no standard output to write to\n"


def test_handlers_are_put_back(command, device):
    before = signal.getsignal(signal.SIGTERM)
    command("monitor", "--once")
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_is_a_command():
    assert "monitor" in main.commands
