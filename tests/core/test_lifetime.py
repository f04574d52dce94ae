"""What becomes of handles after close, after fork and when another thread is still reading: an error, never a crash."""

import gc
import os
import random
import threading
import time

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import (
    EXACT,
    PROCESS_INFO,
    TORN,
    Child,
    Slab,
    error_of,
    in_child,
    is_uniform,
    offset_of,
    uniform_record,
    words,
)


class Handles:
    """Every kind of handle on one mapping, and every call that touches memory through it."""

    def __init__(self, mapping):
        self.mapping, self.nd, self.nc, self.core = mapping, mapping.nd(1), mapping.nc(9, 9), mapping.core(3)
        self.arena = _core.arena(1)

    def calls(self):
        m = self.mapping
        return {
            "nd.add": lambda: self.nd.add(1),
            "nd.inc": lambda: self.nd.inc(),
            "nd.sub": lambda: self.nd.sub(1),
            "nd.or_": lambda: self.nd.or_(1),
            "nd.set": lambda: self.nd.set(1),
            "nd.get": lambda: self.nd.get(),
            "nc.add": lambda: self.nc.add(1),
            "nc.get": lambda: self.nc.get(),
            "core.execution_ended": lambda: self.core.execution_ended(1),
            "core.add_many": lambda: self.core.add_many(words(1, 2)),
            "load": lambda: m.load(0),
            "load_many": lambda: m.load_many(0, 2),
            "store": lambda: m.store(0, 1),
            "zero": lambda: m.zero(0, 1),
            "copy": lambda: m.copy(0, 1),
            "header": m.header,
            "stamp_header": m.stamp_header,
            "new nd": lambda: m.nd(0),
            "new nc": lambda: m.nc(0, 0),
            "new core": lambda: m.core(0),
            "publish": lambda: m.publish(PROCESS_INFO, bytes(layout.PROCESS_INFO_SIZE)),
            "zero_record": lambda: m.zero_record(0),
            "read_record": lambda: m.read_record(0),
            "bitmap": m.bitmap,
            "bitmap_set": lambda: m.bitmap_set(0),
            "bitmap_clear": lambda: m.bitmap_clear(0),
            "check": m.check,
            "guard on it": lambda: _core.map(-1, 0, 8, True, None).guard(m, 0, 0, None, 0),
            "snapshot": m.snapshot,
            "snapshot unverified": lambda: m.snapshot(False),
        }

    def errors(self):
        """What every call raises, as {class name: calls}."""
        found: dict[str, list[str]] = {}
        for name, call in self.calls().items():
            found.setdefault(error_of(call), []).append(name)
        (many,) = _core.snapshot_many([self.mapping], self.arena, True)
        found.setdefault(type(many).__name__, []).append("snapshot_many")
        return found


def everything_raises(handles, kind):
    found = handles.errors()
    assert set(found) == {kind}, found
    assert len(found[kind]) == len(handles.calls()) + 1


# --- Close


@pytest.mark.parametrize("make", ["producer", "reader"])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_after_close_every_handle_raises(slab, make, end):
    mapping = getattr(slab, make)()
    handles = Handles(mapping)
    assert error_of(handles.nd.get) == ""
    getattr(mapping, end)()
    assert mapping.state == "closed"
    everything_raises(handles, "Closed")
    mapping.close()
    mapping.kill()
    everything_raises(handles, "Closed")
    assert not any(slab.read())


def test_the_error_names_what_was_closed(slab):
    mapping = slab.producer()
    counter = mapping.nd(0)
    mapping.close()
    with pytest.raises(errors.Closed, match="device 3, pid 4242, slot 7: .*publish or attach again") as caught:
        counter.add(1)
    assert not isinstance(caught.value, errors.ForkedChild)


def test_one_mapping_of_a_slab_can_close_without_the_other(slab):
    one, other = slab.producer(), slab.producer()
    one.close()
    other.nd(1).add(1)
    assert other.nd(1).get() == 1


def test_handles_outlive_the_name_of_their_mapping(slab):
    handles = Handles(slab.producer())
    counter, core, mapping = handles.nc, handles.core, handles.mapping
    del handles
    mapping.close()
    del mapping
    gc.collect()
    for _ in range(100):  # what is mapped now may lie where the old one lay
        slab.producer()
    assert error_of(lambda: counter.add(1)) == "Closed"
    assert error_of(lambda: core.add_many(words(1))) == "Closed"
    assert not any(slab.read())


def test_a_handle_keeps_an_open_mapping_open(slab):
    counter = slab.producer().nd(0)
    gc.collect()
    counter.add(5)
    assert slab.read(8, 8) == words(5)


