"""The data of a report is what was in the slabs."""

import json
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise

import pytest

from neuron_ds.datastore import publish
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import FormatError
from neuron_ds.record import Recorder, Recording
from neuron_ds.record.container import FileSink
from neuron_ds.report import columns as c
from neuron_ds.report import survey
from neuron_ds.report.columns import Columns, Levels
from neuron_ds.report.reading import _Survey
from neuron_ds.snapshot import Snapshot
from tests.recordings import START_US, record, three_ends

START_NS = START_US * 1000


def shots(made, device: int) -> dict[float, Snapshot]:
    """By seconds since the start, to the tick."""
    return {(time_ns - START_NS) / 1e9: Snapshot.from_bytes(slabs[device]) for time_ns, slabs in made.slabs.items()}


def test_utilization_of_each_core_at_each_second(made, data):
    assert (data["columns"]["count"], data["columns"]["width_s"]) == (40, 1.0)
    assert [(core["device"], core["core"]) for core in data["cores"]] == [(d, n) for d in range(4) for n in range(2)]
    for core in data["cores"]:
        at = shots(made, core["device"])
        for second in range(19):
            grown = at[second + 1].core(core["core"]).time_in_use - at[second].core(core["core"]).time_in_use
            assert core["utilization"][second] == pytest.approx(min(1.0, grown / 1e6), abs=1e-4)
            done = at[second + 1].core(core["core"]).infer_completed - at[second].core(core["core"]).infer_completed
            if core["device"] == 0:
                assert core["executions_s"][second] == done


def test_a_gap_is_told_and_nothing_is_known_of_it(data):
    assert data["recording"]["gaps"] == [{"from_s": 20.0, "to_s": 26.0}]
    assert data["columns"]["blank"] == [20, 21, 22, 23, 24, 25]
    for core in data["cores"]:
        assert core["utilization"][20:26] == [None] * 6
        assert None not in core["utilization"][:20]


def test_late_ticks_are_told(made, data):
    r = data["recording"]
    assert (r["ticks"], r["late"], r["worst_late_us"], r["missed"]) == (len(made.slabs), 1, 40_000, 1)


def test_executions_add_up_across_the_gap(made, data):
    at = shots(made, 0)
    (life,) = [p for p in data["processes"] if p["device"] == 0]
    done = sum(at[40.0].core(n).infer_completed - at[0.0].core(n).infer_completed for n in (0, 1))
    assert life["executions"] == done == sum(core["executions"] for core in data["cores"] if core["device"] == 0)


def test_errors_by_counter_and_core(made, data):
    at = shots(made, 1)
    (life,) = [p for p in data["processes"] if p["device"] == 1]
    found = {(e["core"], e["counter"]): e["errors"] for e in life["errors"]}
    assert len(found) > 20
    for (core, counter), errors in found.items():
        assert errors == getattr(at[40.0].core(core), counter) - getattr(at[0.0].core(core), counter)


def test_memory_is_the_highest_of_each_second(made, data):
    at = shots(made, 0)
    for second in range(19):
        used = [
            sum(v for core in (0, 1) for n, v in at[s].core(core).items() if n.startswith("mem_usage"))
            for s in (second, second + 1)
        ]
        assert data["devices"][0]["used_bytes"][second] in (used[1], max(used))


