"""Reports of real slabs: idle, busy, erring, with dead and torn ones among them, and exactly what a script did."""

import json
import os
import time

import psutil
import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.layout import NC_BY_NAME
from neuron_ds.monitor import Monitor
from neuron_ds.monitor.config import everything, load
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.devices import publish_and_wait, write_header
from tests.monitor.schemas import check, runtime_of
from tests.processes import Child

SOON_NS = 20_000_000
COMPLETED = {
    "completed": "infer_completed",
    "completed_with_err": "infer_completed_with_err",
    "completed_with_num_err": "infer_completed_with_num_err",
    "timed_out": "infer_timed_out",
    "incorrect_input": "infer_incorrect_input",
    "failed_to_queue": "infer_failed_to_queue",
}
ERRORS = {
    "generic": "err_generic",
    "numerical": "err_numerical",
    "transient": "err_transient",
    "model": "err_model",
    "runtime": "err_rt",
    "hardware": "err_hw",
}


def until(time_ns):
    time.sleep(max(0, time_ns - time.monotonic_ns()) / 1e9)
    return True


def lines(monitor, **options):
    return monitor.lines(until, **options)


@pytest.fixture
def monitor(driver):
    with Monitor(everything(SOON_NS), driver) as monitor:
        yield monitor


def test_an_idle_machine(device0, monitor):
    report = check(next(lines(monitor)))
    assert report["neuron_runtime_data"] == []
    assert report["neuron_hardware_info"] == {
        "neuron_device_type": "trainium2",
        "neuron_device_version": "v4",
        "neuroncore_version": "v3",
        "neuron_device_count": 1,
        "neuron_device_memory_size": 96 << 30,
        "neuroncore_per_device_count": 4,
        "logical_neuroncore_config": 2,
        "error": "",
    }
    system = report["system_data"]
    assert system["memory_info"]["memory_total_bytes"] == psutil.virtual_memory().total
    assert system["neuron_hw_counters"]["neuron_devices"] is None
    assert len(system["vcpu_usage"]["usage_data"]) == psutil.cpu_count()
    assert {group["error"] for group in system.values()} == {""}


def test_no_device_at_all_says_so(monitor):
    report = check(next(lines(monitor)))
    assert report["neuron_runtime_data"] == []
    assert "no Neuron device" in report["neuron_hardware_info"]["error"]


@pytest.mark.parametrize(("pattern", "seed"), [("inference", 9), ("erring", 4), ("training", 2)])
def test_a_seeded_simulation_gives_the_exact_differences(root, driver, monitor, pattern, seed):
    work = Workload(pattern=PATTERNS[pattern](), seed=seed, cores=((0, 0), (0, 1), (0, 5)), tag=f"my {pattern}")
    with start(work, events=300, speed=None, directory=root) as process:
        process.wait_played()
        monitor.begin()
        before = process.expected()[0]
        process.advance(400)
        after = process.expected()[0]
        report = check(next(lines(monitor)))
        first = runtime_of(report, process.pid)
        second = runtime_of(check(next(lines(monitor))), process.pid)

    def grown(name):
        return sum(after.nc(core, name) - before.nc(core, name) for core in range(8))

    assert first["neuron_runtime_tag"] == f"my {pattern}"
    assert first["error"] == ""
    stats = first["report"]["execution_stats"]
    assert stats["execution_summary"] == {key: grown(name) for key, name in COMPLETED.items()}
    assert stats["error_summary"] == {key: grown(name) for key, name in ERRORS.items()}
    assert stats["execution_summary"]["completed"] > 0
    in_use = first["report"]["neuroncore_counters"]["neuroncores_in_use"]
    period_s = first["report"]["neuroncore_counters"]["period"]
    flops = sum(core["flops"] for core in in_use.values())
    # A float of this size holds no single FLOP/s: twelve digits are what it can be compared to.
    assert flops == pytest.approx(2 * grown("mac_count") / period_s, rel=1e-12, abs=8)
    assert in_use["3"]["neuroncore_utilization"] == 0
    idle = second["report"]["execution_stats"]
    assert set(idle["execution_summary"].values()) == {0}, "nothing happened since"
    assert idle["latency_stats"] == {"total_latency": None, "device_latency": None}

    memory = first["report"]["memory_used"]
    assert memory["error"] == ""
    for key, cores in (("0", (0, 1)), ("2", (4, 5))):
        names = {
            "model_code": "code",
            "tensors": "tensors",
            "constants": "constants",
            "model_shared_scratchpad": "scratchpad",
            "runtime_memory": "misc",
        }
        shown = memory["neuron_runtime_used_bytes"]["usage_breakdown"]["neuroncore_memory_usage"][key]
        assert shown == {
            name: sum(after.nc(core, f"mem_usage_{gauge}_device") for core in cores) for name, gauge in names.items()
        }
    host = memory["neuron_runtime_used_bytes"]["usage_breakdown"]["host"]
    assert host["tensors"] == after.nd("mem_usage_tensors_host")
    assert host["application_memory"] >= after.nd("mem_usage_misc_host")
    assert sum(len(m["subgraphs"]) for m in memory["loaded_models"]) == len(after.models)
    assert all(m["is_running"] for m in memory["loaded_models"])
    assert not any(m["is_running"] for m in second["report"]["memory_used"]["loaded_models"])


