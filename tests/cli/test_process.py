"""The command as a process: its streams, its signals and its exit code, whatever is at the other end.

Knows how a process is started and ended; what the commands find is tested beside this.
"""

import os
import pty
import subprocess
import sys

import pytest

from neuron_ds import __version__
from neuron_ds.cli.base import main
from tests.cli.helpers import Producer, environment, run, start

COMMANDS = list(main.commands)
NOBODY = 65534


def on_terminal(*args, directory, **env):
    """(exit code, what a terminal shows) of the command."""
    ours, its = pty.openpty()
    process = start(*args, directory=directory, stdout=its, stderr=its, stdin=its, env={"TERM": "xterm", **env})
    os.close(its)
    data = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        data += part
    os.close(ours)
    return process.wait(60), data.decode()


# --- What it says of itself


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help(directory, option):
    done = run(option, directory=directory)
    assert done.returncode == 0
    assert done.stderr == ""
    for word in (*COMMANDS, "Exit codes", "141"):
        assert word in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_it_ends(command, name):
    outcome = command(name, "-h")
    assert outcome.code == 0
    assert "Exit 0" in " ".join(outcome.out.split())


@pytest.mark.parametrize("name", ["simulate", "demo"])
def test_who_runs_something_shows_examples(command, name):
    assert f"Examples:\n    neuron-ds {name}\n" in command(name, "-h").out


def test_the_package_is_the_command_too(directory):
    done = subprocess.run(
        [sys.executable, "-m", "neuron_ds", "--version"], env=environment(directory), capture_output=True, text=True
    )
    assert done.stdout == f"neuron-ds, version {__version__}\n"


def test_version(directory):
    assert run("--version", directory=directory).stdout.strip().endswith(__version__)


def test_without_a_command_it_explains_itself_and_is_2(directory):
    done = run(directory=directory)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage" in done.stderr


def test_an_unknown_command_is_one_line(command):
    outcome = command("nonsense")
    assert outcome.code == 2
    assert "nonsense" in outcome.line


def test_help_loads_no_room_that_works(directory):
    code = "import sys; from neuron_ds.cli import main; main(['-h'], standalone_mode=False); print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment(directory), capture_output=True, text=True, check=True
    ).stdout
    loaded = set(out.splitlines()[-1].split())
    assert not loaded & {f"neuron_ds.{room}" for room in ("simulate", "datastore", "driver", "demo", "doctor", "check")}


def test_the_installed_command_is_the_same(directory):
    from importlib.metadata import entry_points

    (point,) = [e for e in entry_points(group="console_scripts") if e.name == "neuron-ds"]
    assert point.load() is main


# --- The other end


def test_a_pipe_that_closes_early(directory, golden):
    with start("show", golden.path("full"), "--json", directory=directory) as process:
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(30) == 141


@pytest.mark.parametrize("args", [["--help"], ["ls"], ["doctor"], ["ls", "-h"], ["check", "GOLDEN"]])
def test_a_pipe_that_nobody_reads(directory, golden, args):
    args = [golden.path("full") if a == "GOLDEN" else a for a in args]
    read, write = os.pipe()
    os.close(read)
    with Producer(directory), start(*args, directory=directory, stdout=write) as process:
        os.close(write)
        assert process.stderr.read() == ""
        assert process.wait(30) == 141


def test_an_error_that_nobody_reads(directory):
    read, write = os.pipe()
    os.close(read)
    with start("show", "/nowhere", directory=directory, stderr=write) as process:
        os.close(write)
        assert process.stdout.read() == ""
        assert process.wait(30) in (2, 141)


@pytest.mark.parametrize("args", [["show", "GOLDEN", "--json"], ["show", "GOLDEN", "--raw", "-"], ["--help"]])
def test_a_full_disk(directory, golden, args):
    args = [golden.path("full") if a == "GOLDEN" else a for a in args]
    with open("/dev/full", "w") as full, start(*args, directory=directory, stdout=full) as process:
        err = process.stderr.read()
        assert process.wait(30) == 2
    assert err == "neuron-ds: standard output: No space left on device\n"


def test_no_standard_output_at_all(directory, golden):
    command = f"exec {sys.executable} -m neuron_ds.cli show {golden.path('full')} >&-"
    done = subprocess.run(["sh", "-c", command], env=environment(directory), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_knows_few_letters(directory):
    with Producer(directory, tag="\u65e5\u672c"):
        done = run("ls", directory=directory, env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0
    assert "\\u65e5\\u672c" in done.stdout


def test_a_slab_from_a_pipe(directory, golden):
    with open(golden.path("sparse"), "rb") as f:
        assert run("check", "/dev/stdin", directory=directory, stdin=f).returncode == 0
    with subprocess.Popen(["cat", golden.path("sparse")], stdout=subprocess.PIPE) as cat:
        assert run("show", "/dev/stdin", directory=directory, stdin=cat.stdout).returncode == 0


@pytest.mark.parametrize("name", ["show", "check"])
def test_a_slab_from_standard_input(directory, golden, name):
    with open(golden.path("sparse"), "rb") as f:
        done = run(name, "-", directory=directory, stdin=f)
    assert done.returncode == 0
    assert "standard input" in done.stdout + done.stderr
    done = run(name, "-", directory=directory, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input: holds only 0 bytes" in done.stderr
    code, text = on_terminal(name, "-", directory=directory)
    assert code == 2
    assert "standard input is a terminal" in text


def test_raw_bytes_to_a_pipe_but_not_to_a_terminal(directory, golden):
    done = run("show", golden.path("full"), "--raw", "-", directory=directory, text=False)
    assert done.stdout == golden.bytes("full")
    code, text = on_terminal("show", golden.path("full"), "--raw", "-", directory=directory)
    assert code == 2
    assert "terminal" in text


@pytest.mark.parametrize(
    ("env", "colored"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_color_only_where_it_is_wanted(directory, env, colored):
    _, text = on_terminal("doctor", directory=directory, **env)
    assert ("\x1b[" in text) is colored


def test_no_color_in_a_pipe(directory):
    assert "\x1b" not in run("doctor", directory=directory).stdout


# --- What may not be read


@pytest.mark.parametrize("name", ["show", "check"])
def test_a_file_that_may_not_be_read(command, directory, tmp_path, golden, name):
    path = tmp_path / "slab"
    path.write_bytes(golden.bytes("full"))
    path.chmod(0)
    command("show", golden.path("full"))  # what is imported late must be imported while it can be
    command("check", golden.path("full"))
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            outcome = command(name, "slab")
            code = outcome.code if "slab: Permission denied" in outcome.line else 98
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
