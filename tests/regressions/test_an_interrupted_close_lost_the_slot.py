"""Ctrl-C within a close or an acquire left a slot that its process didn't know of and nobody else could have, until the
process ended."""

import os

import pytest

from neuron_ds import datastore, layout
from tests.devices import COUNT, seen_from_outside, slots_that_others_get


class Interrupt(Exception):
    """Comes from outside, as KeyboardInterrupt does."""


@pytest.mark.parametrize(
    "step",
    "table.locked release.closing release.rolled_up release.counted release.header release.zeroed release.ticked "
    "release.free release.committed release.unlocked".split(),
)
def test_a_close_that_is_interrupted_is_finished_later(root, driver, hook, step):
    producer = datastore.publish(0, driver=driver)
    producer.core(0).inference_count.add(4)

    def interrupt(name: str) -> None:
        if name == step:
            hook.clear()
            raise Interrupt

    hook.append(interrupt)
    with pytest.raises(Interrupt):
        producer.close()
    assert producer.closed
    with datastore.publish(0, driver=driver) as again:  # neither the lock nor the mutex was left behind
        assert seen_from_outside(root) == [[again.slot, os.getpid(), True]]
    assert slots_that_others_get(root) == list(range(layout.SLOTS_PER_DEVICE)), "a slot is lost to other processes"
    assert driver.totals(0).nc(0, COUNT) == 4


@pytest.mark.parametrize(
    "step", "table.locked acquire.begin acquire.locked acquire.owner acquire.owned acquire.mapped".split()
)
def test_an_acquire_that_is_interrupted_leaves_no_slot_taken(root, driver, hook, step):
    driver.probe(0)

    def interrupt(name: str) -> None:
        if name == step:
            hook.clear()
            raise Interrupt

    hook.append(interrupt)
    with pytest.raises(Interrupt):
        datastore.publish(0, driver=driver)
    assert slots_that_others_get(root) == list(range(layout.SLOTS_PER_DEVICE)), "a slot is lost to other processes"
    assert seen_from_outside(root) == []
