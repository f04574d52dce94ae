"""Device totals as a value, the differential report, and reading them while the table moves."""

from __future__ import annotations

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.driver.totals import TOTALLED, WORDS, DeviceTotals, DifferentialReport
from neuron_ds.errors import BadIndex, StillOwned
from neuron_ds.records import Version


def totals_with(**counters: int) -> DeviceTotals:
    words = [0] * WORDS
    for name, value in counters.items():
        words[layout.NC_BY_NAME[name].index] = value
    return DeviceTotals(0, words)


def test_only_counters_that_grow_are_totalled() -> None:
    assert {layout.NC[i].kind for i in TOTALLED} == {layout.COUNTER}
    assert len(TOTALLED) == sum(c.kind == layout.COUNTER for c in layout.NC) == 32


def test_every_counter_of_every_core_is_rolled_up_exactly(driver: SoftwareDriver) -> None:
    driver.probe(0, cores=layout.MAX_CORES)
    with datastore.publish(0, driver=driver) as producer:
        for core in range(layout.MAX_CORES):
            for i in range(layout.NC_COUNTERS):
                producer.core(core).counter(i).set(1 + core * 100 + i)
        living = driver.totals(0)
    gone = driver.totals(0)
    for core in range(layout.MAX_CORES):
        for c in layout.NC:
            value = 1 + core * 100 + c.index
            assert gone.nc(core, c.index) == (value if c.kind == layout.COUNTER else 0), (core, c.name)
            expected = value if c.kind in (layout.COUNTER, layout.GAUGE) else 0
            assert living.nc(core, c.index) == expected, (core, c.name)


def test_totals_wrap_as_counters_do(driver: SoftwareDriver) -> None:
    for _ in range(2):
        with datastore.publish(0, driver=driver) as producer:
            producer.core(0).mac_count.set(1 << 63)
            producer.core(0).inference_count.set((1 << 63) + 1)
    assert driver.totals(0).nc(0, layout.NC_BY_NAME["mac_count"].index) == 0
    assert driver.totals(0).nc(0, layout.NC_BY_NAME["inference_count"].index) == 2


def test_a_gauge_below_zero_is_left_out(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver) as producer:
        producer.core(1).mem_usage_tensors_device.sub(1)
        producer.core(2).mem_usage_tensors_device.add(7)
        now = driver.totals(0)
        assert now.core(1)["mem_usage_tensors_device"] == 0
        assert now.core(2)["mem_usage_tensors_device"] == 7


def test_versions_of_all_three_kinds_are_tallied(driver: SoftwareDriver) -> None:
    for build in (1, 1, 2):
        datastore.publish(
            0, driver=driver, runtime_version=(2, 0, build), framework_version=(1, 1, 1), fal_version=(9, 9, build)
        ).close()
    now = driver.totals(0)
    assert now.versions("runtime_version") == ({Version(2, 0, 1): 2, Version(2, 0, 2): 1}, 0)
    assert now.versions("framework_version") == ({Version(1, 1, 1): 3}, 0)
    assert now.versions("fal_version") == ({Version(9, 9, 1): 2, Version(9, 9, 2): 1}, 0)
    with pytest.raises(BadIndex, match="versions are tallied for"):
        now.versions("min_neff_version")


def test_a_report_leaves_out_what_did_not_grow() -> None:
    report = DifferentialReport(totals_with(inference_count=5, mac_count=9))
    assert report.report(totals_with(inference_count=8, mac_count=9)) == {(0, 28): 3}
    assert report.report(totals_with(inference_count=2, mac_count=9)) == {}  # a reset: skipped, and counted from there
    assert report.report(totals_with(inference_count=3, mac_count=9)) == {(0, 28): 1}


def test_reset_needs_an_empty_device_and_keeps_counting(driver: SoftwareDriver) -> None:
    producer = datastore.publish(0, driver=driver)
    producer.core(0).inference_count.add(5)
    with pytest.raises(StillOwned, match="still publishes"):
        driver.reset(0)
    producer.close()
    driver.reset(0)
    assert not any(driver.totals(0).totalled().values())
    with datastore.publish(0, driver=driver) as again:
        again.core(0).inference_count.add(2)
    assert driver.totals(0).nc(0, 28) == 2


class Restless:
    """Words whose slots never hold still."""

    def __init__(self) -> None:
        self.loads = 0

    def load(self, index: int, /) -> int:
        return t.Commit(0, 0, None).pack()

    def load_many(self, first: int, count: int, stride: int = 1, /) -> tuple[int, ...]:
        self.loads += 1
        return (t.slot_word(self.loads, t.OWNED),) * count

    def store(self, index: int, value: int, /) -> None:
        raise AssertionError("an observer stores nothing")


class Nothing:
    def copy(self, active: int, /) -> bytearray:
        return bytearray(WORDS * 8)

    def add(self, totals: bytearray, slot: int, /) -> None:
        """No slab holds anything."""


def test_reading_gives_up_after_a_bounded_number_of_attempts() -> None:
    words = Restless()
    assert t.read_totals(words, Nothing(), attempts=5) is None
    assert words.loads == 10
