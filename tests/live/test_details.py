"""Detail screens: the memory tree's sums, all counters of a core, and who a process is."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.live.details import Node, core_counters, memory_tree, process_details
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from neuron_ds.records import ModelNode
from neuron_ds.runtime import DeviceMemory, HostMemory, Runtime

GRID = [[(0, 0)] * layout.MEM_SLOTS, [(0, 0)] * layout.MEM_SLOTS]


@pytest.fixture
def runtime(driver: SoftwareDriver) -> Iterator[Runtime]:
    with datastore.publish(0, tag="bert", driver=driver) as producer:
        yield Runtime(producer)


@pytest.fixture
def live(driver: SoftwareDriver, runtime: Runtime) -> Iterator[Live]:
    with Live(LiveSource(driver, sample_hz=0)) as live:
        yield live


def model(core: int, host: int, device: int) -> ModelNode:
    grid = [list(GRID[0]), list(GRID[1])]
    grid[0][1], grid[1][1] = (host, 1), (device, 1)
    return ModelNode.build(model_id=77, model_node_id=5, name="bert", nc_index=core, mem_usage=grid)


def lines(nodes: tuple[Node, ...], depth: int = 0) -> Iterator[tuple[int, str, int, int]]:
    for node in nodes:
        yield depth, node.label, node.device_bytes, node.host_bytes
        yield from lines(node.children, depth + 1)


def test_a_parent_is_the_sum_of_its_children(live: Live, runtime: Runtime) -> None:
    runtime.model_loaded(model(0, host=10, device=400))
    runtime.device_memory(0, DeviceMemory.TENSORS, 1000)
    runtime.host_memory(HostMemory.TENSORS, 25)
    tree = memory_tree(live.frame())
    found = list(lines(tree))
    assert found[:4] == [
        (0, "ND0", 1000, 25),
        (1, "NC0", 1000, 10),
        (2, "bert (id 77)", 400, 10),
        (2, "no model", 600, 0),
    ]
    assert found[-1] == (1, "host memory of no model", 0, 15)
    assert [label for depth, label, *_ in found if depth == 1][:-1] == [
        f"NC{c.core}" for c in live.frame().devices[0].cells
    ]


def test_the_tree_of_one_process_has_only_its_cores(live: Live, runtime: Runtime) -> None:
    runtime.device_memory(1, DeviceMemory.TENSORS, 8)
    frame = live.frame()
    config = len(frame.devices[0].cells[0].physical)
    assert [n.label for n in memory_tree(frame, frame.processes[0].id)[0].children] == [f"NC{1 // config}"]
    assert memory_tree(frame, "gone") == ()


def test_all_counters_of_a_core_and_reserved_ones_if_not_zero(live: Live, runtime: Runtime) -> None:
    live.frame()
    runtime.execution_ended(0, busy_us=500)
    runtime.producer.core(0).counter(94).add(3)
    frame = live.frame()
    counters = [line for line in core_counters(frame, 0, 0) if line.physical == 0]
    named = sum(c.kind != layout.RESERVED for c in layout.NC)
    assert len(counters) == named + 1
    by_name = {line.name: line for line in counters}
    assert by_name["reserved_94"].value == 3
    assert by_name["infer_completed"].value == 1
    assert by_name["time_in_use"].rate == pytest.approx(500 / (frame.period_s or 0), rel=0.2)
    assert by_name["latency_total"].rate is None
    assert {line.process for line in counters} == {frame.processes[0].id}


def test_everything_of_a_process(live: Live, runtime: Runtime) -> None:
    runtime.model_loaded(model(2, host=1, device=2))
    live.frame()
    for core in (0, 1):
        runtime.execution_ended(core)
    frame = live.frame()
    details = process_details(frame, str(os.getpid()))
    assert details is not None
    assert (details.pid, details.tag, details.state) == (os.getpid(), "bert", "running")
    assert "python" in details.identity.command
    (line,) = details.models
    assert (line.name, line.model_id, line.node_id, line.host_bytes, line.device_bytes) == ("bert", 77, 5, 1, 2)
    counters = {c.name: c for c in details.counters}
    assert counters["infer_completed"].value == 2
    assert counters["infer_completed"].rate == pytest.approx(2 / (frame.period_s or 0), rel=0.2)
    assert process_details(frame, "gone") is None