def test_an_old_handle_never_works_on_a_new_mapping(slab):
    """Thousands of mappings come and go; handles on the dead ones stay dead whatever their memory became."""
    rng = random.Random(3)
    dead, alive = [], []
    for round in range(20000):
        mapping = slab.producer() if rng.random() < 0.5 else slab.reader()
        counter = mapping.nd(0)
        if rng.random() < 0.3:
            mapping.close()
            dead.append(counter)
        elif rng.random() < 0.2:
            alive.append((mapping.state, counter))
        if rng.random() < 0.02:
            rng.shuffle(dead)
            del dead[: len(dead) // 2]
            rng.shuffle(alive)
            del alive[: len(alive) // 2]
        if round % 1000 == 0:
            assert all(error_of(counter.get) == "Closed" for counter in dead)
            assert all(error_of(counter.inc) == ("" if state == "producer" else "ReadOnly") for state, counter in alive)
    assert dead
    assert alive


# --- Close while others read


def torn_slab(make_slab):
    slab = make_slab()
    producer = slab.producer()
    for slot in range(4):
        producer.publish(slot, uniform_record(slot, 0x21))
        producer.bitmap_set(slot)
        slab.tear(slot)
    return slab


def read_on(read, mapping, barrier, outcomes):
    """Read until it raises; everything read, and at last what was raised, goes to `outcomes`."""
    arena = _core.arena(2)
    barrier.wait()
    try:
        while True:
            result = read(mapping, arena)
            if isinstance(result, list) and isinstance(result[0], Exception):
                raise result[0]
            outcomes.append(result)
    except Exception as error:
        outcomes.append(error)


@pytest.mark.parametrize(
    "read",
    [
        lambda m, arena: m.snapshot()[:1],
        lambda m, arena: m.read_record(2),
        lambda m, arena: _core.snapshot_many([m, m], arena, True),
    ],
    ids=["snapshot", "read_record", "snapshot_many"],
)
@pytest.mark.parametrize("readers", [1, 3])
def test_close_waits_for_those_who_sleep(make_slab, read, readers):
    """Torn records make readers pause with the GIL released; a close must find them there and let them out."""
    torn = torn_slab(make_slab)
    other = make_slab(b"\xee" * layout.REQUIRED_SIZE)  # it would show if memory of another mapping were read
    for round in range(60):
        mapping = torn.reader()
        outcomes: list[object] = []
        barrier = threading.Barrier(readers + 1)

        threads = [threading.Thread(target=read_on, args=(read, mapping, barrier, outcomes)) for _ in range(readers)]
        for thread in threads:
            thread.start()
        barrier.wait()
        if round % 3 == 0:  # else at once
            deadline = time.monotonic() + 0.001
            while len(outcomes) < readers and time.monotonic() < deadline:
                time.sleep(0)
        mapping.close()
        newer = [other.reader() for _ in range(3)]  # they may take the old address
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert sorted(type(e).__name__ for e in outcomes if isinstance(e, Exception)) == ["Closed"] * readers
        assert not any(isinstance(r, tuple) and r[0] == EXACT for r in outcomes)
        for result in outcomes:
            if isinstance(result, tuple) and isinstance(result[0], bytes):
                assert b"\xee" * 64 not in result[0]
        for mapping in newer:
            mapping.close()


def test_two_threads_may_close(make_slab):
    torn = torn_slab(make_slab)
    for _ in range(50):
        mapping = torn.reader()
        threads = [threading.Thread(target=lambda m=mapping: error_of(lambda: m.read_record(1)))]
        threads += [threading.Thread(target=mapping.close) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mapping.state == "closed"


# --- Fork


def test_a_forked_child_owns_nothing(slab):
    producer, reader = Handles(slab.producer()), Handles(slab.reader())
    for _ in range(2):  # a second fork of the same parent, too
        for handles in (producer, reader):
            found = in_child(handles.errors)
            assert list(found) == ["ForkedChild"], found
            assert len(found["ForkedChild"]) == len(handles.calls()) + 1
    assert not any(slab.read())
    producer.nd.add(1)
    assert reader.nd.get() == 1


def test_the_memory_itself_is_not_inherited(slab):
    def mapped():
        with open("/proc/self/maps") as f:
            return sum("memfd:slab" in line for line in f)

    mappings = [slab.producer(), slab.reader()]
    assert mapped() >= len(mappings)
    assert in_child(mapped) == 0


def test_the_childs_error_says_what_to_do(slab):
    counter = slab.producer().nd(0)
    text = in_child(lambda: error_text(lambda: counter.inc()))
    assert text == (
        "device 3, pid 4242, slot 7: this handle belongs to the parent process; publish or attach in the child"
    )


def error_text(call):
    try:
        call()
    except errors.ForkedChild as e:
        return str(e)
    return ""


def test_close_and_deallocation_in_the_child_touch_nothing(slab):
    """What the child maps may lie at the parent's addresses: it must survive the end of the parent's objects."""
    parents = [Handles(slab.producer()) for _ in range(20)] + [Handles(slab.reader()) for _ in range(20)]

    def work():
        mine = Slab()
        mappings = [mine.producer() for _ in range(60)]
        states = {handles.mapping.state for handles in parents}
        for handles in parents[::2]:
            handles.mapping.close()
            handles.mapping.kill()
        states |= {handles.mapping.state for handles in parents}
        found = set().union(*(handles.errors() for handles in parents))
        parents.clear()
        gc.collect()
        for mapping in mappings:
            mapping.nd(0).add(1)
        later = [mine.producer() for _ in range(60)]
        for mapping in later:
            mapping.nd(0).add(1)
        return states, found, {m.nd(0).get() for m in mappings + later}, {m.state for m in mappings + later}

    assert in_child(work) == ({"forked"}, {"ForkedChild"}, {120}, {"producer"})
    assert {error_of(handles.nd.inc) for handles in parents} == {"", "ReadOnly"}


def test_a_child_that_outlives_its_parent(slab):
    """The parent ends with its mapping open or closed; the child goes on with the old handles."""
    for close_first in (False, True):
        report, write = os.pipe()

        def parent(write=write, close_first=close_first):
            handles, me = Handles(slab.producer()), os.getpid()
            gone, still_here = os.pipe()
            if close_first:
                handles.mapping.close()
            if os.fork() == 0:
                os.close(still_here)
                os.read(gone, 1)  # ends when the parent has, or is about to have
                while os.getppid() == me:
                    time.sleep(0.001)
                found = handles.errors()
                handles.mapping.close()
                del handles
                gc.collect()
                os.write(write, str(list(found)).encode())
                os._exit(0)

        in_child(parent)
        os.close(write)
        with os.fdopen(report, "rb") as f:
            assert f.read() == b"['ForkedChild']"
    assert not any(slab.read())


def test_a_grandchild_is_another_process_too(slab):
    def child():
        mine = slab.producer()
        counter = mine.nd(0)
        counter.add(1)
        return in_child(lambda: (error_of(counter.inc), mine.state)), counter.get()

    assert in_child(child) == (("ForkedChild", "forked"), 1)


def test_fork_while_threads_read(make_slab):
    """The child inherits what its parent's sleeping readers left behind, and can still close and go on."""
    torn = torn_slab(make_slab)
    mapping, stop = torn.reader(), threading.Event()

    def read():
        arena = _core.arena(1)
        while not stop.is_set():
            mapping.read_record(1)
            _core.snapshot_many([mapping], arena, True)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()

    def work():
        mapping.close()
        return mapping.state, error_of(mapping.snapshot)

    try:
        for _ in range(30):
            assert in_child(work) == ("forked", "ForkedChild")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_every_process_has_its_epoch():
    mine = _core.process_epoch()
    assert mine == _core.process_epoch()
    child, grandchild = in_child(lambda: (_core.process_epoch(), in_child(_core.process_epoch)))
    assert len({mine, child, grandchild}) == 3


# --- Several processes on one slab


def test_two_processes_lose_nothing(slab):
    each = 200_000

    def work():
        mapping = slab.producer()
        nd, first, last, core = mapping.nd(0), mapping.nc(0, 0), mapping.nc(15, 94), mapping.core(9)
        deltas = words(*range(1, 96))
        for i in range(each):
            nd.inc()
            first.add(3)
            last.sub(1)
            if i % 100 == 0:
                core.add_many(deltas)
                core.execution_ended(1, 2, 3)
        return True

    children = [Child(work), Child(work)]
    assert [child.result() for child in children] == [True, True]
    reader = slab.reader()
    assert reader.nd(0).get() == 2 * each
    assert reader.nc(0, 0).get() == 6 * each
    assert reader.nc(15, 94).get() == 2**64 - 2 * each
    batches = 2 * each // 100
    extra = {0: 2, 1: 1, 28: 1, 29: 3}
    assert [reader.nc(9, i).get() for i in range(95)] == [(i + 1 + extra.get(i, 0)) * batches for i in range(95)]


def test_no_torn_record_is_returned_at_full_speed(slab):
    """One process publishes as fast as it can, another reads for a second; whatever it accepts is of one piece."""
    records = [0, 5, 63, PROCESS_INFO, PROCESS_INFO + 1]
    begun, go = os.pipe()

    def write():
        producer = slab.producer()
        for slot in (0, 5, 63):
            producer.bitmap_set(slot)
        images = [[uniform_record(record, value) for value in range(1, 200)] for record in records]
        os.write(go, b"x")
        published = 0
        while not producer.nd(0).get():
            for record, image in zip(records, images, strict=True):
                producer.publish(record, image[published % len(image)])
            published += 1
        return published

    child = Child(write)
    os.read(begun, 1)
    reader = slab.reader()
    seen: dict[int, int] = {}
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        raw, _, states, stale = reader.snapshot()
        for record in records:
            state = states[record]
            seen[state] = seen.get(state, 0) + 1
            at = offset_of(record)
            if record in (stale or {}):
                assert is_uniform(stale[record])
            elif EXACT <= state < TORN:
                assert is_uniform(raw[at : at + len(uniform_record(record, 0))])
            state, data = reader.read_record(record)
            assert (data is None) == (state in (1, TORN))
            assert data is None or is_uniform(data)
    slab.producer().nd(0).set(1)
    assert child.result() > 1000
    assert seen[EXACT] > 100
    os.close(begun)
    os.close(go)
