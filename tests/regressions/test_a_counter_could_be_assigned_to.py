"""``core.inference_count = 3`` raised nothing, and hid the counter behind an int."""

import pytest

from neuron_ds import datastore


def test_assigning_to_a_counter_is_refused_and_hides_nothing(driver):
    with datastore.publish(0, driver=driver) as producer:
        for counters, name in ((producer.core(1), "inference_count"), (producer.nd, "feature_bitmap")):
            with pytest.raises(AttributeError, match=f"{name} can't be assigned to"):
                setattr(counters, name, 3)
            getattr(counters, name).or_(5)
            assert getattr(counters, name).get() == 5
