"""Without a descriptor left to list /dev, the kernel driver said that there is no device at all."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from neuron_ds.driver.kernel import node_numbers


def test_a_lack_of_descriptors_is_no_absence_of_devices(tmp_path: Path) -> None:
    (tmp_path / "neuron0").touch()
    assert node_numbers(str(tmp_path)) == [0]
    assert node_numbers(str(tmp_path / "nowhere")) == []
    pid = os.fork()
    if not pid:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
            node_numbers(str(tmp_path))
        except OSError as e:
            code = 0 if e.errno == errno.EMFILE else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_directory_that_may_not_be_listed_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "listdir", refuse)
    assert node_numbers(str(tmp_path)) == []
