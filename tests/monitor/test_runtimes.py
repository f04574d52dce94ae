"""Two Samples become groups: exact differences, logical cores, sums that hold, and errors in their own places."""

import pytest

from neuron_ds import Snapshot, layout
from neuron_ds.collect import DeviceSample, ProcessSample, Sample
from neuron_ds.driver import DeviceProperties, Owner
from neuron_ds.layout import NC_BY_NAME, ND_BY_NAME
from neuron_ds.monitor import runtimes as r
from neuron_ds.monitor.models import loaded_models
from neuron_ds.numbering import numbering
from neuron_ds.rates import deltas, elapsed_s
from neuron_ds.records import ModelNode
from neuron_ds.snapshot import Origin

SECOND = 1_000_000_000
UNDERFLOW = 2**64 - 512


def properties(device, cores=8, logical=2):
    return DeviceProperties(device, "trn2", "x", cores, 96 << 30, logical, f"/x/neuron{device}")


def process(pid, device=0, *, nc=None, nd=None, at_s=0, owner=None, error=""):
    """nc: {(core, name): value}, nd: {name: value}."""
    owner = owner or Owner(device, 0, pid, True, generation=1, path=f"/x/neuron{device}")
    if error:
        return ProcessSample(owner, None, error)
    raw = bytearray(layout.REQUIRED_SIZE)
    words = {layout.nc_index(core, NC_BY_NAME[name].index): value for (core, name), value in (nc or {}).items()}
    words |= {layout.nd_index(ND_BY_NAME[name].index): value for name, value in (nd or {}).items()}
    for index, value in words.items():
        raw[index * 8 : index * 8 + 8] = value.to_bytes(8, "little")
    return ProcessSample(owner, Snapshot(bytes(raw), Origin(device, pid, 0, 1), at_s * SECOND), "")


def sample(at_s, *processes, devices=1, **shape):
    by_device = [tuple(p for p in processes if p.owner.device == d) for d in range(devices)]
    listed = [DeviceSample(d, properties(d, **shape), ps, None, len(ps), "") for d, ps in enumerate(by_device)]
    return Sample(at_s * SECOND, tuple(listed), "")


def look(before, after):
    numbers = numbering(after.properties)
    return r.runtimes(after, deltas(before, after), elapsed_s(before, after), numbers), numbers


def test_utilization_and_operations_of_logical_cores():
    before = sample(0, process(7, 1, at_s=0), devices=2)
    nc = {(2, "time_in_use"): 1_000_000, (3, "time_in_use"): 500_000, (2, "mac_count"): 10, (3, "mac_count"): 20}
    after = sample(2, process(7, 1, nc=nc, at_s=2), devices=2)
    (runtime,), numbers = look(before, after)
    group = r.neuroncore_counters(runtime, numbers, r.idle_cores(numbers))
    assert list(group["neuroncores_in_use"]) == [str(n) for n in range(8)]
    assert group["neuroncores_in_use"]["5"] == {
        "neuroncore_utilization": 37.5,
        "flops": 30,
        "effective_flops": 30,
        "v3d": {"nc_v3.10": {"neuroncore_utilization": 50.0}, "nc_v3.11": {"neuroncore_utilization": 25.0}},
    }
    assert all(c["neuroncore_utilization"] == 0 for n, c in group["neuroncores_in_use"].items() if n != "5")
    assert group["period"] == 2.0


def test_physical_cores_have_no_halves():
    before, after = sample(0, process(7), cores=2, logical=1), sample(5, process(7, at_s=5), cores=2, logical=1)
    (runtime,), numbers = look(before, after)
    group = r.neuroncore_counters(runtime, numbers, r.idle_cores(numbers))
    idle = {"neuroncore_utilization": 0.0, "flops": 0, "effective_flops": 0}
    assert group["neuroncores_in_use"] == {"0": idle, "1": idle}


