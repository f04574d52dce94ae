"""A description of what was there that made no sense ended in an AssertionError or OverflowError; numbers that no host
has (a pid of 10^30) went on to where they did not fit."""

import json

import pytest

from neuron_ds.errors import FormatError
from neuron_ds.record import Recording
from neuron_ds.record import format as f
from neuron_ds.record.container import File, FileSink
from tests.record.conftest import Clock


def rewritten(path: str, change, *, first_only: bool = False) -> str:
    """A copy of a recording whose worlds were changed."""
    file, sink = File(path), FileSink(f"{path}.changed", compression="none")
    left = 1 if first_only else 1 << 30
    for index in range(len(file.spans)):
        for m in file.messages(index):
            data = m.data
            if m.kind == f.WORLD and left:
                world = json.loads(data)
                change(world)
                data, left = json.dumps(world).encode(), left - 1
            sink.put(m.kind, m.log_ns, m.log_ns, data)
        sink.flush()
    file.close()
    sink.close()
    return f"{path}.changed"


def put(*keys):
    """A change: the value at the end of these keys becomes the last of them."""
    *way, key, value = keys

    def change(world) -> None:
        for step in way:
            world = world[step]
        world[key] = value

    return change


@pytest.fixture
def path(driver, producer, taping) -> str:
    tape = taping(keyframe_s=0.2, now_ns=Clock())
    for _ in range(900):
        tape.tick()
    tape.end()
    return tape.path


@pytest.mark.parametrize(
    "change",
    [
        put("time_us", float("inf")),
        put("time_us", "soon"),
        put("session", "wall_offset_ns", 10**30),
        put("session", "period_us", 0),
        put("counts", "ticks", 10**400),
        put("owners", 0, "owner", "pid", 10**30),
        put("owners", 0, "owner", "pid", -1),
        put("owners", 0, "owner", "generation", 1 << 63),
        put("owners", 0, "acquired_us", 10**400),
        put("devices", 0, "slots_used", -1),
        put("devices", 0, "device", 10**9),
        put("devices", 0, "properties", "cores", "many"),
    ],
)
def test_it_is_a_format_error(path, change):
    with pytest.raises(FormatError, match="can't be read"):
        Recording(rewritten(path, change))


def test_a_first_world_that_makes_no_sense_is_damage(path):
    with Recording(path) as whole, Recording(rewritten(path, put("devices", 5), first_only=True)) as recording:
        samples = list(recording.samples())
        assert samples, "the next keyframe has a world of its own"
        assert whole.start_ns < recording.start_ns == samples[0].time_ns
        assert all(p.owner.pid for s in samples for p in s.processes)
        assert "can't be read" in recording.damage[0]
