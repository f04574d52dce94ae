"""A demo that was killed left eight megabytes in shared memory, and nothing ever removed them."""

import os

from neuron_ds.demo import PREFIX, Demo, sweep
from tests.cli.helpers import start


def test_the_next_demo_removes_it(tmp_path, monkeypatch):
    with start("demo", directory=tmp_path / "ds", env={"TMPDIR": str(tmp_path)}) as process:
        process.stdout.readline()
        process.kill()
    (left,) = [name for name in os.listdir(tmp_path) if name.startswith(PREFIX)]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Demo(1.0):
        (own,) = [name for name in os.listdir(tmp_path) if name.startswith(PREFIX)]
        assert own != left
        sweep(str(tmp_path))  # as another demo does when it begins
        assert os.path.isdir(tmp_path / own)
    assert [name for name in os.listdir(tmp_path) if name.startswith(PREFIX)] == []


def test_nothing_else_is_removed(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "precious")
    (tmp_path / f"{PREFIX}file").touch()
    sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == [f"{PREFIX}file", f"{PREFIX}link", "precious"]
    assert os.listdir(tmp_path / "precious") == ["file"]
    sweep(str(tmp_path / "nowhere"))