def test_each_counter_has_its_place_in_the_summaries():
    names = {
        "infer_completed": 1,
        "infer_completed_with_err": 2,
        "infer_completed_with_num_err": 3,
        "infer_timed_out": 4,
        "infer_incorrect_input": 5,
        "infer_failed_to_queue": 6,
        "err_generic": 7,
        "err_numerical": 8,
        "err_model": 9,
        "err_transient": 10,
        "err_hw": 11,
        "err_rt": 12,
        "hw_err_hbm_ue": 100,  # not folded into hardware
    }
    after = {(core, name): 50 + value for name, value in names.items() for core in (0, 7)}
    before = dict.fromkeys(after, 50)
    (runtime,), _ = look(sample(0, process(7, nc=before)), sample(1, process(7, nc=after, at_s=1)))
    group = r.execution_stats(runtime, ([1_500_000, 500_000], []))
    assert group["execution_summary"] == {
        "completed": 2,
        "completed_with_err": 4,
        "completed_with_num_err": 6,
        "timed_out": 8,
        "incorrect_input": 10,
        "failed_to_queue": 12,
    }
    assert group["error_summary"] == {
        "generic": 14,
        "numerical": 16,
        "model": 18,
        "transient": 20,
        "hardware": 22,
        "runtime": 24,
    }
    assert group["latency_stats"]["device_latency"] is None
    assert group["latency_stats"]["total_latency"]["p50"] == 0.5
    assert group["latency_stats"]["total_latency"]["p99"] == 1.5


def test_memory_is_what_the_gauges_say_and_what_remains_of_the_process():
    nd = {
        "mem_usage_code_host": 1,
        "mem_usage_scratchpad_host": 2,
        "mem_usage_tensors_host": 4,
        "mem_usage_constants_host": 8,
        "mem_usage_misc_host": 16,
    }
    nc = {
        (0, "mem_usage_code_device"): 1,
        (1, "mem_usage_code_device"): 1,
        (0, "mem_usage_tensors_device"): 2,
        (1, "mem_usage_constants_device"): 4,
        (6, "mem_usage_scratchpad_device"): 8,
        (7, "mem_usage_misc_device"): 16,
    }
    (runtime,), numbers = look(sample(0, process(7)), sample(1, process(7, nc=nc, nd=nd, at_s=1)))
    group = r.memory_used(runtime, numbers, 1000, models=False)
    used = group["neuron_runtime_used_bytes"]
    assert "loaded_models" not in group
    assert used["host"] == 1000
    assert used["usage_breakdown"]["host"] == {
        "application_memory": 16 + 1000 - 31,
        "constants": 8,
        "dma_buffers": 3,
        "tensors": 4,
    }
    cores = used["usage_breakdown"]["neuroncore_memory_usage"]
    assert list(cores) == ["0", "1", "2", "3"]
    assert cores["0"] == {
        "constants": 4,
        "model_code": 2,
        "model_shared_scratchpad": 0,
        "runtime_memory": 0,
        "tensors": 2,
    }
    assert used["neuron_device"] == 32
    less = r.memory_used(runtime, numbers, 5, models=False)["neuron_runtime_used_bytes"]
    assert less["host"] == 31, "the rest of the process is never negative"
    unknown = r.memory_used(runtime, numbers, "process 7 is not in /proc", models=True)
    assert unknown["neuron_runtime_used_bytes"]["host"] == 31
    assert "not in /proc" in unknown["error"]
    assert unknown["loaded_models"] == []


def test_an_underflow_counts_as_zero_and_is_named():
    nc = {(3, "mem_usage_tensors_device"): UNDERFLOW, (3, "mem_usage_code_device"): 5}
    after = sample(1, process(7, nc=nc, nd={"mem_usage_misc_host": UNDERFLOW}, at_s=1))
    (runtime,), numbers = look(sample(0, process(7)), after)
    group = r.memory_used(runtime, numbers, 0, models=True)
    assert group["neuron_runtime_used_bytes"]["neuron_device"] == 5
    assert group["neuron_runtime_used_bytes"]["host"] == 0
    assert "device 0 core 3: mem_usage_tensors_device" in group["error"]
    assert "device 0: mem_usage_misc_host" in group["error"]
    assert "-512" in group["error"]
    assert r.execution_stats(runtime, ([], []))["error"] == ""


