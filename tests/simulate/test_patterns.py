"""What each pattern looks like to somebody who only sees the counters."""

from itertools import islice

import pytest

from neuron_ds.runtime import ApiFailure, ErrorClass, SoftwareError, Status
from neuron_ds.simulate import MODELS, PATTERNS, Workload, expected, script
from neuron_ds.simulate.events import ApiFailed, Executed
from neuron_ds.simulate.faults import KINDS
from neuron_ds.simulate.models import GIB, MIB

SECOND = 1_000_000
CATEGORIES = ("code", "tensors", "constants", "scratchpad", "misc")
FOUR = tuple((0, core) for core in range(4))


def make(name, cores=FOUR, **parameters):
    parameters, own = {k: v for k, v in parameters.items() if k != "model"}, parameters.get("model", "")
    return Workload(pattern=PATTERNS[name](**parameters), seed=5, cores=cores, model=own)


def at(workload, seconds):
    """The (only) slab after so many seconds of the script."""
    return expected(workload, until_us=round(seconds * SECOND))[0]


def done(slab, core):
    return slab.nc(core, "infer_completed")


@pytest.mark.parametrize("model", PATTERNS["inference"].models)
def test_inference_is_lively_and_plausible(model):
    slab = at(make("inference", model=model), 30)
    for core in range(4):
        assert 25 <= done(slab, core) / 30 <= 200
        assert 0.2 <= slab.nc(core, "time_in_use") / (30 * SECOND) <= 0.9
        assert slab.nc(core, "inference_count") == done(slab, core)
        assert slab.nc(core, "mac_count") == done(slab, core) * MODELS[model].macs
        assert 0 < slab.nc(core, "nc_time") <= slab.nc(core, "latency_device") <= slab.nc(core, "latency_total")
        teraflops = 2 * slab.nc(core, "mac_count") / 30 / 1e12
        assert 1 < teraflops < 80


def test_inference_keeps_the_rate_and_utilization_it_is_told():
    slab = at(make("inference", rate=50.0, utilization=0.3), 60)
    for core in range(4):
        assert done(slab, core) / 60 == pytest.approx(50, rel=0.1)
        assert slab.nc(core, "time_in_use") / (60 * SECOND) == pytest.approx(0.3, rel=0.1)


