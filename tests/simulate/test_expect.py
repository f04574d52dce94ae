"""The second implementation of the event table, against the first one: producers of this process."""

from itertools import islice

import pytest

from neuron_ds import publish
from neuron_ds.runtime import ErrorClass, SoftwareError, Status
from neuron_ds.simulate import PATTERNS, Playback, Player, Workload, expected, play, script
from neuron_ds.simulate.events import Executed, StillBusy
from neuron_ds.simulate.expect import fold
from neuron_ds.simulate.workload import FAL_VERSION, FRAMEWORK_TYPE, FRAMEWORK_VERSION, RUNTIME_VERSION


@pytest.fixture
def producer():
    with publish(
        0,
        tag="bert-serving-0",
        framework_type=FRAMEWORK_TYPE,
        framework_version=FRAMEWORK_VERSION,
        fal_version=FAL_VERSION,
        runtime_version=RUNTIME_VERSION,
    ) as producer:
        yield producer


def test_a_slab_without_events_shows_who_publishes(producer):
    assert expected(Workload(), 0)[0].differences(producer.snapshot()) == []


@pytest.mark.parametrize("name", PATTERNS)
def test_every_prefix_shows_what_is_expected(producer, name):
    workload = Workload(pattern=PATTERNS[name](), cores=((0, 0), (0, 5)), seed=2, tag="bert-serving-0")
    playback = Playback(Player({0: producer}), script(workload))
    slab = expected(workload, 0)
    events = script(workload)
    for until in (1, 2, 3, 10, 17, 100, 101, 2000):
        before = playback.played
        playback.run(until)
        fold(slab, islice(events, playback.played - before))
        assert slab[0].differences(producer.snapshot()) == []
    assert playback.played == 2000 or playback.over


@pytest.mark.parametrize("status", Status)
def test_every_status_counts_what_it_must(producer, status):
    completed_with = status in (Status.COMPLETED_WITH_ERR, Status.COMPLETED_WITH_NUM_ERR)
    events = [
        Executed(0, 0, 6, status, 11, 12, 13, 14, 15, 16),
        Executed(0, 0, 6, status, 21, 22, 23, None, None, 0, None, SoftwareError.EVENT),
        *([Executed(0, 0, 6, status, 1, 2, 3, 4, 5, 6, error_class=c) for c in ErrorClass] if completed_with else []),
        StillBusy(0, 0, 6, 1000),
    ]
    assert play(producer, events) == len(events)
    slab = expected(Workload(), 0)
    fold(slab, events)
    assert slab[0].differences(producer.snapshot()) == []


def test_a_time_of_the_script_is_a_prefix_too(producer):
    workload = Workload(seed=4)
    play(producer, script(workload), until_us=2_000_000)
    slab = expected(workload, until_us=2_000_000)[0]
    assert slab.nc(0, "infer_completed") > 100
    assert slab.differences(producer.snapshot()) == []


def test_both_ends_at_once():
    workload = Workload(seed=4)
    assert expected(workload, 50, until_us=2_000_000) == expected(workload, 50)
    assert expected(workload, 10_000, until_us=2_000_000) == expected(workload, until_us=2_000_000)


def test_differences_name_what_differs(producer):
    slab = expected(Workload(), 200)[0]
    play(producer, script(Workload()), limit=200)
    assert slab.differences(producer.snapshot()) == []
    producer.core(3).oob.inc()
    producer.nd.feature_bitmap.or_(1)
    slab.models.clear()
    slab.tag = "another"
    found = "\n".join(slab.differences(producer.snapshot()))
    assert "device 0 core 3 oob: 1, expected 0" in found
    assert "device 0 feature_bitmap: 1, expected 0" in found
    assert "device 0 model 0: Model(" in found
    assert "long tag: 'bert-serving-0', expected 'another'" in found


def test_a_long_tag_is_expected_in_full_and_shortened():
    tag = "é" * 30
    workload = Workload(tag=tag)
    with publish(
        0,
        tag=tag,
        framework_type=FRAMEWORK_TYPE,
        framework_version=FRAMEWORK_VERSION,
        fal_version=FAL_VERSION,
        runtime_version=RUNTIME_VERSION,
    ) as producer:
        assert expected(workload, 0)[0].differences(producer.snapshot()) == []
