"""No native function or method leaks: each is called over and over, on good and bad arguments and on a producer's, a
reader's and a closed mapping, while memory, descriptors and references are counted. One without a case here fails.
"""

import ctypes
import gc
import os
import sys
import types
from collections.abc import Callable
from contextlib import suppress

import pytest

from neuron_ds import _core, layout
from tests.core.helpers import PROCESS_INFO, PROCESS_INFO_EXT, Slab, uniform_record, words

ROUNDS = 300
PAUSING_ROUNDS = 60  # for calls that pause; they cost 0.2 ms each
TRIES = 4  # a leak grows every time, noise doesn't
TYPES = (
    _core.Mapping,
    _core.Counter,
    _core.Core,
    _core.LockFile,
    _core.Arena,
    _core.Sampler,
    _core.TableLock,
    _core.Tape,
)
MODEL = uniform_record(5, 3)
INFO = uniform_record(PROCESS_INFO, 3)
#: Every counter of every core, each of more bits than a small int has.
BLOB = b"\x7f" * layout.REQUIRED_SIZE

#: The buffer protocol has a name among the methods since Python 3.12; its case stands for both directions.
SLOTS = {"Arena.__buffer__", "Arena.__release_buffer__"}


class World:
    """One of everything that is native, on a mapping in a given state."""

    def __init__(self, state: str, directory: int) -> None:
        self.slab = Slab()
        other = self.slab.producer()
        other.stamp_header()
        other.publish(5, MODEL)
        other.publish(PROCESS_INFO, INFO)
        other.bitmap_set(5)
        self.other, self.directory = other, directory
        self.m = self.slab.reader() if state == "reader" else self.slab.producer()
        self.nd, self.nc, self.core = self.m.nd(2), self.m.nc(12, 40), self.m.core(7)
        self.lock, self.arena = _core.open_lock_file(directory, "lock"), _core.arena(2)
        self.table = _core.map(-1, 0, 4096, True, None)
        self.sum = bytearray(8 * _core.totals_layout()[0])
        self.totals = _core.map(-1, 0, 2 * len(self.sum), True, None)
        if state == "reader":
            self.m.snapshot()
            self.m.guard(self.table, 0, 0, self.lock, 1)
            self.lock.take(1)
        if state == "closed":
            self.m.close()
            self.lock.close()
        torn = Slab(self.slab.read())
        torn.tear(5)
        self.torn = torn.reader()
        self.table_lock = _core.table_lock(self.lock, 3)
        self.sampler = _core.sampler((self.m, self.other), (8, 8))
        self.tape = _core.tape()
        self.tape.add(3, self.other)
        self.tape.look(0, 0, 0)
        self.whole = self.tape.whole()
        self.made = [self.slab, torn]

    def watched(self) -> list[object]:
        """Objects whose reference counts may not grow."""
        handles = [self.m, self.nd, self.nc, self.core, self.lock, self.arena, self.torn, self.other]
        return [*handles, self.table, self.totals, self.sum]

    def close(self) -> None:
        self.lock.close()
        again = _core.open_lock_file(self.directory, "lock")
        again.drop(1)
        again.close()
        for slab in self.made:
            slab.close()


def fresh_label() -> tuple[int, ...]:
    """A label of its own: a constant that is never given back would not show as a block more."""
    return tuple(iter((1, 2, 3)))


def handles(w: World) -> None:
    """A mapping that ends while its handles are alive, and handles that end before it."""
    m = w.slab.producer(fresh_label())
    counter, core = m.nd(0), m.core(0)
    counter.add(1)
    m.close()
    del m
    del counter, core


def guarded_by_kernel(w: World) -> _core.Mapping:
    """A reader whose guard asks a descriptor that is no device."""
    m = w.slab.reader()
    m.guard_kernel(w.slab.fd, os.getpid(), 0, os.pidfd_open(os.getpid()))
    return m


Case = Callable[[World], object]


def taped(w: World, *mappings: _core.Mapping) -> None:
    """A tape with these slabs from its beginning to its end; a closed one falls off at the first look."""
    tape = _core.tape()
    for number, mapping in enumerate(mappings):
        tape.add(number, mapping)
    tape.look(0, 0, 0)
    tape.remove(0)


def enter_twice(lock):
    with lock, lock:
        return lock.wait_s


