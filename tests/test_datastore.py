"""publish and attach: models, process info, handles that die, what an attach can answer, passes over many slabs."""

from __future__ import annotations

import errno
import gc
import os
import pickle
import random
import threading
from pathlib import Path

import pytest

import neuron_ds
from neuron_ds import RecordState, _core, datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import steps
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    AccessDenied,
    BadIndex,
    BadValue,
    Closed,
    ForkedChild,
    NeuronDSError,
    NoDevice,
    NoSlab,
    NotReady,
    ProducerGone,
    ReadOnly,
    WrongVersion,
)
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT
from tests.devices import node, publish_and_wait, seen_from_outside, write_header
from tests.processes import Child, Talk, as_root, become, outcome, result_of

# --- Publish --------------------------------------------------------------------------------------------------------


def test_publish_stamps_the_header_and_says_who(producer, reader):
    assert (producer.device, producer.pid, producer.slot, producer.generation) == (0, os.getpid(), 0, 1)
    assert not producer.closed
    snapshot = reader.snapshot()
    assert snapshot.word(0) == layout.HEADER_WORD
    assert snapshot.states() == dict.fromkeys((RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT), RecordState.EXACT)
    assert (snapshot.device, snapshot.pid, snapshot.slot, snapshot.generation) == (0, os.getpid(), 0, 1)
    assert snapshot.time_ns > 0
    assert repr(producer) == f"<Producer device 0 pid {os.getpid()} slot 0 producer>"


