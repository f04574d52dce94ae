"""Snapshots of slabs that live: of one, and of many in one pass, whatever has become of their producers.

Real producers in processes of their own; what a snapshot then shows is in test_snapshot.py.
"""

import os
import time

import pytest

from neuron_ds import errors, layout
from neuron_ds.datastore import ArenaPool, attach, publish, snapshot_all
from neuron_ds.records import ModelNode
from neuron_ds.snapshot import RecordState, Snapshot
from tests.processes import Child

VERIFY = pytest.mark.parametrize("verify", [True, False])


def produce(talk, driver, count, models=2):
    """A producer that counts, adds its models and then waits until it is told to close."""
    with publish(0, tag=f"counts {count}", driver=driver) as ds:
        ds.core(3).inference_count.add(count)
        for number in range(models):
            ds.add_model(ModelNode.build(model_id=number, nc_index=number))
        talk.say("ready")
        talk.hear()
    talk.say("closed")
    talk.hear()


@pytest.fixture
def producers(driver):
    """Start a producer with a count; all are gone when the test is."""
    driver.probe(0)
    running = []

    def start(count, **kwargs):
        running.append(Child(produce, driver, count, *kwargs.values()))
        assert running[-1].expect() == "ready"
        return running[-1]

    yield start
    for child in running:
        child.close()


# --- One slab


@VERIFY
def test_a_snapshot_says_whose_it_is_and_when_it_was_taken(driver, producers, verify):
    child = producers(5)
    with attach(child.pid, 0, driver=driver) as reader:
        before = time.monotonic_ns()
        snapshot = reader.snapshot(verify=verify)
        assert before <= snapshot.time_ns <= time.monotonic_ns()
        assert (snapshot.device, snapshot.pid, snapshot.slot) == (0, child.pid, reader.slot)
        assert snapshot.generation == reader.generation > 0
        assert (snapshot.core(3).inference_count, snapshot.tag) == (5, "counts 5")
        assert list(snapshot.models) == [0, 1]
        assert set(snapshot.states().values()) == {RecordState.EXACT}
    assert snapshot.core(3).inference_count == 5  # also when the reader is closed


@VERIFY
def test_a_released_slab_gives_no_snapshot(driver, producers, verify):
    child = producers(5)
    with attach(child.pid, 0, driver=driver) as reader:
        assert child.ask("close") == "closed"
        with pytest.raises(errors.ProducerGone, match=f"device 0, pid {child.pid}, slot 0: .*list the owners again"):
            reader.snapshot(verify=verify)
        assert not reader.alive


def test_a_killed_producer_shows_at_once_unless_the_slab_is_merely_copied(driver, producers):
    """A mere copy asks the slot's word, not the kernel: it is told when the slot is recovered."""
    child = producers(5)
    with attach(child.pid, 0, driver=driver) as reader:
        child.end()
        with pytest.raises(errors.ProducerGone):
            reader.snapshot()
        assert not reader.alive
        assert reader.snapshot(verify=False).core(3).inference_count == 5
        next_one = producers(6)
        with pytest.raises(errors.ProducerGone):
            reader.snapshot(verify=False)
        with attach(next_one.pid, 0, driver=driver) as other:
            assert other.snapshot(verify=False).core(3).inference_count == 6


@VERIFY
def test_a_producer_may_look_at_its_own_slab(driver, verify):
    driver.probe(0)
    with publish(0, tag="self", driver=driver) as ds:
        snapshot = ds.snapshot(verify=verify)
        assert (snapshot.pid, snapshot.tag) == (os.getpid(), "self")
    with pytest.raises(errors.Closed):
        ds.snapshot(verify=verify)


# --- Many in one pass


@VERIFY
def test_a_pass_gives_each_reader_its_slab_or_its_error(driver, producers, verify):
    children = [producers(count) for count in range(1, 5)]
    readers = [attach(child.pid, 0, driver=driver) for child in children]
    readers[0].close()
    children[1].ask("close")
    closed, released, *shown = snapshot_all(readers, ArenaPool(), verify=verify)
    assert isinstance(closed, errors.Closed)
    assert isinstance(released, errors.ProducerGone)
    assert released.pid == children[1].pid
    assert [s.core(3).inference_count for s in shown] == [3, 4]
    assert [(s.pid, s.slot, s.generation) for s in shown] == [(r.pid, r.slot, r.generation) for r in readers[2:]]
    assert [s.tag for s in shown] == ["counts 3", "counts 4"]
    assert all(list(s.models) == [0, 1] for s in shown)
    for reader in readers:
        reader.close()


def test_a_pass_of_nobody():
    assert snapshot_all([], ArenaPool()) == []


def test_an_arena_is_used_again_once_nobody_looks_at_it(driver, producers):
    child = producers(7)
    pool = ArenaPool()
    with attach(child.pid, 0, driver=driver) as reader:
        (first,) = snapshot_all([reader], pool)
        held = pool._arenas[0]
        (second,) = snapshot_all([reader], pool)
        assert [arena is held for arena in pool._arenas] == [True, False]
        assert first.raw == second.raw
        del first
        assert not held.in_use
        (third,) = snapshot_all([reader], pool)
        assert held.in_use
        assert len(pool._arenas) == 2
        assert third.core(3).inference_count == 7


def test_a_snapshot_outlives_pool_and_reader(driver, producers):
    child = producers(7)
    with attach(child.pid, 0, driver=driver) as reader:
        (snapshot,) = snapshot_all([reader], ArenaPool())
    del reader
    assert isinstance(snapshot, Snapshot)
    assert snapshot.core(3).inference_count == 7
    assert len(snapshot.raw) == layout.REQUIRED_SIZE
    with pytest.raises(TypeError):
        snapshot.raw[0] = 1


@VERIFY
@pytest.mark.parametrize(
    ("header", "kind"),
    [
        (0, errors.NotReady),
        (layout.HEADER_WORD + (1 << 32), errors.WrongVersion),
        (12345, errors.NotReady),
    ],
)
def test_a_header_that_went_bad_is_said(driver, header, kind, verify):
    driver.probe(0)
    with publish(0, driver=driver) as ds:
        ds._lease.mapping.store(layout.HEADER.offset // 8, header)
        with pytest.raises(kind, match=f"device 0, pid {os.getpid()}, slot 0: "):
            ds.snapshot(verify=verify)
        (error,) = snapshot_all([ds], ArenaPool(), verify=verify)
        assert type(error) is kind
        assert error.pid == os.getpid()
