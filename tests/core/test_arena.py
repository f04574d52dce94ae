"""One pass over many slabs: into one arena, with each slab's error as a value, and safe for those who still look."""

import ctypes
import threading
import time

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import EXACT, PROCESS_INFO, STALE, TORN, in_child, uniform_record, words

SIZE = layout.REQUIRED_SIZE


def piece(arena, i):
    with memoryview(arena) as view:
        return bytes(view[i * SIZE : (i + 1) * SIZE])


@pytest.mark.parametrize("verify", [False, True])
def test_a_pass_equals_single_snapshots(golden, make_slab, verify):
    names = ["full", "sparse", "odd", "older", "torn"]
    readers = [make_slab(golden.bytes(name)).reader() for name in names]
    arena = _core.arena(8)
    results = _core.snapshot_many(readers, arena, verify)
    assert len(results) == len(names)
    before = 0
    for i, (name, result) in enumerate(zip(names, results, strict=True)):
        time_ns, states, stale = result if verify else (result, None, None)
        assert piece(arena, i) == golden.bytes(name)
        assert (states, stale) == readers[i].snapshot(verify)[2:]
        assert time_ns >= before
        before = time_ns
    assert piece(arena, 5) == bytes(SIZE)  # room that no slab needed


def test_a_large_pass_equals_single_snapshots(golden, make_slab):
    """Its copies go past the caches, to another store instruction."""
    names = ["full", "sparse", "odd", "older"] * 40
    slabs = {name: make_slab(golden.bytes(name)).reader() for name in set(names)}
    arena = _core.arena(len(names))
    assert all(isinstance(r, int) for r in _core.snapshot_many([slabs[name] for name in names], arena, False))
    for i, name in enumerate(names):
        assert piece(arena, i) == golden.bytes(name)


def test_capacity():
    assert _core.arena(1).capacity == 1
    assert _core.arena(1024).capacity == 1024
    for slabs in (0, -1, 1025, 2**32, 2**64):
        with pytest.raises(errors.BadIndex):
            _core.arena(slabs)
    with pytest.raises(TypeError):
        _core.arena("1")


def test_an_arena_is_a_read_only_buffer():
    arena = _core.arena(3)
    with memoryview(arena) as view:
        assert (view.nbytes, view.readonly, view.contiguous) == (3 * SIZE, True, True)
        with pytest.raises(TypeError):
            view[0] = 1
    with pytest.raises((BufferError, TypeError)):
        (ctypes.c_char * 8).from_buffer(arena)


def test_it_is_not_filled_while_somebody_looks(slab):
    reader, arena = slab.reader(), _core.arena(2)
    assert not arena.in_use
    _core.snapshot_many([reader], arena, True)
    views = [memoryview(arena), memoryview(arena)[5:9]]
    for _ in range(2):
        assert arena.in_use
        with pytest.raises(BufferError):
            _core.snapshot_many([reader], arena, True)
        views.pop()
    assert not arena.in_use
    assert len(_core.snapshot_many([reader], arena, True)) == 1


def test_more_slabs_than_room(slab):
    reader = slab.reader()
    with pytest.raises(BufferError):
        _core.snapshot_many([reader] * 3, _core.arena(2), True)
    assert len(_core.snapshot_many([reader] * 2, _core.arena(2), True)) == 2
    assert _core.snapshot_many([], _core.arena(1), True) == []


def test_what_is_no_list_of_mappings(slab):
    arena = _core.arena(2)
    for wrong in (None, 5, [None], [slab.reader(), "x"], [slab.reader().nd(0)]):
        with pytest.raises(TypeError):
            _core.snapshot_many(wrong, arena, True)
    with pytest.raises(TypeError):
        _core.snapshot_many([], b"no arena", True)
    assert not arena.in_use
    assert len(_core.snapshot_many(iter([slab.reader()]), arena, True)) == 1


