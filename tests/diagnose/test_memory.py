"""Memory that leaks or is nearly full, and memory that only moves."""

from __future__ import annotations

import math
import random

import pytest

from neuron_ds.diagnose import Severity
from neuron_ds.diagnose.looks import HOST_MEMORY
from neuron_ds.driver.software import SoftwareDriver
from tests.diagnose.stage import device, look, played, process, row, series, watch, work

MIB, GIB = 1 << 20, 1 << 30
NOTHING = (0,) * (len(HOST_MEMORY) - 1)


def test_leaks_are_found_within_four_and_a_half_minutes(driver: SoftwareDriver) -> None:
    workload = work("leaking", rate=10.0, after_s=60.0, device_mib_per_s=4.0, host_mib_per_s=2.0, redeploy_s=45.0)
    story = watch(played(driver, [workload], 400))
    assert story.kinds == {"device-memory-leak", "host-memory-leak"}
    assert all(60 < when <= 60 + 270 for when, _ in story.began)
    found = {f.kind: f.evidence for f in story.last}
    assert found["device-memory-leak"]["grown_bytes_per_s"] == pytest.approx(4 * 4 * MIB, rel=0.15)
    assert found["host-memory-leak"]["grown_bytes_per_s"] == pytest.approx(2 * MIB, rel=0.2)
    assert found["device-memory-leak"]["mem_usage_tensors_device_grown_bytes"] > 3 * GIB
    assert 4000 < found["device-memory-leak"]["full_in_s"] < 7000


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_leak_of_one_only_is_of_one_kind(driver: SoftwareDriver, where: str) -> None:
    rates = {"device_mib_per_s": 0.0, "host_mib_per_s": 0.0, f"{where}_mib_per_s": 4.0}
    story = watch(played(driver, [work("leaking", cores=2, rate=5.0, after_s=5.0, **rates)], 320))
    assert story.kinds == {f"{where}-memory-leak"}


def on_host(n: int, used: int):
    return process(n, {0: row(infer_completed=n)}, host_bytes=(used, *NOTHING))


def on_device(n: int, used: int, **more):
    return process(n, {0: row(infer_completed=n, mem_usage_tensors_device=used)}, **more)


@pytest.mark.parametrize("make", [on_host, on_device])
def test_memory_that_goes_up_and_down_does_not_leak(make) -> None:
    rng = random.Random(3)
    wave = [GIB + round(GIB * math.sin(n / 70)) + rng.randrange(GIB) for n in range(1800)]
    assert watch(series(lambda n: make(n, wave[n]), 1799)).began == []


@pytest.mark.parametrize("make", [on_host, on_device])
def test_one_step_up_does_not_leak(make) -> None:
    assert watch(series(lambda n: make(n, GIB * (1 + 3 * (n > 200)) + n * 1000), 600)).began == []


def test_a_slow_growth_below_the_limit_is_let_be() -> None:
    assert watch(series(lambda n: on_device(n, GIB + n * MIB // 8), 600)).began == []


def test_models_that_are_loaded_explain_their_memory() -> None:
    story = watch(series(lambda n: on_device(n, GIB + n // 20 * GIB // 8, models={0: 1 + n // 20}), 600))
    assert story.began == []


def test_a_device_that_fills_up_is_told_when_it_does(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("filling", cores=8, rate=5.0, after_s=20.0, over_s=10.0)], 60))
    assert story.kinds == {"memory-near-full"}
    ((when, finding),) = story.began
    assert 20 < when <= 31
    assert (finding.device, finding.pid) == (0, None)
    evidence = story.last[0].evidence
    assert evidence["memory_bytes"] == 96 * GIB
    assert evidence["used_share"] == pytest.approx(0.96, abs=0.01)
    assert evidence["largest_pid"] == 1000


def test_processes_fill_a_device_together() -> None:
    def at(n: int, each: int):
        return look(n, *(on_device(n, each, slot=slot, pid=slot + 1) for slot in range(4)))

    assert watch([at(n, 21 * GIB) for n in range(5)]).began == []
    story = watch([at(n, 22 * GIB) for n in range(5)])
    assert [(f.kind, f.severity) for _, f in story.began] == [("memory-near-full", Severity.WARNING)]
    story = watch([at(n, 23 * GIB + GIB // 2) for n in range(5)])
    assert [(f.kind, f.severity) for _, f in story.began] == [("memory-near-full", Severity.CRITICAL)]


def test_without_a_known_capacity_nothing_is_full() -> None:
    full = on_device(0, 500 * GIB)
    assert watch([look(0, full, devices=[device(memory_bytes=None)])]).began == []


def test_gauges_below_zero_and_dead_processes_take_no_memory() -> None:
    below = on_device(0, 2**64 - 5)
    dead = on_device(0, 95 * GIB, alive=False, error="died", slot=1, pid=7)
    assert watch([look(0, below, dead)]).began == []
