"""What is served beside the stream, over real slabs: frames, details, the monitor's report, the exporter's metrics."""

import json
import time

import pytest

from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from tests.cli.helpers import Producer
from tests.exporter.helpers import Scrape
from tests.monitor.schemas import check
from tests.web.helpers import Listener, Shown, cell, frame, get, process

COUNTS = """
core = producer.core(3)
core.infer_completed.add(1234)
core.err_hw.add(5) if hasattr(core, "err_hw") else None
core.counter(0).set((1 << 64) - 1)
producer.add_model(ModelNode.build(model_id=77, model_node_id=1, name="m<i>", uuid=bytes(16), nc_index=3))
"""


@pytest.fixture
def producer(root, driver):
    with Producer(root, tag="<b>tag</b>", then=COUNTS) as producer:
        yield producer


@pytest.fixture
def served(serve, driver, producer):
    return serve(Live(LiveSource(driver, sample_hz=0)), driver=driver)


def when_there(port, path):
    """The answer as soon as the first look was taken."""
    deadline = time.monotonic() + 20
    while (got := get(port, path))[0] == 503:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return got


def test_a_frame(served, producer):
    status, headers, body = when_there(served.port, "/api/frame")
    assert (status, headers["content-type"]) == (200, "application/json")
    picture = json.loads(body)
    assert [row[1] for row in picture["processes"]] == [producer.pid]
    assert picture["processes"][0][3] == "<b>tag</b>"


def test_a_core(served, producer):
    status, _, body = when_there(served.port, "/api/core/0/1")
    assert status == 200
    lines = {(name, physical): value for name, _, _, _, value, _, physical, _, _ in json.loads(body)["counters"]}
    assert lines["infer_completed", 3] == "1234"
    assert str((1 << 64) - 1) in lines.values()  # as text, for a number would lose digits
    assert get(served.port, "/api/core/0/99")[0] == 404
    assert get(served.port, "/api/core/99/0")[0] == 404
    assert get(served.port, "/api/core/x/0")[0] == 404


def test_a_process(served, producer):
    status, _, body = when_there(served.port, f"/api/process/{producer.pid}")
    assert status == 200
    found = json.loads(body)
    assert found["versions"]["runtime"] == "2.31.99"
    assert [(m["name"], m["model_id"], m["core"]) for m in found["models"]] == [("m<i>", 77, 1)]
    assert {name: value for name, _, _, _, value, _ in found["counters"]}["infer_completed"] == "1234"
    assert [(device, [row[0] for row in cells]) for device, _, _, _, cells in found["devices"]] == [(0, [1])]
    assert get(served.port, "/api/process/none")[0] == 404


def test_the_past(served, producer):
    with Listener(served.port) as client:
        client.next("frame")
        client.next("frame")
    core = json.loads(get(served.port, "/api/core/0/1/history")[2])
    assert len(core["wall_s"]) == len(core["utilization"]) >= 2
    assert None not in core["wall_s"]
    assert set(json.loads(get(served.port, f"/api/process/{producer.pid}/history")[2])) >= {"wall_s", "executions_s"}


def test_the_report_is_the_monitors(served, producer):
    status, headers, body = get(served.port, "/api/report")
    assert (status, headers["content-type"]) == (200, "application/json")
    report = check(body)
    assert [(r["pid"], r["neuron_runtime_tag"]) for r in report["neuron_runtime_data"]] == [
        (producer.pid, "<b>tag</b>")
    ]


def test_the_metrics_are_the_exporters(served, producer):
    status, headers, body = get(served.port, "/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    scrape = Scrape(body.decode())
    assert scrape.get("neuron_ds_core_infer_completed_total", neuron_device=0, core=3) == 1234
    assert scrape.get("neuron_hardware_info")
    status, headers, body = get(served.port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_many_may_ask_at_once(served):
    with Listener(served.port) as client:
        for path in ("/api/report", "/metrics", "/api/frame", "/api/report"):
            assert get(served.port, path)[0] == 200
        assert client.next("frame")


def test_a_recording_has_no_report(serve):
    server = serve(Shown(frame()))
    for path in ("/api/report", "/metrics"):
        assert get(server.port, path)[0] == 404


def test_a_fault_of_ours_is_one_line(serve):
    said = []
    server = serve(Shown(frame(processes=[process("1", [cell(0, 0)])])), told=said.append)
    when_there(server.port, "/api/frame")
    server._pump.history.of_core = None  # type: ignore[method-assign]
    assert get(server.port, "/api/core/0/0/history")[0] == 500
    deadline = time.monotonic() + 20
    while not said:  # it is answered first
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert said == ["/api/core/0/0/history: TypeError(\"'NoneType' object is not callable\")"]


def test_files_are_asked_after_each_time(served):
    _, headers, body = get(served.port, "/app.js")
    assert headers["content-type"].startswith("text/javascript")
    assert get(served.port, "/app.js", If_None_Match=headers["etag"])[0] == 304
    assert b"innerHTML" not in body
