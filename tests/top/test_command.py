"""The command as users start it: on terminals good and poor, in pipes, without its extra, and how it ends."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from neuron_ds.cli import main
from neuron_ds.simulate import PATTERNS, Workload, start
from neuron_ds.top import text as t
from tests.cli import helpers
from tests.top.terminal import PATIENCE_S, Terminal

SGR = re.compile(rb"\x1b\[([0-9;:]*)m")
INFERENCE = Workload(PATTERNS["inference"](rate=50), seed=7, cores=((0, 0), (0, 1)), tag="bert-serving")
ERRING = Workload(PATTERNS["erring"](rate=50), seed=3, cores=((1, 2), (1, 3)), tag="vit-erring")


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "ds"


@pytest.fixture
def held(directory):
    """A process that has played 300 events and holds its slab."""
    with start(ERRING, events=300, speed=None, directory=str(directory)) as process:
        assert process.wait_played() == 300
        yield process


def run(*options, directory, **popen):
    return helpers.run("top", *options, directory=directory, stdin=subprocess.DEVNULL, **popen)


# --- without a terminal


def test_in_a_pipe_it_says_what_to_do(directory):
    outcome = run(directory=directory)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr == (
        "neuron-ds: no terminal to draw on: input, output and error must be one; --once prints one picture\n"
    )


def test_json_goes_with_once(directory):
    outcome = run("--json", directory=directory)
    assert (outcome.returncode, outcome.stderr) == (2, "neuron-ds: --json goes with --once\n")


def test_once(directory, held):
    outcome = run("--once", directory=directory)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert "\x1b" not in outcome.stdout
    row = next(line for line in outcome.stdout.splitlines() if "vit-erring" in line and "0.0" in line)
    slab = held.expected()[1]
    memory = sum(v for k, v in slab.counters.items() if k[0] == "nc" and 22 <= k[2] <= 26)
    assert row.split()[1:3] == [str(held.pid), "1"]
    assert row.split()[8] == t.size(memory)
    assert re.search(r"  over \d\.\d s  ", outcome.stdout)


def test_once_as_json(directory, held):
    made = json.loads(run("--once", "--json", directory=directory).stdout)
    assert made["period_s"] >= 0.5
    assert [(p["pid"], p["tag"], p["executions_s"]) for p in made["processes"]] == [(held.pid, "vit-erring", 0.0)]


def test_once_where_only_ascii_can_be_written(directory, held):
    outcome = run("--once", directory=directory, env={"PYTHONIOENCODING": "ascii"})
    assert outcome.stdout.isascii()
    assert "- ND1" in outcome.stdout


def test_once_without_a_device_is_the_reason(directory):
    outcome = run("--once", directory=directory)
    assert outcome.returncode == 1
    assert "neuron-ds simulate" in outcome.stdout


def test_once_without_textual(directory, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setenv("NEURON_DS_DIR", str(directory))
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    assert main(["top", "--once"], standalone_mode=False) == 1
    assert "neuron-ds simulate" in capsys.readouterr().out


@pytest.mark.parametrize(("missing", "options"), [("textual", []), ("psutil", ["--once"])])
def test_a_missing_extra_is_one_line(directory, monkeypatch, capsys, missing, options):
    for name in [n for n in sys.modules if n.startswith(("neuron_ds.top", "neuron_ds.live", "neuron_ds.host"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [n for n in sys.modules if n.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys.modules["neuron_ds.cli.top"], "_is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NEURON_DS_DIR", str(directory))
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    assert main(["top", *options], standalone_mode=False) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"neuron-ds: {missing}\S* is not installed; pip install 'neuron-datastore\[top\]'\n", err)


# --- on a terminal


def colors(written):
    """Every SGR parameter that chooses a colour other than the terminal's own."""
    found = set()
    for match in SGR.finditer(written):
        for parameter in re.split("[;:]", match[1].decode()):
            if parameter.isdecimal() and 30 <= int(parameter) <= 107 and parameter not in ("39", "49"):
                found.add(int(parameter))
    return found


def test_it_uses_the_terminals_own_colours_only(directory, held):
    """Sixteen, whatever the terminal says it can: none is mixed."""
    with Terminal(directory) as terminal:
        terminal.wait_for("vit-erring")
        terminal.type("q")
        assert terminal.wait() == 0
        assert terminal.is_restored
        assert colors(terminal.written)
        assert colors(terminal.written) <= {*range(30, 38), *range(90, 98)}


