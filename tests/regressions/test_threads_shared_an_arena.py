"""Two threads with one pool took the same arena for a pass each: one's snapshots showed the other's slabs."""

import pytest

import neuron_ds
from neuron_ds import datastore
from tests.devices import publish_and_wait
from tests.processes import Child, run_threads


@pytest.fixture
def readers(root, driver):
    children = [Child(publish_and_wait, root, f"p{i}") for i in range(4)]
    for child in children:
        child.expect()
    attached = [datastore.attach(child.pid, driver=driver) for child in children]
    yield attached
    for handle in (*attached, *children):
        handle.close()


def test_an_arena_that_is_taken_is_taken():
    pool = datastore.ArenaPool()
    first, second = pool.take(1), pool.take(1)
    assert first is not second
    pool.put(first)
    assert pool.take(1) is first


@pytest.mark.usefixtures("switching")
def test_passes_of_many_threads_do_not_mix(readers):
    pool = datastore.ArenaPool()
    numbers = iter(range(4))

    def work() -> None:
        i = next(numbers)
        for _ in range(1000):
            (snapshot,) = datastore.snapshot_all([readers[i]], pool)
            assert isinstance(snapshot, neuron_ds.Snapshot)
            assert (snapshot.pid, snapshot.tag) == (readers[i].pid, f"p{i}")

    assert run_threads(work, 4) == []
