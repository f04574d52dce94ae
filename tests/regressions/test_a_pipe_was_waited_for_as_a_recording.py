"""``--from FIFO`` and ``record -o FIFO --force`` waited for ever for the other end, deaf to Ctrl-C; ``--force`` left a
file that others may read as it was, with what slabs hold in it."""

import os

import pytest

from neuron_ds.errors import FormatError, SystemFailure
from neuron_ds.record import Recording
from neuron_ds.record.container import FileSink


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(FormatError, match="no file that could be a recording"):
            Recording(str(tmp_path / name))


def test_a_pipe_that_nobody_reads_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SystemFailure, match="can't be made"):
        FileSink(str(tmp_path / "pipe"), force=True)


def test_force_takes_it_from_others(tmp_path):
    path = tmp_path / "a.mcap"
    path.write_bytes(b"x" * 100_000)
    path.chmod(0o644)
    FileSink(str(path), force=True).close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size < 100_000
