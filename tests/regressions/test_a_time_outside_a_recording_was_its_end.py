"""--at with a time behind a recording's end, or before its start, showed the end or the start and said nothing."""

import pytest

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
    assert f"--at {at}: that is outside of {recording}, which is 3.0 s long" in one_line(done)


@pytest.mark.parametrize("at", ["0", "-0", "3", "-3s"])
def test_its_ends_are_inside(recording, tmp_path, at):
    assert run("ls", "--from", recording, f"--at={at}", directory=tmp_path).returncode == 0


def test_what_is_no_time_is_said_to_be_none(recording, tmp_path):
    done = run("ls", "--from", recording, "--at", "banana", directory=tmp_path)
    assert "--at: 'banana' is no time; as in 90, 1m30s, -10s, 14:05:30" in one_line(done)
