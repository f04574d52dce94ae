"""What a monitor pays: copies of whole slabs, the check and the decoding of their records, coming and going."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import ExitStack

from benches.fixtures import MANY_DEVICES, directory, producers
from benches.harness import Comparison, statement
from neuron_ds import _core, layout
from neuron_ds.datastore import ArenaPool, Reader, attach, snapshot_all
from neuron_ds.driver import directory as files
from neuron_ds.driver.software import SoftwareDriver

MANY_SLABS = MANY_DEVICES * layout.SLOTS_PER_DEVICE


def comparisons() -> Iterator[Comparison]:
    with directory(devices=1) as path:
        driver = SoftwareDriver(path)
        with (
            producers(path, processes=1, devices=1, models=layout.MAX_MODELS) as (pid,),
            attach(pid, 0, driver=driver) as reader,
        ):
            yield from _one_slab(reader)
        with producers(path, processes=1, devices=1, models=0) as (pid,):
            yield _coming_and_going(path, driver, pid)
    yield from _many_slabs()


def _one_slab(reader: Reader) -> Iterator[Comparison]:
    mapping = reader._lease.mapping
    snapshot = reader.snapshot()
    assert len(snapshot.models) == layout.MAX_MODELS
    yield Comparison(
        "snapshot(verify=False)",
        "memcpy into fresh bytes",
        statement("snapshot(verify=False)", snapshot=reader.snapshot),
        statement("memcpy(mapping)", memcpy=_core.bench_memcpy_bytes, mapping=mapping),
        1.7,
    )
    hashes = statement("hashes(raw)", hashes=_core.bench_hash64, raw=snapshot.raw)
    yield Comparison(
        "copy and verify 64 records, in C",
        "64 plain hashes",
        statement("verify(mapping)", verify=_core.bench_verify64, mapping=mapping),
        hashes,
        0.42,
    )
    yield Comparison(
        "decode 64 records to plain values",
        "64 plain hashes",
        statement("[model.to_dict() for model in snapshot.models.values()]", snapshot=snapshot),
        hashes,
        6,
    )


def _coming_and_going(path: str, driver: SoftwareDriver, pid: int) -> Comparison:
    with attach(pid, 0, driver=driver) as reader:
        slot = reader.slot
    assert slot is not None
    return Comparison(
        "attach, snapshot, detach",
        "open, mmap, copy, unmap by hand",
        statement(
            "reader = attach(pid, 0, driver=driver); reader.snapshot(); reader.close()",
            attach=attach,
            pid=pid,
            driver=driver,
        ),
        statement(
            "fd = open(path, flags); slab = mmap(fd, size, shared, read, offset=offset); slab[:blob]; "
            "slab.close(); close(fd)",
            open=os.open,
            close=os.close,
            path=f"{path}/{files.device_name(0)}/{files.SLABS}",
            flags=os.O_RDONLY | os.O_CLOEXEC,
            mmap=mmap.mmap,
            size=layout.SLAB_SIZE,
            shared=mmap.MAP_SHARED,
            read=mmap.PROT_READ,
            offset=slot * layout.SLAB_SIZE,
            blob=layout.REQUIRED_SIZE,
        ),
        2.5,
    )


def _many_slabs() -> Iterator[Comparison]:
    """Every slot of 16 devices, each slab of a process of its own."""
    with (
        directory(devices=MANY_DEVICES) as path,
        producers(path, processes=layout.SLOTS_PER_DEVICE, devices=MANY_DEVICES, models=2),
        ExitStack() as stack,
    ):
        driver = SoftwareDriver(path)
        readers = [
            stack.enter_context(attach(device=device, slot=slot, driver=driver))
            for device in range(MANY_DEVICES)
            for slot in range(layout.SLOTS_PER_DEVICE)
        ]
        pool = ArenaPool()
        arena = pool.take(MANY_SLABS)
        pool.put(arena)  # it is the only one, so the passes are made in it
        yield Comparison(
            f"snapshot_all({MANY_SLABS} readers)",
            "memcpy into the same arena",
            statement(
                "snapshot_all(readers, pool, verify=False)", snapshot_all=snapshot_all, readers=readers, pool=pool
            ),
            statement(
                "memcpy(mappings, arena)",
                memcpy=_core.bench_memcpy_many,
                mappings=tuple(reader._lease.mapping for reader in readers),
                arena=arena,
            ),
            1.3,
        )
