"""A close, or a slab given back late, released before it had recovered: what a killed process had left pending was
counted a second time."""

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from tests.kill import ADDED, kill_at

INDEX = layout.NC_BY_NAME["inference_count"].index


@pytest.mark.parametrize("step", ["release.counted", "release.header", "release.zeroed", "release.ticked"])
def test_what_is_pending_is_finished_before_anything_is_released(root, step):
    driver = SoftwareDriver(root)
    producer = datastore.publish(0, driver=driver)
    producer.core(0).inference_count.add(7)
    kill_at(root, step)
    assert driver.totals(0).nc(0, INDEX) == ADDED + 7
    producer.close()
    assert driver.totals(0).nc(0, INDEX) == ADDED + 7
    assert driver.owners(0) == []
