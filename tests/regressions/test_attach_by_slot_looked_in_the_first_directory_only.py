"""With several directories named, a slot of any but the first could not be attached to; nor could the listing, which
attaches by pid and slot."""

import pytest

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import AmbiguousPid
from tests.devices import publish_and_wait
from tests.processes import Child


def test_a_slot_in_the_second_directory(root):
    SoftwareDriver(f"{root}-a").probe(0)
    both = SoftwareDriver(f"{root}-a:{root}-b")
    with Child(publish_and_wait, f"{root}-b", "b") as b:
        slot = b.expect()
        for pid in (b.pid, None):
            with datastore.attach(pid, slot=slot, driver=both) as reader:
                assert reader.snapshot().tag == "b"
        with Child(publish_and_wait, f"{root}-a", "a") as a:
            assert a.expect() == slot
            with datastore.attach(b.pid, slot=slot, driver=both) as reader:
                assert reader.snapshot().tag == "b"
            with pytest.raises(AmbiguousPid, match=f"{root}-a/neuron0, {root}-b/neuron0"):
                datastore.attach(slot=slot, driver=both)
