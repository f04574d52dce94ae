"""Throughput that collapses and latency that grows, and changes that are neither."""

from __future__ import annotations

import pytest

from neuron_ds.collect import Latencies
from neuron_ds.driver.software import SoftwareDriver
from tests.diagnose.stage import played, process, row, series, watch, work


def test_a_collapse_is_found_within_fifteen_seconds_and_fades_when_it_is_over(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("collapsing", after_s=60.0, remaining=0.2)], 120))
    assert story.kinds == {"throughput-collapse"}
    ((when, _),) = story.began
    assert 60 < when <= 75
    (finding,) = story.last
    assert finding.evidence["infer_completed_per_s"] / finding.evidence["usual_per_s"] < 0.4
    assert "lack work" in finding.advice


def test_a_collapse_of_busy_cores_says_so() -> None:
    def at(n: int):
        done = min(n, 60) * 40 + max(0, n - 60) * 10
        return process(n, {0: row(infer_completed=done, time_in_use=n * 900_000, mac_count=done)})

    story = watch(series(at, 90))
    assert story.kinds == {"throughput-collapse", "latency-regression"}
    assert "as busy as before" in next(f for f in story.last if f.kind == "throughput-collapse").advice


def test_a_third_less_is_no_collapse(driver: SoftwareDriver) -> None:
    assert watch(played(driver, [work("collapsing", after_s=60.0, remaining=0.7)], 150)).began == []


def test_few_executions_say_nothing(driver: SoftwareDriver) -> None:
    assert watch(played(driver, [work("collapsing", cores=1, rate=2.0, after_s=60.0)], 150)).began == []


def test_a_load_that_ends_altogether_is_no_collapse() -> None:
    def at(n: int):
        return process(n, {0: row(infer_completed=min(n, 60) * 40, time_in_use=min(n, 60) * 900_000)})

    assert "throughput-collapse" not in watch(series(at, 120)).kinds


def test_one_of_four_cores_that_hangs_is_no_collapse_of_the_others(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("hung", after_s=60.0, hung_cores=3)], 100))
    assert story.kinds == {"hung-core"}


def test_slower_executions_are_found_within_fifteen_seconds(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("slowing", after_s=60.0, slow_factor=2.0)], 100))
    assert story.kinds == {"latency-regression"}
    ((when, _),) = story.began
    assert 60 < when <= 75
    (finding,) = story.last
    evidence = finding.evidence
    assert evidence["time_in_use_us_per_execution"] / evidence["usual_us_per_execution"] == pytest.approx(1.8, rel=0.15)


def test_requests_that_queue_are_found_within_forty_seconds(driver: SoftwareDriver) -> None:
    """The cores take hardly longer, but more comes than they can do."""
    story = watch(played(driver, [work("slowing", after_s=60.0, utilization=0.6, slow_factor=1.4)], 120))
    assert story.kinds == {"latency-regression"}
    ((when, finding),) = story.began
    assert 60 < when <= 100
    assert finding.evidence["latency_total_p50_us"] >= 4 * finding.evidence["usual_latency_total_p50_us"]
    assert "queue" in finding.message


def test_sampled_latencies_are_used_where_there_are_some() -> None:
    def at(n: int):
        total_us = 5_000 if n < 60 else 60_000
        done = n * 40
        rows = {0: row(infer_completed=done, time_in_use=done * 4_000, latency_device=4_000, latency_total=total_us)}
        return process(n, rows, latencies=Latencies((total_us,) * 40, (4_000,) * 40))

    (finding,) = watch(series(at, 90)).last
    assert finding.kind == "latency-regression"
    assert finding.evidence["latency_total_p50_us"] == 60_000


def test_a_quarter_slower_is_no_regression(driver: SoftwareDriver) -> None:
    assert watch(played(driver, [work("slowing", after_s=60.0, slow_factor=1.25)], 150)).began == []


def test_larger_work_that_takes_longer_is_no_regression() -> None:
    def at(n: int):
        small, large = min(n, 60) * 40, max(0, n - 60) * 40
        busy_us, macs = small * 4_000 + large * 9_000, small * 10**9 + large * 2 * 10**9
        return process(n, {0: row(infer_completed=small + large, time_in_use=busy_us, mac_count=macs)})

    assert watch(series(at, 120)).began == []


def test_one_slow_core_is_no_regression_of_all(driver: SoftwareDriver) -> None:
    assert watch(played(driver, [work("straggling", after_s=60.0)], 120)).kinds == {"straggler"}


def test_what_lasts_becomes_the_usual() -> None:
    def at(n: int):
        return process(n, {0: row(infer_completed=min(n, 300) * 40 + max(0, n - 300) * 12)})

    story = watch(series(at, 2000))
    assert [f.kind for _, f in story.began] == ["throughput-collapse"]
    assert [f.kind for _, f in story.over] == ["throughput-collapse"]