def test_latencies_are_those_of_the_period(driver):
    with (
        datastore.publish(0, driver=driver) as producer,
        Monitor(everything(SOON_NS), driver, sample_hz=1000) as monitor,
    ):
        monitor.begin()
        for total_us in (100, 300, 200):
            producer.core(2).execution_ended(1, 10, 0, total_us - 50, total_us)
            time.sleep(0.05)  # the sampler sees each of them: it looks fifty times
        stats = runtime_of(check(next(lines(monitor))), os.getpid())["report"]["execution_stats"]
        assert stats["execution_summary"]["completed"] == 3
        assert stats["latency_stats"]["total_latency"]["p0"] == 0.0001
        assert stats["latency_stats"]["total_latency"]["p50"] == 0.0002
        assert stats["latency_stats"]["total_latency"]["p100"] == 0.0003
        assert stats["latency_stats"]["device_latency"]["p100"] == 0.00025


def test_dead_torn_and_foreign_ones_fail_nobody_else(root, driver, monitor):
    with (
        Child(publish_and_wait, root, "dead") as dead,
        Child(publish_and_wait, root, "torn") as torn,
        Child(publish_and_wait, root, "other") as other,
        Child(publish_and_wait, root, "live") as live,
    ):
        dead.expect(), live.expect()
        torn_slot, other_slot = torn.expect(), other.expect()
        dead.kill()
        dead.wait()
        with open(f"{root}/neuron0/{d.SLABS}", "r+b") as f:
            f.seek(torn_slot * layout.SLAB_SIZE + layout.PROCESS_INFO_EXT.offset + layout.PROCESS_INFO_EXT.size - 1)
            f.write(b"x")
        write_header(root, other_slot, layout.HEADER_WORD + (1 << 32))
        report = check(next(lines(monitor)))
        shown = {r["pid"]: r for r in report["neuron_runtime_data"]}
        assert set(shown) == {torn.pid, other.pid, live.pid}
        assert "process info ext is torn" in shown[torn.pid]["error"]
        assert shown[torn.pid]["neuron_runtime_tag"] == "torn", "the short tag is whole"
        assert "version" in shown[other.pid]["error"]
        assert shown[other.pid]["neuron_runtime_tag"] == str(other.pid)
        assert "version" in shown[other.pid]["report"]["execution_stats"]["error"]
        assert shown[live.pid]["error"] == ""
        assert {g["error"] for g in shown[live.pid]["report"].values()} == {""}


def test_an_unreadable_process_fills_its_own_error(root, driver, monitor, monkeypatch):
    with Child(publish_and_wait, root, "hidden") as child:
        child.expect()

        def refuse(pid):
            raise psutil.AccessDenied(pid)

        monkeypatch.setattr(psutil, "Process", refuse)
        report = check(next(lines(monitor)))
        runtime = runtime_of(report, child.pid)
    assert "may not be looked at" in runtime["report"]["neuron_runtime_vcpu_usage"]["error"]
    assert "may not be looked at" in runtime["report"]["memory_used"]["error"]
    assert runtime["report"]["execution_stats"]["error"] == ""
    assert runtime["error"] == ""


