"""A directory of their own for the devices of each test."""

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    directory = tmp_path / "devices"
    monkeypatch.setenv("NEURON_DS_DIR", str(directory))
    monkeypatch.delenv("NEURON_DS_DRIVER", raising=False)
    return directory
