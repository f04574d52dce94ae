"""The host around the devices as groups: differences of two looks, ECC of real hardware, and reasons where it fails."""

import os

import psutil
import pytest

from neuron_ds.driver.kernel import KernelDriver
from neuron_ds.host import HostCollector, HostSample, Memory, Processors, ProcessUse
from neuron_ds.monitor.system import memory_info, neuron_hw_counters, process_vcpu_usage, vcpu_usage

SECOND = 1_000_000_000


def host(at_s=0, **values):
    fields = {"memory": Memory(8, 4, 2, 1), "processors": Processors((), 0), "processes": {}, "ecc": None}
    return HostSample(at_s * SECOND, **(fields | values))


def test_shares_of_processors_and_switches():
    before = host(processors=Processors(((1.0,) * 8, (0.0,) * 8), 100))
    after = host(2, processors=Processors(((2.0,) + (1.0,) * 2 + (4.0,) + (1.0,) * 4, (0.0,) * 8), 130))
    group = vcpu_usage(before, after)
    assert group["period"] == 2.0
    assert group["context_switch_count"] == 30
    assert (group["usage_data"]["0"]["user"], group["usage_data"]["0"]["idle"]) == (25.0, 75.0)
    assert set(group["usage_data"]["1"].values()) == {0.0}
    assert group["average_usage"]["idle"] == 75.0


def test_processor_time_of_a_process_is_a_share_of_all():
    cpus = Processors(((0.0,) * 8,) * 4, 0)
    before = host(processors=cpus, processes={7: ProcessUse(1.0, 1.0, 0), 8: ProcessUse(5.0, 5.0, 0)})
    after = host(2, processors=cpus, processes={7: ProcessUse(3.0, 2.0, 0), 8: ProcessUse(0.0, 0.0, 0)})
    assert process_vcpu_usage(before, after, 7)["vcpu_usage"] == {"user": 25.0, "system": 12.5}
    assert process_vcpu_usage(before, after, 8)["vcpu_usage"] == {"user": 0.0, "system": 0.0}, "never negative"
    gone = process_vcpu_usage(before, after, 9)
    assert gone["vcpu_usage"] == {"user": 0.0, "system": 0.0}
    assert "process 9" in gone["error"]


def test_what_can_not_be_read_is_an_error_and_zero():
    broken = host(1, memory="no memory", processors="no processors", ecc="no counters")
    assert memory_info(host(), broken)["error"] == "no memory"
    assert memory_info(host(), broken)["memory_total_bytes"] == 0
    assert vcpu_usage(host(), broken)["error"] == "no processors"
    assert neuron_hw_counters(host(), broken)["neuron_devices"] is None
    assert neuron_hw_counters(host(), broken)["error"] == "no counters"


def test_ecc_events_of_hardware_are_differences(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_DS_SYSFS", str(tmp_path))
    base = tmp_path / "neuron3" / "stats" / "hardware"
    (base / "sram_ecc_uncorrected").mkdir(parents=True)
    (base / "mem_ecc_corrected").write_text("5\n")
    (base / "sram_ecc_uncorrected" / "total").write_text("7\n")
    collector = HostCollector(KernelDriver())
    before = collector.collect([], [3])
    (base / "mem_ecc_corrected").write_text("9\n")
    after = collector.collect([], [3])
    assert neuron_hw_counters(before, after)["neuron_devices"] == [
        {
            "neuron_device_index": 3,
            "mem_ecc_corrected": 4,
            "mem_ecc_uncorrected": 0,
            "sram_ecc_corrected": 0,
            "sram_ecc_uncorrected": 0,
        }
    ]
    assert "no hardware counters" in neuron_hw_counters(before, collector.collect([], [4]))["error"]


@pytest.mark.parametrize(
    ("raised", "word"),
    [
        (psutil.NoSuchProcess(7), "is not in /proc"),
        (psutil.AccessDenied(7), "may not be looked at"),
        (PermissionError(13, "Permission denied", "/proc/7/stat"), "/proc/7/stat: Permission denied"),
        (IndexError("short"), "not as expected"),
    ],
)
def test_a_process_that_can_not_be_read_has_its_reason(driver, monkeypatch, raised, word):
    def refuse(pid):
        raise raised

    monkeypatch.setattr(psutil, "Process", refuse)
    assert word in HostCollector(driver).collect([7], []).processes[7]


def test_a_look_at_oneself(driver):
    use = HostCollector(driver).collect([os.getpid()], []).processes[os.getpid()]
    assert use.rss_bytes > 1 << 20
    assert use.user_s > 0
