"""What was recorded comes back: byte for byte, at every tick, with who had it and how it was read."""

import json
import os
import time

import pytest

from neuron_ds.datastore import attach, publish
from neuron_ds.errors import BadValue
from neuron_ds.layout import model_offset
from neuron_ds.rates import deltas
from neuron_ds.record import Recording
from neuron_ds.record import format as f
from neuron_ds.record.container import Message
from neuron_ds.record.player import Player
from neuron_ds.records import ModelNode
from neuron_ds.snapshot import RecordState
from tests.record.conftest import Clock, other_process, play_some, workload


def raws(recording, **more):
    """Of every tick the slabs in it, in the order of their owners."""
    return [[bytes(p.snapshot.raw) for p in s.processes if p.snapshot] for s in recording.samples(**more)]


def test_a_seeded_simulation_comes_back_byte_for_byte_at_every_tick(taping, producer):
    tape, events = taping(keyframe_s=0.2, now_ns=Clock()), workload(rate=500)
    for i in range(700):
        play_some(producer, events, i % 3)
        tape.tick()
        assert tape.raws[-1] == {0: bytes(producer.snapshot().raw)}
    with tape.read() as recording:
        assert recording.damage == ()
        assert raws(recording) == [[tick[0]] for tick in tape.raws]
        assert [s.time_ns for s in recording.samples()] == tape.times_ns
        assert (recording.start_ns, recording.end_ns) == (tape.times_ns[0], tape.times_ns[-1])
        assert recording.counts == f.Counts(ticks=700)
        for at in (0, 1, 199, 200, 201, 450, 699):  # also right before and behind a keyframe
            sample = next(recording.samples(tape.times_ns[at]))
            assert sample.time_ns == tape.times_ns[at]
            assert bytes(sample.processes[0].snapshot.raw) == tape.raws[at][0]
        assert len(raws(recording, start_ns=tape.times_ns[690], end_ns=tape.times_ns[692])) == 3
        assert raws(recording, start_ns=recording.end_ns + 1) == []


def test_models_come_and_go(taping, producer):
    tape = taping()
    model = producer.add_model(ModelNode.build(model_id=1, name="a"))
    tape.tick()
    model.update(ModelNode.build(model_id=2, name="b"))
    tape.tick()
    model.delete()
    tape.tick()
    with tape.read() as recording:
        snapshots = [s.processes[0].snapshot for s in recording.samples()]
        assert [{k: m.name for k, m in s.models.items()} for s in snapshots] == [{0: "a"}, {0: "b"}, {}]
        assert [s.state(0) for s in snapshots] == [RecordState.EXACT, RecordState.EXACT, RecordState.ABSENT]
        assert [s.tag for s in snapshots] == ["serving"] * 3


def test_a_record_caught_in_the_middle_is_told_as_it_was(taping, producer):
    """The raw words are the torn ones; what is shown is the earlier copy, as a reader that was there would show."""
    producer.add_model(ModelNode.build(model_id=1, name="good"))
    mapping = producer._lease.mapping
    at = model_offset(0) // 8 + 5
    tape = taping(keyframe_s=0.02, now_ns=Clock())
    tape.tick()
    good = mapping.load(at)
    mapping.store(at, good ^ 1)
    for _ in range(150):  # as long as a keyframe waits, and longer
        tape.tick()
    mapping.store(at, good)
    tape.tick()
    with tape.read() as recording:
        snapshots = [s.processes[0].snapshot for s in recording.samples()]
        states = [s.state(0) for s in snapshots]
        assert states == [RecordState.EXACT, *[RecordState.STALE] * 150, RecordState.EXACT]
        assert {s.model(0).name for s in snapshots} == {"good"}
        assert raws(recording) == [[tick[0]] for tick in tape.raws]
        late = next(recording.samples(tape.times_ns[149])).processes[0].snapshot
        assert late.state(0) in (RecordState.STALE, RecordState.TORN)
        assert bytes(late.raw) == tape.raws[149][0]
        assert (late.model(0) is None) == (late.state(0) == RecordState.TORN)


