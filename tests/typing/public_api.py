"""The public API as a program uses it, for mypy alone: what each call gives, and what it must not be given.

``make lint`` checks this file strictly; nothing runs it. A line that has to be an error says so with an ignore of that
error, which mypy reports once it is no error any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import neuron_ds
from neuron_ds import ModelNode, ProcessInfo, ProcessInfoExt, RecordState, Runtime, Status, Version, errors
from neuron_ds._core import Counter
from neuron_ds.driver import DeviceProperties, Owner


def producing() -> None:
    with neuron_ds.publish(device=0, tag="serving", runtime_version=(2, 31, 99)) as ds:
        assert_type(ds, neuron_ds.Producer)
        assert_type(ds.pid, int)
        assert_type(ds.slot, int | None)
        assert_type(ds.properties, DeviceProperties)
        core = ds.core(3)
        assert_type(core.inference_count, Counter)
        assert_type(core.counter(28).get(), int)
        core.inference_count.add(1)
        core.inference_count.add("1")  # type: ignore[arg-type]
        core.execution_ended(1, 250, 10**12, 201, None, 191)
        core.execution_ended(busy_us=250)  # type: ignore[call-arg]
        core.add_many(bytes(16))
        ds.nd.feature_bitmap.or_(1)
        ds.nd.feature_bitmap.set(0)  # type: ignore[attr-defined]
        assert_type(ds.nd.mem_usage_code_host, Counter)
        handle = ds.add_model(ModelNode.build(model_id=7, name="bert", mem_usage=[[(0, 0)] * 12] * 2))
        assert_type(handle, neuron_ds.ModelHandle)
        handle.update(handle.node.replace(sg_index=1))
        handle.delete()
        ds.add_model(b"bytes")  # type: ignore[arg-type]
        ds.set_process_info(tag="serving", framework_type=-3)


def reading(pid: int) -> None:
    with neuron_ds.attach(pid, device=0) as reader:
        assert_type(reader, neuron_ds.Reader)
        assert_type(reader.alive, bool)
        snapshot = reader.snapshot(verify=True)
        assert_type(snapshot, neuron_ds.Snapshot)
        reader.snapshot(True)  # type: ignore[call-arg]
    assert_type(snapshot.core(3).inference_count, int)
    assert_type(snapshot.nc(3, 28), int)
    assert_type(snapshot.models, dict[int, ModelNode])
    assert_type(snapshot.model(5), ModelNode | None)
    assert_type(snapshot.process_info, ProcessInfo | None)
    assert_type(snapshot.process_info_ext, ProcessInfoExt | None)
    assert_type(snapshot.state(5), RecordState)
    assert_type(snapshot.runtime_version, Version | None)
    assert_type(snapshot.tag, str | None)
    assert_type(snapshot.time_ns, int | None)
    snapshot.device = 3  # type: ignore[misc]
    _ = snapshot.process_info.tag  # type: ignore[union-attr]
    assert_type(neuron_ds.Snapshot.from_file(Path("slab")), neuron_ds.Snapshot)
    assert_type(neuron_ds.Snapshot.from_bytes(bytearray(8)).raw, bytes | memoryview)


def looking() -> None:
    assert_type(neuron_ds.devices(), list[DeviceProperties])
    assert_type(neuron_ds.owners(0), list[Owner])


def records() -> None:
    node = ModelNode.build(model_id=1)
    assert_type(ModelNode.decode(b""), ModelNode)
    assert_type(node.replace(name="x"), ModelNode)
    assert_type(node.uuid, bytes)
    assert_type(node.mem_usage, tuple[tuple[tuple[int, int], ...], ...])
    assert_type(ProcessInfo.build(tag="x").runtime_version, Version)
    assert_type(Version(2, 31, 99).packed(), int)
    ModelNode.build()  # type: ignore[call-arg]
    node.raw = b""  # type: ignore[misc]


def events(producer: neuron_ds.Producer) -> None:
    runtime = Runtime(producer)
    runtime.execution_ended(3, Status.SUCCESS, busy_us=250, device_us=None)
    runtime.execution_ended(3, "success")  # type: ignore[arg-type]


def refusals(pid: int) -> None:
    try:
        neuron_ds.attach(pid)
    except FileNotFoundError:
        pass
    except neuron_ds.NeuronDSError as error:
        assert_type(error, errors.NeuronDSError)
        assert_type(error.device, int | None)
        assert_type(error.message, str)