def test_sums_stay_sums_also_of_nonsense():
    nc = {(core, "mem_usage_tensors_device"): 2**62 for core in range(8)}
    (runtime,), numbers = look(sample(0, process(7)), sample(1, process(7, nc=nc, at_s=1)))
    group = r.memory_used(runtime, numbers, 0, models=True)
    used = group["neuron_runtime_used_bytes"]
    cores = used["usage_breakdown"]["neuroncore_memory_usage"]
    assert used["neuron_device"] == sum(sum(c.values()) for c in cores.values()) == 2**62
    assert "core 1: mem_usage_tensors_device" in group["error"]
    nc = {(core, "infer_completed"): 2**63 - 1 for core in range(8)}
    (runtime,), _ = look(sample(0), sample(1, process(7, nc=nc, at_s=1)))
    assert r.execution_stats(runtime, ([], []))["execution_summary"]["completed"] == 2**63 - 1


def test_slabs_on_several_devices_are_one_runtime():
    nc = {(0, "infer_completed"): 3}
    before = sample(0, process(7, 0), process(7, 1), devices=2)
    after = sample(1, process(7, 0, nc=nc, at_s=1), process(7, 1, nc=nc, at_s=1), devices=2)
    (runtime,), _ = look(before, after)
    assert r.execution_stats(runtime, ([], []))["execution_summary"]["completed"] == 6


def test_one_unreadable_slab_leaves_the_others():
    nc = {(0, "infer_completed"): 3}
    before = sample(0, process(7, 0), process(7, 1), devices=2)
    after = sample(1, process(7, 0, nc=nc, at_s=1), process(7, 1, error="no slab there"), devices=2)
    (runtime,), numbers = look(before, after)
    assert runtime.error == "device 1: no slab there"
    stats = r.execution_stats(runtime, ([], []))
    assert stats["execution_summary"]["completed"] == 3
    assert stats["error"] == "device 1: no slab there"
    cores = r.memory_used(runtime, numbers, 0, models=True)["neuron_runtime_used_bytes"]["usage_breakdown"]
    assert list(cores["neuroncore_memory_usage"]) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("changes", [{"alive": False}, {"state": "closing"}])
def test_who_is_dead_or_leaving_is_no_runtime(changes):
    values = {"device": 0, "slot": 0, "pid": 9, "alive": True, "path": "/x/neuron0", **changes}
    gone = process(9, owner=Owner(**values), error="gone")
    found, _ = look(sample(0), sample(1, gone, process(7, at_s=1)))
    assert [runtime.pid for runtime in found] == [7]


def test_the_same_pid_of_two_namespaces_is_two_runtimes():
    pair = [
        process(7, owner=Owner(0, slot, 7, None, foreign=True, path=path))
        for slot, path in enumerate(("/x/neuron0", "/y/neuron0"))
    ]
    found, _ = look(sample(0), sample(1, *pair))
    assert len(found) == 2


def containers(device, namespaces, *, at_s, done=(0, 0), **more):
    """Two processes 7 of other pid namespaces in slots of one device, of the same (empty) tag."""
    sizes = (1000, 5000)
    return [
        process(
            7,
            device,
            nc={(0, "mem_usage_tensors_device"): size, (0, "time_in_use"): busy, (0, "mac_count"): busy},
            at_s=at_s,
            owner=Owner(device, slot, 7, True, True, path=f"/x/neuron{device}", namespace=namespace),
        )
        for slot, (namespace, size, busy) in enumerate(zip(namespaces, sizes, done, strict=True))
    ]


def used_of(runtime, numbers):
    used = r.memory_used(runtime, numbers, "abroad", models=False)["neuron_runtime_used_bytes"]
    cores = used["usage_breakdown"]["neuroncore_memory_usage"]
    assert used["neuron_device"] == sum(sum(core.values()) for core in cores.values())
    return used["neuron_device"]


