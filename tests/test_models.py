"""Models and process info as a producer publishes them: slots, order of stores, threads, tags, versions."""

from __future__ import annotations

import errno
import os

import pytest

from neuron_ds import Version, datastore, layout
from neuron_ds.driver import steps
from neuron_ds.errors import (
    BadIndex,
    BadValue,
    ModelsFull,
)
from tests.devices import node
from tests.processes import run_threads

# --- Models ---------------------------------------------------------------------------------------------------------


def test_models_added_updated_deleted(producer, reader):
    first, second = producer.add_model(node(1)), producer.add_model(node(2))
    assert (first.slot, second.slot) == (0, 1)
    assert {s: m.model_id for s, m in reader.snapshot().models.items()} == {0: 1, 1: 2}
    first.update(node(11))
    assert first.node.model_id == 11
    snapshot = reader.snapshot()
    assert snapshot.models == {0: first.node, 1: second.node}
    assert snapshot.models[0].raw == node(11).raw
    first.delete()
    first.delete()
    snapshot = reader.snapshot()
    assert (snapshot.model_bitmap, list(snapshot.models)) == (2, [1])
    assert snapshot.raw[layout.model_offset(0) : layout.model_offset(1)] == bytes(layout.MODEL_SIZE)
    with pytest.raises(BadIndex, match="model slot 0 was deleted; add it again") as deleted:
        first.update(node(12))
    assert (deleted.value.errno, deleted.value.slot) == (errno.EINVAL, producer.slot)
    third = producer.add_model(node(3))
    assert third.slot == 0  # the first clear bit
    with pytest.raises(BadIndex):
        first.update(node(4))
    first.delete()
    assert {s: m.model_id for s, m in reader.snapshot().models.items()} == {0: 3, 1: 2}


def test_a_65th_model(producer, reader):
    handles = [producer.add_model(node(k)) for k in range(layout.MAX_MODELS)]
    assert [h.slot for h in handles] == list(range(layout.MAX_MODELS))
    with pytest.raises(ModelsFull, match="all 64 model slots are taken; delete a model first") as full:
        producer.add_model(node(64))
    assert (full.value.errno, full.value.device, full.value.pid) == (errno.ENOSPC, 0, os.getpid())
    snapshot = reader.snapshot()
    assert snapshot.model_bitmap == 2**64 - 1
    assert [m.model_id for m in snapshot.models.values()] == list(range(64))
    handles[17].delete()
    assert producer.add_model(node(99)).slot == 17
    with pytest.raises(ModelsFull):
        producer.add_model(node(100))


def test_the_record_stands_before_its_bit_and_goes_after_it(producer, driver):
    """At every step of an add, an update and a delete: a set bit always has a record behind it."""
    with datastore.attach(os.getpid(), driver=driver) as reader:
        seen: list[tuple[str, int, bool]] = []

        def look(name: str) -> None:
            raw = reader.snapshot(verify=False).raw
            bitmap = int.from_bytes(raw[layout.MODEL_BITMAP.offset : layout.MODEL_BITMAP.end], "little")
            record = any(raw[layout.model_offset(0) : layout.model_offset(1)])
            assert record or not bitmap & 1, f"{name}: a bit without a record"
            seen.append((name, bitmap & 1, record))

        steps.set_hook(look)
        try:
            model = producer.add_model(node(1))
            model.delete()
        finally:
            steps.set_hook(None)
    assert seen == [
        ("publish.begin", 0, False),
        ("publish.half", 0, True),
        ("publish.written", 0, True),
        ("publish.bit", 1, True),
        ("delete.bit", 0, True),
        ("delete.zeroed", 0, False),
    ]


@pytest.mark.usefixtures("switching")
def test_threads_that_add_at_once_get_slots_of_their_own(producer, reader):
    handles: list[datastore.ModelHandle] = []
    numbers = iter(range(layout.MAX_MODELS))

    def work() -> None:
        for _ in range(8):
            handles.append(producer.add_model(node(next(numbers))))

    assert run_threads(work, 8) == []
    assert sorted(h.slot for h in handles) == list(range(layout.MAX_MODELS))
    models = reader.snapshot().models
    assert {h.slot: h.node.model_id for h in handles} == {s: m.model_id for s, m in models.items()}
    with pytest.raises(ModelsFull):
        producer.add_model(node(64))


@pytest.mark.usefixtures("switching")
def test_threads_that_add_update_and_delete_never_meet_in_a_slot(producer, reader):
    owned = [0] * layout.MAX_MODELS
    numbers = iter(range(1, 1 << 30))

    def work() -> None:
        for _ in range(120):
            k = next(numbers)
            model = producer.add_model(node(k))
            assert owned[model.slot] == 0, "one slot for two models"
            owned[model.slot] = k
            model.update(node(k))
            assert producer.snapshot(verify=True).models[model.slot].model_id == k
            owned[model.slot] = 0
            model.delete()

    assert run_threads(work, 5) == []
    assert producer.snapshot().model_bitmap == 0
    assert not any(producer.snapshot().raw[layout.MODELS.offset : layout.MODELS.end])


