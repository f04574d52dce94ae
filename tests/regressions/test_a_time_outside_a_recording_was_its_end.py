"""--at with a time behind a recording's end, or before its start, showed the end or the start and said nothing."""

import datetime
import re

import pytest

from neuron_ds.record import Recording
from neuron_ds.record.replay import time_of
from tests.cli.helpers import one_line, run
from tests.recordings import record


@pytest.fixture
def recording(tmp_path, root):
    return record(str(tmp_path / "short.mcap"), root, {"inference": {}}, 3.0).path


@pytest.mark.parametrize("at", ["1m30s", "-5s", "2001-01-01T00:00:00"])
@pytest.mark.parametrize("command", ["ls", "top --once", "monitor --once"])
def test_a_time_outside_is_refused(recording, tmp_path, command, at):
    done = run(*command.split(), "--from", recording, f"--at={at}", directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(
        rf"--at {at}: that is outside of {recording}, which goes from .* to .*, for 3.000 s", one_line(done)
    )


def test_the_second_of_its_start_is_inside_and_so_is_the_day_after(recording, monkeypatch):
    with Recording(recording) as r:
        start = datetime.datetime.fromtimestamp(r.wall_start_ns / 1e9)
        assert time_of(r, f"{start:%H:%M:%S}") == r.start_ns
        assert time_of(r, f"{start:%Y-%m-%dT%H:%M:%S}") == r.start_ns
        assert time_of(r, f"{start + datetime.timedelta(seconds=2):%H:%M:%S}") > r.start_ns
        before = start - datetime.timedelta(seconds=5)
        assert time_of(r, f"{before:%H:%M:%S}") - r.start_ns == pytest.approx(86_395e9, abs=1e9)
        assert time_of(r, f"{before:%Y-%m-%dT%H:%M:%S}") - r.start_ns == pytest.approx(-5e9, abs=1e9)


def test_a_single_moment_is_not_looped(tmp_path, root):
    path = record(str(tmp_path / "one.mcap"), root, {"inference": {}}, 0.0).path
    done = run("monitor", "--from", path, "--loop", "--count", "1", directory=tmp_path)
    assert one_line(done) == f"neuron-ds: {path}: is of a single moment, which can't be played over and over\n"
    assert run("monitor", "--from", path, "--once", directory=tmp_path).returncode == 0


@pytest.mark.parametrize("at", ["0", "-0", "3", "-3s"])
def test_its_ends_are_inside(recording, tmp_path, at):
    assert run("ls", "--from", recording, f"--at={at}", directory=tmp_path).returncode == 0


def test_what_is_no_time_is_said_to_be_none(recording, tmp_path):
    done = run("ls", "--from", recording, "--at", "banana", directory=tmp_path)
    assert "--at: 'banana' is no time; as in 90, 1m30s, -10s, 14:05:30" in one_line(done)