@pytest.mark.parametrize(("options", "env"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"})])
def test_without_colours(directory, held, options, env):
    with Terminal(directory, *options, **env) as terminal:
        terminal.wait_for("vit-erring")
        terminal.type("q")
        assert terminal.wait() == 0
        assert colors(terminal.written) == set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(directory, held, number):
    with Terminal(directory) as terminal:
        terminal.wait_for("vit-erring")
        terminal.process.send_signal(number)
        assert terminal.wait() == 0
        assert terminal.is_restored
        assert b"Traceback" not in terminal.written


def test_a_terminal_that_goes_away_ends_it(directory, held):
    with Terminal(directory) as terminal:
        terminal.wait_for("vit-erring")
        terminal.take_away()
        assert terminal.process.wait(PATIENCE_S) == 0


def test_a_poor_terminal_gets_plain_pictures(directory, held):
    with Terminal(directory, "--period", "0.1", TERM="dumb") as terminal:
        terminal.wait_for("NeuronCore utilization")
        first = terminal.written.count(b"NeuronCore utilization")
        terminal.wait_for("vit-erring")
        deadline = time.monotonic() + PATIENCE_S
        while terminal.written.count(b"NeuronCore utilization") < first + 2:
            assert time.monotonic() < deadline
            terminal._read(0.1)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 0
        assert b"\x1b" not in terminal.written


def test_a_directory_that_is_not_there_is_told_on_the_screen(directory):
    with Terminal(directory) as terminal:
        terminal.wait_for("neuron-ds simulate")
        terminal.type("q")
        assert terminal.wait() == 0


# --- the whole of it


class Tmux:
    """A tmux of its own, with one window of 80 by 24."""

    def __init__(self, place, command, env):
        self._base = ["tmux", "-S", str(place / "tmux"), "-f", "/dev/null"]
        self._env = env
        self("new-session", "-d", "-x", "80", "-y", "24", command)

    def __call__(self, *words):
        return subprocess.run(
            [*self._base, *words], env=self._env, check=True, capture_output=True, text=True, timeout=PATIENCE_S
        ).stdout

    def keys(self, *keys):
        self("send-keys", *keys)

    def until(self, *texts):
        """The lines of the screen, once all of these stand there."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            lines = self("capture-pane", "-p").splitlines()
            if all(any(text in line for line in lines) for text in texts):
                return lines
            assert time.monotonic() < deadline, f"no {texts} on the screen:\n" + "\n".join(lines)
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([*self._base, "kill-server"], capture_output=True)


@pytest.mark.slow
def test_in_tmux_it_shows_the_figures_that_show_and_monitor_tell(directory, held, tmp_path):
    assert shutil.which("tmux"), "tmux is not installed"
    with start(INFERENCE, events=200, speed=None, directory=str(directory)) as bert:
        bert.wait_played()
        told = {
            p.pid: json.loads(helpers.run("show", str(p.pid), "--json", directory=directory).stdout)
            for p in (bert, held)
        }
        command = f"sh -c 'echo before; {sys.executable} -m neuron_ds.cli top --period 0.2; echo ended $?; cat'"
        env = helpers.environment(directory, LC_ALL="C.UTF-8")
        with Tmux(tmp_path, command, env) as tmux:
            lines = tmux.until("bert-serving", "vit-erring", "TAG", "average 0%")
            assert [len(line) <= 80 for line in lines] == [True] * 24
            assert "2 devices  2 processes" in lines[0]
            total = 0
            for process in (bert, held):
                cores = told[process.pid]["counters"]["cores"].values()
                memory = sum(v for core in cores for n, v in core.items() if n.startswith("mem_usage_"))
                failures = sum(core[name] for core in cores for name in FAILURES)
                row = next(line for line in lines if f" {process.pid} " in line).split()
                assert row[:2] == [process.tag, str(process.pid)]
                assert row[4] == "0.0"
                assert row[7:9] == [str(failures), t.size(memory)]
                total += memory
            assert next(line for line in lines if line.startswith("Device mem")).split()[3] == t.size(total)
            tmux.keys("2")
            tmux.until("average 0%", "runtime: user")
            tmux.keys("i")
            lines = tmux.until(f"Process bert-serving  pid {bert.pid}", "executions/s      0.0")
            tmux.keys("End")
            tmux.keys("Escape")
            tmux.until("TAG")
            # one of them goes on, and the picture follows
            before = sum(core["infer_completed"] for core in told[bert.pid]["counters"]["cores"].values())
            bert.advance(50)
            tmux.keys("i")
            tmux.until(f"Process bert-serving  pid {bert.pid}")
            tmux.keys(*["Down"] * 14)
            after = sum(bert.expected()[0].nc(core, "infer_completed") for core in range(8))
            assert after > before
            lines = tmux.until(f"{after:,}")
            assert next(line for line in lines if line.startswith("infer_completed ")).split()[1] == f"{after:,}"
            tmux.keys("q")
            lines = tmux.until("before", "ended 0")
            assert not any("NeuronCore" in line for line in lines)


@pytest.mark.slow
def test_it_goes_to_the_background_and_comes_back(directory, held, tmp_path):
    with Tmux(tmp_path, "sh -im", helpers.environment(directory, LC_ALL="C.UTF-8")) as tmux:
        tmux.keys("PS1='prompt '", "Enter")
        tmux.until("prompt")
        tmux.keys(f"{sys.executable} -m neuron_ds.cli top", "Enter")
        shown = tmux.until("NeuronCore", "vit-erring", "average 0%")
        tmux.keys("C-z")
        assert not any("NeuronCore" in line for line in tmux.until("prompt"))
        tmux.keys("fg", "Enter")
        again = tmux.until("NeuronCore", "vit-erring", "q quit")
        assert [line[:5] for line in again[1:]] == [line[:5] for line in shown[1:]]
        tmux.keys("q")
        tmux.until("prompt fg")


FAILURES = (
    "infer_completed_with_err infer_completed_with_num_err infer_timed_out infer_incorrect_input infer_failed_to_queue "
    "err_hw oob hw_err_collectives hw_err_hbm_ue hw_err_nc_ue hw_err_dma_abort err_sw_nq_overflow "
    "hw_err_repairable_hbm_ue generic_fail err_resource err_resource_nc err_invalid err_unsupported_neff_version"
).split()
