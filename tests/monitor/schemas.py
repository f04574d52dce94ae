"""What a report must be: the two schemas, and what they can't say - sums, order of percentiles, ranges of keys."""

import json
from pathlib import Path

import jsonschema

DATA = Path(__file__).parent / "data"
PERCENTILES = ("p0", "p1", "p25", "p50", "p75", "p99", "p100")


def _validator(name):
    return jsonschema.Draft202012Validator(json.loads((DATA / f"{name}.schema.json").read_text()))


STRICT, ANY = _validator("strict"), _validator("neuron-monitor")


def check(line, *, strict=True):
    """One line of the stream; the report in it."""
    data = line.encode() if isinstance(line, str) else line
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    report = json.loads(data)
    ANY.validate(report)
    if strict:
        STRICT.validate(report)
    hardware = report["neuron_hardware_info"]
    for runtime in report["neuron_runtime_data"]:
        check_runtime(runtime["report"], hardware)
    return report


def check_runtime(report, hardware):
    cores = range(hardware["neuron_device_count"] * hardware["neuroncore_per_device_count"])
    if "neuroncore_counters" in report:
        in_use = report["neuroncore_counters"]["neuroncores_in_use"]
        assert [int(key) for key in in_use] == list(cores)
        for core in in_use.values():
            assert ("v3d" in core) == (hardware["logical_neuroncore_config"] == 2)
            if "v3d" in core:
                halves = [half["neuroncore_utilization"] for half in core["v3d"].values()]
                assert len(halves) == 2
                assert abs(core["neuroncore_utilization"] - sum(halves) / 2) < 1e-9
    if "execution_stats" in report:
        for latency in report["execution_stats"]["latency_stats"].values():
            if latency is not None:
                values = [latency[p] for p in PERCENTILES]
                assert values == sorted(values)
    if "memory_used" in report:
        used = report["memory_used"]["neuron_runtime_used_bytes"]
        parts = used["usage_breakdown"]
        assert used["host"] == sum(parts["host"].values())
        assert used["neuron_device"] == sum(sum(core.values()) for core in parts["neuroncore_memory_usage"].values())
        assert {int(key) for key in parts["neuroncore_memory_usage"]} <= set(cores)
        for model in report["memory_used"].get("loaded_models", []):
            for subgraph in model["subgraphs"].values():
                memory = subgraph["memory_used_bytes"]
                assert memory["host"] == sum(memory["usage_breakdown"]["host"].values())
                assert memory["neuron_device"] == sum(memory["usage_breakdown"]["neuron_device"].values())


def runtime_of(report, pid):
    (found,) = [r for r in report["neuron_runtime_data"] if r["pid"] == pid]
    return found
