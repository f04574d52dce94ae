"""Traces: what Perfetto's own message classes, and a JSON parser, read back is what was in the slabs."""

import io
import json
from collections import defaultdict
from itertools import pairwise

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as proto

from neuron_ds.export import export
from neuron_ds.record import Recording
from neuron_ds.snapshot import Snapshot
from tests.recordings import START_US, record, three_ends

Event = proto.TrackEvent


class Read:
    """A trace as its parser sees it, with names for numbers. counters: {(process, track): [(ns, value)]}."""

    def __init__(self) -> None:
        self.counters = defaultdict(list)
        self.begun: list[tuple[str, str, int, str, dict]] = []  # process, track, ns, name, arguments
        self.ended: list[tuple[str, str, int]] = []
        self.instants: list[tuple[str, str, int, str, dict]] = []

    def at(self, process: str, track: str, time_ns: int):
        """What a viewer shows at a time."""
        return [value for when, value in self.counters[process, track] if when <= time_ns][-1]


def perfetto(data: bytes) -> Read:
    trace, read, tracks, processes = proto.Trace(), Read(), {}, {}
    trace.ParseFromString(data)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            if d.HasField("process"):
                processes[d.uuid] = d.process.process_name
            else:
                assert d.parent_uuid in processes
                assert d.uuid not in tracks
                tracks[d.uuid] = (processes[d.parent_uuid], d.name, d.HasField("counter"))
        elif packet.HasField("track_event"):
            e = packet.track_event
            process, name, is_counter = tracks[e.track_uuid]
            assert is_counter == (e.type == Event.TYPE_COUNTER)
            known = {a.name: getattr(a, a.WhichOneof("value")) for a in e.debug_annotations}
            if e.type == Event.TYPE_COUNTER:
                which = e.WhichOneof("counter_value_field")
                read.counters[process, name].append((packet.timestamp, getattr(e, which)))
            elif e.type == Event.TYPE_SLICE_BEGIN:
                read.begun.append((process, name, packet.timestamp, e.name, known))
            elif e.type == Event.TYPE_SLICE_END:
                read.ended.append((process, name, packet.timestamp))
            else:
                read.instants.append((process, name, packet.timestamp, e.name, known))
    return read


def chrome(data: bytes) -> Read:
    read, processes, threads = Read(), {}, {}
    for e in json.loads(data)["traceEvents"]:
        if e["ph"] == "M":
            if e["name"] == "process_name":
                processes[e["pid"]] = e["args"]["name"]
            elif e["name"] == "thread_name":
                threads[e["pid"], e["tid"]] = e["args"]["name"]
            continue
        process, ns = processes[e["pid"]], round(e["ts"] * 1000)
        if e["ph"] == "C":
            read.counters[process, e["name"]].append((ns, e["args"]["value"]))
            continue
        thread = threads[e["pid"], e["tid"]]
        if e["ph"] == "B":
            read.begun.append((process, thread, ns, e["name"], e["args"]))
        elif e["ph"] == "E":
            read.ended.append((process, thread, ns))
        else:
            assert e["ph"] == "i"
            read.instants.append((process, thread, ns, e["name"], e["args"]))
    return read


PARSERS = {"perfetto": perfetto, "trace": chrome}


@pytest.fixture(params=PARSERS)
def read(request, recording) -> Read:
    out = io.BytesIO()
    export(recording, request.param, out)
    return PARSERS[request.param](out.getvalue())


def process_of(read: Read, part: str) -> str:
    (name,) = {process for process, _ in read.counters if part in process}
    return name


def test_counter_tracks_match_the_slabs(read, made):
    times = sorted(made.slabs)
    for device, part in ((0, "serve"), (1, "erring")):
        process = process_of(read, part)
        for before, after in pairwise(times):
            old, new = (Snapshot.from_bytes(made.slabs[t][device]) for t in (before, after))
            seconds = (after - before) / 1e9
            for core in (0, 1):
                a, b, place = old.core(core), new.core(core), f"device {device} core {core}"
                busy = min(100.0, 100 * (b.time_in_use - a.time_in_use) / (seconds * 1e6))
                assert read.at(process, f"{place} utilization %", before) == pytest.approx(busy, abs=0.001)
                done = sum(
                    getattr(b, n) - getattr(a, n)
                    for n in ("infer_completed", "infer_completed_with_err", "infer_completed_with_num_err")
                )
                assert read.at(process, f"{place} executions 1/s", before) == pytest.approx(done / seconds, abs=0.001)
                if done:
                    assert read.at(process, f"{place} latency us", after) == b.latency_total
                if after != times[-1]:  # there it ends
                    used = sum(v for n, v in b.items() if n.startswith("mem_usage_"))
                    assert read.at(process, f"{place} memory bytes", after) == used


def test_what_has_ended_counts_nothing_any_more(read):
    for (_, track), values in read.counters.items():
        if not track.endswith("latency us"):
            assert values[-1][1] == 0, track


