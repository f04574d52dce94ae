"""Two containers whose process 1 had the same tag became one runtime: sums of one, executions of both."""

import io
import json
import time
from collections.abc import Callable, Iterator

import pytest

from neuron_ds.collect import process_of
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.export import export
from neuron_ds.exporter.watch import Watch
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from neuron_ds.monitor import Monitor
from neuron_ds.monitor.config import everything
from neuron_ds.record import Recorder
from neuron_ds.record.flight import Alarms, Ring
from neuron_ds.record.replay import ReplayDriver
from neuron_ds.top.details import process_block
from neuron_ds.top.text import plain
from tests.exporter.helpers import NO_INSTANCE, scrape
from tests.processes import PATIENCE_S, Program, unshare

CONTAINER = """
from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.runtime import DeviceMemory, HostMemory, Runtime, Status
driver, devices = SoftwareDriver(sys.argv[1]), json.loads(sys.argv[2])
runtimes = [Runtime(datastore.publish(device, driver=driver, tag="bert")) for device in map(int, devices)]
for runtime, used_bytes in zip(runtimes, devices.values()):
    runtime.device_memory(0, DeviceMemory.TENSORS, used_bytes)
    runtime.host_memory(HostMemory.CODE, 10 * used_bytes)
say(os.getpid())
while count := hear():
    for _ in range(abs(count)):
        runtimes[0].execution_ended(0, Status.SUCCESS if count > 0 else Status.HBM_UE, busy_us=1, macs=5)
    say(count)
"""
#: Bytes by device: the first has two slabs, and shares a device with the second.
USED_BYTES = {0: 1000, 1: 200}, {0: 5000}
SUMS = [1200, 5000]


@pytest.fixture
def containers(root: str, driver: SoftwareDriver) -> Iterator[list[Program]]:
    """Two processes 1 in pid namespaces of their own."""
    driver.probe(1)
    wrapper = unshare("--pid", "--fork", "--kill-child", "--mount-proc")
    programs = [Program(CONTAINER, root, json.dumps(used), wrapper=wrapper) for used in USED_BYTES]
    try:
        assert [program.expect() for program in programs] == [1, 1]
        yield programs
    finally:
        for program in programs:
            program.close()


def until(time_ns: int) -> bool:
    time.sleep(max(0, time_ns - time.monotonic_ns()) / 1e9)
    return True


def test_the_driver_tells_them_apart(driver: SoftwareDriver, containers: list[Program]) -> None:
    owners = [owner for device in (0, 1) for owner in driver.owners(device)]
    assert {(o.pid, o.foreign) for o in owners} == {(1, True)}
    assert len({o.namespace for o in owners}) == len({process_of(o) for o in owners}) == 2


def test_the_monitor_shows_two_runtimes_with_their_own_sums(driver: SoftwareDriver, containers: list[Program]) -> None:
    told: list[str] = []
    with Monitor(everything(20_000_000), driver, sample_hz=0, tell=lambda level, text: told.append(text)) as monitor:
        monitor.begin()
        for program, count in zip(containers, (3, 4), strict=True):
            program.ask(count)
        entries = sorted(next(monitor.reports(until))["neuron_runtime_data"], key=_device_bytes)
        containers[0].end()
        deadline = time.monotonic() + PATIENCE_S
        while not any("gone" in text for text in told) and time.monotonic() < deadline:
            next(monitor.reports(until))
    assert [(e["pid"], e["neuron_runtime_tag"], e["error"]) for e in entries] == [(1, "bert", "")] * 2
    assert [_device_bytes(e) for e in entries] == SUMS
    for entry, count, size in zip(entries, (3, 4), SUMS, strict=True):
        report = entry["report"]
        assert report["execution_stats"]["execution_summary"]["completed"] == count
        used = report["memory_used"]["neuron_runtime_used_bytes"]
        cores = used["usage_breakdown"]["neuroncore_memory_usage"].values()
        assert sum(sum(core.values()) for core in cores) == size
        assert used["host"] == sum(used["usage_breakdown"]["host"].values()) == 10 * size
        assert report["neuroncore_counters"]["neuroncores_in_use"]["0"]["flops"] > 0
    assert [text for text in told if "(pid 1)" in text] == [
        *["runtime bert (pid 1) is there"] * 2,
        "runtime bert (pid 1) is gone",
    ]


