"""Threads that published first at the same time each opened the directory: each took a slot, and as record locks don't
hold between threads, each was inside the table."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from tests.devices import seen_from_outside
from tests.processes import run_threads


@pytest.mark.usefixtures("switching")
def test_threads_that_publish_first_share_one_slab(root):
    for i in range(25):
        driver = SoftwareDriver(f"{root}-{i}")
        driver.probe(0)
        other = SoftwareDriver(f"{root}-{i}/../{os.path.basename(root)}-{i}")
        producers: list[datastore.Producer] = []
        drivers = iter((driver, other) * 3)

        def work(producers=producers, drivers=drivers) -> None:
            producers.append(datastore.publish(0, driver=next(drivers)))

        assert run_threads(work, 6) == []
        assert len({(p.slot, p.generation) for p in producers}) == 1
        assert [slot for slot, *_ in seen_from_outside(f"{root}-{i}")] == [producers[0].slot]
        producers[0].close()