CASES: dict[str, list[Case]] = {
    "map": [
        lambda w: w.slab.producer(),
        lambda w: w.slab.reader().close(),
        lambda w: w.slab.reader().snapshot(),  # its memory of good records
        lambda w: handles(w),
        lambda w: _core.map(-1, 0, 4096, True, fresh_label()),
        lambda w: _core.map(w.slab.fd, 0, 2 * layout.SLAB_SIZE, False, fresh_label()),
        lambda w: _core.map(9999, 0, 8, False, fresh_label()),
        lambda w: _core.map(w.slab.fd, 0, 7, False, None),
        lambda w: _core.map(w.slab.fd, 0, 8, False, 5),
    ],
    "open_lock_file": [
        lambda w: _core.open_lock_file(w.directory, "lock"),
        lambda w: _core.open_lock_file(w.directory, "absent"),
        lambda w: _core.open_lock_file(w.directory, "l\0ck"),
    ],
    "table_lock": [lambda w: _core.table_lock(w.lock, 3), lambda w: _core.table_lock(None, 3)],
    "TableLock.__enter__": [lambda w: enter_twice(w.table_lock)],
    "TableLock.__exit__": [lambda w: w.table_lock.__exit__(None, None, None)],
    "TableLock.wait_s": [
        lambda w: w.table_lock.wait_s,
        lambda w: setattr(w.table_lock, "wait_s", 0.5),
        lambda w: setattr(w.table_lock, "wait_s", -1),
        lambda w: setattr(w.table_lock, "wait_s", "x"),
    ],
    "process_epoch": [lambda w: _core.process_epoch()],
    "share_heap": [lambda w: _core.share_heap()],
    "Mapping.drop_pages": [lambda w: w.m.drop_pages(), lambda w: (w.other.drop_pages(), w.other.header())],
    "arena": [lambda w: _core.arena(3), lambda w: _core.arena(0), lambda w: _core.arena("x")],
    "snapshot_many": [
        lambda w: _core.snapshot_many([w.m, w.other], w.arena, True),
        lambda w: _core.snapshot_many([w.m], w.arena, False),
        lambda w: _core.snapshot_many([w.torn, w.m], w.arena, True),
        lambda w: _core.snapshot_many([w.m, None], w.arena, True),
        lambda w: _core.snapshot_many([w.m] * 3, w.arena, True),
        lambda w: _core.snapshot_many([_core.map(-1, 0, 8, False, 5)], w.arena, True),
    ],
    "sampler": [
        lambda w: _core.sampler((w.m, w.other), (8, 16)),
        lambda w: _core.sampler((w.m,), (17,)),
        lambda w: _core.sampler((w.m,), ()),
        lambda w: _core.sampler((w.m, None), (8, 8)),
        lambda w: _core.sampler((w.m,), ("x",)),
        lambda w: _core.sampler([], ()),
    ],
    "Sampler.look": [lambda w: w.sampler.look(), lambda w: (w.other.nc(0, 1).inc(), w.sampler.look())],
    "Sampler.take": [lambda w: (w.other.nc(0, 1).inc(), w.sampler.look(), w.sampler.take())],
    "tape": [lambda w: taped(w, w.m, w.torn), lambda w: taped(w, w.torn)],
    "apply_changes": [
        lambda w: _core.apply_changes(w.other, w.whole, len(w.whole), True),
        lambda w: _core.apply_changes(w.table, b"\1\2\0", 0, False),
        lambda w: _core.apply_changes(w.table, b"\1", 0, False),
        lambda w: _core.apply_changes(w.table, b"\1\2\0", 2**60, False),
        lambda w: _core.apply_changes(w.torn, b"\0", 0, False),
        lambda w: _core.apply_changes(w.other, "x", 0, False),
        lambda w: _core.apply_changes(None, b"\0", 0, False),
    ],
    "Tape.add": [
        lambda w: w.tape.add(3, w.other),
        lambda w: w.tape.add(4, w.table),
        lambda w: w.tape.add("x", w.other),
        lambda w: w.tape.add(2**63, w.other),
    ],
    "Tape.remove": [lambda w: w.tape.remove(9), lambda w: w.tape.remove("x")],
    "Tape.copy": [lambda w: w.tape.copy(3), lambda w: w.tape.copy(9), lambda w: w.tape.copy("x")],
    "Tape.look": [
        lambda w: (w.other.nc(0, 1).inc(), w.tape.look(-5, 0, 0), w.tape.take()),
        lambda w: (w.tape.look(5, 2000, 1), w.tape.take()),
        lambda w: w.tape.look(2**62, 0, 0),
        lambda w: w.tape.look(2**80, 0, 0),
        lambda w: w.tape.look(0, -1, 0),
        lambda w: w.tape.look(0),
    ],
    "Tape.whole": [lambda w: w.tape.whole()],
    "Tape.take": [lambda w: w.tape.take()],
    "Tape.torn": [lambda w: w.tape.torn],
    "Tape.pending": [lambda w: w.tape.pending],
    "used_rows": [
        lambda w: _core.used_rows(BLOB, 53, {}),
        lambda w: _core.used_rows(BLOB, 53, _core.used_rows(BLOB, 53, {})),
        lambda w: _core.used_rows(BLOB, 53, {0: (0,) * 53, 9: "x", 15: (1,)}),
        lambda w: _core.used_rows(BLOB, 2, {5: (-1, 0)}),
        lambda w: _core.used_rows(BLOB, 96, {}),
        lambda w: _core.used_rows(b"", 53, {}),
        lambda w: _core.used_rows(BLOB, "x", {}),
        lambda w: _core.used_rows(BLOB, 53, None),
    ],
    "verify": [lambda w: _core.verify(bytes(layout.REQUIRED_SIZE)), lambda w: _core.verify(b"")],
    "fnv1a": [lambda w: _core.fnv1a(b"abc"), lambda w: _core.fnv1a("x")],
    "record_hash": [lambda w: _core.record_hash(MODEL), lambda w: _core.record_hash(b"")],
    "stamp": [
        lambda w: _core.stamp(0, MODEL),
        lambda w: _core.stamp(0, b""),
        lambda w: _core.stamp(9, MODEL),
        lambda w: _core.stamp(0, "x"),
    ],
    # No device answers here; with a real one or a stand-in the same paths end in a result.
    "kernel_acquire": [lambda w: _core.kernel_acquire(w.slab.fd, 1), lambda w: _core.kernel_acquire("x", 1)],
    "kernel_release": [lambda w: _core.kernel_release(w.slab.fd, 1), lambda w: _core.kernel_release("x", 1)],
    "kernel_apps": [lambda w: _core.kernel_apps(w.slab.fd), lambda w: _core.kernel_apps("x")],
    "kernel_abi": [lambda w: _core.kernel_abi()],
    "totals_layout": [lambda w: _core.totals_layout()],
    "layout_report": [lambda w: _core.layout_report()],
    "set_step_hook": [
        lambda w: (_core.set_step_hook(lambda name: [name]), w.other.publish(5, MODEL), _core.set_step_hook(None))
    ],
    "bench_adds": [lambda w: _core.bench_adds(w.m, 3, 2), lambda w: _core.bench_adds(w.m, 99, 2)],
    "bench_hash64": [lambda w: _core.bench_hash64(bytes(layout.REQUIRED_SIZE)), lambda w: _core.bench_hash64("x")],
    "bench_verify64": [lambda w: _core.bench_verify64(w.m), lambda w: _core.bench_verify64(None)],
    "bench_memcpy_bytes": [lambda w: _core.bench_memcpy_bytes(w.m), lambda w: _core.bench_memcpy_bytes(None)],
    "bench_memcpy_many": [
        lambda w: _core.bench_memcpy_many((w.m, w.other), w.arena),
        lambda w: _core.bench_memcpy_many([], w.arena),
    ],
    "Mapping.close": [lambda w: w.slab.producer().close(), lambda w: w.torn.check() or w.slab.reader().close()],
    "Mapping.kill": [lambda w: w.slab.producer().kill()],
    "Mapping.state": [lambda w: w.m.state],
    "Mapping.size": [lambda w: w.m.size],
    "Mapping.load": [lambda w: w.m.load(0), lambda w: w.m.load(2**40), lambda w: w.m.load("x")],
    "Mapping.load_many": [
        lambda w: w.m.load_many(0, 20, 3),
        lambda w: w.m.load_many(0, 2**40),
        lambda w: w.m.load_many(0, -1),
    ],
    "Mapping.store": [
        lambda w: w.m.store(100, 2**63),
        lambda w: w.m.store(100, -1),
        lambda w: w.m.store(2**40, 1),
    ],
    "Mapping.zero": [lambda w: w.m.zero(50, 3), lambda w: w.m.zero(0, 2**40), lambda w: w.m.zero(None, 0)],
    "Mapping.copy": [lambda w: w.m.copy(0, 100), lambda w: w.m.copy(1, 2**60)],
    "Mapping.roll_up": [
        lambda w: w.totals.roll_up(0, 1, w.m),
        lambda w: w.totals.roll_up(0, 0, w.m),
        lambda w: w.m.roll_up(0, 1, w.other),
        lambda w: w.totals.roll_up(0, 1, None),
    ],
    "Mapping.add_to": [
        lambda w: w.m.add_to(w.sum, 0, True),
        lambda w: w.m.add_to(w.sum, 2**40, True),
        lambda w: w.m.add_to(bytearray(8), 0, True),
        lambda w: w.m.add_to(w.sum, "x", True),
        lambda w: w.m.add_to(bytes(8), 0, True),
    ],
    "Mapping.header": [lambda w: w.m.header()],
    "Mapping.stamp_header": [lambda w: w.m.stamp_header()],
    "Mapping.nd": [lambda w: w.m.nd(0), lambda w: w.m.nd(31), lambda w: w.m.nd("x")],
    "Mapping.nc": [lambda w: w.m.nc(0, 0), lambda w: w.m.nc(0, 95), lambda w: w.m.nc(0), lambda w: w.m.nc("x", 0)],
    "Mapping.core": [lambda w: w.m.core(0), lambda w: w.m.core(16), lambda w: w.m.core("x")],
    "Mapping.publish": [
        lambda w: w.m.publish(5, MODEL),
        lambda w: w.m.publish(PROCESS_INFO, INFO),
        lambda w: w.m.publish(PROCESS_INFO_EXT, INFO),
        lambda w: w.m.publish(99, MODEL),
        lambda w: w.m.publish(5, "x"),
        lambda w: w.m.publish("x", MODEL),
    ],
    "Mapping.zero_record": [lambda w: w.m.zero_record(9), lambda w: w.m.zero_record(99)],
    "Mapping.read_record": [
        lambda w: w.m.read_record(5),
        lambda w: w.m.read_record(20),
        lambda w: w.torn.read_record(5),
        lambda w: w.m.read_record(99),
        lambda w: w.m.read_record("x"),
    ],
    "Mapping.bitmap": [lambda w: w.m.bitmap()],
    "Mapping.bitmap_set": [lambda w: w.m.bitmap_set(5), lambda w: w.m.bitmap_set(64)],
    "Mapping.bitmap_clear": [lambda w: w.m.bitmap_clear(9), lambda w: w.m.bitmap_clear(64)],
    "Mapping.guard": [
        lambda w: w.m.guard(w.table, 0, 0, w.lock, 1),
        lambda w: w.m.guard(w.table, 0, 0, None, 0),
        lambda w: w.slab.reader().guard(w.table, 0, 0, w.lock, 1),
        lambda w: w.m.guard(w.table, 2**40, 0, None, 0),
        lambda w: w.m.guard(w.table, 0, 0, 5, 0),
        lambda w: w.m.guard(w.m, 0),
    ],
    "Mapping.guard_kernel": [
        lambda w: w.slab.reader().guard_kernel(-1, os.getpid(), 0, os.pidfd_open(os.getpid())),
        lambda w: guarded_by_kernel(w).snapshot(),
        lambda w: w.m.guard_kernel("x", 1, 0, -1),
    ],
    "Mapping.check": [lambda w: w.m.check()],
    "Mapping.snapshot": [
        lambda w: w.m.snapshot(),
        lambda w: w.m.snapshot(False),
        lambda w: w.torn.snapshot(),
        lambda w: w.m.snapshot(1, 2),
    ],
    "Counter.add": [lambda w: w.nc.add(2**63), lambda w: w.nd.add(-1), lambda w: w.nd.add("x")],
    "Counter.inc": [lambda w: w.nc.inc()],
    "Counter.sub": [lambda w: w.nc.sub(2**63), lambda w: w.nd.sub(2**64), lambda w: w.nd.sub("x")],
    "Counter.or_": [lambda w: w.nc.or_(2**63), lambda w: w.nd.or_(-1), lambda w: w.nd.or_("x")],
    "Counter.set": [lambda w: w.nc.set(2**63 + 5), lambda w: w.nd.set(-1), lambda w: w.nd.set("x")],
    "Counter.get": [lambda w: w.nc.get(), lambda w: w.nd.get()],
    "Counter.__repr__": [lambda w: repr(w.nc), lambda w: repr(w.nd)],
    "Counter._noop": [lambda w: w.nc._noop()],
    "Counter._noop1": [lambda w: w.nc._noop1(5)],
    "Core.execution_ended": [
        lambda w: w.core.execution_ended(1, 2**63, 3, 4, None, 2**63, 7),
        lambda w: w.core.execution_ended(99),
        lambda w: w.core.execution_ended(),
        lambda w: w.core.execution_ended("x"),
    ],
    "Core.add_many": [
        lambda w: w.core.add_many(words(1, 2)),
        lambda w: w.core.add_many(b"x"),
        lambda w: w.core.add_many("x"),
    ],
    "Core._noop_fast": [lambda w: w.core._noop_fast(1, 2, 3)],
    "LockFile.take": [lambda w: w.lock.take(1), lambda w: w.lock.take(64), lambda w: w.lock.take("x")],
    "LockFile.drop": [lambda w: w.lock.drop(2), lambda w: w.lock.drop(64), lambda w: w.lock.drop("x")],
    "LockFile.holder": [lambda w: w.lock.holder(1), lambda w: w.lock.holder(2), lambda w: w.lock.holder(64)],
    "LockFile.close": [lambda w: _core.open_lock_file(w.directory, "lock").close()],
    "LockFile.intact": [lambda w: w.lock.intact],
    "LockFile.writable": [lambda w: w.lock.writable],
    "Arena.in_use": [lambda w: w.arena.in_use],
    "Arena.capacity": [lambda w: w.arena.capacity],
    "Arena.__buffer__": [lambda w: bytes(memoryview(w.arena)[:8]), lambda w: bytearray(8).join([w.arena])],
    "Arena.__release_buffer__": [lambda w: memoryview(w.arena).release()],
}


