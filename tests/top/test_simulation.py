"""The screen against seeded simulations: what is on it is what their scripts say, by exact counters.

Between two looks a process plays an exact number of events; figures per second are those numbers over the time between
the looks, which the Frame says.
"""

import asyncio
import re
from contextlib import ExitStack

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.layout import ND
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from neuron_ds.runtime import DeviceMemory
from neuron_ds.simulate import PATTERNS, Workload, start
from neuron_ds.top import text as t
from tests.top.stage import plays

INFERENCE = Workload(PATTERNS["inference"](rate=50), seed=7, cores=((0, 0), (0, 1)), tag="bert-serving")
ERRING = Workload(PATTERNS["erring"](rate=50), seed=3, cores=((1, 2), (1, 3)), tag="vit-erring")
#: At least so long is between two looks: no core can be busier than all the time.
PERIOD_S = 0.3
CORES = (INFERENCE, 0, 0), (ERRING, 1, 1)
COMPLETED = ("infer_completed", "infer_completed_with_err", "infer_completed_with_num_err")

FAILURES = (
    "infer_completed_with_err infer_completed_with_num_err infer_timed_out infer_incorrect_input infer_failed_to_queue "
    "err_hw oob hw_err_collectives hw_err_hbm_ue hw_err_nc_ue hw_err_dma_abort err_sw_nq_overflow "
    "hw_err_repairable_hbm_ue generic_fail err_resource err_resource_nc err_invalid err_unsupported_neff_version"
).split()


class World:
    """Two processes that play when they are told, and what looks at them."""

    def __init__(self, root, stack):
        self.processes = {
            w.tag: stack.enter_context(start(w, events=300, speed=None, directory=root)) for w in (INFERENCE, ERRING)
        }
        for process in self.processes.values():
            assert process.wait_played() == 300
        self.before = self.expected()
        self.live = stack.enter_context(Live(LiveSource(SoftwareDriver(root), sample_hz=0)))

    def expected(self):
        """Each process's slab on its one device, as its script says."""
        return {tag: next(iter(p.expected().values())).copy() for tag, p in self.processes.items()}

    async def play(self, stage, events):
        """Both play so many events more; then one look."""
        for process in self.processes.values():
            process.advance(events)
        await stage.look()
        self.after = self.expected()
        self.frame = stage.app._shown

    def grown(self, tag, *names):
        """By how much counters grew over both cores of a process."""
        cores = range(8)
        return sum(self.after[tag].nc(c, n) - self.before[tag].nc(c, n) for c in cores for n in names)


@pytest.fixture
def world(root):
    with ExitStack() as stack:
        yield World(root, stack)


def scene(act=None, *, events=400):
    """Make a test of ``act(stage, world)``, in which each process has played so many events since the first look."""
    if act is None:
        return lambda act: scene(act, events=events)

    def test(world):
        async def run(stage):
            await asyncio.sleep(PERIOD_S)
            await world.play(stage, events)
            await act(stage, world)

        plays(live=world.live, size=(130, 45))(run)()

    test.__name__ = act.__name__
    return test


def row_of(stage, tag):
    return next(line for line in stage.lines("processes") if tag in line).split()


@scene
async def test_executions_and_errors_of_a_process(stage, world):
    for tag, device in (("bert-serving", 0), ("vit-erring", 1)):
        row = row_of(stage, tag)
        process = world.processes[tag]
        failed = sum(world.after[tag].nc(c, n) for c in range(8) for n in FAILURES)
        frame = next(p for p in world.frame.processes if p.pid == process.pid)
        assert row[1:3] == [str(process.pid), str(device)]
        assert row[4] == t.rate(frame.executions_s)
        assert row[7] == str(failed)
        assert frame.executions_s * period_of(world, tag) == pytest.approx(world.grown(tag, *COMPLETED), rel=1e-6)
        assert row[8] == t.size(sum(memory_of(world.after[tag])))
    assert int(row_of(stage, "vit-erring")[7]) > 0


def period_of(world, tag):
    """Seconds between the two copies of a process's slab, by which its rates are."""
    key = next(key for key, p in world.frame.look.processes.items() if p.tag == tag)
    now, before = (look.processes[key].time_ns for look in (world.frame.look, world.frame.earlier))
    return (now - before) / 1e9


def memory_of(slab):
    """Device memory by kind, over the cores."""
    return [sum(slab.counters.get(("nc", core, int(kind)), 0) for core in range(8)) for kind in DeviceMemory]