def test_counters_that_wrap_and_fall(taping, producer):
    counter = producer.core(0).inference_count
    tape, wanted = taping(), [2**64 - 1, 0, 5, 4, 2**63, 2**63 - 1, 0]
    for value in wanted:
        counter.set(value)
        tape.tick()
    with tape.read() as recording:
        assert [s.processes[0].snapshot.core(0).inference_count for s in recording.samples()] == wanted


def test_a_process_that_comes_and_one_that_goes(taping, producer, root):
    tape = taping(now_ns=Clock(60_000))  # the owners are looked at with every second tick
    for _ in range(4):
        tape.tick()
    with other_process(root) as other:
        for n in range(1, 6):
            other.ask(n)
            tape.tick()
        pid = other.pid
        other.ask(None)
        tape.tick()
        assert list(tape.raws[-1]) == [0], "seen at the very tick: its slab was given away"
        for _ in range(3):
            tape.tick()
    with tape.read() as recording:
        seen = [[p.owner.pid for p in s.processes] for s in recording.samples()]
        first = seen.index([producer.pid, pid])
        assert 4 <= first <= 6
        assert seen[first:9] == [[producer.pid, pid]] * (9 - first)
        assert seen[9:] == [[producer.pid]] * 4
        counts = [s.processes[1].snapshot.core(0).inference_count for s in recording.samples() if len(s.processes) > 1]
        assert counts == [1, 3, 6, 10, 15][first - 4 :], "each tick has what was added before it"
        assert [s.devices[0].slots_used for s in recording.samples()] == [len(pids) for pids in seen]


def test_a_slot_that_another_process_takes(taping, root, driver):
    driver.probe(0)
    tape = taping(now_ns=Clock(110_000))
    owners = []
    for n in (3, 4):
        with other_process(root, f"number-{n}") as process:
            process.ask(n)
            for _ in range(3):
                tape.tick()
            owners.append(process.pid)
            process.kill()
            process.wait()
            for _ in range(3):
                tape.tick()
        with publish(0, driver=driver):  # recovers the slot
            pass
        for _ in range(14):  # until every slot was used once
            with publish(0, driver=driver):
                pass
    tape.tick()
    with tape.read() as recording:
        shown, places = {}, set()
        for sample in recording.samples():
            for p in sample.processes:
                if p.snapshot:
                    assert p.snapshot.tag == ("number-3" if p.owner.pid == owners[0] else "number-4")
                    shown[p.owner.pid] = p.snapshot.core(0).inference_count
                    places.add((p.owner.slot, p.owner.generation))
                else:
                    assert "died" in p.error
        assert shown == {owners[0]: 3, owners[1]: 4}
        assert places == {(0, 1), (0, 3)}, "the very slot, in another generation"


def test_only_what_was_asked_for(taping, producer, driver, root):
    driver.probe(1)
    with other_process(root) as other, publish(1, driver=driver):
        by_pid = taping("pid.mcap", pids=[other.pid])
        by_device = taping("device.mcap", devices=[1])
        for tape in (by_pid, by_device):
            tape.tick()
    with by_pid.read() as recording:
        sample = next(recording.samples())
        assert [p.owner.pid for p in sample.processes] == [other.pid]
        assert [d.slots_used for d in sample.devices] == [2, 1]
    with by_device.read() as recording:
        sample = next(recording.samples())
        assert [d.device for d in sample.devices] == [1]
        assert [p.owner.device for p in sample.processes] == [1]


def test_who_was_there_is_told_as_nobody_here_can_know(taping, producer):
    producer.core(2).mac_count.add(41)
    tape = taping()
    tape.tick()
    with tape.read() as recording:
        sample = next(recording.samples())
        owner = sample.processes[0].owner
        assert (owner.pid, owner.foreign, owner.alive, owner.slot) == (producer.pid, True, True, 0)
        assert "pytest" in owner.who.command
        assert 0 <= owner.age_s < 100
        assert recording.devices == (producer.properties,)
        assert recording.session.driver == "software"
        assert recording.session.period_us == 1000
        assert abs(recording.wall_start_ns - time.time_ns()) < 60e9
        assert sample.devices[0].totals.core(2)["mac_count"] == 41