def native() -> set[str]:
    """Every function, method and property that the core brings."""
    kinds = (types.MethodDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
    found = {name for name, value in vars(_core).items() if isinstance(value, types.BuiltinFunctionType)}
    for owner in TYPES:
        found |= {f"{owner.__name__}.{name}" for name, value in vars(owner).items() if isinstance(value, kinds)}
    return found


def test_everything_native_has_a_case():
    assert {kind for kind in vars(_core).values() if isinstance(kind, type)} == set(TYPES)
    assert native() - CASES.keys() == set(), "native, and without a leak test"
    assert CASES.keys() - native() - SLOTS == set(), "tested, but not native"


class _Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd u fs uord f keep".split()]


def _c_heap() -> int:
    """Bytes that malloc has handed out; 0 where the C library doesn't say."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return 0
    mallinfo.restype = _Heap
    heap = mallinfo()
    return int(heap.uord + heap.hblkhd)


@pytest.fixture(scope="module", autouse=True)
def small_heap():
    """What lived before these tests is kept out of the collector's way: it runs twice for each case."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def _usage(watched: list[object]) -> dict[str, int]:
    gc.collect()
    with open("/proc/self/statm") as f:
        pages = int(f.read().split()[0])
    constants = [None, True, False, (), layout, *TYPES]
    return {
        "Python blocks": sys.getallocatedblocks(),
        "references": sum(sys.getrefcount(o) for o in watched + constants),
        "bytes of the C heap / 16": _c_heap() // 16,
        "pages mapped": pages,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def _leak(call: Callable[[], object], watched: list[object], rounds: int) -> dict[str, int]:
    """What grew with every round in each of several tries; empty when nothing did."""

    def repeat() -> None:
        for _ in range(rounds):
            with suppress(Exception):
                call()

    repeat()
    growth = {}
    for _ in range(TRIES):
        before = _usage(watched)
        repeat()
        after = _usage(watched)
        growth = {name: after[name] - before[name] for name in after if after[name] - before[name] > rounds // 4}
        if not growth:
            break
    return growth


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "lock").touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("state", ["producer", "reader", "closed"])
@pytest.mark.parametrize("name", CASES)
def test_it_does_not_leak(name, state, directory):
    pausing = name in ("snapshot_many", "Mapping.snapshot", "Mapping.read_record")
    w = World(state, directory)
    try:
        for case in CASES[name]:
            grown = _leak(lambda case=case: case(w), w.watched(), PAUSING_ROUNDS if pausing else ROUNDS)
            assert grown == {}, f"{name} leaks"
    finally:
        w.close()


def test_a_leak_would_be_seen(directory):
    """The measure itself: a kept object, a reference, a piece of the C heap, a mapping, a descriptor."""
    w = World("producer", directory)
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    kept: list[object] = []
    leaks: dict[str, Callable[[], object]] = {
        "Python blocks": lambda: kept.append(object()),
        "references": lambda: ctypes.pythonapi.Py_IncRef(ctypes.py_object(w.m)),
        "bytes of the C heap / 16": lambda: libc.malloc(32),
        "pages mapped": lambda: kept.append(_core.map(-1, 0, layout.SLAB_SIZE, True, None)),
        "descriptors": lambda: kept.append(os.dup(0)),
    }
    for name, leak in leaks.items():
        if name.startswith("bytes") and not _c_heap():
            continue
        assert name in _leak(leak, w.watched(), PAUSING_ROUNDS), name
    for fd in kept:
        if isinstance(fd, int):
            os.close(fd)
    w.close()
