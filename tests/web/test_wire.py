"""What is sent of a frame: every figure as it is, unknown as null, and text that is no text."""

import json

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.live.frame import Event
from neuron_ds.web import wire
from neuron_ds.web.history import WHOLE, History, whole
from tests.web.helpers import GIB, cell, device, frame, process


def sent(what):
    """A frame as the page has it: rows as objects."""
    picture = json.loads(wire.encode(wire.picture(what, 7, whole(what))))
    names = wire.names()
    named = lambda kind, row: dict(zip(names[kind], row, strict=True))  # noqa: E731
    picture["devices"] = [named("device", row) for row in picture["devices"]]
    for each in picture["devices"]:
        each["cells"] = [named("cell", row) for row in each["cells"]]
    picture["processes"] = [named("process", row) for row in picture["processes"]]
    for each in picture["processes"]:
        each["slabs"] = [named("slab", row) for row in each["slabs"]]
    picture["whole"] = named("whole", picture["whole"])
    return picture


def test_every_figure_has_its_name():
    busy = cell(
        1, 2, state="busy", utilization=0.25, flops_s=3e12, executions_s=40.5, errors_s=0.5, memory=(5, 4, 3, 2, 1)
    )
    got = sent(frame([device(1, [busy], memory=(5, 4, 3, 2, 1))], [process("42", [busy], errors=9)]))
    assert (got["number"], got["period_s"], got["empty"]) == (7, 1.0, "")
    assert got["devices"][0]["cells"] == [
        {
            "core": 2,
            "physical": [4, 5],
            "state": "busy",
            "utilization": 0.25,
            "flops_s": 3e12,
            "executions_s": 40.5,
            "errors_s": 0.5,
            "memory": [5, 4, 3, 2, 1],
        }
    ]
    assert got["devices"][0]["memory_total_bytes"] == 96 * GIB
    found = got["processes"][0]
    assert (found["id"], found["pid"], found["tag"], found["errors"], found["models"]) == ("42", 42, "tag-42", 9, 1)
    assert found["slabs"] == [{"device": 1, "slot": 0, "error": "", "models": 1, "cores": [2]}]
    assert got["host"] == {
        "vcpus": 8,
        "user": 0.25,
        "system": 0.05,
        "memory_total_bytes": 64 * GIB,
        "memory_used_bytes": 16 * GIB,
    }


def test_what_is_not_known_is_null():
    got = sent(frame([device(0, [cell(0, 0)])], [process("1", [cell(0, 0)], executions_s=None, latency_p50_us=None)]))
    assert got["devices"][0]["cells"][0]["utilization"] is None
    assert got["processes"][0]["executions_s"] is None
    assert got["whole"]["utilization"] is None
    assert got["whole"]["latency_p50_us"] is None


def test_text_of_any_bytes_goes_through():
    nasty = b'<b>\xff\x00"\n\xe2\x80\xa8</b>'.decode("utf-8", "surrogateescape")
    got = sent(frame(processes=[process("1", [cell(0, 0)], tag=nasty)]))
    assert got["processes"][0]["tag"] == nasty


def test_a_body_is_one_line():
    what = frame(processes=[process("1", [cell(0, 0)], tag="a\nb\r\u2028c")])
    assert b"\n" not in wire.encode(wire.picture(what, 1, whole(what)))
    assert b"\r" not in wire.encode(wire.picture(what, 1, whole(what)))


def test_only_events_that_are_new_go_out_each_time():
    events = [Event(n, 900.0 + n, "came", "began") for n in range(101)]
    assert [event["number"] for event in sent(frame(events=events))["events"]] == list(range(90, 101))


def test_the_worst_findings_are_sent_if_there_are_too_many():
    mild = [Finding("mild", Severity.INFO, "m", "a", 0, core=n) for n in range(wire.MOST_FINDINGS)]
    bad = Finding("bad", Severity.CRITICAL, "m", "a", 0)
    got = sent(frame(findings=[*mild, bad]))
    assert len(got["findings"]) == wire.MOST_FINDINGS
    assert got["findings_total"] == wire.MOST_FINDINGS + 1
    assert got["findings"][0]["kind"] == "bad"


def test_everything_together():
    cells = [
        cell(0, 0, utilization=0.2, executions_s=10.0, flops_s=1e12, errors_s=1.0),
        cell(0, 1, utilization=0.6, executions_s=30.0, flops_s=2e12, errors_s=0.0),
        cell(0, 2),
    ]
    processes = [process(str(n), cells[:1], latency_p50_us=n, latency_p99_us=10 * n) for n in (1, 2, 3)]
    got = dict(zip(WHOLE, whole(frame([device(0, cells, memory=(1, 2, 3, 4, 5))], processes)), strict=True))
    assert got == {
        "utilization": 0.4,
        "utilization_low": 0.2,
        "utilization_high": 0.6,
        "flops_s": 3e12,
        "executions_s": 40.0,
        "errors_s": 1.0,
        "latency_p50_us": 2,
        "latency_p99_us": 30,
        "device_memory_bytes": 15,
        "host_cpu": 0.3,
        "host_memory": 0.25,
    }


def test_the_past_of_the_whole_a_core_and_a_process():
    past = History(moments=3)
    for n in range(1, 5):
        cells = [cell(0, 0, utilization=n / 8, memory=(n, 0, 0, 0, 0))]
        came = [process("7", cells, executions_s=float(n))] if n != 3 else []
        past.add(frame([device(0, cells)], came, wall_s=100.0 + n))
    assert past.of_whole()["wall_s"] == [102.0, 103.0, 104.0]
    assert past.of_whole()["utilization"] == [0.25, 0.375, 0.5]
    assert past.of_core(0, 0)["memory_bytes"] == [2.0, 3.0, 4.0]
    assert past.of_process("7")["executions_s"] == [2.0, None, 4.0]
    assert past.of_core(9, 9)["utilization"] == [None, None, None]
