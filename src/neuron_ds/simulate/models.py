"""What a simulated process loads: profiles of well-known models, and the loaded models made of them as plain values.

The numbers are plausible, not measured. This module knows the shape of a model record's memory grid; it loads nothing
and knows no time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from neuron_ds.layout import MEM_SLOT_NAMES, MEM_SLOTS, UUID_SIZE
from neuron_ds.records import MemCell, ModelNode

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

#: A NeuronCore of the machine: (device, physical core).
CoreId = tuple[int, int]
#: Bytes by category; the categories are the first memory slots of a model record.
Bytes = Mapping[str, int]

_CHUNK_BYTES = 16 * MIB
_PAGE_BYTES = 4 * KIB
FIRST_MODEL_ID = 10001


class Profile(NamedTuple):
    """A model as a workload needs to know it, for one core.

    rate: executions (training: steps) per second and core. utilization: share of its time that the core executes then.
    macs: multiply-accumulates of one execution on one core.
    """

    name: str
    rate: float
    utilization: float
    macs: int
    subgraphs: int
    device: Bytes
    host: Bytes


def _memory(code: int, tensors: int, constants: int, scratchpad: int, misc: int) -> Bytes:
    return dict(zip(MEM_SLOT_NAMES, (code, tensors, constants, scratchpad, misc), strict=True))


_SERVING = (
    Profile(
        "bert-base",
        rate=120.0,
        utilization=0.45,
        macs=22_500_000_000,
        subgraphs=1,
        device=_memory(24 * MIB, 32 * MIB, 220 * MIB, 16 * MIB, 4 * MIB),
        host=_memory(24 * MIB, 8 * MIB, 0, 0, 2 * MIB),
    ),
    Profile(
        "resnet50",
        rate=180.0,
        utilization=0.60,
        macs=32_800_000_000,
        subgraphs=1,
        device=_memory(18 * MIB, 40 * MIB, 52 * MIB, 24 * MIB, 3 * MIB),
        host=_memory(18 * MIB, 12 * MIB, 0, 0, 2 * MIB),
    ),
    Profile(
        "llama-3.2-1b",
        rate=45.0,
        utilization=0.65,
        macs=78_000_000_000,
        subgraphs=2,
        device=_memory(96 * MIB, 640 * MIB, 2480 * MIB, 64 * MIB, 12 * MIB),
        host=_memory(96 * MIB, 64 * MIB, 16 * MIB, 8 * MIB, 6 * MIB),
    ),
    Profile(
        "vit-large",
        rate=60.0,
        utilization=0.35,
        macs=61_600_000_000,
        subgraphs=1,
        device=_memory(40 * MIB, 48 * MIB, 608 * MIB, 32 * MIB, 6 * MIB),
        host=_memory(40 * MIB, 16 * MIB, 0, 0, 3 * MIB),
    ),
)
_TRAINING = (
    Profile(
        "gpt2-medium",
        rate=8.0,
        utilization=0.90,
        macs=2_200_000_000_000,
        subgraphs=1,
        device=_memory(180 * MIB, 2900 * MIB, 710 * MIB, 512 * MIB, 40 * MIB),
        host=_memory(180 * MIB, 256 * MIB, 32 * MIB, 64 * MIB, 24 * MIB),
    ),
    Profile(
        "bert-large",
        rate=14.0,
        utilization=0.85,
        macs=1_100_000_000_000,
        subgraphs=1,
        device=_memory(140 * MIB, 2300 * MIB, 680 * MIB, 256 * MIB, 32 * MIB),
        host=_memory(140 * MIB, 192 * MIB, 24 * MIB, 48 * MIB, 16 * MIB),
    ),
)

MODELS: dict[str, Profile] = {p.name: p for p in (*_SERVING, *_TRAINING)}
SERVING_MODELS = tuple(p.name for p in _SERVING)
TRAINING_MODELS = tuple(p.name for p in _TRAINING)


class Model(NamedTuple):
    """A loaded model's node as plain values; ``record`` makes the wire record of it."""

    model_id: int
    node_id: int
    name: str
    uuid: bytes
    core: int
    subgraph: int
    host: tuple[MemCell, ...]
    device: tuple[MemCell, ...]

    def record(self) -> ModelNode:
        return ModelNode.build(
            model_id=self.model_id,
            model_node_id=self.node_id,
            name=self.name,
            uuid=self.uuid,
            nc_index=self.core,
            sg_index=self.subgraph,
            mem_usage=(self.host, self.device),
        )


def replica(profile: Profile, core: CoreId, number: int, version: int, rng: random.Random) -> list[Model]:
    """A whole model on one core, as one node per subgraph. ``number`` tells the process's models apart."""
    uuid = rng.randbytes(UUID_SIZE)
    return [
        Model(
            model_id=FIRST_MODEL_ID + number,
            node_id=(FIRST_MODEL_ID + number) * 16 + subgraph,
            name=f"{profile.name}-v{version}/sg{subgraph:02}",
            uuid=uuid,
            core=core[1],
            subgraph=subgraph,
            host=_cells(profile.host, profile.subgraphs),
            device=_cells(profile.device, profile.subgraphs),
        )
        for subgraph in range(profile.subgraphs)
    ]


def partition(profile: Profile, cores: Sequence[CoreId], rng: random.Random) -> list[tuple[CoreId, Model]]:
    """One model over many cores: a node per core, each a subgraph of the same model."""
    uuid = rng.randbytes(UUID_SIZE)
    return [
        (
            core,
            Model(
                model_id=FIRST_MODEL_ID,
                node_id=FIRST_MODEL_ID * 16 + rank,
                name=f"{profile.name}-v1/rank{rank:02}",
                uuid=uuid,
                core=core[1],
                subgraph=rank % 256,
                host=_cells(profile.host, 1),
                device=_cells(profile.device, 1),
            ),
        )
        for rank, core in enumerate(cores)
    ]


def _cells(sizes: Bytes, parts: int) -> tuple[MemCell, ...]:
    """The row of a memory grid: one part of the sizes in whole pages, and the chunks they were allocated in."""
    used = [sizes[name] // parts // _PAGE_BYTES * _PAGE_BYTES for name in MEM_SLOT_NAMES]
    used += [0] * (MEM_SLOTS - len(used))
    return tuple((size, -(-size // _CHUNK_BYTES)) for size in used)
