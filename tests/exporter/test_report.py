"""What a scrape tells: the vendor's families, ours, and what becomes of both when processes come, go and err."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from neuron_ds import datastore, layout
from neuron_ds.categories import ERROR_TYPES, STATUS_TYPES
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import BadValue
from neuron_ds.exporter.watch import Watch
from neuron_ds.records import printable
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.devices import publish_and_wait, write_header
from tests.exporter.helpers import NO_INSTANCE, scrape
from tests.processes import Child, Talk

NC = layout.NC_BY_NAME
MakeWatch = Callable[..., Watch]


def runtime_series(found) -> set[str]:
    return {labels["runtime_tag"] for _, labels, _ in found.series if "runtime_tag" in labels}


def test_an_idle_host_shows_zeros(driver: SoftwareDriver, watch: MakeWatch) -> None:
    driver.probe(0)
    found = scrape(watch().report())
    assert runtime_series(found) == set()
    assert found.by("hardware_ecc_events_total", "event_type", neuron_device_index=0) == dict.fromkeys(
        ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected"), 0
    )
    assert found.get("system_vcpu_count") == os.cpu_count()
    assert set(found.by("system_vcpu_usage_ratio", "usage_type")) == {"user", "system"}
    assert found.get("system_memory_total_bytes") > found.get("system_memory_used_bytes") > 0
    assert found.get("instance_info") == 1
    ((hardware, _),) = found.all("neuron_hardware_info")
    assert (hardware["neuron_device_count"], hardware["neuroncore_per_device_count"]) == ("1", "4")
    assert found.get("neuron_ds_core_inference_count_total", neuron_device=0, core=7) == 0
    assert found.get("neuron_ds_slots") == 16
    assert found.get("neuron_ds_slots_used") == 0


def test_instance_labels_are_on_every_series(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t"):
        found = scrape(watch(per_process=True).report())
    lines = [line for line in found.text.splitlines() if not line.startswith("#")]
    assert lines
    for label in ("instance_name", "instance_id", "instance_type", "availability_zone", "region", "subnet_id"):
        assert all(f'{label}="' in line for line in lines)


def test_a_seeded_simulation_gives_exact_values(root: str, driver: SoftwareDriver, watch: MakeWatch) -> None:
    work = Workload(pattern=PATTERNS["inference"](), seed=9, cores=((0, 0), (0, 5)), tag="serving")
    with start(work, events=400, speed=None, directory=root) as process:
        process.wait_played()
        before = process.expected()[0].counters
        watched = watch(per_process=True)
        assert set(scrape(watched.report()).by("execution_status_total", "status_type").values()) == {0}
        process.advance(300)
        after = process.expected()[0].counters
        found = scrape(watched.report())

        def grown(index: int) -> int:
            return sum(after.get(("nc", c, index), 0) - before.get(("nc", c, index), 0) for c in (0, 5))

        assert found.by("execution_status_total", "status_type", runtime_tag="serving") == {
            name: grown(c.index) for name, c in STATUS_TYPES.items()
        }
        assert found.by("execution_errors_total", "error_type", runtime_tag="serving") == {
            name: grown(c.index) for name, c in ERROR_TYPES.items()
        }
        assert grown(STATUS_TYPES["completed"].index) > 0
        for c in layout.NC:
            if c.kind == layout.COUNTER:
                unit, divisor = ("_seconds", 1e6) if c.unit == "us" else ("", 1)
                for core in (0, 5):
                    value = after.get(("nc", core, c.index), 0) / divisor
                    labels = {"neuron_device": 0, "core": core}
                    assert found.get(f"neuron_ds_core_{c.name}{unit}_total", **labels) == value
                    assert found.get(f"neuron_ds_process_core_{c.name}{unit}_total", pid=process.pid, **labels) == value


def test_utilization_is_over_the_window_and_logical_cores(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:
        watched = watch()
        watched.end_window()
        producer.core(2).time_in_use.add(10**12)  # more than any window: the share is clamped
        watched.end_window()
        producer.core(4).time_in_use.add(10**12)  # of the next window
        found = scrape(watched.report()).by("neuroncore_utilization_ratio", "neuroncore", runtime_tag="t")
        assert found == {"0": 0, "1": 0.5, "2": 0, "3": 0}  # cores 2 and 3 are halves of logical core 1
        again = scrape(watched.report()).by("neuroncore_utilization_ratio", "neuroncore", runtime_tag="t")
        assert again == found, "gauges must not depend on who scraped before"
        watched.end_window()
        found = scrape(watched.report()).by("neuroncore_utilization_ratio", "neuroncore", runtime_tag="t")
        assert found == {"0": 0, "1": 0, "2": 0.5, "3": 0}


def test_memory_is_a_sum_and_an_underflow_is_zero(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:
        for core in (2, 3):
            producer.core(core).mem_usage_tensors_device.set(1000)
        producer.core(2).mem_usage_code_device.set(50)
        producer.core(6).mem_usage_code_device.set(2**64 - 5)
        producer.nd.mem_usage_tensors_host.set(10**13)
        found = scrape(watch(per_process=True).report())
    tensors = found.by("neuroncore_memory_usage_tensors", "neuroncore", runtime_tag="t", memory_location="None")
    assert tensors == {"0": 0, "1": 2000, "2": 0, "3": 0}
    assert found.by("neuroncore_memory_usage_model_code", "neuroncore") == {"0": 0, "1": 50, "2": 0, "3": 0}
    assert found.by("neuron_runtime_memory_used_bytes", "memory_location") == {"host": 10**13, "neuron_device": 2050}
    assert found.get("neuron_ds_memory_underflows") == 1
    assert found.get("neuron_ds_process_core_mem_usage_code_device_bytes", core=6) == 0


def test_host_memory_is_at_least_what_is_resident(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t"):
        found = scrape(watch().report())
    assert found.get("neuron_runtime_memory_used_bytes", memory_location="host") > 5_000_000


def test_percentiles_of_what_was_sampled(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:
        watched = watch(sample_hz=1000)
        assert scrape(watched.report()).all("execution_latency_seconds") == []
        producer.core(0).execution_ended(1, 10, 0, 100, 2500)
        deadline = time.monotonic() + 20
        while not (found := scrape(watched.report()).by("execution_latency_seconds", "percentile")):
            assert time.monotonic() < deadline
        assert found == dict.fromkeys(("p0", "p1", "p25", "p50", "p75", "p99", "p100"), 0.0025)
        watched.end_window()
        assert scrape(watched.report()).by("execution_latency_seconds", "percentile") == found
        watched.end_window()
        assert scrape(watched.report()).all("execution_latency_seconds") == []


# --- Comings and goings -----------------------------------------------------------------------------------------------


def count_and_wait(talk: Talk, root: str, tag: str, device: int = 0) -> None:
    """Publish; complete as many executions as the test says each time, until it says 0."""
    producer = datastore.publish(device, driver=SoftwareDriver(root), tag=tag)
    talk.say(producer.slot)
    while n := talk.hear():
        producer.core(1).infer_completed.add(n)
        producer.core(1).inference_count.add(n)
        talk.say("done")
    producer.close()
    talk.say("left")
    talk.hear()


def completed(watched: Watch, tag: str) -> float | None:
    found = scrape(watched.report()).by("execution_status_total", "status_type", runtime_tag=tag)
    return found.get("completed")


@pytest.mark.parametrize("end", ["dies", "leaves"])
def test_series_of_a_process_that_left_are_gone_and_totals_stay(
    root: str, driver: SoftwareDriver, watch: MakeWatch, end: str
) -> None:
    with Child(count_and_wait, root, "mortal") as child, Child(count_and_wait, root, "other") as other:
        child.expect()
        other.expect()
        child.ask(7)
        watched = watch(per_process=True)
        before = scrape(watched.report())
        assert runtime_series(before) == {"mortal", "other"}
        total = before.by("neuron_ds_core_inference_count_total", "core")
        assert total["1"] == 7
        if end == "dies":
            child.kill()
            child.wait_zombie()
        else:
            assert child.ask(0) == "left"
        after = scrape(watched.report())
        assert runtime_series(after) == {"other"}
        assert after.by("neuron_ds_core_inference_count_total", "core") == total
        kept = {name for name, labels, _ in before.series if labels.get("runtime_tag") != "mortal"}
        assert kept == {name for name, _, _ in after.series}
        assert after.get("neuron_ds_processes", state="dead") == (1 if end == "dies" else 0)
        assert after.get("neuron_ds_slots_used") == (2 if end == "dies" else 1)


def test_a_runtime_counts_from_its_own_zero_and_a_tag_that_returns_starts_again(
    root: str, driver: SoftwareDriver, watch: MakeWatch
) -> None:
    driver.probe(0)
    watched = watch()
    with Child(count_and_wait, root, "t") as one, Child(count_and_wait, root, "t") as two:
        one.expect()
        one.ask(5)
        two.expect()
        assert completed(watched, "t") == 5
        two.ask(3)
        assert completed(watched, "t") == 8
        assert scrape(watched.report()).get("neuron_ds_runtime_processes", runtime_tag="t") == 2
        one.ask(0)
        assert completed(watched, "t") == 8, "what one counted stays as long as the tag does"
        two.ask(0)
        assert completed(watched, "t") is None
    with Child(count_and_wait, root, "t") as three:
        three.expect()
        three.ask(2)
        assert completed(watched, "t") == 2


def test_one_bad_slab_fails_no_scrape(root: str, driver: SoftwareDriver, watch: MakeWatch) -> None:
    with Child(publish_and_wait, root, "bad") as bad, Child(publish_and_wait, root, "good") as good:
        slot = bad.expect()
        good.expect()
        write_header(root, slot, layout.HEADER_WORD + (1 << 32))
        watched = watch(per_process=True)
        found = scrape(watched.report())
        assert runtime_series(found) == {"good"}
        assert found.get("neuron_ds_processes", state="unreadable") == 1
        assert found.get("neuron_ds_slab_read_errors_total") == 2
        write_header(root, slot, layout.HEADER_WORD)
        found = scrape(watched.report())
        assert runtime_series(found) == {"good", "bad"}
        assert found.get("execution_status_total", runtime_tag="bad", status_type="completed") == 0


@pytest.mark.parametrize("tag", [b"\xff\xfe", b'"\\\n{}', "ü\u2028".encode(), b"x" * 255])
def test_an_odd_tag_fails_no_scrape(driver: SoftwareDriver, watch: MakeWatch, tag: bytes) -> None:
    with datastore.publish(0, driver=driver, tag=tag.decode("utf-8", "surrogateescape")):
        found = scrape(watch(per_process=True).report())
    assert runtime_series(found) == {printable(tag.decode("utf-8", "surrogateescape"))}


def test_no_device_is_no_error_for_a_report(driver: SoftwareDriver, watch: MakeWatch) -> None:
    watched = watch()
    assert watched.devices == 0
    assert scrape(watched.report()).get("neuron_ds_devices") == 0


# --- The watch itself -------------------------------------------------------------------------------------------------


def test_windows_end_by_themselves(driver: SoftwareDriver, watch: MakeWatch) -> None:
    driver.probe(0)
    watched = watch(window_s=0.1)
    assert watched.problem == ""
    deadline = time.monotonic() + 20
    while not 0.05 < scrape(watched.report()).get("neuron_ds_window_seconds") < 15 or watched._window is None:
        assert time.monotonic() < deadline
    watched.close()
    assert watched.problem == "closed"


def test_labels_by_choice(driver: SoftwareDriver, watch: MakeWatch) -> None:
    with datastore.publish(0, driver=driver, tag="t"):
        found = scrape(watch(choices=("command", "user")).report())
    ((labels, _),) = found.all("neuron_ds_runtime_processes")
    assert "pytest" in labels["command"] or "python" in labels["command"]
    assert labels["user"]
    assert "pod_uid" not in labels


@pytest.mark.parametrize("options", [{"choices": ("colour",)}, {"window_s": 0}, {"sample_hz": 5000}])
def test_what_cannot_be_is_refused(driver: SoftwareDriver, options: dict) -> None:
    with pytest.raises(BadValue):
        Watch(driver, instance=NO_INSTANCE, **options)
