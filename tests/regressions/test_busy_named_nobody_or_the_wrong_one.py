"""A thread that waited behind another thread, which waited for a stopped process, was told of its own process; and a
lock that was free again at the last look was said to be held by process None."""

import os
import threading

import pytest

from neuron_ds import datastore
from neuron_ds.driver import opened
from neuron_ds.errors import TableBusy
from tests.driver.test_software import stop_with_the_lock
from tests.processes import Child


def test_threads_that_wait_all_name_the_stopped_process(root, driver, monkeypatch):
    publishing = datastore.publish(0, driver=driver)
    monkeypatch.setattr(opened, "LOCK_WAIT_S", 0.05)
    errors: list[TableBusy] = []

    def work() -> None:
        try:
            driver.acquire(0)
        except TableBusy as e:
            errors.append(e)

    with Child(stop_with_the_lock, root, "acquire.owned") as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert [e.pid for e in errors] == [stopped.pid] * 6
        with pytest.raises(TableBusy, match=f"process {stopped.pid} "):
            publishing.close()


def test_the_last_look_at_a_lock_that_is_free_again(driver, monkeypatch):
    driver.probe(0)
    device = driver._device(driver.roots()[0][0], True, 0, produce=True)
    assert "others, in turn" in str(device._busy(nested=False))
    assert device._busy(nested=False).pid is None
