"""simulate printed nothing while its processes ran, so it noticed neither their ends nor a reader that went away."""

import json
import os
import signal

from neuron_ds import listing
from tests.cli.helpers import start


def test_a_reader_that_goes_away_ends_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path))
    with start("simulate", "-p", "idle*2", directory=tmp_path) as process:
        process.stdout.readline()
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == ""
    assert listing.owners(0) == []


def test_an_end_is_told_when_it_happens(tmp_path):
    with start("simulate", "-p", "idle*2", "--json", directory=tmp_path) as process:
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        os.kill(first["pid"], signal.SIGKILL)
        assert json.loads(process.stdout.readline())["pid"] == first["pid"]
        os.kill(second["pid"], 0)  # which lives on
        process.send_signal(signal.SIGTERM)
        assert json.loads(process.stdout.readline())["pid"] == second["pid"]
        assert process.stdout.read() == ""
        assert process.wait(30) == 0


def test_a_killed_process_is_called_that(tmp_path):
    with start("simulate", "-p", "idle,tag=mine", directory=tmp_path) as process:
        pid = int(process.stdout.readline().split()[1])
        os.kill(pid, signal.SIGKILL)
        assert process.stdout.read() == f"pid {pid}  mine  killed by SIGKILL, after an unknown number of events\n"
        assert process.wait(30) == 1
