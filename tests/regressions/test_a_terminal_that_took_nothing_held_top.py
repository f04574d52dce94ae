"""Where nobody read the terminal, Textual's queue filled up and the application stood: it heard no signal, and went on
with a full processor when the terminal was gone."""

import signal
import time

import pytest

from neuron_ds.simulate import PATTERNS, Workload, start
from tests.top.terminal import PATIENCE_S, Terminal


@pytest.fixture
def stuck(tmp_path):
    """A top that has written all that its terminal takes, and waits for somebody to read it."""
    directory = tmp_path / "ds"
    workload = Workload(PATTERNS["inference"](rate=50), seed=7, cores=((0, 0), (0, 1)), tag="bert-serving")
    with (
        start(workload, events=100, speed=None, directory=str(directory)) as process,
        Terminal(directory, "--period", "0.1", columns=200, rows=60) as terminal,
    ):
        assert process.wait_played() == 100
        terminal.wait_for("bert-serving")
        deadline, waiting = time.monotonic() + PATIENCE_S, -1
        while (now := terminal.unread()) != waiting or not now:
            assert time.monotonic() < deadline, "its terminal takes all that it writes"
            waiting = now
            terminal.type("??" * 50)  # help, and back: all of the screen each time
            time.sleep(0.5)
        yield terminal


def test_a_signal_ends_it(stuck):
    stuck.process.send_signal(signal.SIGTERM)
    assert stuck.process.wait(PATIENCE_S) == 0
    assert stuck.has_its_modes  # no more than that can be had of a terminal that takes nothing


def test_the_end_of_the_terminal_ends_it(stuck):
    stuck.take_away()
    assert stuck.process.wait(PATIENCE_S) == 0