def test_publish_through_the_front_door(root, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", root)
    monkeypatch.setenv("NEURON_DS_DRIVER", "software")
    with neuron_ds.publish() as producer, neuron_ds.attach(os.getpid()) as reader:
        producer.core(3).inference_count.add(1)
        assert reader.core(3).inference_count.get() == 1
        assert [o.pid for o in neuron_ds.owners(0)] == [os.getpid()]
        assert [p.device for p in neuron_ds.devices()] == [0]


def test_a_second_publish_is_the_same_slab_and_the_first_close_ends_all(producer, driver, root):
    again = datastore.publish(0, driver=driver, tag="ignored", framework_type=5)
    assert (again.slot, again.generation) == (producer.slot, producer.generation)
    again.core(0).inference_count.add(2)
    assert producer.core(0).inference_count.get() == 2
    assert producer.snapshot().tag == str(os.getpid())
    handles = [producer.core(1).counter(0), again.core(1).counter(0)]
    model = producer.add_model(node(1))
    producer.close()
    assert producer.closed
    assert again.closed
    for call in (
        *(h.inc for h in handles),
        *(h.get for h in handles),
        again.snapshot,
        lambda: again.add_model(node(2)),
        lambda: again.core(2).inference_count,
        lambda: again.nd.feature_bitmap,
        lambda: model.update(node(3)),
        model.delete,
        again.set_process_info,
        lambda: again.core(0).execution_ended(1),
        lambda: again.core(0).add_many(bytes(8)),
    ):
        with pytest.raises(Closed) as closed:
            call()
        assert closed.value.errno == errno.EBADF
        assert not isinstance(closed.value, ForkedChild)
    for handle in (again, producer, again):
        handle.close()
    assert seen_from_outside(root) == []
    third = datastore.publish(0, driver=driver, tag="third")
    again.close()  # the dead handles of before mean nothing to it
    assert third.snapshot().tag == "third"
    third.close()


def test_context_managers_close_whatever_happens(driver, root):
    with pytest.raises(ZeroDivisionError), datastore.publish(0, driver=driver) as producer:
        _ = 1 // 0
    assert producer.closed
    with datastore.publish(0, driver=driver):
        with pytest.raises(ZeroDivisionError), datastore.attach(os.getpid(), driver=driver) as reader:
            _ = 1 // 0
        assert reader.closed
    assert seen_from_outside(root) == []


def test_closing_while_everything_is_still_referenced(driver):
    producer = datastore.publish(0, driver=driver)
    reader = datastore.attach(os.getpid(), driver=driver)
    counters = [producer.core(c).counter(i) for c in range(8) for i in range(0, 95, 13)]
    counters += [reader.core(c).counter(i) for c in range(8) for i in range(0, 95, 13)]
    snapshot = reader.snapshot()
    producer.close()
    reader.close()
    reader.close()
    gc.collect()
    for counter in counters:
        with pytest.raises((Closed, ProducerGone)):
            counter.get()
    assert snapshot.tag == str(os.getpid())  # a snapshot is a copy
    for call in (reader.snapshot, lambda: reader.core(1).inference_count):
        with pytest.raises(Closed):
            call()


def test_a_failed_publish_gives_the_slot_back(driver, root):
    with pytest.raises(BadValue, match="tag"):
        datastore.publish(0, driver=driver, tag="x" * 257)
    assert seen_from_outside(root) == []
    with pytest.raises(BadValue, match="version"):
        datastore.publish(0, driver=driver, runtime_version=(256, 0, 0))
    assert seen_from_outside(root) == []
    datastore.publish(0, driver=driver).close()


# --- Counters -------------------------------------------------------------------------------------------------------


def test_counters_by_name_and_by_index(producer, reader):
    core = producer.core(3)
    core.inference_count.add(5)
    core.counter(layout.NC_BY_NAME["inference_count"].index).inc()
    core.inference_count.sub(2)
    producer.nd.feature_bitmap.or_(2)
    assert reader.core(3).inference_count.get() == 4
    assert reader.nd.counter(3).get() == 2
    assert core.inference_count is core.inference_count
    assert producer.core(3) is core


@pytest.mark.parametrize("core", [-1, 8, 16, 1 << 40])
def test_a_core_that_the_device_does_not_have(producer, reader, core):
    for side in (producer, reader):
        with pytest.raises(BadIndex, match="8 physical cores, from 0") as bad:
            side.core(core)
        assert (bad.value.errno, bad.value.device, bad.value.pid, bad.value.slot) == (errno.EINVAL, 0, os.getpid(), 0)


@pytest.mark.parametrize("index", [-1, 95, 1 << 31, 1 << 63])
def test_a_counter_that_does_not_exist(producer, index):
    with pytest.raises(BadIndex):
        producer.core(0).counter(index)
    with pytest.raises(BadIndex):
        producer.nd.counter(index)


def test_a_name_that_is_no_counter(producer):
    with pytest.raises(AttributeError, match=r"no counter 'inference_cuont'.*neuron_ds\.layout\.NC"):
        _ = producer.core(0).inference_cuont
    with pytest.raises(AttributeError, match=r"no counter 'inference_count'.*neuron_ds\.layout\.ND"):
        _ = producer.nd.inference_count


def test_a_reader_cannot_write(reader):
    core = reader.core(0)
    for call in (
        core.inference_count.inc,
        lambda: core.inference_count.add(1),
        lambda: core.inference_count.sub(1),
        lambda: core.inference_count.or_(1),
        lambda: core.inference_count.set(1),
        lambda: reader.nd.feature_bitmap.or_(1),
        lambda: core.execution_ended(1),
        lambda: core.add_many(bytes(8)),
    ):
        with pytest.raises(ReadOnly) as read_only:
            call()
        assert read_only.value.errno == errno.EPERM
        assert isinstance(read_only.value, PermissionError)
    assert not hasattr(reader, "add_model")


# --- What an attach can answer --------------------------------------------------------------------------------------


def test_attach_where_nothing_is(driver):
    with pytest.raises(NoDevice):
        datastore.attach(1, driver=driver)
    driver.probe(0)
    for pid in (1, os.getpid(), 0, -1, 1 << 40):
        with pytest.raises(NoSlab) as none:
            datastore.attach(pid, driver=driver)
        assert (none.value.errno, none.value.device, none.value.pid) == (errno.ENOENT, 0, pid)
        assert isinstance(none.value, FileNotFoundError)
    with pytest.raises(NoDevice):
        datastore.attach(1, 5, driver=driver)


def test_attach_to_oneself(producer, driver):
    producer.core(0).inference_count.set(9)
    with datastore.attach(os.getpid(), driver=driver) as reader:
        assert (reader.pid, reader.slot, reader.generation) == (os.getpid(), producer.slot, producer.generation)
        assert reader.alive
        assert reader.core(0).inference_count.get() == 9
        producer.close()
        assert not reader.alive
        with pytest.raises(ProducerGone):
            reader.core(0).inference_count.get()


def test_attach_before_the_header_stands(driver):
    lease = driver.acquire(0)
    with pytest.raises(NotReady, match="header at offset 0 is zero: its producer has not stamped it yet") as early:
        datastore.attach(os.getpid(), driver=driver)
    assert (early.value.errno, early.value.pid, early.value.slot) == (errno.EINVAL, os.getpid(), 0)
    lease.mapping.stamp_header()
    datastore.attach(os.getpid(), driver=driver).close()
    driver.release(lease)


def test_attach_waits_once_for_a_header_that_is_about_to_come(driver, monkeypatch):
    lease = driver.acquire(0)
    pauses: list[float] = []

    def come(seconds: float) -> None:
        pauses.append(seconds)
        lease.mapping.stamp_header()

    monkeypatch.setattr("time.sleep", come)
    datastore.attach(os.getpid(), driver=driver).close()
    assert pauses == [500e-6]
    driver.release(lease)


def test_attach_to_another_version(producer, driver, root):
    write_header(root, producer.slot, 100001 << 32 | layout.HEADER_WORD & 0xFFFF_FFFF)
    with pytest.raises(WrongVersion, match="version 100001, this reader knows 100000") as other:
        datastore.attach(os.getpid(), driver=driver)
    assert (other.value.errno, other.value.device, other.value.pid) == (errno.EINVAL, 0, os.getpid())
    write_header(root, producer.slot, 0x1234)
    with pytest.raises(NotReady, match="0x0000000000001234: this is no slab"):
        datastore.attach(os.getpid(), driver=driver)


def test_a_header_that_changes_under_a_reader(producer, reader, root):
    write_header(root, producer.slot, 100001 << 32 | layout.HEADER_WORD & 0xFFFF_FFFF)
    with pytest.raises(WrongVersion):
        reader.snapshot()
    write_header(root, producer.slot, 0)
    with pytest.raises(ProducerGone):
        reader.snapshot()
    with pytest.raises(NotReady):
        producer.snapshot()


def test_attach_leaves_nothing_behind_when_it_fails(driver, root):
    lease = driver.acquire(0)
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count(d.SLABS)
    for _ in range(20):
        with pytest.raises(NotReady):
            datastore.attach(os.getpid(), driver=driver)
    gc.collect()
    assert (len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count(d.SLABS)) == before
    driver.release(lease)


@as_root
def test_attach_where_one_may_not_look(driver, root):
    os.chmod(os.path.dirname(root), 0o755)
    with datastore.publish(0, driver=driver):
        parent = os.getpid()

        def as_nobody(talk: Talk) -> list[object]:
            become(65534)
            try:
                datastore.attach(parent, driver=driver)
            except AccessDenied as e:
                return [e.errno, isinstance(e, PermissionError), "group access" in str(e), e.path]
            return []

        assert result_of(as_nobody) == [errno.EACCES, True, True, root]


def test_a_reader_of_one_that_closes(root, driver):
    with Child(publish_and_wait, root, "it") as child:
        child.expect()
        with datastore.attach(child.pid, driver=driver) as reader:
            assert reader.alive
            assert reader.snapshot().tag == "it"
            child.end()
            assert not reader.alive
            with pytest.raises(ProducerGone) as gone:
                reader.snapshot()
            assert (gone.value.errno, gone.value.device, gone.value.pid) == (errno.ESRCH, 0, child.pid)
            assert isinstance(gone.value, ProcessLookupError)
        with pytest.raises(Closed):
            _ = reader.alive


# --- Snapshots ------------------------------------------------------------------------------------------------------


def test_a_snapshot_that_is_not_verified_says_so_when_asked(producer, reader):
    producer.add_model(node(1))
    snapshot = reader.snapshot(verify=False)
    assert snapshot.models[0].model_id == 1
    assert snapshot.state(0) == RecordState.EXACT


def test_how_each_record_was_read(producer, reader, root):
    """Exact, then torn for good: the earlier copy is shown as stale; without one there is none."""
    model = producer.add_model(node(1))
    assert reader.snapshot().state(0) == RecordState.EXACT
    with open(f"{root}/neuron0/{d.SLABS}", "r+b") as f:
        f.seek(producer.slot * layout.SLAB_SIZE + layout.model_offset(0) + 20)
        f.write(b"\xff")
    torn = reader.snapshot()
    assert torn.state(0) == RecordState.STALE
    assert torn.model(0).raw == node(1).raw
    with datastore.attach(os.getpid(), driver=SoftwareDriver(root)) as other:
        assert other.snapshot().state(0) == RecordState.TORN
        assert other.snapshot().model(0) is None
    model.update(node(2))
    assert reader.snapshot().model(0).model_id == 2
    assert reader.snapshot().state(0) == RecordState.EXACT


def test_a_snapshot_of_oneself(producer):
    producer.core(2).inference_count.set(3)
    snapshot = producer.snapshot()
    assert snapshot.core(2).inference_count == 3
    assert snapshot.tag == str(os.getpid())


# --- Forked children ------------------------------------------------------------------------------------------------


def test_publish_in_a_forked_child(producer, driver):
    def child(talk: Talk) -> list[object]:
        own = datastore.publish(0, driver=driver, tag="child")
        own.add_model(node(1))
        again = datastore.publish(0, driver=driver)
        return [own.slot, again.slot, own.snapshot().tag, producer.closed, outcome(producer.snapshot), own.pid]

    slot, again, tag, closed, snapshot, pid = result_of(child)
    assert (again, tag, closed, snapshot) == (slot, "child", True, "ForkedChild")
    assert slot != producer.slot
    assert pid != os.getpid()
    assert producer.snapshot().tag == str(os.getpid())


def test_a_child_forked_while_threads_hold_every_lock(driver):
    """A thread inside publish, one inside add_model, one inside update: none of their locks hang the child."""
    producer = datastore.publish(0, driver=driver)
    model = producer.add_model(node(1))
    inside, go = threading.Semaphore(0), threading.Event()

    def stay(name: str) -> None:
        if name == "publish.begin" and threading.current_thread() is not threading.main_thread():
            inside.release()
            go.wait(30)

    class Slow:
        @property
        def raw(self) -> bytes:
            stay("publish.begin")
            return node(3).raw

    threads = [
        threading.Thread(target=lambda: model.update(Slow())),
        threading.Thread(target=lambda: producer.add_model(node(2))),
    ]
    driver.probe(1)
    threads.append(threading.Thread(target=lambda: datastore.publish(1, driver=driver)))
    steps.set_hook(stay)
    try:
        for thread in threads:
            thread.start()
            assert inside.acquire(timeout=30)

        def child(talk: Talk) -> list[str]:
            steps.set_hook(None)
            return [
                outcome(lambda: model.update(node(4))),
                outcome(model.delete),
                outcome(lambda: producer.add_model(node(5))),
                outcome(lambda: datastore.publish(1, driver=driver).add_model(node(6))),
                outcome(lambda: datastore.publish(0, driver=driver).add_model(node(6)).delete()),
            ]

        assert result_of(child) == ["ForkedChild"] * 3 + ["ok"] * 2
    finally:
        steps.set_hook(None)
        go.set()
        for thread in threads:
            thread.join(30)
    producer.close()
    datastore.publish(1, driver=driver).close()


# --- Many at once ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fleet(root, driver):
    children = [Child(publish_and_wait, root, f"p{i}") for i in range(4)]
    slots = [child.expect() for child in children]
    readers = [datastore.attach(child.pid, driver=driver) for child in children]
    assert slots == [r.slot for r in readers]
    yield children, readers
    for reader in readers:
        reader.close()
    for child in children:
        child.close()


def test_one_bad_slab_fails_nobody_else(fleet, root):
    children, readers = fleet
    children[1].end()
    write_header(root, readers[2].slot, 100001 << 32 | layout.HEADER_WORD & 0xFFFF_FFFF)
    readers[3].close()
    results = datastore.snapshot_all(readers, datastore.ArenaPool())
    assert [type(r).__name__ for r in results] == ["Snapshot", "ProducerGone", "WrongVersion", "Closed"]
    assert results[0].tag == "p0"
    assert results[0].pid == children[0].pid
    assert all(isinstance(r, NeuronDSError) for r in results[1:])
    assert [r.slot for r in results] == [r.slot for r in readers]


def test_a_pass_gives_what_single_snapshots_give(fleet):
    _, readers = fleet
    for verify in (True, False):
        results = datastore.snapshot_all(readers, datastore.ArenaPool(), verify=verify)
        for result, reader in zip(results, readers, strict=True):
            single = reader.snapshot(verify=verify)
            assert bytes(result.raw) == single.raw
            assert (result.pid, result.slot, result.generation) == (single.pid, single.slot, single.generation)
            assert result.to_dict() | {"time_ns": 0} == single.to_dict() | {"time_ns": 0}


def test_an_arena_is_used_again_once_nobody_looks_at_it(fleet):
    _, readers = fleet
    pool = datastore.ArenaPool()
    first = datastore.snapshot_all(readers, pool)
    arenas = list(pool._arenas)
    assert len(arenas) == 1
    kept = first[2]
    before = bytes(kept.raw)
    second = datastore.snapshot_all(readers, pool)  # the first pass is still looked at
    assert len(pool._arenas) == 2
    assert bytes(kept.raw) == before
    del first, second
    assert [a.in_use for a in pool._arenas] == [True, False]
    third = datastore.snapshot_all(readers, pool)
    assert len(pool._arenas) == 2, "a free arena was there"
    del kept, third
    assert not any(a.in_use for a in pool._arenas)
    assert pool.take(4) is arenas[0]


def test_an_arena_that_is_too_small_is_replaced(fleet):
    _, readers = fleet
    pool = datastore.ArenaPool()
    datastore.snapshot_all(readers[:1], pool)
    small = pool._arenas[0]
    assert small.capacity == 1
    results = datastore.snapshot_all(readers, pool)
    assert [s.tag for s in results] == ["p0", "p1", "p2", "p3"]
    assert pool._arenas[0].capacity >= 4
    assert datastore.snapshot_all([], pool) == []


def test_a_snapshot_in_an_arena_is_immutable(fleet):
    _, readers = fleet
    (snapshot, *_) = datastore.snapshot_all(readers, datastore.ArenaPool())
    with pytest.raises(TypeError):
        snapshot.raw[0] = 1


# --- Errors travel --------------------------------------------------------------------------------------------------


def test_errors_can_be_sent_to_another_process(driver):
    driver.probe(0)
    with pytest.raises(NoSlab) as none:
        datastore.attach(1, driver=driver)
    copy = pickle.loads(pickle.dumps(none.value))
    assert (type(copy), str(copy), copy.errno, copy.pid) == (NoSlab, str(none.value), errno.ENOENT, 1)


def test_random_bytes_in_a_slab_never_crash_a_reader(producer, driver, root):
    """Behind a valid header anything may stand; each read gives values or our error."""
    rng = random.Random(5)
    with datastore.attach(os.getpid(), driver=driver) as reader:
        for _ in range(30):
            with open(f"{root}/neuron0/{d.SLABS}", "r+b") as f:
                f.seek(producer.slot * layout.SLAB_SIZE + 8)
                f.write(rng.randbytes(layout.REQUIRED_SIZE - 8))
            snapshot = reader.snapshot()
            assert set(snapshot.states().values()) <= set(RecordState)
            assert snapshot.to_dict()["model_bitmap"] == snapshot.model_bitmap
            assert reader.core(7).counter(94).get() == snapshot.nc(7, 94)
    assert _core.process_epoch() > 0
