"""An ECC counter that could not be read for a moment was taken for 0, and all of its events were counted again."""

import errno
from pathlib import Path
from types import SimpleNamespace

from neuron_ds.host import ECC, HostCollector


def test_it_is_no_number_then(tmp_path, monkeypatch):
    hardware = tmp_path / "neuron0" / "stats" / "hardware"
    hardware.mkdir(parents=True)
    (hardware / ECC[0]).write_text("7\n")
    monkeypatch.setenv("NEURON_DS_SYSFS", str(tmp_path))
    host = HostCollector(SimpleNamespace(name="kernel"))
    assert host.collect([], [0]).ecc == {0: (7, 0, 0, 0)}

    def lacking(self):
        raise OSError(errno.EMFILE, "Too many open files", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lacking)
        assert host.collect([], [0]).ecc[0].endswith("Too many open files")
    assert host.collect([], [0]).ecc == {0: (7, 0, 0, 0)}


def test_a_text_that_is_no_number_is_none(tmp_path, monkeypatch):
    hardware = tmp_path / "neuron0" / "stats" / "hardware"
    hardware.mkdir(parents=True)
    monkeypatch.setenv("NEURON_DS_SYSFS", str(tmp_path))
    host = HostCollector(SimpleNamespace(name="kernel"))
    for text in (b"", b"n/a\n", b"\xff\xfe"):
        (hardware / ECC[0]).write_bytes(text)
        assert host.collect([], [0]).ecc[0] == f"{hardware / ECC[0]}: holds no number"
