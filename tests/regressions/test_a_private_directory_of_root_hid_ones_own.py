"""Readers look in root's directory too. Where root had made one for itself alone, every other user got AccessDenied
instead of what stood in their own."""

import os

from neuron_ds import datastore
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import Talk, as_root, become, outcome, result_of


@as_root
def test_a_private_directory_of_root_does_not_hide_ones_own(root, driver):
    """Where NEURON_DS_DIR is not set, root's directory is looked in too; most users may not."""
    os.chmod(os.path.dirname(root), 0o777)
    with datastore.publish(0, driver=driver):

        def as_nobody(talk: Talk) -> list[object]:
            become(65534)
            d.roots = lambda *_: [(root + "-own", False), (root, False)]
            own = SoftwareDriver()
            before = outcome(own.devices), outcome(lambda: own.properties(0))
            with datastore.publish(0, driver=own, tag="own") as producer:
                with datastore.attach(os.getpid(), driver=own) as reader:
                    tag = reader.snapshot().tag
                return [*before, own.devices(), len(own.owners(0)), producer.slot, tag]

        # As long as there is nothing of one's own, it is said why there is nothing to see.
        assert result_of(as_nobody) == ["AccessDenied", "AccessDenied", [0], 1, 0, "own"]
