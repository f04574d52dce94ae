"""What a producer pays for counting, and what one value costs a reader."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from array import array
from collections.abc import Iterator

from benches.fixtures import VALUE, directory, producers
from benches.harness import SHORT, Comparison, Side, statement
from neuron_ds import _core, layout
from neuron_ds.datastore import CoreCounters, Producer, attach, publish
from neuron_ds.driver.software import SoftwareDriver

CORE = 5  #: its counters lie in one piece
ADDS_PER_CALL = 100


def comparisons() -> Iterator[Comparison]:
    with directory(devices=1) as path, producers(path, processes=1, devices=1, models=0) as pids:
        driver = SoftwareDriver(path)
        with publish(0, driver=driver) as producer:
            core = producer.core(CORE)
            yield from _adding(core)
            yield from _many_at_once(producer, core)
            core.inference_count.set(VALUE)
            with attach(pids[0], 0, driver=driver) as reader:
                yield _reading("counter.get(), own slab", core)
                yield _reading("counter.get(), reader", reader.core(CORE))


def _adding(core: CoreCounters) -> Iterator[Comparison]:
    counter = core.inference_count
    add = statement("add(1)", often=SHORT, add=counter.add)
    nothing = statement("nothing(1)", often=SHORT, nothing=counter._noop1)
    yield Comparison("counter.add(1)", "do-nothing method", add, nothing, 1.6)
    with tempfile.TemporaryDirectory() as path:
        yield Comparison(
            "counter.add(1)", "prometheus_client multiprocess inc()", add, _prometheus_inc(path), 40, faster=True
        )
    yield Comparison("counter.add(1)", "memoryview and lock, pure Python", add, _pure_python_add(), 10, faster=True)


def _prometheus_inc(path: str) -> Side:
    """A counter of the library in its multiprocess mode, which it chooses by this variable when it is imported."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = path
    import prometheus_client

    counter = prometheus_client.Counter("bench", "A counter of a bench.", registry=None)
    if type(counter._value).__name__ != "MmapedValue":
        raise RuntimeError("prometheus_client was imported before and is not in its multiprocess mode")
    return statement("inc()", inc=counter.inc)


def _pure_python_add() -> Side:
    """The fastest shared counter that Python alone makes without losing counts: it needs the lock."""
    words = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("Q")
    lock = threading.Lock()
    code = "acquire(); words[5] += 1; release()"
    return statement(code, often=SHORT, acquire=lock.acquire, release=lock.release, words=words)


def _many_at_once(producer: Producer, core: CoreCounters) -> Iterator[Comparison]:
    yield Comparison(
        "execution_ended(...)",
        "its 8 updates, a bound call each",
        statement("ended(1, 250, 1000000, 200, 260, 190, 15)", often=SHORT, ended=core.execution_ended),
        statement(
            "completed(1); inferences(1); macs(1000000); busy(250); device(200); total(260); nc(190); cc(15)",
            often=SHORT,
            completed=core.infer_completed.add,
            inferences=core.inference_count.add,
            macs=core.mac_count.add,
            busy=core.time_in_use.add,
            device=core.latency_device.set,
            total=core.latency_total.set,
            nc=core.nc_time.set,
            cc=core.cc_time.set,
        ),
        0.6,
    )
    yield Comparison(
        "add_many(95 deltas)",
        "95 atomic adds in a C loop",
        statement("add_many(deltas)", add_many=core.add_many, deltas=array("Q", [1] * layout.NC_COUNTERS)),
        statement(
            f"adds(mapping, {CORE}, {ADDS_PER_CALL})",
            units=ADDS_PER_CALL,
            adds=_core.bench_adds,
            mapping=producer._lease.mapping,
        ),
        1.2,
    )


def _reading(name: str, core: CoreCounters) -> Comparison:
    counter = core.inference_count
    assert 1 << 58 < counter.get() < 1 << 60
    get = statement("get()", often=SHORT, get=counter.get)
    return Comparison(name, "do-nothing method", get, statement("nothing()", often=SHORT, nothing=counter._noop), 3)
