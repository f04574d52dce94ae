"""A command with a closed standard stream, or a pid of thousands of digits, ended in a traceback."""

import subprocess
import sys

import pytest

from tests.cli.helpers import Producer, environment, one_line, probe, run


def without(stream, *args, directory):
    """The command where the shell has closed one of its streams."""
    command = [sys.executable, "-m", "neuron_ds", *map(str, args)]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {stream}', "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(directory),
    )


def test_raw_bytes_for_a_closed_output(tmp_path):
    with Producer(tmp_path) as producer:
        done = without(">&-", "show", producer.pid, "--raw", "-", directory=tmp_path)
        assert one_line(done) == "neuron-ds: --raw -: there is no standard output; redirect it or name a file\n"
        assert without(">&-", "show", producer.pid, directory=tmp_path).returncode == 0


def test_a_question_with_a_closed_input(tmp_path):
    probe(tmp_path)
    assert "use --yes" in one_line(without("<&-", "reset", directory=tmp_path))


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_pid_of_thousands_of_digits(tmp_path, command):
    line = one_line(run(command, "1" * 5000, directory=tmp_path))
    assert line == f"neuron-ds: {'1' * 40}...: no pid has 5000 digits; write ./ before the name of a file\n"
    assert "owns no slab" in one_line(run(command, "1" * 20, directory=tmp_path))