def test_latencies_are_those_of_the_last_executions(made, data):
    at, ticks = shots(made, 0), sorted(shots(made, 0))
    values = sorted(
        at[b].core(core).latency_total
        for a, b in pairwise(ticks)
        for core in (0, 1)
        if at[b].core(core).infer_completed > at[a].core(core).infer_completed
    )
    (life,) = [p for p in data["processes"] if p["device"] == 0]
    found = life["latency_total_us"]
    assert found["looks"] == len(values)
    for percent in (1, 25, 50, 75, 99, 100):
        exact = values[max(0, -(-percent * len(values) // 100) - 1)]
        assert found[f"p{percent}"] == pytest.approx(exact, rel=0.01)


def test_findings_have_their_time_and_place(data):
    hung = [f for f in data["findings"] if f["kind"] == "hung-core"]
    assert {(f["device"], f["core"]) for f in hung} == {(2, 0), (2, 1)}
    assert all(8 <= f["from_s"] <= 12 and f["to_s"] is None for f in hung)
    assert {f["device"] for f in data["findings"] if f["kind"] == "error-burst"} == {1}
    assert [f["severity"] for f in data["findings"]] == sorted(
        (f["severity"] for f in data["findings"]), key=["critical", "warning", "info"].index
    )


def test_what_processes_wrote_is_printable(data):
    text = json.dumps([p["tag"] for p in data["processes"]], ensure_ascii=False)
    assert "\x1b" not in text
    assert len(data["processes"]) == 4


def test_lives_end_as_they_ended(root, tmp_path):
    path = str(tmp_path / "a.mcap")
    three_ends(path, root)
    with Recording(path) as recording:
        ended = {p["tag"]: p for p in survey(recording)["processes"]}
    assert {tag: p["end"] for tag, p in ended.items()} == {
        "stays": "there at the end",
        "leaves": "released",
        "dies": "died",
    }
    assert ended["leaves"]["to_s"] <= 2
    assert ended["dies"]["died_s"] in (3.0, 4.0)


def test_who_comes_in_between_started_from_zero(root, tmp_path):
    path = str(tmp_path / "a.mcap")
    driver, now_ns, sink = SoftwareDriver(root), START_NS, FileSink(path)
    driver.probe(0)
    with ExitStack() as stack:
        recorder = stack.enter_context(Recorder(sink, driver, rate_hz=1, now_ns=lambda: now_ns))
        for tick in range(4):
            if tick == 2:
                producer = stack.enter_context(publish(0, driver=driver, tag="new"))
                producer.core(1).infer_completed.add(5)
            now_ns += 10**9
            recorder.tick()
        recorder.finish()
    sink.close()
    with Recording(path) as recording:
        (life,) = survey(recording)["processes"]
    assert life["executions"] == 5
    assert life["latency_total_us"]["looks"] == 1


def test_an_empty_recording(root, tmp_path):
    made = record(str(tmp_path / "a.mcap"), root, {}, 3)
    with Recording(made.path) as recording:
        found = survey(recording)
    assert found["processes"] == found["cores"] == found["findings"] == []
    assert found["recording"]["ticks"] == 4


def test_a_time_that_can_not_be_is_an_error_of_ours(made):
    with Recording(made.path) as recording:
        recording.session = replace(recording.session, wall_offset_ns=10**22)
        with pytest.raises(FormatError, match="holds a number that can't be"):
            survey(recording)


def test_a_part_of_the_time(made):
    with Recording(made.path) as recording:
        found = survey(recording, start_ns=START_NS + 5 * 10**9, end_ns=START_NS + 9 * 10**9)
    assert found["recording"]["seconds"] == 4
    assert found["recording"]["ticks"] == 5


def test_however_many_processes_come_the_data_stay_bounded(made, monkeypatch):
    monkeypatch.setattr("neuron_ds.report.reading.MOST_LIVES", 2)
    monkeypatch.setattr("neuron_ds.report.reading.MOST_SERIES", 1)
    monkeypatch.setattr("neuron_ds.report.reading.MOST_FINDINGS", 1)
    with Recording(made.path) as recording:
        found = survey(recording)
    assert (len(found["processes"]), found["processes_left_out"]) == (2, 2)
    assert sum(p["series"] is not None for p in found["processes"]) == 1
    assert len(found["findings"]) == 1
    assert found["findings_left_out"] > 0


def test_gaps_are_bounded_and_the_longest_are_kept(monkeypatch):
    monkeypatch.setattr("neuron_ds.report.reading.MOST_GAPS", 3)
    s = _Survey(Columns(0, 10**9, 1))
    s.gaps = [(n * 100, n * 100 + n) for n in range(1, 8)]
    s.finish()
    assert (s.gaps, s.gaps_left_out) == ([(500, 505), (600, 606), (700, 707)], 4)


# --- Columns


@pytest.mark.parametrize("seconds", [0.001, 1, 59, 600, 601, 86400, 10**7])
def test_there_are_never_too_many_columns(seconds):
    columns = Columns(5, 5 + int(seconds * 1e9), 1_000_000)
    assert 1 <= columns.count <= c.MOST_COLUMNS + 1
    assert columns.count * columns.width_ns >= seconds * 1e9


def test_time_is_shared_out_over_the_columns_it_covers():
    columns = Columns(0, 10 * 10**9, 10**9)
    assert columns.share(500_000_000, 2_500_000_000) == [(0, 0.25, 0.5), (1, 0.5, 1.0), (2, 0.25, 0.5)]
    assert columns.share(10**9, 2 * 10**9) == [(1, 1.0, 1.0)]
    assert columns.share(5, 5) == []


def test_levels_are_right_to_within_one_percent():
    levels, values = Levels(), [n * n for n in range(1, 2000)]
    for value in values:
        levels.add(value)
    for percent in (0, 1, 50, 99, 100):
        exact = values[max(0, -(-percent * len(values) // 100) - 1)]
        assert levels.percentile(percent) == pytest.approx(exact, rel=0.01)
    assert Levels().percentile(50) is None