def test_totals_follow(taping, producer):
    tape = taping(now_ns=Clock(400_000), keyframe_s=3)
    for _ in range(20):
        producer.core(0).inference_count.add(1)
        tape.tick()
    with tape.read() as recording:
        counts = [s.devices[0].totals.core(0)["inference_count"] for s in recording.samples()]
        assert counts == sorted(counts)
        assert len(set(counts)) > 5
        later = list(recording.samples(tape.times_ns[12]))
        assert [s.devices[0].totals.core(0)["inference_count"] for s in later] == counts[12:]


def test_late_and_missed_ticks_are_recorded(taping, producer):
    tape = taping(now_ns=Clock())
    tape.tick()
    tape.tick(due_us=tape.recorder.last_us + 1000)
    tape.tick(due_us=tape.recorder.last_us + 1000 - 1000)
    tape.tick(due_us=tape.recorder.last_us + 1000 - 999)
    tape.tick(due_us=tape.recorder.last_us + 1000, missed=7)
    with tape.read() as recording:
        found = [(m.late_us, m.missed) for _, m in recording.moments()]
        assert found == [(0, 0), (0, 0), (1000, 0), (0, 0), (0, 7)]
        assert recording.counts == f.Counts(ticks=5, late=1, missed=7)


def test_samples_at_a_step(taping, producer):
    tape = taping(now_ns=Clock())
    for _ in range(1000):
        tape.tick()
    with tape.read() as recording:
        times = [s.time_ns - recording.start_ns for s in recording.samples(every_ns=100_000_000)]
        assert times == [100_000_000 * i for i in range(10)]


def test_differences_between_samples_are_those_of_live_ones(taping, producer, driver):
    from neuron_ds.collect import Collector

    tape, events, live = taping(), workload(), []
    with Collector(driver) as collector:
        for _ in range(5):
            play_some(producer, events, 40)
            live.append(collector.collect())
            tape.tick()
    with tape.read() as recording:
        samples = list(recording.samples())
        for i in range(1, 5):
            now, then = (next(iter(deltas(s[i - 1], s[i]).values())) for s in (live, samples))
            for core in range(8):
                assert now.nc_rows(core) == then.nc_rows(core)
            assert abs(now.period_s - then.period_s) < 0.5
            assert not then.is_new


def test_what_is_not_read_says_why(taping, producer, driver, root):
    with other_process(root) as other:
        tape = taping(now_ns=Clock(110_000))
        with attach(other.pid, 0, driver=driver):
            tape.tick()
        other.kill()
        other.wait()
        for _ in range(3):
            tape.tick()
    with tape.read() as recording:
        *_, last = recording.samples()
        dead = next(p for p in last.processes if p.owner.pid == other.pid)
        assert dead.snapshot is None
        assert dead.owner.alive is False
        assert "died" in dead.error


def test_no_device_and_one_that_comes(taping, driver):
    tape = taping(now_ns=Clock(1_100_000))
    tape.tick()
    driver.probe(0)
    tape.tick()
    tape.tick()
    with tape.read() as recording:
        first, *_, last = [len(s.devices) for s in recording.samples()]
        assert (first, last) == (0, 1)


def test_rates_that_cannot_be(taping, driver):
    driver.probe(0)
    for rate in (0.5, 1001):
        with pytest.raises(BadValue, match="1 to 1000"):
            taping(f"{rate}.mcap", rate_hz=rate)


