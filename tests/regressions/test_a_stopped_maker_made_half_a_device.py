"""A process that was stopped while it made a device, for longer than leftovers are kept, could rename a directory to
its final name whose files another process was removing."""

import os
import signal
import time

from tests.devices import entries, probe_and_die
from tests.processes import Child


def test_a_maker_that_was_only_stopped_does_not_make_half_a_device(root, driver):
    with Child(probe_and_die, root, "rename", 1, signal.SIGSTOP) as child:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        (left,) = entries(root)
        os.utime(f"{root}/{left}", (time.time() - 3600,) * 2)
        driver.probe(1)  # takes it for a leftover
        child.resume()
        assert child.expect() == "SystemFailure"
    assert driver.devices() == [1]
    assert entries(root) == ["neuron1"]


def test_the_leftover_has_lost_its_name_before_its_files(root, driver, monkeypatch):
    driver.probe(0)
    name = ".new-neuron5-1-00"
    os.mkdir(f"{root}/{name}", 0o700)
    open(f"{root}/{name}/table", "w").close()
    os.utime(f"{root}/{name}", (time.time() - 3600,) * 2)
    names: list[bool] = []
    unlink = os.unlink
    monkeypatch.setattr(os, "unlink", lambda *a, **k: (names.append(name in entries(root)), unlink(*a, **k)))
    driver.probe(1)
    assert names == [False]
    assert entries(root) == ["neuron0", "neuron1"]
