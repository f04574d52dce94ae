"""Tags that are no UTF-8 became one label in a scrape, and control characters went out as they were."""

import time

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.watch import Watch
from neuron_ds.monitor import Monitor
from neuron_ds.monitor.config import everything
from tests.devices import publish_and_wait
from tests.exporter.helpers import NO_INSTANCE, scrape
from tests.processes import Child


def until(time_ns: int) -> bool:
    time.sleep(max(0, time_ns - time.monotonic_ns()) / 1e9)
    return True


@pytest.fixture
def tags(root: str, driver: SoftwareDriver) -> list[str]:
    driver.probe(0)
    return ["\udcff", "\udcfe", "a\nb", "a\\nb", "\x1b[31m", "é"]


def test_each_has_its_series_by_the_name_of_the_stream(root: str, driver: SoftwareDriver, tags: list[str]) -> None:
    children = [Child(publish_and_wait, root, tag) for tag in tags]
    try:
        for child in children:
            child.expect()
        with Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch:
            found = scrape(watch.report()).by("neuron_ds_runtime_processes", "runtime_tag")
        with Monitor(everything(20_000_000), driver, sample_hz=0) as monitor:
            entries = next(monitor.reports(until))["neuron_runtime_data"]
    finally:
        for child in children:
            child.close()
    escaped = ["\\xff", "\\xfe", "a\\nb", "a\\\\nb", "\\x1b[31m", "é"]
    assert found == dict.fromkeys(escaped, 1)
    assert sorted(entry["neuron_runtime_tag"] for entry in entries) == sorted(escaped)