def test_worlds_are_json_that_survives_anything(producer):
    world = f.World(1, f.Session("software", 1000, 5), mark="x")
    assert f.World.from_json(world.to_json()) == world
    newer = json.loads(world.to_json()) | {"more": 1}
    newer["session"]["more"] = 2
    assert f.World.from_json(json.dumps(newer).encode()) == world
    for nonsense in (b"", b"[]", b"{}", b"\xff", b'{"time_us": "x"}', b"null", b"[" * 100_000):
        with pytest.raises(f.FormatError):
            f.World.from_json(nonsense)


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("session", "period_us", "x"),
        ("session", "period_us", None),
        ("counts", "late", 1.5),
        ("devices", "device", 64),
        ("devices", "properties", 5),
        ("owners", "track", -1),
        ("owners", "acquired_us", "x"),
        ("owner", "slot", 16),
        ("owner", "pid", "1"),
        ("owner", "namespace", "1"),
        ("owner", "namespace", 1 << 64),
        ("owner", "who", []),
        ("properties", "cores", 10**9),
        ("properties", "logical_config", 0),
        ("properties", "path", None),
    ],
)
def test_worlds_that_cannot_be(taping, producer, where, key, value):
    tape = taping()
    tape.tick()
    world = json.loads(tape.recorder.world.to_json())
    (device,), (owner,) = world["devices"], world["owners"]
    places = {"devices": device, "owners": owner, "owner": owner["owner"], "properties": device["properties"]}
    assert f.World.from_json(json.dumps(world).encode()) == tape.recorder.world
    places.get(where, world.get(where))[key] = value
    with pytest.raises(f.FormatError, match="can't be read"):
        f.World.from_json(json.dumps(world).encode())


def test_a_world_of_an_older_recorder_knows_no_namespace(taping, producer):
    tape = taping()
    tape.tick()
    world = json.loads(tape.recorder.world.to_json())
    assert world["owners"][0]["owner"].pop("namespace") == os.stat("/proc/self/ns/pid").st_ino
    (recorded,) = f.World.from_json(json.dumps(world).encode()).owners
    assert (recorded.owner.pid, recorded.owner.namespace) == (producer.pid, None)


def test_a_player_is_lost_without_a_keyframe_and_found_with_one(taping, producer):
    tape = taping(now_ns=Clock(), keyframe_s=1)
    for _ in range(2500):
        producer.core(0).inference_count.add(1)
        tape.tick()
    with tape.read() as recording:
        file = recording._file
        messages = [m for i in range(len(file.spans)) for m in file.messages(i)]
        gap = next(i for i, m in enumerate(messages) if m.kind == f.TICKS) + 3
        player = Player()
        player.begin()
        seen = []
        for message in messages[:gap] + messages[gap + 1 :]:
            for _ in player.feed(message):
                seen.append(player.moment)
        at = {m.time_ns for m in seen if m}
        keyframe = next(m for m in messages[gap:] if m.kind == f.KEYFRAME)
        missing = [t for t in tape.times_ns[:-1] if t not in at]
        assert missing
        assert max(missing) <= f.read_number(keyframe.data, 0)[0] * 1000
        assert bytes(player.tracks[0].raw)[:8] == tape.raws[-1][0][:8]


def test_messages_of_another_kind_are_refused():
    with pytest.raises(f.FormatError, match="version 1"):
        f.kind_of("neuron_ds.ticks.v9")
    with pytest.raises(f.FormatError, match="no recording"):
        f.kind_of("sensor_msgs/Image")
    player = Player()
    player.begin()
    with pytest.raises(f.FormatError, match="no sense"):
        list(player.feed(Message(f.TICKS, 0, 0, b"\x80")))


def test_a_file_is_what_other_readers_expect(taping, producer):
    """The library's own reader, with its index, finds our messages under their names."""
    from mcap.reader import make_reader

    tape = taping(now_ns=Clock())
    for _ in range(1500):
        tape.tick()
    tape.end()
    with open(tape.path, "rb") as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        assert [c.topic for c in summary.channels.values()] == [f"/neuron_ds/{k}" for k in f.SCHEMAS]
        assert {s.name for s in summary.schemas.values()} == {f"neuron_ds.{k}.v1" for k in f.SCHEMAS}
        assert len(summary.chunk_indexes) >= 2
        kinds = [c.topic for _, c, _ in reader.iter_messages()]
        assert kinds.count("/neuron_ds/ticks") >= 15
    assert Recording.open(tape.path).counts.ticks == 1500
