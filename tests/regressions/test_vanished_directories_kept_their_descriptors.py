"""Each directory that a process had ever used kept two descriptors open, though it was long deleted."""

import os
import shutil

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import Talk, result_of


def test_directories_that_vanish_are_forgotten(root):
    def count(talk: Talk) -> list[int]:
        seen = []
        for i in range(30):
            gone = SoftwareDriver(f"{root}-{i}")
            datastore.publish(0, driver=gone).close()
            gone.owners(0)
            shutil.rmtree(f"{root}-{i}")
            seen.append(len(os.listdir("/proc/self/fd")))
        return seen

    seen = result_of(count)
    assert max(seen[5:]) <= max(seen[:5])
