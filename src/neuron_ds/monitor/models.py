"""``loaded_models``: the model records of a runtime, grouped by model with a subgraph each.

Pure functions of records. It knows the memory slots of a record and what the stream calls them; no slab, no counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neuron_ds.monitor.sums import Sum
from neuron_ds.records import MemCell, ModelNode, printable

#: Device, physical cores per logical one, model slot, record, and whether its core completed an execution.
Node = tuple[int, int, int, ModelNode, bool]

# Memory slots of a record by what the stream calls them: all 12 are in one of each, so that sums hold.
_HOST = {"application_memory": range(4, 12), "constants": (2,), "dma_buffers": (0, 3), "tensors": (1,)}
_DEVICE = {"constants": (2,), "model_code": (0,), "runtime_memory": range(3, 12), "tensors": (1,)}


def loaded_models(nodes: Iterable[Node], errors: list[str]) -> list[dict[str, object]]:
    """The models in the order in which they were met. Names and ids of a model are those of its first node."""
    by_model: dict[int, list[Node]] = {}
    for node in nodes:
        by_model.setdefault(node[3].model_id, []).append(node)
    return [_model(model_id, members, errors) for model_id, members in by_model.items()]


def _model(model_id: int, nodes: Sequence[Node], errors: list[str]) -> dict[str, object]:
    first = nodes[0][3]
    keyed: dict[int, Node] = {}
    again = []
    for node in nodes:
        if node[3].sg_index in keyed:
            again.append(node)
        else:
            keyed[node[3].sg_index] = node
    for node in again:  # the same subgraph once more, on another core: it gets the next free number
        number = node[3].sg_index
        while number in keyed:
            number += 1
        keyed[number] = node
    return {
        "name": printable(first.name),
        "uuid": first.uuid.hex(),
        "model_id": model_id,
        "is_running": any(running for *_, running in nodes),
        "subgraphs": {f"sg_{number:02}": _subgraph(node, errors) for number, node in sorted(keyed.items())},
    }


def _subgraph(node: Node, errors: list[str]) -> dict[str, object]:
    device, config, slot, record, _ = node
    where = f"device {device} model slot {slot}"
    host_cells, device_cells = record.mem_usage
    host, host_total = _memory(host_cells, _HOST, f"{where} host", errors)
    on_device, device_total = _memory(device_cells, _DEVICE, f"{where} device", errors)
    entry: dict[str, object] = {
        "memory_used_bytes": {
            "host": host_total,
            "neuron_device": device_total,
            "usage_breakdown": {"host": host, "neuron_device": on_device},
        },
        "neuroncore_index": record.nc_index // config,
        "neuron_device_index": device,
    }
    if config > 1:
        entry["neuron_ds_physical_core"] = record.nc_index
    return entry


def _memory(
    cells: Sequence[MemCell], names: dict[str, Sequence[int]], where: str, errors: list[str]
) -> tuple[dict[str, int], int]:
    total = Sum(errors)
    used = {
        name: sum(total.take(cells[slot][0], where, f"memory slot {slot}") for slot in slots)
        for name, slots in names.items()
    }
    return used, total.total
