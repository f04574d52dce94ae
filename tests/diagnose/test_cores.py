"""Hung cores and stragglers: what the simulator's faults look like to the rules, and what only looks like them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from neuron_ds.diagnose import Severity, Thresholds
from neuron_ds.driver.software import SoftwareDriver
from tests.diagnose.stage import look, played, process, row, series, watch, work

# --- Hung -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("symptom", "severity"), [("busy", Severity.CRITICAL), ("timeout", Severity.CRITICAL)])
def test_a_hang_is_found_within_six_seconds(driver: SoftwareDriver, symptom: str, severity: Severity) -> None:
    story = watch(played(driver, [work("hung", after_s=20.0, hung_cores=2, symptom=symptom)], 60))
    assert [(f.core, f.severity) for _, f in story.of("hung-core")] == [(0, severity), (1, severity)]
    assert all(20 < when <= 26 for when, _ in story.of("hung-core"))
    assert story.kinds == {"hung-core"}, "the timeouts of a core that hangs are no burst of errors"
    finding = story.last[0]
    assert finding.pid == 1000
    assert finding.device == 0
    assert finding.evidence["completed_nothing_s"] == pytest.approx(40, abs=1)
    assert finding.evidence["infer_completed_total"] > 0
    assert finding.evidence["infer_timed_out" if symptom == "timeout" else "time_in_use_us"] > 0
    began_s = (finding.since_ns - 1_000_000_000_000) / 1e9
    assert 20 <= began_s <= 21, "since when: from when on nothing has completed"


def test_a_silent_hang_is_found_within_sixteen_seconds(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("hung", after_s=30.0, hung_cores=1, symptom="silent")], 90))
    assert [(f.core, f.severity) for _, f in story.began] == [(0, Severity.WARNING)]
    assert 30 < story.began[0][0] <= 46
    assert [f.kind for f in story.last] == ["hung-core"], "and it is still told"


def test_a_core_that_hangs_from_its_first_execution_is_found_within_half_a_minute(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("hung", after_s=0.0, cores=2)], 40))
    assert {f.core for _, f in story.of("hung-core")} == {0, 1}
    assert all(30 <= when <= 31 for when, _ in story.of("hung-core"))


def test_the_time_can_be_set(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("hung", after_s=5.0, cores=1)], 30), Thresholds(hung_after_s=15))
    assert [when for when, _ in story.began] == [20.0]


def test_a_long_execution_is_no_hang() -> None:
    """Each takes four seconds, the runtime accounts for them all the time: five seconds without one are nothing."""

    def at(n: int):
        done = n // 8
        return process(n, {0: row(time_in_use=n * 10**6, infer_completed=1 + done, latency_total=8_000_000)})

    assert watch(series(at, 60)).began == []


def test_a_core_that_is_hardly_used_is_no_hang() -> None:
    """Something executes for a tenth of the time and has not ended yet."""
    story = watch(series(lambda n: process(n, {0: row(time_in_use=n * 100_000, infer_completed=7)}), 30))
    assert story.began == []


def test_one_timeout_is_no_hang() -> None:
    story = watch(series(lambda n: process(n, {0: row(infer_timed_out=int(n > 3), infer_completed=7)}), 30))
    assert story.began == []


def test_work_that_comes_in_bursts_is_no_silent_hang() -> None:
    """Half a minute of work, half a minute of nothing: only the first pause may surprise anybody."""

    def at(n: int):
        worked = n // 60 * 30 + min(n % 60, 30)
        return process(n, {0: row(time_in_use=worked * 900_000, infer_completed=worked * 40)}, models={0: 1})

    story = watch(series(at, 600))
    assert all(when < 60 for when, _ in story.began)
    assert story.last == []


def test_a_core_without_a_model_that_stands_still_has_ended_its_work() -> None:
    def at(n: int):
        return process(n, {0: row(infer_completed=min(n, 40) * 40, time_in_use=min(n, 40) * 900_000)})

    assert watch(series(at, 200)).began == []


def test_counters_that_wrap_or_are_reset_hide_nothing_and_invent_nothing() -> None:
    def wraps(n: int):
        return process(n, {0: row(time_in_use=(2**64 - 20_000_000 + n * 900_000) % 2**64, infer_completed=n * 40)})

    def reset(n: int):
        return process(n, {0: row(time_in_use=n % 30 * 900_000, infer_completed=n % 30 * 40)})

    assert watch(series(wraps, 60)).began == []
    assert watch(series(reset, 200)).began == []

    def hangs_over_the_wrap(n: int):
        return process(n, {0: row(time_in_use=(2**64 - 5_000_000 + n * 10**6) % 2**64, infer_completed=5)})

    assert {f.kind for _, f in watch(series(hangs_over_the_wrap, 20)).began} == {"hung-core"}


# --- Straggler --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_straggler_is_found_within_fifteen_seconds(driver: SoftwareDriver, lockstep: bool) -> None:
    workload = work("straggling", after_s=20.0, slow_core=1, lockstep=lockstep)
    story = watch(played(driver, [workload], 60))
    assert [(f.core, f.severity) for _, f in story.of("straggler")] == [(1, Severity.WARNING)]
    assert 20 < story.of("straggler")[0][0] <= 35
    (finding,) = [f for f in story.last if f.kind == "straggler"]
    name = "nc_time_us" if lockstep else "time_in_use_us_per_execution"
    others = "others_nc_time_us" if lockstep else "others_us_per_execution"
    assert finding.evidence[name] / finding.evidence[others] == pytest.approx(2, rel=0.15)
    if lockstep:
        assert finding.evidence["cc_time_us"] < finding.evidence["others_cc_time_us"] / 2


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_little_slower_is_no_straggler(driver: SoftwareDriver, lockstep: bool) -> None:
    story = watch(played(driver, [work("straggling", after_s=10.0, slow_factor=1.15, lockstep=lockstep)], 90))
    assert story.began == []


def test_cores_of_two_devices_are_compared_within_a_process_and_not_beyond_it() -> None:
    def at(n: int, device: int, pid: int, us: int):
        done = n * 10
        rows = {core: row(infer_completed=done, time_in_use=done * us, mac_count=done * 5) for core in range(2)}
        return process(n, rows, device=device, pid=pid)

    apart = [look(n, at(n, 0, 1, 50_000), at(n, 1, 2, 90_000)) for n in range(40)]
    assert watch(apart).began == []
    together = [look(n, at(n, 0, 1, 50_000), at(n, 1, 1, 50_000 + 40_000)) for n in range(40)]
    assert {f.device for _, f in watch(together).began} == {1}

    def beside(n: int, namespaces: tuple[int, int]):
        of = at(n, 0, 1, 50_000), at(n, 1, 1, 90_000)
        owners = [replace(p.owner, path=f"/x/neuron{p.owner.device}", foreign=True) for p in of]
        pairs = zip(of, owners, namespaces, strict=True)
        return look(n, *[replace(p, owner=replace(owner, namespace=space)) for p, owner, space in pairs])

    assert watch([beside(n, (8, 9)) for n in range(40)]).began == []
    assert {f.device for _, f in watch([beside(n, (8, 8)) for n in range(40)]).began} == {1}


def test_cores_that_do_other_work_are_not_compared() -> None:
    """A process with a small and a large model: the one takes longer because it is larger, which its MACs show."""

    def at(n: int):
        done = n * 10
        small = row(infer_completed=done, time_in_use=done * 20_000, mac_count=done * 10**9)
        large = row(infer_completed=done, time_in_use=done * 90_000, mac_count=done * 4 * 10**9)
        return process(n, {0: small, 1: small, 2: large, 3: large})

    assert watch(series(at, 60)).began == []
