"""simulate and demo as processes: what they print, and that no child and no file stays behind, whatever ends them.

Knows the command; what the simulated processes publish is tested in their room.
"""

import json
import os
import select
import signal
import time

import pytest

from neuron_ds import listing
from tests.cli.helpers import run, start
from tests.cli.test_process import on_terminal


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return False


def await_end(pid: int, seconds: float = 10) -> None:
    """Until the process, which is no child of ours, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ready, _, _ = select.select([fd], [], [], seconds)
    os.close(fd)
    assert ready, f"process {pid} still runs"


def ready(process, count: int) -> list[dict]:
    """The first lines of simulate --json: its processes are publishing."""
    return [json.loads(process.stdout.readline()) for _ in range(count)]


# --- simulate


def test_simulate_ends_after_its_seconds(directory):
    done = run(
        "simulate", "-n", "2", "-p", "inference", "-p", "idle", "--seconds", "0.3", "--json", directory=directory
    )
    states = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert [(s["state"], s.get("pattern")) for s in states] == [
        ("ready", "inference"),
        ("ready", "idle"),
        ("ended", None),
        ("ended", None),
    ]
    assert [s["exit_code"] for s in states[2:]] == [0, 0]
    assert not any(alive(s["pid"]) for s in states)
    assert listing.owners(0) == []


def test_simulate_says_who_publishes_where(directory):
    done = run("simulate", "-p", "idle,tag=mine", "--seconds", "0", directory=directory)
    assert done.returncode == 0
    assert "mine  idle  device 0 slot 0 cores 0-7" in done.stdout


def test_simulate_makes_the_devices_that_are_wanted(directory):
    done = run("simulate", "-d", "3", "-t", "inf2", "--seconds", "0", directory=directory)
    assert done.returncode == 0
    assert [(p.device, p.type) for p in listing.devices()] == [(0, "inf2"), (1, "inf2"), (2, "inf2")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_simulate_well(directory, number):
    with start("simulate", "-n", "2", "--json", directory=directory) as process:
        pids = [s["pid"] for s in ready(process, 2)]
        assert [o.pid for o in listing.owners(0)] == sorted(pids, key=[o.pid for o in listing.owners(0)].index)
        process.send_signal(number)
        rest = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert {s["pid"] for s in rest} == set(pids)
    assert not any(alive(pid) for pid in pids)
    assert listing.owners(0) == []


def test_children_do_not_outlive_a_killed_simulate(directory):
    with start("simulate", "--json", directory=directory) as process:
        (state,) = ready(process, 1)
        process.kill()
    await_end(state["pid"])


def test_simulate_tells_when_nothing_is_left_to_run(directory):
    with start("simulate", "--json", directory=directory) as process:
        (state,) = ready(process, 1)
        os.kill(state["pid"], signal.SIGKILL)
        report = json.loads(process.stdout.readline())
        assert process.wait(30) == 1
        assert "ended by itself" in process.stderr.read()
    assert (report["pid"], report["exit_code"]) == (state["pid"], -9)


def test_a_closed_pipe_ends_simulate(directory):
    read, write = os.pipe()
    os.close(read)
    with start("simulate", directory=directory, stdout=write) as process:
        os.close(write)
        assert process.wait(30) == 141
        assert process.stderr.read() == ""
    assert listing.owners(0) == []


def test_a_device_of_another_type_is_named(command, directory):
    assert command("simulate", "-t", "trn1", "--seconds", "0").code == 0
    line = command("simulate", "-t", "inf2", "--seconds", "0").line
    assert "of type trn1, not inf2" in line
    assert f"rm -r {directory}/neuron0" in line
    assert "--type trn1" in command("simulate", "--seconds", "0").line


def test_a_driver_that_does_not_exist_is_called_that(directory):
    done = run("simulate", "--seconds", "0", directory=directory, env={"NEURON_DS_DRIVER": "imaginary"})
    assert "NEURON_DS_DRIVER names one that doesn't exist: no driver is called 'imaginary'" in done.stderr


@pytest.mark.parametrize("name", ["kernel", "imaginary"])
def test_simulate_fakes_nothing_on_another_driver_by_accident(directory, name):
    done = run("simulate", "--seconds", "0", directory=directory, env={"NEURON_DS_DRIVER": name})
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("neuron-ds: ")
    assert done.stderr.count("\n") == 1
    assert not directory.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-p", "nonsense"], "nonsense"),
        (["-p", "inference,rate=x"], "rate"),
        (["-p", "inference@7"], "7"),
        (["-p", "inference*17"], "17 processes"),
        (["-n", "17"], "which has 16 slots"),
        (["-p", "training@0-1"], "there is only device 0; --devices 2 makes more"),
        (["-p", "inference*2", "-n", "2"], "one of them"),
        (["-d", "0"], "0"),
        (["-d", "65"], "65"),
        (["-t", "gpu"], "gpu"),
        (["--speed", "0"], "0"),
        (["--seconds", "-1"], "-1"),
        (["--driver", "imaginary"], "imaginary"),
    ],
)
def test_what_cannot_be_simulated_is_one_line(command, directory, args, words):
    outcome = command("simulate", *args, "--seconds", "0") if "--seconds" not in args else command("simulate", *args)
    assert outcome.code == 2
    assert words in outcome.line
    assert not directory.exists()


def test_the_patterns_are_listed(command):
    from neuron_ds.simulate import MODELS, PATTERNS

    outcome = command("simulate", "--patterns")
    assert outcome.code == 0
    assert all(f"\n{name} " in "\n" + outcome.out for name in PATTERNS)
    assert all(name in outcome.out for name in MODELS)
    assert "hung_cores=none" in outcome.out
    assert "lockstep=false" in outcome.out
    assert "None" not in outcome.out
    assert "False" not in outcome.out


# --- demo


def test_demo_in_a_pipe_ends_by_itself_and_leaves_nothing(directory, tmp_path):
    began = time.monotonic()
    done = run("demo", "--seconds", "2", directory=directory, env={"TMPDIR": str(tmp_path)})
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - began >= 2
    assert "\x1b" not in done.stdout
    for words in ("as a monitor sees them", "kill -9", "dead", "newcomer", "was recovered", "trn2"):
        assert words in done.stdout
    assert os.listdir(tmp_path) == []
    assert not directory.exists()


def test_demo_needs_no_real_driver(directory, tmp_path):
    env = {"TMPDIR": str(tmp_path), "NEURON_DS_DRIVER": "kernel"}
    assert run("demo", "--seconds", "1", directory=directory, env=env).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_demo_well(directory, tmp_path, number):
    with start("demo", directory=directory, env={"TMPDIR": str(tmp_path)}) as process:
        process.stdout.readline()
        assert os.listdir(tmp_path) != []
        process.send_signal(number)
        process.stdout.read()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert os.listdir(tmp_path) == []


def test_a_closed_pipe_ends_demo(directory, tmp_path):
    with start("demo", "--seconds", "3", directory=directory, env={"TMPDIR": str(tmp_path)}) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == ""
    assert os.listdir(tmp_path) == []


def test_demo_on_a_terminal_redraws_and_gives_the_cursor_back(directory, tmp_path):
    code, text = on_terminal("demo", "--seconds", "2", directory=directory, TMPDIR=str(tmp_path))
    assert code == 0
    assert text.startswith("\x1b[?25l")
    assert text.endswith("\x1b[?25h")
    assert text.count("as a monitor sees them") >= 4
    assert "\x1b[1m" in text
    code, text = on_terminal("demo", "--seconds", "1", directory=directory, TMPDIR=str(tmp_path), NO_COLOR="1")
    assert "\x1b[1m" not in text
