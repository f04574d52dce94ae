"""Passes over real slabs: who is in a Sample, what is in place of who can't be read, and latencies in between."""

from __future__ import annotations

import errno
import gc
import os
import threading
import time
from pathlib import Path

import pytest

from neuron_ds import datastore, layout
from neuron_ds.collect import Collector, LatencySampler, process_of
from neuron_ds.driver import Owner
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import SystemFailure
from neuron_ds.rates import deltas
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.devices import publish_and_wait, write_header
from tests.processes import Child


def test_what_makes_slabs_those_of_one_process() -> None:
    def of(device: int = 0, root: str = "/x", tag: str | None = None, foreign: bool = True, namespace: int | None = 8):
        path = f"{root}/neuron{device}"
        return process_of(Owner(device, 0, 1, True, foreign=foreign, path=path, namespace=namespace), tag)

    assert of() == of(device=1) == of(tag="any")
    assert len({of(), of(namespace=9), of(root="/y"), of(foreign=False), of(namespace=None)}) == 5
    assert of(foreign=False) == of(device=1, foreign=False, tag="any", namespace=None)
    assert of(namespace=None, tag="a") == of(device=1, namespace=None, tag="a") != of(namespace=None, tag="b")


def test_an_empty_machine_is_an_empty_sample(driver: SoftwareDriver) -> None:
    with Collector(driver) as collector:
        sample = collector.collect()
    assert sample.devices == ()
    assert sample.error == ""


def test_processes_come_and_go(root: str, driver: SoftwareDriver) -> None:
    driver.probe(0)
    with Collector(driver) as collector:
        assert [d.processes for d in collector.collect().devices] == [()]
        with Child(publish_and_wait, root, "guest") as child:
            child.expect()
            (process,) = collector.collect().processes
            assert process.owner.pid == child.pid
            assert process.error == ""
            assert process.snapshot is not None
            assert process.snapshot.tag == "guest"
            child.kill()
        (dead,) = collector.collect().processes
        assert dead.snapshot is None
        assert "died" in dead.error
        datastore.publish(0, driver=driver).close()
        assert collector.collect().processes == ()


def test_one_bad_slab_fails_nobody_else(root: str, driver: SoftwareDriver) -> None:
    with Child(publish_and_wait, root, "bad") as bad, Child(publish_and_wait, root, "good") as good:
        slots = bad.expect(), good.expect()
        with Collector(driver) as collector:
            assert [p.error for p in collector.collect().processes] == ["", ""]
            write_header(root, slots[0], layout.HEADER_WORD + (1 << 32))
            by_slot = {p.owner.slot: p for p in collector.collect().processes}
            first, second = (by_slot[slot] for slot in slots)
            assert first.snapshot is None
            assert "version" in first.error
            assert second.snapshot is not None
            assert second.snapshot.core(0).inference_count == 111
            by_slot = {p.owner.slot: p for p in collector.collect().processes}
            assert "version" in by_slot[slots[0]].error


def test_totals_and_slots_are_in_the_sample(root: str, driver: SoftwareDriver) -> None:
    with Child(publish_and_wait, root, "one") as child:
        child.expect()
        with Collector(driver) as collector:
            (device,) = collector.collect().devices
    assert device.slots_used == 1
    assert device.totals is not None
    assert device.totals.core(0)["inference_count"] == 111
    with Child(publish_and_wait, root, "one") as child, Collector(driver, totals=False) as collector:
        child.expect()
        assert collector.collect().devices[0].totals is None


def test_a_seeded_simulation_gives_the_exact_differences(root: str, driver: SoftwareDriver) -> None:
    work = Workload(pattern=PATTERNS["inference"](), seed=9, cores=((0, 0), (0, 1)), tag="serving")
    with start(work, events=400, speed=None, directory=root) as process, Collector(driver) as collector:
        process.wait_played()
        first, at_first = collector.collect(), process.expected()[0]
        process.advance(300)
        second, at_second = collector.collect(), process.expected()[0]
    (delta,) = deltas(first, second).values()
    for core in (0, 1):
        for c in layout.NC:
            if c.kind == layout.COUNTER:
                key = ("nc", core, c.index)
                grown = at_second.counters.get(key, 0) - at_first.counters.get(key, 0)
                assert delta.nc(core, c.index) == grown, c.name
        assert delta.nc(core, layout.NC_BY_NAME["inference_count"].index) > 0


def held(root: str) -> tuple[int, int]:
    """Descriptors, and mappings of the devices, that this process has."""
    return len(os.listdir("/proc/self/fd")), Path("/proc/self/maps").read_text().count(root)


def test_nothing_leaks_over_many_passes(root: str, driver: SoftwareDriver) -> None:
    with Child(publish_and_wait, root, "one") as child, Collector(driver) as collector:
        child.expect()
        collector.collect()
        gc.collect()
        before = held(root)
        for _ in range(300):
            collector.collect()
        gc.collect()
        assert held(root) == before


# --- Latencies --------------------------------------------------------------------------------------------------------


