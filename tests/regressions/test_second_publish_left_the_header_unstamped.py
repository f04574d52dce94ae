"""A second publish in another thread came before the first had stamped the header, told the first that the slab was not
fresh, and so nobody stamped it."""

import os
import threading

import pytest

from neuron_ds import datastore
from tests.devices import seen_from_outside
from tests.processes import run_threads


def test_a_publish_between_acquire_and_stamp(driver, hook):
    first_has_its_slot, go = threading.Event(), threading.Event()

    def stay(name: str) -> None:
        if name == "publish.header" and threading.current_thread() is thread:
            first_has_its_slot.set()
            go.wait(30)

    producers: list[datastore.Producer] = []
    thread = threading.Thread(target=lambda: producers.append(datastore.publish(0, driver=driver, tag="first")))
    hook.append(stay)
    thread.start()
    assert first_has_its_slot.wait(30)
    lease = driver.acquire(0)  # what a second publish does first
    assert lease.fresh, "the first publish has not stamped it yet"
    go.set()
    thread.join(30)
    assert not lease.fresh
    assert datastore.publish(0, driver=driver, tag="second").snapshot().tag == "first"
    producers[0].close()


@pytest.mark.usefixtures("switching")
def test_threads_that_publish_first_at_once_share_one_slab_that_is_stamped(driver, root):
    for _ in range(25):
        producers: list[datastore.Producer] = []

        def work(producers=producers) -> None:
            producer = datastore.publish(0, driver=driver)
            assert producer.snapshot().tag == str(os.getpid()), "given out before it was stamped"
            producers.append(producer)

        assert run_threads(work, 6) == []
        assert len({(p.slot, p.generation) for p in producers}) == 1
        with datastore.attach(os.getpid(), driver=driver) as reader:
            assert reader.snapshot().tag == str(os.getpid())
        producers[0].close()
        assert seen_from_outside(root) == []