def test_inference_has_spread_in_its_latencies():
    latencies = [e.total_us for e in islice(script(make("inference")), 5000) if isinstance(e, Executed)]
    latencies.sort()
    assert latencies[len(latencies) // 100] * 2 < latencies[-len(latencies) // 100]


def test_inference_deploys_new_versions():
    before, after = at(make("inference", redeploy_s=1.0), 0.5), at(make("inference", redeploy_s=1.0), 4.5)
    assert {m.name for m in before.models.values()} == {"bert-base-v1/sg00"}
    assert {m.name for m in after.models.values()} == {"bert-base-v2/sg00"}
    assert len(after.models) == len(before.models)
    assert {m.model_id for m in after.models.values()}.isdisjoint(m.model_id for m in before.models.values())
    assert [after.nc(core, "model_load_count") for core in range(4)] == [2] * 4


@pytest.mark.parametrize("model", PATTERNS["training"].models)
def test_training_goes_in_lockstep(model):
    workload = make("training", cores=((0, 0), (0, 1), (1, 0)), model=model)
    steps = [e for e in islice(script(workload), 900) if isinstance(e, Executed)]
    for i in range(0, len(steps) - 2, 3):
        step = steps[i : i + 3]
        assert {(e.device, e.core) for e in step} == set(workload.cores)
        assert len({(e.at_us, e.device_us) for e in step}) == 1, "all end together"
        assert all(e.nc_us + e.cc_us == e.device_us for e in step), "who computes less waits longer"
    elapsed_s = steps[-1].at_us / SECOND
    assert 5 <= len(steps) / 3 / elapsed_s <= 25
    assert 0.8 <= sum(e.busy_us for e in steps) / 3 / steps[-1].at_us <= 0.95


def test_training_is_one_model_over_all_cores():
    slabs = expected(make("training", cores=((0, 0), (0, 1), (1, 0))), until_us=0)
    nodes = [model for slab in slabs.values() for model in slab.models.values()]
    assert len({m.model_id for m in nodes}) == len({m.uuid for m in nodes}) == 1
    assert [m.subgraph for m in nodes] == [0, 1, 2]


def test_training_writes_checkpoints():
    workload = make("training", checkpoint_s=10.0)
    during, after = at(workload, 10.5), at(workload, 12)
    copied = during.nd("mem_usage_constants_host") - after.nd("mem_usage_constants_host")
    assert copied == 710 * MIB


def test_idle_has_models_and_does_nothing():
    slab = at(make("idle"), 3600)
    assert len(slab.models) == 4
    assert all(slab.nc(core, name) == 0 for core in range(4) for name in ("time_in_use", "infer_completed"))
    assert all(slab.nc(core, "mem_usage_constants_device") > 100 * MIB for core in range(4))


def test_erring_covers_every_status_class_subtype_and_api_failure():
    events = list(islice(script(make("erring", share=0.5)), 2000))
    executed = [e for e in events if isinstance(e, Executed)]
    assert {e.status for e in executed} == set(Status)
    assert {e.error_class for e in executed} == {None, *ErrorClass}
    assert {e.software_error for e in executed} == {None, *SoftwareError}
    assert {e.kind for e in events if isinstance(e, ApiFailed)} == set(ApiFailure)


def test_erring_fails_the_share_it_is_told_from_the_time_it_is_told():
    before, after = at(make("erring", share=0.25, after_s=10.0), 10), at(make("erring", share=0.25, after_s=10.0), 30)
    healthy = at(make("inference"), 10)
    assert [done(before, core) for core in range(4)] == [done(healthy, core) for core in range(4)]
    more, all_of_them = done(after, 0) - done(before, 0), done(at(make("inference"), 30), 0) - done(healthy, 0)
    assert more / all_of_them == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_erring_can_be_of_one_kind(kind):
    events = list(islice(script(make("erring", share=1.0, kinds=kind)), 400))
    wanted = {(f.status, f.error_class, f.software_error, f.api) for f in KINDS[kind]}
    executed = {(e.status, e.error_class, e.software_error, None) for e in events if isinstance(e, Executed)}
    assert executed | {(None, None, None, e.kind) for e in events if isinstance(e, ApiFailed)} == wanted


def test_hung_completes_nothing_any_more_but_is_in_use():
    workload = make("hung", after_s=5.0)
    before, after, later = at(workload, 4.9), at(workload, 6), at(workload, 16)
    for core in range(4):
        assert done(before, core) > 0
        assert done(after, core) == done(later, core)
        assert later.nc(core, "time_in_use") - after.nc(core, "time_in_use") == 10 * SECOND
        assert later.nc(core, "latency_total") == after.nc(core, "latency_total")
    assert later.models == after.models


def test_hung_can_time_out():
    workload = make("hung", after_s=5.0, symptom="timeout")
    after, later = at(workload, 5), at(workload, 15)
    for core in range(4):
        assert done(after, core) == done(later, core)
        assert later.nc(core, "infer_timed_out") == 5
        assert later.nc(core, "time_in_use") - after.nc(core, "time_in_use") == 10 * SECOND


def test_hung_can_be_silent():
    workload = make("hung", after_s=5.0, symptom="silent")
    after, later = at(workload, 5), at(workload, 15)
    assert done(after, 0) > 0
    assert after == later


def test_hung_may_be_some_of_the_cores():
    workload = make("hung", after_s=5.0, hung_cores=1)
    after, later = at(workload, 6), at(workload, 16)
    assert [done(later, core) > done(after, core) for core in range(4)] == [False, True, True, True]


def test_straggling_one_core_is_slower_than_the_others():
    workload = make("straggling", after_s=5.0, slow_factor=2.0)
    assert workload.pattern.straggler(workload.job()) == (0, 3)
    before, after = at(workload, 5), at(workload, 65)
    assert max(done(before, c) for c in range(4)) - min(done(before, c) for c in range(4)) <= 5
    rates = [done(after, core) - done(before, core) for core in range(4)]
    assert rates[3] < 0.6 * min(rates[:3])
    assert after.nc(3, "latency_device") > 1.5 * max(after.nc(core, "latency_device") for core in range(3))


def test_straggling_in_lockstep_makes_the_others_wait():
    workload = make("straggling", after_s=5.0, lockstep=True, slow_core=1)
    before, after = at(workload, 4.9), at(workload, 30)
    assert len({done(after, core) for core in range(4)}) == 1
    assert after.nc(1, "nc_time") > 1.5 * after.nc(0, "nc_time")
    assert after.nc(1, "cc_time") < 0.5 * after.nc(0, "cc_time")
    assert after.nc(0, "latency_device") > 1.5 * before.nc(0, "latency_device")


def test_leaking_grows_on_host_and_device_until_allocations_fail():
    workload = make("leaking", after_s=5.0, device_mib_per_s=16.0, host_mib_per_s=8.0, limit_gib=0.5)
    before, after, end = at(workload, 5), at(workload, 25), at(workload, 60)
    for core in range(4):
        grown = after.nc(core, "mem_usage_tensors_device") - before.nc(core, "mem_usage_tensors_device")
        assert grown == pytest.approx(20 * 16 * MIB, rel=0.2)
        assert before.nc(core, "err_resource") == after.nc(core, "err_resource") == 0 < end.nc(core, "err_resource")
        assert end.nc(core, "mem_usage_tensors_device") < before.nc(core, "mem_usage_tensors_device") + 0.6 * GIB
    host = after.nd("mem_usage_tensors_host") - before.nd("mem_usage_tensors_host")
    assert host == pytest.approx(20 * 8 * MIB, rel=0.25)
    assert done(end, 0) > done(after, 0)


def test_filling_takes_memory_up_to_what_it_is_told_and_keeps_it():
    workload = make("filling", after_s=5.0, over_s=10.0, device_gib=4.0, redeploy_s=None)
    before, after, later = at(workload, 4.9), at(workload, 16), at(workload, 60)
    for core in range(4):
        used = [sum(slab.nc(core, f"mem_usage_{c}_device") for c in CATEGORIES) for slab in (before, after, later)]
        assert used[0] < 0.5 * GIB
        assert used[1] == pytest.approx(4 * GIB, rel=0.02)
        assert used[2] == pytest.approx(4 * GIB, rel=0.02)
        assert later.nc(core, "err_resource") == 0


def test_collapsing_completes_the_share_that_remains_as_fast_as_before():
    workload = make("collapsing", after_s=20.0, remaining=0.2)
    before, after = at(workload, 20), at(workload, 60)
    for core in range(4):
        rate, usual = (done(after, core) - done(before, core)) / 40, done(before, core) / 20
        assert rate / usual == pytest.approx(0.2, rel=0.35)
        busy_us = after.nc(core, "time_in_use") - before.nc(core, "time_in_use")
        assert busy_us / 40 / rate == pytest.approx(before.nc(core, "time_in_use") / 20 / usual, rel=0.1)


def test_slowing_takes_longer_on_every_core_for_the_same_work():
    workload = make("slowing", after_s=20.0, slow_factor=2.0)
    before, after = at(workload, 20), at(workload, 60)
    for core in range(4):
        executions = done(after, core) - done(before, core)
        each_us = (after.nc(core, "time_in_use") - before.nc(core, "time_in_use")) / executions
        assert each_us == pytest.approx(2 * before.nc(core, "time_in_use") / done(before, core), rel=0.1)
        assert executions / 40 == pytest.approx(done(before, core) / 20, rel=0.3)
        assert after.nc(core, "mac_count") == done(after, core) * MODELS[workload.model].macs


@pytest.mark.parametrize("name", [n for n in PATTERNS if n not in ("leaking", "filling")])
def test_memory_does_not_grow_over_time(name):
    workload = make(name, rate=5.0)
    early, late = at(workload, 1), at(workload, 605)
    for core in range(4):
        for category in CATEGORIES:
            counter = f"mem_usage_{category}_device"
            assert abs(late.nc(core, counter) - early.nc(core, counter)) <= 64 * MIB
    for category in CATEGORIES:
        assert abs(late.nd(f"mem_usage_{category}_host") - early.nd(f"mem_usage_{category}_host")) <= 64 * MIB


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", PATTERNS)
def test_gauges_hold_what_the_models_say_and_fit_on_the_device(name, model):
    more = {"redeploy_s": 0.5} if "redeploy_s" in PATTERNS[name].parameters() else {}
    workload = make(name, model=model, cores=tuple((0, core) for core in range(8)), **more)
    for slab in (at(workload, 0), at(workload, 2.2)):
        for i, category in enumerate(CATEGORIES):
            for core in range(8):
                mine = sum(m.device[i][0] for m in slab.models.values() if m.core == core)
                assert slab.nc(core, f"mem_usage_{category}_device") >= mine
            models = sum(m.host[i][0] for m in slab.models.values())
            assert slab.nd(f"mem_usage_{category}_host") >= models
        for core in range(8):
            assert sum(slab.nc(core, f"mem_usage_{c}_device") for c in CATEGORIES) < 12 * GIB
