"""The sysfs tree: totals of a seeded simulation to the unit, before and after its processes died; present and peak."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from neuron_ds import datastore, layout
from neuron_ds.categories import DEVICE_MEMORY, HOST_MEMORY
from neuron_ds.cli import main
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.simulate import PATTERNS, Workload, start
from neuron_ds.sysfs import OTHER_INFO, STATUS, SysfsView

CORES = 8


def expected_totals(slabs: list, living: bool) -> dict[str, int]:
    """The ``total`` files of device 0, from the simulator's own expectation: not from any slab."""
    files: dict[str, int] = {}
    names = {c.sysfs: c.index for c in layout.NC if c.sysfs}

    def sum_of(key: tuple) -> int:
        return sum(slab.counters.get(key, 0) for slab in slabs)

    for core in range(CORES):
        base = f"neuron0/neuron_core{core}/stats"
        for group, members in (("status", STATUS), ("other_info", OTHER_INFO)):
            for name in members:
                value = sum_of(("nc", core, names[name]))
                files[f"{base}/{group}/{name}/total"] = value * (2 if name == "flop_count" else 1)
        for name, gauge in DEVICE_MEMORY.items():
            value = sum_of(("nc", core, gauge.index))
            files[f"{base}/memory_usage/device_mem/{name}/total"] = value if living else 0
    for name, gauges in HOST_MEMORY.items():
        value = sum(sum_of(("nd", gauge.index)) for gauge in gauges)
        files[f"neuron0/stats/memory_usage/host_mem/{name}/total"] = value if living else 0
    return files


def printed(root: str) -> dict[str, str]:
    """What ``neuron-ds sysfs --json`` prints."""
    result = CliRunner(env={"NEURON_DS_DIR": root, "NEURON_DS_DRIVER": "software"}).invoke(main, ["sysfs", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def totals_of(tree: dict[str, str]) -> dict[str, int]:
    return {path: int(text) for path, text in tree.items() if path.endswith("/total")}


def test_totals_equal_the_simulation_while_it_runs_and_after_it_died(root: str) -> None:
    workloads = [
        Workload(pattern=PATTERNS["erring"](), seed=3, cores=((0, 0), (0, 1)), tag="erring"),
        Workload(pattern=PATTERNS["inference"](), seed=4, cores=((0, 4), (0, 7)), tag="serving"),
    ]
    running = [start(w, events=700, speed=None, directory=root) for w in workloads]
    try:
        for process in running:
            assert process.wait_played() == 700
        slabs = [process.expected()[0] for process in running]
        assert sum(sum(slab.counters.values()) for slab in slabs) > 10_000
        assert totals_of(printed(root)) == expected_totals(slabs, living=True)
        running[0].kill()
        running[1].end()
        assert totals_of(printed(root)) == expected_totals(slabs, living=False)
    finally:
        for process in running:
            process.end()


def test_present_and_peak_are_what_this_observer_saw(driver: SoftwareDriver) -> None:
    view = SysfsView(driver)
    count = "neuron0/neuron_core2/stats/other_info/inference_count"
    memory = "neuron0/neuron_core2/stats/memory_usage/device_mem/tensors"
    looks = []
    with datastore.publish(0, driver=driver) as producer:
        core = producer.core(2)

        def look() -> None:
            view.look()
            tree = view.tree()
            looks.append(
                [int(tree[f"{count}/{k}"]) for k in ("total", "present")]
                + [int(tree[f"{memory}/{k}"]) for k in ("total", "present", "peak")]
            )

        core.inference_count.add(10)
        core.mem_usage_tensors_device.add(100)
        look()
        core.inference_count.add(3)
        core.mem_usage_tensors_device.add(50)
        look()
        core.mem_usage_tensors_device.sub(120)
        look()
        look()
    look()
    assert looks == [
        [10, 0, 100, 0, 100],  # a single look: 0 and the current use
        [13, 3, 150, 50, 150],
        [13, 0, 30, -120, 150],
        [13, 0, 30, 0, 150],
        [13, 0, 0, -30, 150],  # its process is gone: the counter stays, the memory is nobody's
    ]


def test_the_tree_has_the_names_of_the_real_one(driver: SoftwareDriver, tmp_path: Path) -> None:
    driver.probe(0)
    driver.probe(1, type="inf2")
    view = SysfsView(driver)
    view.look()
    assert view.write(tmp_path) == len(view.tree())
    device = tmp_path / "neuron1"
    assert (device / "core_count").read_text() == "2\n"
    assert sorted(os.listdir(device / "info/architecture")) == ["arch_type", "device_name", "instance_type"]
    assert (device / "info/architecture/instance_type").read_text() == "inf2\n"
    core = device / "neuron_core1/stats"
    assert sorted(os.listdir(core)) == ["memory_usage", "other_info", "status"]
    assert len(os.listdir(core / "status")) == 24
    assert sorted(os.listdir(core / "other_info")) == sorted(OTHER_INFO)
    assert sorted(os.listdir(core / "status/success")) == ["present", "total"]
    assert sorted(os.listdir(core / "memory_usage/device_mem/tensors")) == ["peak", "present", "total"]
    assert sorted(os.listdir(device / "stats/memory_usage/host_mem")) == sorted(HOST_MEMORY)
    assert not [name for name in os.listdir(device) if name.endswith(".new")]


@pytest.mark.parametrize("command", [["sysfs"], ["sysfs", "--json"], ["reset", "--yes"]])
def test_without_a_device_there_is_a_reason_and_no_output(root: str, command: list[str]) -> None:
    result = CliRunner(env={"NEURON_DS_DIR": root, "NEURON_DS_DRIVER": "software"}).invoke(main, command)
    assert result.exit_code in (1, 2)
    assert result.stdout == ""
    assert result.stderr.startswith("neuron-ds: ")


def test_reset_asks_refuses_and_resets(root: str, driver: SoftwareDriver) -> None:
    runner = CliRunner(env={"NEURON_DS_DIR": root, "NEURON_DS_DRIVER": "software"})
    with datastore.publish(0, driver=driver) as producer:
        producer.core(0).inference_count.add(5)
        refused = runner.invoke(main, ["reset", "--yes"])
        assert refused.exit_code == 1
        assert "still publishes" in refused.stderr
    assert runner.invoke(main, ["reset"], input="n\n").exit_code == 1
    assert driver.totals(0).nc(0, 28) == 5
    assert runner.invoke(main, ["reset"], input="y\n").exit_code == 0
    assert driver.totals(0).nc(0, 28) == 0