def _device_bytes(entry) -> int:
    return entry["report"]["memory_used"]["neuron_runtime_used_bytes"]["neuron_device"]


def test_the_exporter_counts_two_processes(driver: SoftwareDriver, containers: list[Program]) -> None:
    with Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch:
        found = scrape(watch.report())
    assert found.by("neuron_ds_runtime_processes", "runtime_tag") == {"bert": 2}
    memory = found.by("neuron_runtime_memory_used_bytes", "memory_location", runtime_tag="bert")
    assert memory == {"neuron_device": sum(SUMS), "host": 10 * sum(SUMS)}


def test_a_picture_has_a_line_for_each(driver: SoftwareDriver, containers: list[Program]) -> None:
    with Live(LiveSource(driver, sample_hz=0)) as live:
        live.frame()
        for program, count in zip(containers, (3, 4), strict=True):
            program.ask(count)
        frame = live.frame()
    processes = sorted(frame.processes, key=lambda p: sum(p.device_memory))
    assert {p.id for p in processes} == {"1", "1~2"}
    assert [(p.pid, p.tag, sum(p.device_memory)) for p in processes] == [(1, "bert", size) for size in SUMS]
    assert [len(p.slabs) for p in processes] == [2, 1]
    assert all(p.executions_s for p in processes)


def test_events_and_findings_are_those_of_the_one(driver: SoftwareDriver, containers: list[Program]) -> None:
    with Live(LiveSource(driver, sample_hz=0)) as live:
        live.frame()
        containers[1].ask(-2)
        frame = live.frame()
        (hurt,), (other,) = ([p for p in frame.processes if bool(p.errors) is erring] for erring in (True, False))
        assert [(e.process, e.pid, e.count) for e in frame.events if e.kind == "error"] == [(hurt.id, 1, 2)]
        found = [f for f in frame.findings if f.kind == "hardware-error"]
        assert [(frame.concerns(f, hurt), frame.concerns(f, other)) for f in found] == [(True, False)]
        for process in (hurt, other):
            lines = "\n".join(plain(row.line) for row in process_block(frame, process.id, 120).rows)
            assert ("hw_err_hbm_ue +2" in lines) is ("hardware-error" in lines) is (process is hurt)
        containers[1].close()
        deadline, gone = time.monotonic() + PATIENCE_S, []
        while not gone:
            assert time.monotonic() < deadline
            gone = [e.process for e in live.frame().events if e.kind in ("left", "died")]
        assert gone == [hurt.id]


def test_a_recording_keeps_them_apart(taping: Callable, containers: list[Program]) -> None:
    tape = taping()
    for _ in range(3):
        tape.tick()
    with tape.read() as recording:
        *_, last = recording.samples()
        assert len(last.processes) == 3
        assert len({process_of(p.owner) for p in last.processes}) == 2
        out = io.BytesIO()
        export(recording, "trace", out)
    with ReplayDriver(tape.path, speed=0) as driver, Monitor(everything(1), driver, sample_hz=0) as monitor:
        report = next(monitor.reports(lambda time_ns: True))
    assert sorted(map(_device_bytes, report["neuron_runtime_data"])) == SUMS
    events = json.loads(out.getvalue())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert sorted(processes.values()) == ["bert (pid 1)", "bert (pid 1)", "the recording"]


def test_an_error_of_the_second_is_news(driver: SoftwareDriver, containers: list[Program]) -> None:
    with Recorder(Ring(), driver) as recorder:
        alarms = Alarms(recorder, kinds=["error"])
        for _ in range(2):
            recorder.tick()
            assert alarms.check() is None
        for program in containers:
            program.ask(-1)
            recorder.tick()
            assert alarms.check() == ("error", "process 1 counted hw_err_hbm_ue")
            program.ask(-1)
            recorder.tick()
            assert alarms.check() is None  # the same again is none