def test_the_same_pid_and_tag_of_two_namespaces_in_one_directory_is_two_runtimes():
    def at(second):
        return sample(second, *containers(0, (8, 9), at_s=second), *containers(1, (8, 9), at_s=second), devices=2)

    found, numbers = look(at(0), at(1))
    assert [runtime.pid for runtime in found] == [7, 7]
    assert [[s.device for s in runtime.slabs] for runtime in found] == [[0, 1], [0, 1]]
    assert [used_of(runtime, numbers) for runtime in found] == [2000, 10_000]


def test_where_no_namespace_is_known_what_becomes_one_still_adds_up():
    before = sample(0, *containers(0, (None, None), at_s=0), logical=1)
    after = sample(1, *containers(0, (None, None), at_s=1, done=(250_000, 500_000)), logical=1)
    (runtime,), numbers = look(before, after)
    assert used_of(runtime, numbers) == 6000
    core = r.neuroncore_counters(runtime, numbers, r.idle_cores(numbers))["neuroncores_in_use"]["0"]
    assert core == {"neuroncore_utilization": 75.0, "flops": 1_500_000, "effective_flops": 1_500_000}


def test_a_device_that_does_not_tell_its_cores():
    after = sample(1, process(7, at_s=1), cores=None, logical=None)
    numbers = numbering(after.properties)
    assert numbers.cores_per_device == layout.MAX_CORES
    assert "not known" in numbers.errors[0]


# --- Models -----------------------------------------------------------------------------------------------------------


def node(model_id, sg=0, core=0, name="m", cells=((), ())):
    rows = [[(n, 1) for n in row] + [(0, 0)] * (12 - len(row)) for row in cells]
    return ModelNode.build(
        model_id=model_id, name=name, uuid=bytes([model_id]) * 16, nc_index=core, sg_index=sg, mem_usage=rows
    )


def test_models_are_grouped_and_their_memory_is_all_there():
    cells = (tuple(1 << i for i in range(12)), tuple(1 << i for i in range(12, 24)))
    nodes = [(0, 2, 0, node(1, 0, 5, cells=cells), True), (1, 2, 3, node(1, 1), False), (0, 2, 1, node(2), False)]
    errors = []
    first, second = loaded_models(nodes, errors)
    assert errors == []
    assert (first["model_id"], first["uuid"], first["is_running"]) == (1, "01" * 16, True)
    assert list(first["subgraphs"]) == ["sg_00", "sg_01"]
    subgraph = first["subgraphs"]["sg_00"]
    memory = subgraph["memory_used_bytes"]
    assert memory["host"] == 0xFFF
    assert memory["neuron_device"] == 0xFFF000
    host, device = memory["usage_breakdown"]["host"], memory["usage_breakdown"]["neuron_device"]
    assert host == {"application_memory": 0xFF0, "constants": 4, "dma_buffers": 9, "tensors": 2}
    assert device == {"constants": 0x4000, "model_code": 0x1000, "runtime_memory": 0xFF8000, "tensors": 0x2000}
    assert (subgraph["neuroncore_index"], subgraph["neuron_ds_physical_core"]) == (2, 5)
    assert first["subgraphs"]["sg_01"]["neuron_device_index"] == 1
    assert second["is_running"] is False


def test_a_subgraph_number_that_comes_twice_is_not_lost():
    nodes = [(0, 1, i, node(1, 255, core), False) for i, core in enumerate((0, 1, 2))]
    (model,) = loaded_models(nodes, [])
    assert list(model["subgraphs"]) == ["sg_255", "sg_256", "sg_257"]
    assert [s["neuroncore_index"] for s in model["subgraphs"].values()] == [0, 1, 2]


def test_a_name_is_made_printable_and_an_impossible_cell_named():
    errors = []
    (model,) = loaded_models([(0, 1, 9, node(1, name=b"a\xff\x1b", cells=((UNDERFLOW,), (7,))), False)], errors)
    assert model["name"] == "a\\xff\\x1b"
    assert "device 0 model slot 9 host: memory slot 0" in errors[0]
    assert model["subgraphs"]["sg_00"]["memory_used_bytes"]["host"] == 0
