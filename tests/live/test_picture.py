"""Frames of real slabs: every figure is what was counted, over the time between two looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from neuron_ds import datastore
from neuron_ds.collect import Sample
from neuron_ds.diagnose import Watcher
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.host import HostSample
from neuron_ds.live import picture
from neuron_ds.live.frame import DEVICE_MEMORY, HOST_MEMORY, Cell, Frame
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from neuron_ds.records import ModelNode
from neuron_ds.runtime import ApiFailure, DeviceMemory, HostMemory, Runtime, Status
from tests.devices import publish_and_wait, write_header
from tests.processes import Child


@pytest.fixture
def live(driver: SoftwareDriver) -> Iterator[Live]:
    driver.probe(0)
    with Live(LiveSource(driver, sample_hz=0)) as live:
        yield live


@pytest.fixture
def runtime(driver: SoftwareDriver, live: Live) -> Iterator[Runtime]:
    with datastore.publish(0, tag="bert", driver=driver) as producer:
        yield Runtime(producer)


def cell(frame: Frame, core: int, device: int = 0) -> Cell:
    return frame.by_device[device].cells[core]


def test_nothing_is_known_before_there_is_a_look_to_compare_with(live: Live, runtime: Runtime) -> None:
    runtime.execution_ended(0, busy_us=10)
    frame = live.frame()
    assert frame.period_s is None
    assert {c.state for c in frame.devices[0].cells} == {"unknown"}
    assert {c.utilization for c in frame.devices[0].cells} == {None}
    (process,) = frame.processes
    assert (process.executions_s, process.errors_s, process.utilization, process.flops_s) == (None,) * 4


def test_rates_are_what_was_counted_over_the_period(live: Live, runtime: Runtime) -> None:
    runtime.execution_ended(1, busy_us=999_999_999, macs=77)
    live.frame()
    for _ in range(5):
        runtime.execution_ended(0, busy_us=100, macs=1_000_000)
    runtime.execution_ended(0, Status.COMPLETED_WITH_ERR, busy_us=50)
    runtime.execution_ended(0, Status.BAD_INPUT)
    runtime.api_failed(0, ApiFailure.RESOURCE)
    frame = live.frame()
    assert frame.period_s
    (process,) = frame.processes
    config = len(cell(frame, 0).physical)
    period_s = 10_000_000 / process.flops_s if process.flops_s else 0.0
    assert period_s == pytest.approx(frame.period_s, rel=0.2)
    for each in (cell(frame, 0), process.cells[0]):
        assert each.flops_s == pytest.approx(10_000_000 / period_s)
        assert each.executions_s == pytest.approx(6 / period_s)  # with an error they ran to their end too
        assert each.errors_s == pytest.approx(3 / period_s)
        assert each.utilization == pytest.approx(550e-6 / period_s / config)
        assert each.state == "busy"
    assert process.executions_s == pytest.approx(6 / period_s)
    assert process.errors == 3
    assert frame.by_device[0].utilization == pytest.approx(
        (cell(frame, 0).utilization or 0) / len(frame.devices[0].cells)
    )


def test_every_core_is_shown_and_an_unused_one_is_idle(live: Live, driver: SoftwareDriver) -> None:
    live.frame()
    frame = live.frame()
    properties = driver.properties(0)
    assert [c.core for c in frame.devices[0].cells] == list(range(properties.logical_cores or 0))
    assert {(c.state, c.utilization) for c in frame.devices[0].cells} == {("idle", 0.0)}


def test_memory_is_told_by_kind(live: Live, runtime: Runtime) -> None:
    runtime.device_memory(0, DeviceMemory.TENSORS, 1000)
    runtime.device_memory(0, DeviceMemory.CODE, 20)
    runtime.device_memory(1, DeviceMemory.MISC, 3)
    runtime.device_memory(1, DeviceMemory.SCRATCHPAD, -1)
    runtime.host_memory(HostMemory.CODE, 5)
    runtime.host_memory(HostMemory.SCRATCHPAD, 6)
    runtime.host_memory(HostMemory.CONSTANTS, 7)
    frame = live.frame()
    device = dict(zip(DEVICE_MEMORY, frame.devices[0].memory, strict=True))
    assert device == {
        "tensors": 1000,
        "constants": 0,
        "model_code": 20,
        "runtime_memory": 3,
        "model_shared_scratchpad": 0,
    }
    assert frame.processes[0].device_memory == frame.devices[0].memory
    host = dict(zip(HOST_MEMORY, frame.devices[0].host_memory, strict=True))
    assert host == {"tensors": 0, "constants": 7, "dma_buffers": 11, "application_memory": 0}
    process = dict(zip(HOST_MEMORY, frame.processes[0].host_memory, strict=True))
    assert process["dma_buffers"] == 11
    assert process["application_memory"] > 1_000_000  # what else is resident of this very process
    assert live.frame().devices[0].cells[0].state == "loaded"


def test_a_model_makes_a_core_loaded(live: Live, runtime: Runtime) -> None:
    runtime.model_loaded(ModelNode.build(model_id=1, name="m", nc_index=3))
    live.frame()
    frame = live.frame()
    config = len(cell(frame, 0).physical)
    assert cell(frame, 3 // config).state == "loaded"
    assert frame.processes[0].models == 1


def test_a_process_that_came_counts_from_zero(live: Live, driver: SoftwareDriver) -> None:
    live.frame()
    with datastore.publish(0, driver=driver) as producer:
        Runtime(producer).execution_ended(0, busy_us=10)
        frame = live.frame()
        assert frame.processes[0].executions_s == pytest.approx(1 / (frame.period_s or 0), rel=0.1)
        assert [(e.kind, e.pid) for e in frame.events] == [("came", producer.pid)]
        assert live.frame().processes[0].executions_s == 0.0
    frame = live.frame()
    assert frame.processes == ()
    assert [e.kind for e in frame.events] == ["came", "left"]


def test_the_dead_and_the_unreadable_are_shown_as_such(root: str, live: Live) -> None:
    with Child(publish_and_wait, root, "bad") as bad, Child(publish_and_wait, root, "doomed") as doomed:
        slots = bad.expect(), doomed.expect()
        live.frame()
        write_header(root, slots[0], 0)
        doomed.kill()
        doomed.wait_zombie()
        frame = live.frame()
        states = {p.tag: p.state for p in frame.processes}
        assert states == {"bad": "unreadable", "doomed": "dead"}
        assert all(p.error for p in frame.processes)
        assert all(p.executions_s is None for p in frame.processes)
        assert [(e.kind, e.tag) for e in frame.events] == [("died", "doomed")]


def test_counters_of_trouble_become_events(live: Live, runtime: Runtime) -> None:
    live.frame()
    runtime.execution_ended(2, Status.HBM_UE)
    runtime.execution_ended(2, Status.HBM_UE)
    frame = live.frame()
    config = len(cell(frame, 0).physical)
    event, began = frame.events
    assert (began.kind, began.severity, began.pid) == ("began", "critical", runtime.producer.pid)
    assert [f.core for f in frame.findings] == [2]
    assert (event.kind, event.counter, event.count) == ("error", "hw_err_hbm_ue", 2)
    assert (event.device, event.core, event.tag) == (0, 2 // config, "bert")
    assert "uncorrectable HBM" in event.text
    assert live.frame().events == (event, began)


def test_histories_grow_by_one_each_frame(live: Live, runtime: Runtime) -> None:
    live.frame()
    runtime.execution_ended(0, busy_us=10)
    live.frame()
    frame = live.frame()
    history = frame.devices[0].utilization_history[0]
    assert history[0] is None
    assert history[1]
    assert history[2] == 0.0
    assert [bool(x) for x in frame.processes[0].executions_history] == [False, True, False]


def test_latencies_of_looks_in_between(driver: SoftwareDriver) -> None:
    with (
        datastore.publish(0, driver=driver) as producer,
        Live(LiveSource(driver, sample_hz=1000)) as live,
    ):
        live.frame()
        seen = None
        for _ in range(2000):
            Runtime(producer).execution_ended(0, total_us=1234, device_us=1000)
            seen = live.frame().processes[0]
            if seen.latency_p50_us:
                break
        assert seen is not None
        assert (seen.latency_p50_us, seen.latency_p99_us) == (1234, 1234)
        assert seen.latency_history[-1] == 1234


def test_why_it_is_empty_is_said(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_DS_DIR", f"{root}/nowhere")
    with Live(LiveSource(SoftwareDriver(f"{root}/nowhere"))) as live:
        frame = live.frame()
        assert frame.devices == ()
        assert "nowhere" in frame.empty


def test_a_source_that_goes_back_in_time_starts_anew(live: Live, runtime: Runtime) -> None:
    live.frame()
    assert live.frame().period_s
    source, first = live.source, live.source.look()[0]

    class Rewound:
        title = "a recording"

        def look(self) -> tuple[object, None]:
            return replace(first, time_ns=1), None

        def wall_s(self, time_ns: int) -> float:
            return time_ns / 1e9

        def why_empty(self) -> str:
            return ""

        def close(self) -> None:
            source.close()

    live.source = Rewound()  # type: ignore[assignment]
    frame = live.frame()
    assert frame.period_s is None
    assert frame.processes[0].executions_s is None


def test_one_process_on_two_devices_is_one(driver: SoftwareDriver, live: Live) -> None:
    driver.probe(1)
    with datastore.publish(0, tag="wide", driver=driver) as a, datastore.publish(1, tag="wide", driver=driver) as b:
        live.frame()
        Runtime(a).execution_ended(0)
        Runtime(b).execution_ended(0)
        frame = live.frame()
        (process,) = frame.processes
        assert process.id == str(a.pid)
        assert [slab.device for slab in process.slabs] == [0, 1]
        assert process.executions_s == pytest.approx(2 / (frame.period_s or 1), rel=0.2)


def test_with_many_slabs_the_rules_are_asked_less_often(
    live: Live, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    add = Watcher.add
    monkeypatch.setattr(
        Watcher, "add", lambda self, look, judge: (asked.append(judge), add(self, look, judge=judge))[1]
    )
    begun_ns = live.frame().time_ns
    times = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 2.5, 2.75]
    look = live.source.look

    def moved() -> tuple[Sample, HostSample | None]:
        sample, host = look()
        return replace(sample, time_ns=begun_ns + int(times.pop(0) * 1e9)), host

    monkeypatch.setattr(live.source, "look", moved)
    for _ in range(2):
        live.frame()
    assert asked == [True] * 3, "of few each time"
    monkeypatch.setattr(picture, "FEW_SLABS", 0)
    asked.clear()
    while times:
        live.frame()
    assert asked == [False, False, True, False, False, True, False]


@pytest.mark.parametrize("bad", [0, 1])
def test_a_slab_that_can_not_be_read_takes_nothing_from_the_other(
    driver: SoftwareDriver, root: str, live: Live, bad: int
) -> None:
    driver.probe(1)
    with (
        datastore.publish(0, tag="w\x1bide", driver=driver) as a,
        datastore.publish(1, tag="w\x1bide", driver=driver) as b,
    ):
        cores = [p.core(core) for p in (a, b) for core in (0, 1)]
        for core in cores:
            core.execution_ended(int(Status.SUCCESS), 10)
        live.frame()
        for n, core in enumerate(cores, 1):
            for _ in range(n):
                core.execution_ended(int(Status.SUCCESS), 10, 1000)
        write_header(root, (a, b)[bad].slot, 0, device=bad)
        frame = live.frame()
    (process,) = frame.processes
    good = process.slabs[1 - bad]
    assert [bool(slab.error) for slab in process.slabs] == [bad == 0, bad == 1]
    assert (process.state, process.error) == ("running", process.slabs[bad].error)
    assert process.tag == "w\\x1bide"
    assert process.executions_s == sum(cell.executions_s or 0 for cell in good.cells)
    assert process.executions_s == pytest.approx(((3 + 4), (1 + 2))[bad] / (frame.period_s or 1), rel=0.3)
    assert process.flops_s == pytest.approx(2000 * process.executions_s)
    assert process.utilization
    assert process.utilization == pytest.approx(sum(cell.utilization or 0 for cell in good.cells) / len(good.cells))


def test_what_is_kept_of_a_process_goes_with_it(driver: SoftwareDriver, live: Live) -> None:
    with datastore.publish(0, driver=driver):
        assert [len(p.executions_history) for p in live.frame().processes] == [1]
        assert len(live._rates) == len(live._errors) == 1
    live.frame()
    assert (live._rates, live._errors) == ({}, {})


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number of slabs is many."""
    monkeypatch.setattr(picture, "FEW_SLABS", 0)


@pytest.mark.usefixtures("many")
def test_of_many_slabs_the_second_look_is_judged_too(live: Live, runtime: Runtime) -> None:
    live.frame()
    runtime.execution_ended(2, Status.HBM_UE)
    assert [f.kind for f in live.frame().findings] == ["hardware-error"], "as --once takes two, and no more"


@pytest.mark.usefixtures("many")
def test_of_many_slabs_who_has_left_is_judged_once_more(live: Live, driver: SoftwareDriver) -> None:
    with datastore.publish(0, tag="gone", driver=driver) as producer:
        for _ in range(3):
            live.frame()
        Runtime(producer).execution_ended(2, Status.HBM_UE)
        assert live.frame().findings == (), "not asked so soon"
    frame = live.frame()
    assert [(f.kind, f.tag) for f in frame.findings] == [("hardware-error", "gone")]
    (began,) = [e for e in frame.events if e.kind == "began"]
    assert began.process == str(producer.pid)
