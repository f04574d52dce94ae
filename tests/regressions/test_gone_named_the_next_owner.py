"""Attaching to a pid in a slot that is another's by now said of the other, which lives, that it had died."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.errors import ProducerGone


def test_who_is_gone_is_who_was_asked_for(driver):
    with (
        datastore.publish(0, driver=driver) as producer,
        pytest.raises(ProducerGone, match="pid 1, slot 0: has released its slab or died") as gone,
    ):
        datastore.attach(1, slot=producer.slot, driver=driver)
    assert gone.value.pid == 1 != os.getpid()