def test_one_bad_slab_does_not_fail_the_pass(golden, make_slab):
    closed = make_slab().reader(label=(1, 11, 2))
    closed.close()
    short = make_slab(size=SIZE - 8).reader(label=(2, 22, 3))
    good = make_slab(golden.bytes("sparse")).reader()
    arena = _core.arena(5)
    first, bad, between, worse, last = _core.snapshot_many([good, closed, good, short, good], arena, True)
    assert isinstance(bad, errors.Closed)
    assert (bad.device, bad.pid, bad.slot) == (1, 11, 2)
    assert isinstance(worse, errors.TooShort)
    assert (worse.device, worse.pid, worse.slot) == (2, 22, 3)
    for i, result in ((0, first), (2, between), (4, last)):
        assert result[1][PROCESS_INFO] == EXACT
        assert piece(arena, i) == golden.bytes("sparse")


def test_stale_and_torn_of_each_slab(make_slab):
    slabs = [make_slab() for _ in range(3)]
    published = []
    for i, slab in enumerate(slabs):
        published.append(slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 10 + i)))
    readers, arena = [slab.reader() for slab in slabs], _core.arena(3)
    readers[0].snapshot()
    readers[2].snapshot()
    slabs[0].tear(PROCESS_INFO)
    slabs[1].tear(PROCESS_INFO)
    one, two, three = _core.snapshot_many(readers, arena, True)
    assert (one[1][PROCESS_INFO], one[2]) == (STALE, {PROCESS_INFO: published[0]})
    assert (two[1][PROCESS_INFO], two[2]) == (TORN, None)
    assert (three[1][PROCESS_INFO], three[2]) == (EXACT, None)


def test_a_pass_pauses_once_and_the_arena_is_taken_meanwhile(make_slab):
    """Another thread that tries the same arena during the pause is told so, and never sees half a pass."""
    slab = make_slab()
    slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 1))
    slab.tear(PROCESS_INFO)
    reader, arena, refused, stop = slab.reader(), _core.arena(64), [], threading.Event()

    def intrude():
        while not stop.is_set():
            try:
                memoryview(arena).release()
            except BufferError as e:
                refused.append(str(e))

    thread = threading.Thread(target=intrude)
    thread.start()
    passes = 0
    try:
        while len(refused) < 20 and passes < 5000:
            passes += 1
            try:
                results = _core.snapshot_many([reader] * 64, arena, True)
            except BufferError:
                time.sleep(0)  # the other was looking at that very moment
                continue
            assert [states[PROCESS_INFO] for _, states, _ in results] == [TORN] * 64
    finally:
        stop.set()
        thread.join()
    assert set(refused) == {"a pass is writing into this arena"}


def test_the_list_may_change_during_the_pause(make_slab):
    slab = make_slab()
    slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 1))
    slab.tear(PROCESS_INFO)
    arena, stop = _core.arena(8), threading.Event()
    mappings = [slab.reader() for _ in range(8)]

    def change():
        while not stop.is_set():
            mappings[:] = [slab.reader() for _ in range(8)]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            for _, states, _ in _core.snapshot_many(mappings, arena, True):
                assert states[PROCESS_INFO] == TORN
    finally:
        stop.set()
        thread.join()


def test_a_child_may_use_an_inherited_arena(slab):
    arena = _core.arena(1)

    def work():
        slab.producer().nd(0).set(5)
        _core.snapshot_many([slab.reader()], arena, True)
        return piece(arena, 0)[8:16]

    assert in_child(work) == words(5)


# --- A look at bytes


def test_verify_looks_at_bytes(golden):
    for name in ("full", "sparse", "odd", "torn", "uncommitted", "future-version"):
        data = golden.bytes(name)
        for buffer in (data, bytearray(data), memoryview(data), data + b"tail"):
            assert len(_core.verify(buffer)) == layout.MAX_MODELS + 2
        unaligned = memoryview(b"x" + data)[1:]
        assert _core.verify(unaligned) == _core.verify(data)
    for size in (0, 1, SIZE - 1):
        with pytest.raises(errors.TooShort):
            _core.verify(bytes(size))
    with pytest.raises(TypeError):
        _core.verify("text")
