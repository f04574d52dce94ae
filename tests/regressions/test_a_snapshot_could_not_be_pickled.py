"""pickle and copy of a Snapshot failed at a view of its bytes: a pass could not be handed to another process."""

import copy
import os
import pickle

import pytest

from neuron_ds import datastore
from neuron_ds.records import ModelNode
from neuron_ds.snapshot import RecordState, Snapshot

WAYS = pytest.mark.parametrize(
    "way",
    [lambda s: pickle.loads(pickle.dumps(s)), lambda s: pickle.loads(pickle.dumps(s, 0)), copy.copy, copy.deepcopy],
)


def same(one, other):
    assert type(other) is Snapshot
    assert bytes(other.raw) == bytes(one.raw)
    assert (other.device, other.pid, other.slot, other.generation) == (one.device, one.pid, one.slot, one.generation)
    assert other.time_ns == one.time_ns
    assert other.to_dict() == one.to_dict()


@WAYS
@pytest.mark.parametrize("verify", [True, False])
def test_a_snapshot_of_a_living_slab(driver, way, verify):
    with datastore.publish(0, driver=driver, tag="pickled") as producer:
        producer.core(3).inference_count.add(5)
        producer.add_model(ModelNode.build(model_id=7, name="bert"))
        alone = producer.snapshot(verify=verify)
        (of_pass,) = datastore.snapshot_all([producer], pool := datastore.ArenaPool(), verify=verify)
        for snapshot in (alone, of_pass):
            assert snapshot.nc(3, 28) == 5  # it now has a view of its words
            same(snapshot, way(snapshot))
        kept = way(of_pass)
        del of_pass, snapshot
        producer.core(3).inference_count.add(1)
        datastore.snapshot_all([producer], pool, verify=verify)
        assert (kept.core(3).inference_count, kept.pid) == (5, os.getpid())


@WAYS
def test_what_was_read_stale_stays_so(golden, way):
    data = bytearray(golden.bytes("full"))
    good = Snapshot.from_bytes(data)
    states = bytes(s if (s := good.state(r)) != RecordState.EXACT else RecordState.STALE for r in range(66))
    stale = {0: good.model(0).raw} if 0 in good.models else {}
    stale |= {slot: model.raw for slot, model in good.models.items()}
    stale |= {64: good.process_info.raw, 65: good.process_info_ext.raw}
    snapshot = Snapshot(bytes(data), time_ns=12, states=states, stale=stale)
    other = way(snapshot)
    same(snapshot, other)
    assert RecordState.STALE in other.states().values()
