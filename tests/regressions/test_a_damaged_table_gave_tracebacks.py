"""States, pending slots and ticks that no rule knows ended in an IndexError, or freed a living slab."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import LayoutMismatch
from tests.devices import put_word

DAMAGE = {
    "state": (t.slot_index(3), t.slot_word(7, 9)),
    "pending": (t.W_COMMIT, 5 << 16 | 200 << 8),
    "owned pending": (t.W_COMMIT, 5 << 16 | 0 << 8),
    "tick": (t.slot_index(2, t.S_TICK), (1 << 64) - 1),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_it_is_said_and_nothing_is_touched(root, driver, name):
    with datastore.publish(0, driver=driver) as living:
        living.core(0).inference_count.add(3)
        path = f"{root}/neuron0/{d.TABLE}"
        with open(path, "rb") as f:
            before = f.read()
        index, value = DAMAGE[name]
        put_word(path, index, value)
        other = SoftwareDriver(root)
        for call in (lambda: other.reset(0), lambda: datastore.publish(0, driver=other)):
            with pytest.raises(LayoutMismatch, match="the table is damaged") as e:
                call()
            assert e.value.path == f"{root}/neuron0"
        assert len(driver.owners(0)) >= 1
        assert datastore.attach(os.getpid(), driver=driver).snapshot().core(0).inference_count == 3
        put_word(path, index, int.from_bytes(before[index * 8 : index * 8 + 8], "little"))


@pytest.mark.parametrize("name", [d.TABLE, d.TOTALS, d.SLABS, d.OWNERS])
def test_a_fifo_in_place_of_a_file_does_not_hang(root, driver, name):
    driver.probe(0)
    os.remove(f"{root}/neuron0/{name}")
    os.mkfifo(f"{root}/neuron0/{name}")
    fresh = SoftwareDriver(f"{root}/../devices")
    from neuron_ds.driver import software

    software._open.clear()
    with pytest.raises(OSError, match="regular file|opening the device|Invalid argument"):
        fresh.owners(0)
