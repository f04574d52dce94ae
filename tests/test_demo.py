"""The demonstration as values: what a monitor sees before and after a kill, and how rates come from two snapshots.

Knows demo and the readers' API; how a scene is drawn is tested with the command.
"""

import os

import pytest

from neuron_ds import layout
from neuron_ds.demo import CoreUse, Demo, core_uses
from neuron_ds.records import ModelNode
from neuron_ds.runtime import Status
from neuron_ds.snapshot import Snapshot


def snapshot(time_us: int, model: ModelNode | None = None, **counters: int) -> Snapshot:
    """A slab whose core 2 has these counters."""
    data = bytearray(layout.HEADER_WORD.to_bytes(8, "little").ljust(layout.REQUIRED_SIZE, b"\0"))
    for name, value in counters.items():
        at = layout.nc_index(2, layout.NC_BY_NAME[name].index) * 8
        data[at : at + 8] = value.to_bytes(8, "little")
    if model is not None:
        data[layout.MODEL_BITMAP.offset] = 1
        data[layout.MODELS.offset : layout.MODELS.offset + layout.MODEL_SIZE] = model.raw
    return Snapshot(bytes(data), time_ns=time_us * 1000)


def test_rates_are_differences_over_the_time_between_two_snapshots():
    before = snapshot(1_000_000, time_in_use=100, infer_completed=10)
    now = snapshot(
        3_000_000,
        time_in_use=500_100,
        infer_completed=29,
        infer_timed_out=1,
        latency_total=777,
        mem_usage_code_device=5,
        mem_usage_tensors_device=6,
    )
    assert core_uses(before, now) == (CoreUse(2, 0.25, 10.0, 777, 1, 11, ()),)


def test_the_first_look_has_no_rates():
    (use,) = core_uses(None, snapshot(1, infer_completed=10))
    assert (use.busy, use.executions_s) == (None, None)


def test_a_core_that_never_did_anything_is_not_shown_unless_a_model_is_on_it():
    assert core_uses(None, snapshot(1)) == ()
    (use,) = core_uses(None, snapshot(1, ModelNode.build(model_id=1, name="bert", nc_index=9)))
    assert (use.core, use.models, use.idle) == (9, ("bert",), True)


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.SUCCESS])
def test_every_other_ending_is_an_error(status):
    (use,) = core_uses(None, snapshot(1, time_in_use=1, **{layout.NC[status].name: 3}))
    assert use.errors == 3


def test_a_producer_is_killed_and_its_slot_recovered(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Demo(2.0) as stage:
        (directory,) = os.listdir(tmp_path)
        assert os.stat(tmp_path / directory).st_mode & 0o777 == 0o700
        scenes = list(stage.scenes(0.25))
        victim = stage.producers[0]
        slots = {(device, slot) for device, slot in victim.slots.items()}
    assert os.listdir(tmp_path) == []
    first, last = scenes[0], scenes[-1]
    held = [{(p.device, p.slot): p for p in scene.processes} for scene in scenes]
    assert all(not p.note for p in first.processes)
    dead = [i for i, processes in enumerate(held) if any(processes[at].note for at in slots if at in processes)]
    assert dead
    for processes in held[dead[0] : dead[-1]]:
        assert all(processes[at].cores == () and processes[at].tag == victim.tag for at in slots)
    assert not slots & set(held[-1]) or all(held[-1][at].pid != victim.pid for at in slots & set(held[-1]))
    assert len({p.pid for p in last.processes}) == len({p.pid for p in first.processes})
    assert any("kill -9" in event for event in last.events)
    assert any("recovered" in event for event in last.events)
    assert any(core.executions_s for p in last.processes for core in p.cores)


def test_a_demo_that_cannot_start_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("neuron_ds.demo.DEMO", ("nonsense",))
    with pytest.raises(OSError, match="nonsense"), Demo(1.0):
        raise AssertionError("it has started")
    assert os.listdir(tmp_path) == []
