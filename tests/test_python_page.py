"""docs/python.md is true: its programs run as they stand and count what they say, and it leaves out no public name."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from enum import IntEnum
from pathlib import Path

import pytest

import neuron_ds
from neuron_ds import layout
from neuron_ds.datastore import Producer
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.runtime import ApiFailure, DeviceMemory, ErrorClass, HostMemory, Runtime, SoftwareError, Status
from tests.processes import PATIENCE_S

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text()
PUBLISH, RUNTIME, OBSERVE, RATES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
MIB = 1 << 20

ENUMS: list[tuple[type[IntEnum], tuple[layout.CounterDef, ...]]] = [
    (Status, layout.NC),
    (ErrorClass, layout.NC),
    (SoftwareError, layout.NC),
    (ApiFailure, layout.NC),
    (DeviceMemory, layout.NC),
    (HostMemory, layout.ND),
]
#: What the example of Runtime leaves behind: 32 MiB of 96, and 12 of 16, were freed again.
ADDED = {
    "time_in_use": 4200 + 2_000_000 + 4100 + 900,
    "infer_completed": 1,
    "infer_completed_with_num_err": 1,
    "infer_timed_out": 1,
    "infer_failed_to_queue": 1,
    "err_numerical": 1,
    "err_hw": 1,
    "err_resource": 1,
    "model_load_count": 1,
    "inference_count": 1,
    "mac_count": 3_800_000_000,
    "err_sw_sequencer_fatal": 1,
}
LAST = {"latency_device": 4300, "latency_total": 4800, "nc_time": 4200, "cc_time": 150}
GAUGES = {"mem_usage_tensors_device": 64 * MIB}


def start(source: str, root: str) -> subprocess.Popen[str]:
    """A program of the page in a fresh process, which sees the devices below ``root`` and no others."""
    env = {**os.environ, "NEURON_DS_DIR": root, "NEURON_DS_DRIVER": "software"}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-W", "error", "-c", source], stdout=pipe, stderr=pipe, text=True, env=env)


def lines(process: subprocess.Popen[str]) -> list[str]:
    """What it prints, once it has ended well."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


# --- The programs


def test_publishing(root: str) -> None:
    with start(PUBLISH, root) as process:
        (line,) = lines(process)
        assert line == f"{process.pid} 0 1"
    totals = SoftwareDriver(root).totals(0)
    assert totals.core(0)["inference_count"] == 1
    assert totals.nd(layout.ND_BY_NAME["feature_bitmap"].index) == 0b10
    (version,) = totals.versions("runtime_version")[0]
    assert version == (2, 20, 11)


def test_a_runtime_counts_what_the_page_says(root: str) -> None:
    with start(RUNTIME, root) as process:
        core, device = map(ast.literal_eval, lines(process))
    assert core == ADDED | LAST | GAUGES
    assert device == {"mem_usage_tensors_host": 4 * MIB}
    assert {name: value for name, value in SoftwareDriver(root).totals(0).core(0).items() if value} == ADDED


def test_observing(root: str, producer: Producer) -> None:
    producer.set_process_info(tag="observed")
    producer.core(0).inference_count.add(7)
    producer.add_model(neuron_ds.ModelNode.build(model_id=1, name="page.neff"))
    with start(OBSERVE, root) as process:
        assert lines(process) == [f"{producer.pid} observed 7", "['page.neff'] {}"]


def test_observing_without_a_device(root: str) -> None:
    with start(OBSERVE, root) as process:
        assert lines(process) == []


def test_rates(root: str, producer: Producer) -> None:
    runtime, counted = Runtime(producer), 0
    with start(RATES, root) as process:
        while process.poll() is None and counted < PATIENCE_S * 1000:
            runtime.execution_ended(0, busy_us=500, total_us=600)
            counted += 1
            try:
                process.wait(0.001)
            except subprocess.TimeoutExpired:
                continue
        (line,) = lines(process)
    pid, busy, done, latencies = line.split(maxsplit=3)
    assert int(pid) == producer.pid
    assert 0 < float(busy) <= 1
    assert 0 < int(done) < counted
    assert ast.literal_eval(latencies) == {50: 600, 99: 600}


# --- The names


def test_every_public_name_is_mentioned() -> None:
    assert [name for name in neuron_ds.__all__ if not re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", PAGE)] == []


def table(name: str) -> list[dict[str, str]]:
    """The columns from the one of an enum on, by their heads, of each row that has a member there."""
    (found,) = re.findall(rf"^\|.*`{name}` \| counter.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    head, _, *rows = ([cell.strip() for cell in row.split("|")[1:-1]] for row in found.splitlines())
    at = head.index(f"`{name}`")
    columns = ("member", "counter", "besides")
    return [dict(zip(columns, (cell.strip("`") for cell in row[at:]), strict=False)) for row in rows if row[at]]


@pytest.mark.parametrize(("kinds", "counters"), ENUMS, ids=[kinds.__name__ for kinds, _ in ENUMS])
def test_every_member_stands_beside_its_counter(kinds: type[IntEnum], counters: tuple[layout.CounterDef, ...]) -> None:
    found = [(row["member"], row["counter"]) for row in table(kinds.__name__)]
    assert found == [(kind.name, counters[kind].name) for kind in kinds]


@pytest.mark.parametrize("row", table("Status"), ids=lambda row: row["member"])
def test_the_row_of_a_status_names_what_it_moves(producer: Producer, row: dict[str, str]) -> None:
    """All that can be told of an execution is told, and the row says what of it is counted."""
    runtime, status, besides = Runtime(producer), Status[row["member"]], row["besides"]
    runtime.execution_ended(0, status, busy_us=5, macs=6, device_us=7, total_us=8, nc_us=9, cc_us=10)
    moved = {name for name, value in producer.snapshot().core(0).items() if value}
    words = {"inference_count": "inference_count", "busy_us": "time_in_use", "macs": "mac_count"}
    expected = {row["counter"], *(counter for word, counter in words.items() if word in besides)}
    assert moved == expected | (LAST.keys() if "latencies" in besides else set())
    if "error_class" in besides:
        runtime.execution_ended(0, status, error_class=ErrorClass.MODEL)
        assert producer.core(0).err_model.get() == 1
    else:
        with pytest.raises(neuron_ds.errors.BadIndex):
            runtime.execution_ended(0, status, error_class=ErrorClass.MODEL)
