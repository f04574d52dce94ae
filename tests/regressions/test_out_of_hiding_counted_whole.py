"""Processes whose directory vanished and came back were told as new: all they had ever counted fell into one period."""

import os
import time

import pytest

from neuron_ds import datastore
from neuron_ds.driver import Owner
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.watch import Watch
from neuron_ds.instance import InstanceInfo
from neuron_ds.monitor import Monitor
from neuron_ds.monitor.config import everything
from neuron_ds.rates import came_after
from tests.exporter.helpers import scrape
from tests.processes import Child, Talk

SECOND = 1_000_000_000


def count_and_wait(talk: Talk, root: str, count: int) -> None:
    producer = datastore.publish(0, driver=SoftwareDriver(root), tag="long-lived")
    producer.core(0).infer_completed.add(count)
    producer.core(0).time_in_use.add(3600 * 1_000_000)
    talk.say(producer.slot)
    while (more := talk.hear()) is not None:
        producer.core(0).infer_completed.add(more)
        talk.say(more)


def until(time_ns: int) -> bool:
    time.sleep(max(0, time_ns - time.monotonic_ns()) / 1e9)
    return True


def test_the_stream_tells_nothing_twice(root: str, driver: SoftwareDriver) -> None:
    driver.probe(0)
    with Child(count_and_wait, root, 1000) as child:
        child.expect()
        with Monitor(everything(20_000_000), driver) as monitor:
            reports = monitor.reports(until)

            def look() -> list[tuple[int, float]]:
                return [
                    (
                        entry["report"]["execution_stats"]["execution_summary"]["completed"],
                        entry["report"]["neuroncore_counters"]["neuroncores_in_use"]["0"]["neuroncore_utilization"],
                    )
                    for entry in next(reports)["neuron_runtime_data"]
                ]

            assert look() == [(0, 0.0)]
            os.rename(root, f"{root}-away")
            assert look() == []
            os.rename(f"{root}-away", root)
            assert look() == [(0, 0.0)]
            child.ask(7)
            assert look() == [(7, 0.0)]


@pytest.mark.parametrize("ends_window", [False, True])
def test_a_scrape_counts_from_its_start_at_most(root: str, driver: SoftwareDriver, ends_window: bool) -> None:
    driver.probe(0)
    with (
        Child(count_and_wait, root, 1000) as early,
        Watch(driver, window_s=3600, sample_hz=0, instance=InstanceInfo(ask=False, environ={})) as watch,
    ):
        early.expect()
        watch.end_window()

        def completed() -> float:
            return scrape(watch.report()).get("execution_status_total", status_type="completed")

        before = completed()
        os.rename(root, f"{root}-away")
        assert scrape(watch.report()).all("execution_status_total") == []
        if ends_window:
            watch.end_window()
        os.rename(f"{root}-away", root)
        found = scrape(watch.report())
        assert found.get("execution_status_total", status_type="completed") <= before
        assert found.get("neuroncore_utilization_ratio", neuroncore=0) == 0
        after = completed()
        early.ask(7)
        assert completed() == after + 7


def test_what_the_driver_can_tell_decides() -> None:
    def owner(age_s: float | None) -> Owner:
        return Owner(0, 0, 1, True, generation=1, age_s=age_s)

    now_ns = 100 * SECOND
    assert came_after(owner(2.0), 95 * SECOND, now_ns, seen=False)
    assert not came_after(owner(20.0), 95 * SECOND, now_ns, seen=False)
    assert not came_after(owner(20.0), 95 * SECOND, now_ns, seen=True)
    assert came_after(owner(5.01), 95 * SECOND, now_ns, seen=True)  # it came while the pass went on
    assert [came_after(owner(None), 95 * SECOND, now_ns, seen=seen) for seen in (True, False)] == [True, False]
