"""The processor time of a process in another pid namespace was that of the process here that has its pid by chance."""

import os
import time
from dataclasses import replace

from neuron_ds import datastore
from neuron_ds.monitor import Monitor
from neuron_ds.monitor.config import everything
from tests.monitor.schemas import check

ELSEWHERE = "is in another pid namespace"


class Foreign:
    """A driver whose device 1 is used from another pid namespace."""

    def __init__(self, driver):
        self._driver = driver

    def __getattr__(self, name):
        return getattr(self._driver, name)

    def owners(self, device):
        return [replace(owner, foreign=device == 1) for owner in self._driver.owners(device)]


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_it_is_zero_beside_the_reason(driver):
    driver.probe(1)
    with (
        datastore.publish(0, driver=driver, tag="here"),
        datastore.publish(1, driver=driver, tag="there"),
        Monitor(everything(10**9), Foreign(driver), sample_hz=0) as monitor,
    ):
        monitor.begin()
        busy(0.1)
        report = check(next(monitor.lines(lambda due_ns: not time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9))))
    groups = {runtime["neuron_runtime_tag"]: runtime["report"] for runtime in report["neuron_runtime_data"]}
    assert {runtime["pid"] for runtime in report["neuron_runtime_data"]} == {os.getpid()}
    here, there = (groups[tag]["neuron_runtime_vcpu_usage"] for tag in ("here", "there"))
    assert here["error"] == ""
    assert sum(here["vcpu_usage"].values()) > 0
    assert there["error"].endswith(ELSEWHERE)
    assert there["vcpu_usage"] == {"user": 0, "system": 0}
    assert groups["there"]["memory_used"]["error"].endswith(ELSEWHERE)
    assert groups["here"]["memory_used"]["error"] == ""
