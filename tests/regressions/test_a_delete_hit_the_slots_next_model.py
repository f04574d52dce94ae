"""Two threads that deleted one model, or a delete during an update, cleared or overwrote the record of the model that
had got the slot in between."""

import threading

import pytest

from neuron_ds import datastore
from tests.devices import node
from tests.processes import outcome, run_threads


@pytest.fixture
def producer(driver):
    with datastore.publish(0, driver=driver) as made:
        yield made


def test_a_second_delete_waits_for_the_first(producer, hook):
    model = producer.add_model(node(1))
    half_done, go = threading.Event(), threading.Event()

    def stay(name: str) -> None:
        if name == "delete.bit" and threading.current_thread() is first:
            half_done.set()
            go.wait(30)

    added: list[datastore.ModelHandle] = []

    def delete_and_add() -> None:
        model.delete()
        added.append(producer.add_model(node(2)))

    first, second = threading.Thread(target=model.delete), threading.Thread(target=delete_and_add)
    hook.append(stay)
    first.start()
    assert half_done.wait(30)
    second.start()
    second.join(0.2)  # it would be done by now, did it not wait
    go.set()
    first.join(30)
    second.join(30)
    assert producer.snapshot().models[added[0].slot].model_id == 2


@pytest.mark.usefixtures("switching")
def test_one_model_deleted_by_many_threads_is_deleted_once(producer):
    for _ in range(60):
        victim = producer.add_model(node(1))
        added: list[datastore.ModelHandle] = []

        def work(victim=victim, added=added) -> None:
            victim.delete()
            added.append(producer.add_model(node(2)))

        assert run_threads(work, 4) == []
        assert len({h.slot for h in added}) == 4
        assert sorted(producer.snapshot().models) == sorted(h.slot for h in added), "a delete hit another's model"
        for handle in added:
            handle.delete()


def test_an_update_that_comes_behind_a_delete_does_not_hit_the_next_model(producer):
    """The update has begun when the delete comes from another thread; the slot's next model stays as it is."""
    model = producer.add_model(node(1))
    begun, go = threading.Event(), threading.Event()

    class Slow:
        """A node whose bytes take their time."""

        @property
        def raw(self) -> bytes:
            begun.set()
            go.wait(30)
            return node(13).raw

    updating = threading.Thread(target=lambda: outcome(lambda: model.update(Slow())))
    updating.start()
    assert begun.wait(30)
    done: list[datastore.ModelHandle] = []

    def replace() -> None:
        model.delete()
        done.append(producer.add_model(node(2)))

    replacing = threading.Thread(target=replace)
    replacing.start()
    go.set()
    updating.join(30)
    replacing.join(30)
    assert producer.snapshot().models[done[0].slot].model_id == 2