def test_text_of_slabs_is_escaped(root, driver, monitor):
    with datastore.publish(0, driver=driver, tag="\udcff\x1b[2J\n"):
        report = check(next(lines(monitor)))
        assert runtime_of(report, os.getpid())["neuron_runtime_tag"] == "\\xff\\x1b[2J\\n"


def test_a_new_runtime_counts_from_zero_and_one_that_left_is_gone(root, driver, monitor):
    monitor.begin()
    with Child(publish_and_wait, root, "new") as child:
        child.expect()
        assert runtime_of(check(next(lines(monitor))), child.pid)
        child.tell()
        child.wait()
    assert check(next(lines(monitor)))["neuron_runtime_data"] == []


def test_groups_of_other_periods_come_when_they_are_due(root, driver, tmp_path):
    path = tmp_path / "c"
    metrics = [{"type": "execution_stats"}, {"type": "neuroncore_counters", "period": "180ms"}]
    value = {
        "period": "60ms",
        "neuron_runtimes": [{"tag_filter": "^se", "metrics": metrics}],
        "system_metrics": [{"type": "vcpu_usage", "period": "120ms"}],
    }
    path.write_text(json.dumps(value))
    work = Workload(pattern=PATTERNS["inference"](), tag="serving")
    other = Workload(pattern=PATTERNS["idle"](), tag="another")
    with start(work, events=0, directory=root) as process, start(other, directory=root):
        completed, busy_us, reports, began = 0, 0.0, [], 0
        with Monitor(load(str(path)), driver) as monitor:
            monitor.begin()
            for line in lines(monitor):
                report = check(line, strict=False)
                (runtime,) = report["neuron_runtime_data"]
                assert runtime["pid"] == process.pid
                groups = runtime["report"]
                reports.append(set(groups) | set(report["system_data"]))
                if "execution_stats" in groups:
                    completed += groups["execution_stats"]["execution_summary"]["completed"]
                if "neuroncore_counters" in groups:
                    group = groups["neuroncore_counters"]
                    utilization = sum(c["neuroncore_utilization"] for c in group["neuroncores_in_use"].values())
                    busy_us += utilization / 100 * 2 * group["period"] * 1e6
                    began += 1
                if began == 4:
                    break
                process.advance(2)
            expected = process.expected()[0]
    assert reports[0] == {"execution_stats", "neuroncore_counters", "vcpu_usage"}, "the first line has all"
    assert any(groups == {"execution_stats"} for groups in reports)
    assert completed == sum(expected.nc(core, "infer_completed") for core in range(8))
    assert busy_us <= sum(expected.nc(core, "time_in_use") for core in range(8)) + 1


def test_nothing_wanted_is_an_empty_report(device0, driver, tmp_path):
    path = tmp_path / "c"
    path.write_text('{"period": "20ms", "neuron_runtimes": [], "system_metrics": []}')
    with Monitor(load(str(path)), driver) as monitor:
        report = check(next(lines(monitor)), strict=False)
    assert report["neuron_runtime_data"] == []
    assert report["system_data"] == {}


def test_models_can_be_left_out(root, driver):
    with datastore.publish(0, driver=driver), Monitor(everything(SOON_NS), driver, models=False) as monitor:
        report = check(next(lines(monitor)))
        assert "loaded_models" not in runtime_of(report, os.getpid())["report"]["memory_used"]


def test_pretty_is_the_same_over_many_lines(device0, monitor):
    text = next(lines(monitor, pretty=True))
    assert text.count(b"\n") > 50
    assert json.loads(text).keys() == check(next(lines(monitor))).keys()


def test_lines_come_when_they_are_due_and_missed_ones_are_not_made_up_for(device0, driver):
    with Monitor(everything(SOON_NS), driver) as monitor:
        monitor.begin()
        due = monitor.due_ns
        until(due + 5 * SOON_NS + SOON_NS // 2)
        monitor.report()
        assert (monitor.due_ns - due) % SOON_NS == 0
        assert monitor.due_ns > due + 5 * SOON_NS


def test_the_counters_meant_here_are_those_of_the_layout():
    assert {NC_BY_NAME[name].index for name in (*COMPLETED.values(), *ERRORS.values())} == set(range(1, 13))
