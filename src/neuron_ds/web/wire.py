"""A Frame as JSON, as the page gets it: rows in a fixed order, made once for all who look.

Everything is written as it stands in the Frame, None as null; there is no rounding and no unit here. This module knows
the shape of what is sent, ``static/store.js`` reads the same names; it knows no connection.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import nlargest
from itertools import takewhile
from operator import attrgetter
from typing import Any

import msgspec

from neuron_ds.diagnose.finding import Finding
from neuron_ds.live.details import CounterLine, ProcessDetails
from neuron_ds.live.frame import DEVICE_MEMORY, HOST_MEMORY, DeviceFrame, Event, Frame, ProcessFrame, SlabFrame
from neuron_ds.rates import percentiles
from neuron_ds.records import printable
from neuron_ds.web.history import WHOLE

CELL = "core physical state utilization flops_s executions_s errors_s memory".split()
DEVICE = "device type error slots_used memory_total_bytes memory host_memory".split()
PROCESS = (
    "id pid foreign tag state error utilization flops_s executions_s errors_s errors latency_p50_us latency_p99_us "
    "device_memory host_memory vcpu_user vcpu_system runtime_version models"
).split()
SLAB = ["device", "slot", "error", "models", "cores"]
#: Events of so long, or of so many periods, go out with every frame, so that one may miss some frames and no event.
EVENTS_S, EVENTS_PERIODS = 10.0, 5
#: Findings that are sent, the worst first; who has more needs no list.
MOST_FINDINGS = 100
PERCENTILES = (0, 1, 25, 50, 75, 90, 99, 100)

_cell, _device, _process = attrgetter(*CELL), attrgetter(*DEVICE), attrgetter(*PROCESS)
_encoder = msgspec.json.Encoder()
Json = dict[str, Any]


def names() -> Json:
    """What the columns of the rows are called; told once."""
    return {
        "cell": CELL,
        "device": [*DEVICE, "cells"],
        "process": [*PROCESS, "slabs"],
        "slab": SLAB,
        "whole": WHOLE,
        "device_memory": DEVICE_MEMORY,
        "host_memory": HOST_MEMORY,
    }


def encode(value: object) -> bytes:
    """Any of this module's values as JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # text that was no UTF-8: as escapes it goes through
        return json.dumps(msgspec.to_builtins(value)).encode()


def picture(frame: Frame, number: int, whole: Sequence[float | None]) -> Json:
    """Everything that the overview shows at one moment. ``whole``: as History.add gives it."""
    return {
        "number": number,
        "wall_s": frame.wall_s,
        "period_s": frame.period_s,
        "empty": frame.empty,
        "error": printable(frame.error),
        "whole": whole,
        "devices": [_device_row(device) for device in frame.devices],
        "processes": [_process_row(process) for process in frame.processes],
        "host": frame.host,
        "events": _recent(frame),
        "findings": [_finding(finding, frame) for finding in _worst(frame.findings)],
        "findings_total": len(frame.findings),
    }


def _recent(frame: Frame) -> list[Event]:
    since_s = frame.wall_s - max(EVENTS_S, EVENTS_PERIODS * (frame.period_s or 0))
    recent = list(takewhile(lambda event: event.wall_s >= since_s, reversed(frame.events)))
    return recent[::-1]


def _finding(finding: Finding, frame: Frame) -> Json:
    process = next((p.id for p in frame.processes if frame.concerns(finding, p)), None)
    return finding.to_dict(frame.time_ns) | {"process": process}


def _worst(findings: Sequence[Finding]) -> Sequence[Finding]:
    if len(findings) <= MOST_FINDINGS:
        return findings
    return nlargest(MOST_FINDINGS, findings, key=lambda finding: finding.severity)


def _device_row(device: DeviceFrame) -> tuple[object, ...]:
    return (*_device(device), [_cell(cell) for cell in device.cells])


def _process_row(process: ProcessFrame) -> tuple[object, ...]:
    return (*_process(process), [_slab_row(slab) for slab in process.slabs])


def _slab_row(slab: SlabFrame) -> tuple[object, ...]:
    return slab.device, slab.slot, slab.error, slab.models, [cell.core for cell in slab.cells]


def core(frame: Frame, device: int, core: int, counters: Sequence[CounterLine]) -> Json | None:
    """One core: its counters by process and physical core. None if there is no such core."""
    found = frame.by_device.get(device)
    if found is None or all(cell.core != core for cell in found.cells):
        return None
    processes = {p.id: p.tag for p in frame.processes}
    return {
        "device": device,
        "core": core,
        "counters": [(*_counter(line), line.physical, line.process, processes.get(line.process)) for line in counters],
    }


def process(frame: Frame, details: ProcessDetails) -> Json:
    """One process: who it is, its cells by device, latencies, counters and models."""
    keys = {slab.key for slab in details.slabs}
    latencies = [us for p in frame.sample.processes if p.key in keys for us in p.latencies.total_us]
    return {
        "id": details.id,
        "identity": details.identity,
        "versions": details.versions,
        "records": details.records,
        "latencies_us": percentiles(latencies, PERCENTILES),
        "devices": [
            (slab.device, slab.slot, slab.error, slab.host_memory, [_cell(cell) for cell in slab.cells])
            for slab in details.slabs
        ],
        "counters": [_counter(line) for line in details.counters],
        "models": details.models,
    }


def _counter(line: CounterLine) -> tuple[object, ...]:
    """The value as text: a counter has 64 bits, a number of JavaScript 53."""
    return line.name, line.unit, line.kind, line.help, str(line.value), line.rate
