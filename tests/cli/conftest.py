"""Fixtures of the command's tests: a directory of their own, and the command run in this process."""

import os

import pytest

from neuron_ds.cli import main


class Outcome:
    """How a command ended: exit code, standard output, standard error."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def line(self) -> str:
        """The one line of an error; nothing else may have been printed."""
        assert self.out == ""
        assert self.err.startswith("neuron-ds: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("neuron-ds: ").rstrip("\n")


@pytest.fixture
def directory(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("NEURON_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NEURON_DS_DIR", str(tmp_path / "ds"))
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    return tmp_path / "ds"


@pytest.fixture
def command(directory, capfdbinary):
    """Run the command here: quicker than a process of its own, and the same but for streams and signals."""

    def run(*args) -> Outcome:
        capfdbinary.readouterr()
        code = main([str(a) for a in args], standalone_mode=False)
        out, err = capfdbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return run
