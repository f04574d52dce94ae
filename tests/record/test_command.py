"""The command ``record``: what it writes, says and ends with."""

import os
import pty
import subprocess
import sys

import pytest

from neuron_ds.datastore import publish
from neuron_ds.record import Recording
from tests.cli.helpers import environment
from tests.record.conftest import other_process


def run(root, *args, **more):
    return subprocess.run(
        [sys.executable, "-m", "neuron_ds", "record", *map(str, args)],
        **{"env": environment(root), "capture_output": True, "text": True, "timeout": 60, "check": False, **more},
    )


def test_a_short_recording(root, producer, tmp_path):
    path = tmp_path / "a.mcap"
    result = run(root, "--seconds", "0.5", "--rate", "50", "-o", path)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.startswith(f"neuron-ds: {path}: 0.")
    assert "looks" in result.stderr
    assert ", 1 slab," in result.stderr
    assert result.stderr.count("\n") == 1, "no progress where there is no terminal"
    with Recording(str(path)) as recording:
        assert recording.damage == ()
        assert recording.counts.ticks >= 5
        assert recording.session.period_us == 20_000


def test_it_does_not_replace_a_file_unasked(root, producer, tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"mine")
    result = run(root, "--seconds", "0.1", "-o", path)
    assert result.returncode == 2
    assert "exists already; --force replaces it" in result.stderr
    assert path.read_bytes() == b"mine"
    assert run(root, "--seconds", "0.1", "-o", path, "--force").returncode == 0


def test_it_names_its_file(root, producer, tmp_path):
    assert run(root, "--seconds", "0.1", cwd=tmp_path).returncode == 0
    (name,) = os.listdir(tmp_path)
    assert name.startswith("neuron-ds-20")
    assert name.endswith(".mcap")


def test_only_some(root, producer, driver, tmp_path):
    driver.probe(1)
    with other_process(root) as other, publish(1, driver=driver):
        run(root, "--seconds", "0.2", "-p", other.pid, "-o", tmp_path / "pid")
        run(root, "--seconds", "0.2", "-d", "1", "-o", tmp_path / "device")
    with Recording(str(tmp_path / "pid")) as recording:
        assert [p.owner.pid for p in next(recording.samples()).processes] == [other.pid]
    with Recording(str(tmp_path / "device")) as recording:
        assert [p.device for p in recording.devices] == [1]


def test_a_process_that_is_not_there_yet(root, producer, tmp_path):
    result = run(root, "--seconds", "0.2", "-p", "1", "-p", producer.pid, "-o", tmp_path / "a")
    assert result.returncode == 0
    assert "process 1 has no slab that can be read, so far" in result.stderr
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_without_a_device(root, tmp_path):
    result = run(root, "--seconds", "0.1", "-o", tmp_path / "a")
    assert result.returncode == 1
    assert "no Neuron device" in result.stderr
    assert not (tmp_path / "a").exists()
    assert run(root, "--seconds", "0.1", "-o", tmp_path / "a", "--without-device").returncode == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--rate", "0"], "--rate"),
        (["--rate", "nan"], "--rate"),
        (["--keep", "5x"], "no duration"),
        (["--keep", "0"], "nothing at all"),
        (["--keep", "5m", "-o", "x"], "names its files itself"),
        (["--keep", "5m", "--out-dir", "/absent"], "no such directory"),
        (["--out-dir", "/tmp"], "--keep"),
        (["--after", "5s"], "--keep"),
        (["-o", "/absent/x"], "can't be made"),
    ],
)
def test_arguments_that_cannot_be(root, producer, args, said):
    result = run(root, *args, "--seconds", "0.1")
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_the_extra(root, producer, tmp_path):
    (tmp_path / "mcap.py").write_text("raise ModuleNotFoundError('no', name='mcap')")
    result = run(root, "--seconds", "0.1", env=environment(root) | {"PYTHONPATH": str(tmp_path)})
    assert result.returncode == 2
    assert result.stderr == "neuron-ds: mcap is not installed; pip install 'neuron-datastore[record]'\n"
    result = subprocess.run(
        [sys.executable, "-m", "neuron_ds", "ls"],
        env=environment(root, NEURON_DS_DRIVER="replay", NEURON_DS_REPLAY="x", PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "pip install 'neuron-datastore[record]'" in result.stderr


def test_progress_on_a_terminal(root, producer, tmp_path):
    ours, theirs = pty.openpty()
    run(root, "--seconds", "1.3", "-o", tmp_path / "a", capture_output=False, stderr=theirs, stdout=theirs)
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert said.count("\r\x1b[K") >= 2
    assert "looks" in said.splitlines()[-1]


def test_a_recording_of_a_recording(root, producer, tmp_path):
    """Replay is a driver: a recorder works on it too."""
    first, second = tmp_path / "first", tmp_path / "second"
    producer.core(0).inference_count.add(9)
    run(root, "--seconds", "0.5", "--rate", "50", "-o", first)
    env = environment(root, NEURON_DS_DRIVER="replay", NEURON_DS_REPLAY=str(first))
    assert run(root, "--seconds", "0.3", "-o", second, env=env).returncode == 0
    with Recording(str(first)) as a, Recording(str(second)) as b:
        one, two = next(a.samples()), next(b.samples())
        assert bytes(one.processes[0].snapshot.raw) == bytes(two.processes[0].snapshot.raw)
        assert two.processes[0].owner.who == one.processes[0].owner.who
