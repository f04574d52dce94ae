"""`neuron-ds reset </dev/null` asked nobody, printed its question and ended with 130, as if interrupted."""

import subprocess

import pytest

from tests.cli.helpers import probe, run


def test_without_a_terminal_it_says_so(tmp_path):
    probe(tmp_path)
    done = run("reset", directory=tmp_path, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "neuron-ds: standard input is not a terminal; use --yes\n"


@pytest.mark.parametrize("args", [[], ["0"], ["--device", "0"], ["-d", "0"]])
def test_a_device_is_named_as_everywhere_else(tmp_path, args):
    probe(tmp_path)
    done = run("reset", *args, "--yes", directory=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    assert "neuron0" in done.stderr


def test_two_names_are_one_too_many(tmp_path):
    assert "one of them" in run("reset", "0", "--device", "0", "--yes", directory=tmp_path).stderr