def test_a_latency_is_kept_after_each_completion_that_was_seen(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver) as producer, Collector(driver) as collector:
        LatencySampler(collector, rate_hz=1000)
        collector.collect()
        ended = producer.core(1).execution_ended
        for i in range(5):
            ended(1, 10, 0, 100 + i, 200 + i)
            time.sleep(0.02)
        producer.core(1).latency_total.set(9999)  # no completion: not a sample
        time.sleep(0.02)
        ended(1, 10, 0, 7, 8)
        time.sleep(0.05)
        (process,) = collector.collect().processes
        assert process.latencies.total_us[-1:] == (8,)
        assert process.latencies.device_us[-1:] == (7,)
        assert 9999 not in process.latencies.total_us
        (process,) = collector.collect().processes
        assert process.latencies.total_us == ()


def test_a_sampler_ends_with_its_collector(driver: SoftwareDriver) -> None:
    driver.probe(0)
    collector = Collector(driver)
    sampler = LatencySampler(collector, rate_hz=500)
    collector.collect()
    collector.close()
    assert not sampler._thread.is_alive()
    assert collector.sampler is None


def test_a_sampler_may_be_closed_by_several_threads(driver: SoftwareDriver) -> None:
    failed: list[BaseException] = []

    def close(sampler: LatencySampler, together: threading.Barrier) -> None:
        together.wait()
        try:
            sampler.close()
        except BaseException as e:
            failed.append(e)

    for _ in range(30):
        collector = Collector(driver)
        sampler, together = LatencySampler(collector, rate_hz=500), threading.Barrier(4)
        threads = [threading.Thread(target=close, args=(sampler, together)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sampler.close()
        assert not sampler._thread.is_alive()
        assert sampler.busy_s > 0
        collector.close()
    assert not failed


@pytest.mark.parametrize("symbol", ["look", "take"])
def test_a_sampler_survives_a_mapping_that_was_closed(driver: SoftwareDriver, symbol: str) -> None:
    from neuron_ds import _core

    with datastore.publish(0, driver=driver) as producer:
        reader = datastore.attach(producer.pid, driver=driver)
        native = _core.sampler((reader._lease.mapping,), (8,))
        native.look()
        reader.close()
        getattr(native, symbol)()
        assert native.take() == [(b"", 0)]


class Lacking:
    """A driver whose calls fail as a host does that has run out of something."""

    def __init__(self, driver: SoftwareDriver, error: BaseException) -> None:
        self._driver, self._error = driver, error
        self.failing: tuple[str, ...] = ()

    def __getattr__(self, name: str):
        def fail(*_, **__):
            raise self._error

        return fail if name in self.failing else getattr(self._driver, name)


LACKS = [
    (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
    (OSError(errno.ENFILE, "Too many open files in system"), "fs.file-max"),
    (SystemFailure("opening: Too many open files", code=errno.EMFILE), "ulimit -n"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "vm.max_map_count"),
    (MemoryError(), "vm.max_map_count"),
]


@pytest.mark.parametrize(("error", "advice"), LACKS)
@pytest.mark.parametrize("failing", ["devices", "properties", "owners", "attach", "totals", "snapshot_all"])
def test_what_a_host_runs_out_of_stands_in_its_place_and_passes(
    root: str, driver: SoftwareDriver, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException, advice: str
) -> None:
    lacking = Lacking(driver, error)
    with Child(publish_and_wait, root, "one") as child, Collector(lacking) as collector:
        child.expect()
        lacking.failing = ("attach",) if failing == "attach" else ()
        collector.collect()
        with monkeypatch.context() as patch:
            lacking.failing = (failing,)
            if failing == "snapshot_all":
                patch.setattr("neuron_ds.collect.snapshot_all", lambda *_, **__: lacking.snapshot_all())
            sample = collector.collect()
        (device,) = sample.devices
        assert sample.error == ""
        if failing in ("attach", "snapshot_all"):
            (process,) = sample.processes
            assert process.snapshot is None
            assert advice in process.error
            assert process.error_kind == type(error).__name__
            assert device.error == ""
        else:
            assert advice in device.error
        if failing in ("devices", "totals"):
            assert [p.snapshot.tag for p in sample.processes] == ["one"], "what can be read is read"
        lacking.failing = ()
        recovered = collector.collect()
        assert [d.error for d in recovered.devices] == [""]
        assert [p.snapshot.tag for p in recovered.processes] == ["one"]


def test_what_has_never_been_listed_is_the_samples_error(driver: SoftwareDriver) -> None:
    lacking = Lacking(driver, OSError(errno.EMFILE, "Too many open files"))
    lacking.failing = ("devices",)
    with Collector(lacking) as collector:
        sample = collector.collect()
    assert sample.devices == ()
    assert sample.error.startswith("listing the devices: Too many open files; raise the limit")


def test_other_errors_of_the_system_are_no_reason_to_end_either(root: str, driver: SoftwareDriver) -> None:
    lacking = Lacking(driver, OSError(errno.EIO, "Input/output error"))
    with Child(publish_and_wait, root, "one") as child, Collector(lacking) as collector:
        child.expect()
        collector.collect()
        lacking.failing = ("devices",)
        sample = collector.collect()
        assert (sample.devices, sample.error) == ((), "listing the devices: Input/output error")