def test_an_add_that_fails_keeps_no_slot(producer):
    class Broken:
        raw = b"too short"

    for _ in range(layout.MAX_MODELS + 1):
        with pytest.raises(BadIndex):
            producer.add_model(Broken())
    assert producer.add_model(node(1)).slot == 0


def test_models_of_a_new_life_start_from_nothing(driver):
    with datastore.publish(0, driver=driver) as producer:
        for k in range(layout.MAX_MODELS):
            producer.add_model(node(k))
    with datastore.publish(0, driver=driver) as producer:
        assert producer.add_model(node(1)).slot == 0


# --- Process info ---------------------------------------------------------------------------------------------------


def info_of(producer: datastore.Producer) -> tuple[str, str]:
    snapshot = producer.snapshot()
    return snapshot.process_info.tag, snapshot.process_info_ext.tag


def test_the_tag_is_the_variables_else_the_pid(driver, monkeypatch):
    monkeypatch.delenv("NEURON_PROCESS_TAG", raising=False)
    with datastore.publish(0, driver=driver) as producer:
        assert info_of(producer) == (str(os.getpid()),) * 2
        monkeypatch.setenv("NEURON_PROCESS_TAG", "job-7")
        producer.set_process_info()
        assert info_of(producer) == ("job-7",) * 2
        producer.set_process_info(tag="given")
        assert info_of(producer) == ("given",) * 2
        monkeypatch.setenv("NEURON_PROCESS_TAG", "")
        producer.set_process_info()
        assert info_of(producer) == (str(os.getpid()),) * 2


@pytest.mark.parametrize(
    ("tag", "short"),
    [
        ("x" * 32, "x" * 32),
        ("x" * 33, "x" * 32),
        ("x" * 256, "x" * 32),
        ("x" * 31 + "é", "x" * 31),
        ("x" * 30 + "é" + "y", "x" * 30 + "é"),
        ("x" * 30 + "€uro", "x" * 30),
        ("x" * 29 + "😀" + "y", "x" * 29),
        ("x" * 28 + "😀" + "y", "x" * 28 + "😀"),
        ("é" * 128, "é" * 16),
        ("\udcff" * 40, "\udcff" * 32),
    ],
)
def test_a_long_tag_is_cut_at_32_bytes_but_not_inside_a_character(producer, tag, short):
    producer.set_process_info(tag=tag)
    assert info_of(producer) == (short, tag)


@pytest.mark.parametrize("tag", ["x" * 257, "é" * 129, "😀" * 65])
def test_a_tag_that_is_too_long_is_refused_with_name_and_limit(producer, tag, monkeypatch):
    producer.set_process_info(tag="before")
    with pytest.raises(BadValue, match=r"tag.*25[78] bytes.*256|tag.*260 bytes.*256") as long:
        producer.set_process_info(tag=tag)
    assert long.value.errno == errno.EINVAL
    monkeypatch.setenv("NEURON_PROCESS_TAG", tag)
    with pytest.raises(BadValue, match="tag"):
        producer.set_process_info()
    assert info_of(producer) == ("before", "before")


def test_versions_go_into_the_record_and_packed_into_the_device_counters(producer):
    producer.set_process_info(
        framework_type=-3, framework_version=(2, 3, 4), fal_version=(5, 6, 7), runtime_version=(8, 9, 1 << 31)
    )
    snapshot = producer.snapshot()
    info = snapshot.process_info
    assert (info.framework_type, info.framework_version, info.fal_version) == (-3, (2, 3, 4), (5, 6, 7))
    assert snapshot.runtime_version == Version(8, 9, 1 << 31)
    nd = {c.name: snapshot.nd(c.index) for c in layout.ND}
    assert nd["runtime_version"] == 8 << 40 | 9 << 32 | 1 << 31
    assert nd["framework_version"] == 0xFFFD << 48 | 2 << 40 | 3 << 32 | 4
    assert nd["fal_version"] == 5 << 40 | 6 << 32 | 7


@pytest.mark.parametrize(
    "wrong",
    [
        {"framework_type": 128},
        {"framework_type": -129},
        {"framework_version": (1, 256, 0)},
        {"fal_version": (0, 0, 1 << 32)},
        {"runtime_version": (-1, 0, 0)},
    ],
)
def test_process_info_that_does_not_fit_changes_nothing(producer, wrong):
    producer.set_process_info(tag="before", runtime_version=(1, 2, 3))
    before = producer.snapshot().raw
    with pytest.raises(BadValue) as bad:
        producer.set_process_info(tag="after", **wrong)
    assert next(iter(wrong)) in str(bad.value)
    assert producer.snapshot().raw == before
