"""What a Look keeps of a Sample, and what it shares with the one before."""

from __future__ import annotations

import pytest

from neuron_ds import datastore, layout
from neuron_ds.collect import Collector, DeviceSample, ProcessSample, Sample
from neuron_ds.diagnose import Look, looks_of
from neuron_ds.diagnose.looks import EXTENSION, HOST_MEMORY, NAMED, look_at
from neuron_ds.driver import Owner
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.runtime import Runtime, Status
from neuron_ds.simulate import expected
from neuron_ds.snapshot import Snapshot
from tests.conftest import Golden
from tests.diagnose.stage import played, work


def only(look: Look):
    (process,) = look.processes.values()
    return process


def sample_of(data: bytes) -> Sample:
    process = ProcessSample(Owner(0, 0, 7, True), Snapshot.from_bytes(data), "")
    return Sample(5, (DeviceSample(0, None, (process,), None, 1, ""),), "")


def test_named_counters_are_the_first_of_a_row() -> None:
    assert NAMED == 41
    assert all((c.kind == layout.RESERVED) == (c.index >= NAMED) for c in layout.NC)


def test_a_look_shows_what_the_script_adds_up_to(driver: SoftwareDriver) -> None:
    workload = work("erring", cores=8, rate=20.0, share=0.3, seed=9)
    *_, look = played(driver, [workload], 20)
    process, slab = only(look), expected(workload, until_us=20_000_000)[0]
    assert process.tag == workload.tag
    assert set(process.rows) == set(range(8))
    for core, row in process.rows.items():
        assert row == tuple(slab.counters.get(("nc", core, i), 0) for i in range(NAMED))
    assert process.host_bytes == tuple(slab.counters.get(("nd", i), 0) for i in HOST_MEMORY)
    assert process.models == dict.fromkeys(range(8), 1)
    assert look.devices[0].memory_bytes == 96 << 30
    assert look.devices[0].slots_used == 1
    assert look.dead == ()


def test_what_did_not_change_is_shared(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver, tag="first", runtime_version=(2, 31, 7)) as producer:
        runtime = Runtime(producer)
        for core in (0, 1):
            runtime.execution_ended(core, Status.SUCCESS, busy_us=5)
        with Collector(driver) as collector:
            one = look_at(collector.collect())
            two = look_at(collector.collect(), one)
            assert only(two).rows is only(one).rows
            assert only(two).models is only(one).models
            assert only(two).host_bytes is only(one).host_bytes
            assert only(two).runtime_version == (2, 31, 7)
            runtime.execution_ended(1, Status.SUCCESS, busy_us=5)
            three = look_at(collector.collect(), two)
            assert only(three).rows[0] is only(two).rows[0]
            assert only(three).rows[1] != only(two).rows[1]
            assert only(three).tag == "first"
            producer.set_process_info(tag="second", runtime_version=(2, 32, 0))
            four = look_at(collector.collect(), three)
            assert (only(four).tag, only(four).runtime_version) == ("second", (2, 32, 0))
            assert only(four).rows is only(three).rows


def test_who_cannot_be_read_any_more_is_shown_as_last_seen(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer, Collector(driver) as collector:
        producer.core(2).inference_count.add(3)
        sample = collector.collect()
        one = look_at(sample)
        (process,) = sample.processes
        blind = ProcessSample(process.owner, None, "no more memory", error_kind="MemoryError")
        two = look_at(Sample(sample.time_ns + 1, (DeviceSample(0, None, (blind,), None, 1, ""),), ""), one)
        assert not only(two).readable
        assert (only(two).error, only(two).error_kind) == ("no more memory", "MemoryError")
        assert only(two).rows is only(one).rows
        assert only(two).time_ns == only(one).time_ns
        new = look_at(Sample(1, (DeviceSample(0, None, (blind,), None, 1, ""),), ""))
        assert (only(new).rows, only(new).tag) == ({}, "")


def test_cores_beyond_todays_devices_are_not_missed(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver) as producer:
        data = bytearray(producer.snapshot().raw)
    for core in (3, 4, 11, 15):
        at = layout.nc_index(core, 40) * 8
        data[at : at + 8] = (core + 1).to_bytes(8, "little")
    process = only(look_at(sample_of(bytes(data))))
    assert {core: row[40] for core, row in process.rows.items()} == {3: 4, 4: 5, 11: 12, 15: 16}


@pytest.mark.parametrize("name", ["older-extension", "mixed"])
def test_older_and_mixed_layouts(driver: SoftwareDriver, name: str) -> None:
    with datastore.publish(0, driver=driver) as producer:
        data = bytearray(producer.snapshot().raw)
    at = layout.older_nc_offset(5, 1)
    data[at : at + 8] = (77).to_bytes(8, "little")
    if name == "mixed":
        at = layout.nc_index(4, 0) * 8
        data[at : at + 8] = (1).to_bytes(8, "little")
    process = only(look_at(sample_of(bytes(data))))
    if name == "mixed":
        assert process.odd == {EXTENSION: "mixed"}
    else:
        assert process.rows[5][1] == 77
        assert process.odd == {}


def test_rows_of_an_older_layout_are_shared_too(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver) as producer:
        data = bytearray(producer.snapshot().raw)
    for core in (5, 6):
        at = layout.older_nc_offset(core, 1)
        data[at : at + 8] = (77).to_bytes(8, "little")
    first = look_at(sample_of(bytes(data)))
    same = look_at(sample_of(bytes(data)), first)
    assert only(same).rows is only(first).rows
    data[at : at + 8] = (78).to_bytes(8, "little")
    moved = only(look_at(sample_of(bytes(data)), same)).rows
    assert set(moved) == {5, 6}
    assert moved[5] is only(first).rows[5]
    assert moved[6][1] == 78


def test_every_golden_slab_has_a_look_like_its_snapshot(golden: Golden) -> None:
    seen = 0
    for path in sorted(golden.path("x").parent.glob("*.bin")):
        try:
            snapshot = Snapshot.from_file(path)
        except OSError:
            continue
        process = only(look_at(sample_of(path.read_bytes())))
        busy = {core for core in range(layout.MAX_CORES) if any(snapshot.nc_counters(core)[:NAMED])}
        assert process.rows == {core: snapshot.nc_counters(core)[:NAMED] for core in busy}
        by_core: dict[int, int] = {}
        for model in snapshot.models.values():
            by_core[model.nc_index] = by_core.get(model.nc_index, 0) + 1
        assert process.models == by_core
        assert process.runtime_version == snapshot.runtime_version
        seen += 1
    assert seen >= 3


def test_looks_of_samples_share_from_one_to_the_next(driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver) as producer, Collector(driver) as collector:
        producer.core(0).inference_count.add(1)
        one, two = looks_of([collector.collect(), collector.collect()])
        assert only(two).rows is only(one).rows
