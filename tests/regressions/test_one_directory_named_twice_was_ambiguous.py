"""A directory that was named twice, or by two paths, showed each owner twice, and no pid in it could be attached to."""

import os

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver


def test_a_directory_named_twice(root, driver):
    with datastore.publish(0, driver=driver) as producer:
        twice = SoftwareDriver(f"{root}:{root}/:{os.path.dirname(root)}/./devices")
        assert [o.slot for o in twice.owners(0)] == [producer.slot]
        with datastore.attach(os.getpid(), driver=twice) as reader:
            assert reader.slot == producer.slot