@scene(events=16)
async def test_utilization_of_the_cores(stage, world):
    for workload, device, core in CORES:
        busy_us = sum(
            world.after[workload.tag].nc(c, "time_in_use") - world.before[workload.tag].nc(c, "time_in_use")
            for c in (2 * core, 2 * core + 1)
        )
        share = min(1.0, busy_us / 2 / (period_of(world, workload.tag) * 1e6))
        line = next(line for line in stage.lines("cores") if line.startswith(f"ND{device}"))
        shown = re.findall(r"(\d+)%", line)
        assert len(shown) == 4
        assert 0 < share < 1, "too busy to tell"
        assert int(shown[core]) == pytest.approx(share * 100, abs=0.51)
        assert [n for i, n in enumerate(shown) if i != core] == ["0"] * 3


@scene
async def test_flops(stage, world):
    await stage.press("f")
    macs = world.grown("bert-serving", "mac_count"), world.grown("vit-erring", "mac_count")
    flops = [2 * n / period_of(world, w.tag) for n, w in zip(macs, (INFERENCE, ERRING), strict=True)]
    shown = float(stage.lines("cores")[0].split("total ")[1].split()[0])
    assert shown == pytest.approx(sum(flops) / 1e12, rel=0.01)


@scene
async def test_memory(stage, world):
    total = sum(sum(memory_of(slab)) for slab in world.after.values())
    device_line = next(line for line in stage.lines("memory") if line.startswith("Device mem"))
    assert device_line.split()[3] == t.size(total)
    await stage.press("2")
    slab = world.after["bert-serving"]
    shown = "".join(stage.lines("memory"))
    gauges = [slab.counters.get(("nd", c.index), 0) for c in ND if c.name == "mem_usage_tensors_host"]
    assert f"tensors {t.size(sum(gauges))}" in shown
    assert f"total {t.size(sum(memory_of(slab)))}" in shown


@scene
async def test_the_tree_has_every_model(stage, world):
    await stage.press("z", "x")
    text = stage.text("tree")
    for slab in world.after.values():
        for model in slab.models.values():
            assert f"(id {model.model_id})" in text
    sums = [line.split()[-2:] for line in stage.lines("tree") if re.match("[▼▶] ND", line)]
    assert [device for device, _ in sums] == [t.size(sum(memory_of(slab))) for slab in world.after.values()]


@scene
async def test_errors_as_they_happen(stage, world):
    """Every counter of trouble that moved is an event with its process and by how much."""
    stage.focus("events")
    await stage.press("z")
    lines = stage.lines("events")
    for c in (4, 5, 6, 7):
        for name in FAILURES:
            by = world.after["vit-erring"].nc(c, name) - world.before["vit-erring"].nc(c, name)
            found = [line for line in lines if f" NC{c // 2} " in line and f"{name} +{by}:" in line]
            assert bool(found) == bool(by), (c, name, by)
            assert all("vit-erring" in line for line in found)


@scene
async def test_every_counter_of_a_core(stage, world):
    stage.focus("cores")
    await stage.press("enter")
    pane = stage.pane("detail")
    text = "\n".join("".join(piece for piece, _ in row.line) for row in pane.block.rows)
    slab = world.after["bert-serving"]
    for physical in (0, 1):
        section = text.split(f"Physical core {physical} as bert-serving")[1].split("Physical core")[0]
        for name in ("infer_completed", "time_in_use", "inference_count", "mac_count", "latency_total"):
            line = next(line for line in section.splitlines() if line.startswith(f"{name} "))
            assert line.split()[1] == f"{slab.nc(physical, name):,}"
    assert "reserved_" not in text


@scene
async def test_a_process_in_detail(stage, world):
    await stage.press("tab", "home", "enter")
    process = world.processes["bert-serving"]
    pane = stage.pane("detail")
    text = "\n".join("".join(piece for piece, _ in row.line) for row in pane.block.rows)
    assert f"pid {process.pid}" in stage.lines("detail")[0]
    completed = sum(world.after["bert-serving"].nc(c, "infer_completed") for c in range(8))
    line = next(line for line in text.splitlines() if line.startswith("infer_completed "))
    assert line.split()[1] == f"{completed:,}"
    assert "neuron_ds.simulate" in text  # its command
    assert "runtime version" in text


@scene
async def test_who_leaves_and_who_dies(stage, world):
    world.processes["bert-serving"].end()
    world.processes["vit-erring"].kill()
    await stage.look()
    assert "bert-serving" not in stage.text("processes") + stage.text("tabs")
    assert "DEAD" in next(line for line in stage.lines("processes") if "vit-erring" in line)
    events = stage.text("events")
    assert re.search("bert-serving .* left", events)
    assert re.search("vit-erring .* died", events)
