"""``nohup neuron-ds monitor`` and ``exporter`` ended with the terminal all the same: they heeded what was ignored."""

import time

import pytest

from tests.cli.helpers import environment, probe, run
from tests.processes import Program

#: Starts the command with SIGHUP ignored, as nohup does.
WRAPPED = """
import subprocess
signal.signal(signal.SIGHUP, signal.SIG_IGN)
p = subprocess.Popen([sys.executable, "-m", "neuron_ds.cli", *sys.argv[1:]], stdout=subprocess.PIPE,
                     stderr=subprocess.STDOUT, bufsize=0)
p.stdout.readline()
say("runs")
hear()
p.send_signal(signal.SIGHUP)
hear()
say(p.poll())
p.send_signal(signal.SIGTERM)
p.stdout.read()
say(p.wait(30))
"""


@pytest.mark.parametrize("command", [("monitor", "--period", "100ms"), ("exporter", "--listen", "127.0.0.1:0")])
def test_a_hangup_that_is_ignored_stays_ignored(tmp_path, command):
    probe(tmp_path / "ds")
    with Program(WRAPPED, *command, env=environment(tmp_path / "ds")) as program:
        assert program.expect() == "runs"
        program.tell()
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            time.sleep(0.05)
        program.tell()
        assert program.expect() is None, "it ended"
        assert program.expect() == 0


def test_a_full_standard_output_is_named(tmp_path):
    probe(tmp_path / "ds")
    with open("/dev/full", "w") as full:
        done = run("monitor", "--once", directory=tmp_path / "ds", stdout=full)
    assert (done.returncode, done.stderr) == (2, "neuron-ds: standard output: No space left on device\n")
