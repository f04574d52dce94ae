"""While one thread released what an earlier close could not, another thread's close failed too: its slot was struck off
the list instead of the one that had been released."""

from neuron_ds.driver import table as t
from tests.devices import slot_states


def test_a_slot_that_is_abandoned_while_another_is_given_back(root, driver, hook):
    driver.probe(0)
    device = driver._device(root, True, 0, produce=True)
    lost = driver.acquire(0)
    device.lease = None  # as a close leaves it that could not have the table lock
    device.abandoned.append((lost.slot, lost.generation))

    def another_thread(name: str) -> None:
        if name == "release.counted":
            device.abandoned.append((7, 1))

    hook.append(another_thread)
    lease = driver.acquire(0)
    hook.clear()
    assert device.abandoned == [(7, 1)]
    assert slot_states(root)[lost.slot] == t.FREE
    driver.release(lease)
    lost.mapping.close()
