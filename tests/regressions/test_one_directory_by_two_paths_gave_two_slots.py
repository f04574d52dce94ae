"""A directory named in two ways was opened twice: one process had two slots on a device, and two threads of it could be
inside the table at once."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from tests.devices import seen_from_outside


@pytest.mark.parametrize("other", ["{}/", "{}/.", "{}/../devices", "{}//"])
def test_one_directory_by_two_paths_is_one_slab(root, driver, other):
    with datastore.publish(0, driver=driver) as first:
        with datastore.publish(0, driver=SoftwareDriver(other.format(root))) as second:
            assert (second.slot, second.generation) == (first.slot, first.generation)
            assert seen_from_outside(root) == [[0, os.getpid(), True]]
        assert first.closed
    assert seen_from_outside(root) == []