def test_a_value_that_stays_is_not_told_again(read):
    for values in read.counters.values():
        assert all(a[1] != b[1] for a, b in pairwise(values))
        assert [t for t, _ in values] == sorted(t for t, _ in values)


def test_models_are_slices_from_load_to_unload(read, made):
    process = process_of(read, "serve")
    times = sorted(made.slabs)
    there: dict[int, set[tuple[str, int]]] = {
        t: {(m.name, m.nc_index) for m in Snapshot.from_bytes(made.slabs[t][0]).models.values()} for t in times
    }
    begun = [(track, ns, name, args) for p, track, ns, name, args in read.begun if p == process and "models" in track]
    first = {(name, args["core"]): ns for _, ns, name, args in reversed(begun)}
    assert first == {model: min(t for t in times if model in there[t]) for model in set().union(*there.values())}
    assert len({name for name, _ in first}) > 1  # it was deployed anew
    ended = [(track, ns) for p, track, ns in read.ended if p == process and "models" in track]
    assert len(ended) == len(begun)
    for track in {track for track, *_ in begun}:  # slices of one track don't overlap
        starts = sorted(ns for t, ns, *_ in begun if t == track)
        ends = sorted(ns for t, ns in ended if t == track)
        assert all(a <= b for a, b in zip(starts, ends, strict=True))
        assert all(b <= a for a, b in zip(starts[1:], ends, strict=False))


def test_errors_are_instants_and_add_up(read, made):
    process = process_of(read, "erring")
    found = defaultdict(int)
    for p, _, _, name, args in read.instants:
        if p == process:
            found[args["core"], name] += args["errors"]
    times = sorted(made.slabs)
    first, last = (Snapshot.from_bytes(made.slabs[t][1]) for t in (times[0], times[-1]))
    quiet = {"time_in_use", "infer_completed", "model_load_count", "inference_count", "mac_count"}
    expected = {}
    for core in (0, 1):
        for name, value in last.core(core).items():
            grown = value - getattr(first.core(core), name)
            last_value = name in ("latency_device", "latency_total", "nc_time", "cc_time")
            if grown and name not in quiet and not last_value and not name.startswith("mem_usage"):
                expected[core, name] = grown
    assert len(expected) > 5
    assert dict(found) == expected


def test_every_process_has_its_life_as_a_slice(read, made):
    lives = {(track, name) for _, track, _, name, _ in read.begun if name == "publishes"}
    assert lives == {(f"device {d} slot 0", "publishes") for d in range(3)}
    assert len(read.begun) == len(read.ended)


def test_the_clocks_are_told(recording, made):
    out = io.BytesIO()
    export(recording, "perfetto", out)
    trace = proto.Trace()
    trace.ParseFromString(out.getvalue())
    (clocks,) = (p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot"))
    at = {c.clock_id: c.timestamp for c in clocks.clocks}
    assert at[1] - at[6] == made.wall_offset_ns  # REALTIME and BOOTTIME, as Perfetto numbers them
    out = io.BytesIO()
    export(recording, "trace", out)
    assert json.loads(out.getvalue())["otherData"]["wall_offset_ns"] == made.wall_offset_ns


@pytest.mark.parametrize("form", PARSERS)
def test_gaps_late_ticks_and_marks_are_on_the_recordings_own_track(form, root, tmp_path):
    made = record(
        str(tmp_path / "a.mcap"),
        root,
        {"inference": {}},
        4,
        rate_hz=10,
        without=(10, 11, 12),
        late={20: (5000, 2)},
    )
    out = io.BytesIO()
    with Recording(made.path) as recording:
        export(recording, form, out)
    read = PARSERS[form](out.getvalue())
    ((_, _, ns, _, _),) = [b for b in read.begun if b[3] == "no ticks"]
    assert ns == START_US * 1000 + 900_000_000
    ((_, _, ns, _, args),) = [i for i in read.instants if i[3] == "late ticks"]
    assert ns == START_US * 1000 + 2_005_000_000
    assert (args["late"], args["worst_us"], args["missed"]) == (1, 5000, 2)


@pytest.mark.parametrize("form", PARSERS)
def test_processes_end_as_they_ended(form, root, tmp_path):
    path, out = str(tmp_path / "a.mcap"), io.BytesIO()
    three_ends(path, root)
    with Recording(path) as recording:
        export(recording, form, out)
    read = PARSERS[form](out.getvalue())
    first = min(ns for _, _, ns, _, _ in read.begun)
    ends = {process.split(" ")[0]: (ns - first) / 1e9 for process, _, ns in read.ended}
    assert ends["stays"] == 5
    assert 1 <= ends["leaves"] <= 2
    ((process, _, ns, _, _),) = [i for i in read.instants if i[3] == "died"]
    assert process.startswith("dies")
    assert 3 <= (ns - first) / 1e9 <= 4
    (memory,) = [v for (p, track), v in read.counters.items() if p == process and track.endswith("core 0 memory bytes")]
    assert memory[-1][1] == 0
