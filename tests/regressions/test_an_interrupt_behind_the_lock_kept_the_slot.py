"""Interrupted between taking a slot's byte and owning the slot, a process kept the byte, and nobody got the slot."""

from neuron_ds.layout import SLOTS_PER_DEVICE
from tests.driver.table_world import Interrupted, Machine


def test_the_slot_of_an_interrupted_claim_is_the_next_one_s():
    machine = Machine()
    *others, interrupted, late = (machine.process() for _ in range(SLOTS_PER_DEVICE + 1))
    assert all(p.acquire() for p in others)
    assert interrupted.acquire(fuse=1, end=Interrupted) is None
    assert late.acquire() is True
