"""``nd.feature_bitmap.set(0)`` took back bits that are only ever set, as ``sub`` and ``add`` could."""

import pytest

from neuron_ds import datastore, errors, layout

BITMAPS = [c for c in layout.ND if c.kind == layout.BITMAP]


def test_there_are_two():
    assert [c.name for c in BITMAPS] == ["feature_bitmap", "dynamic_sysfs_metric_bitmap"]


@pytest.mark.parametrize("definition", BITMAPS, ids=lambda c: c.name)
def test_bits_are_set_and_nothing_else(driver, definition):
    with datastore.publish(0, driver=driver) as producer, datastore.attach(producer.pid, driver=driver) as reader:
        for bit, bitmap in enumerate((getattr(producer.nd, definition.name), producer.nd.counter(definition.index))):
            for name, args in (("set", (0,)), ("add", (1,)), ("sub", (1,)), ("inc", ())):
                with pytest.raises(AttributeError, match=rf"no {name}\(\).*\.or_\(\)"):
                    getattr(bitmap, name)(*args)
            bitmap.or_(1 << bit)
            assert bitmap.get() == (2 << bit) - 1
            assert repr(bitmap) == f"<Counter {definition.index} of the device: {bitmap.get()}>"
        assert producer.snapshot().nd(definition.index) == reader.nd.counter(definition.index).get() == 3
        with pytest.raises(errors.ReadOnly):
            getattr(reader.nd, definition.name).or_(4)
    with pytest.raises(errors.Closed):
        bitmap.or_(4)


def test_every_other_counter_of_the_device_stays_as_it_was(driver):
    with datastore.publish(0, driver=driver) as producer:
        for definition in layout.ND:
            if definition not in BITMAPS:
                for counter in (getattr(producer.nd, definition.name), producer.nd.counter(definition.index)):
                    counter.set(7)
                    assert counter.get() == 7
