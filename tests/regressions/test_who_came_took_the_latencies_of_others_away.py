"""Latencies seen between a pass's take and its watch were lost for everybody whenever any process came or went."""

from contextlib import ExitStack

import pytest

from neuron_ds import collect, datastore
from neuron_ds.collect import Collector, LatencySampler


def latencies(sample):
    return {p.owner.device: p.latencies for p in sample.processes}


@pytest.fixture
def during(monkeypatch):
    """What these functions do happens in a pass while it reads the slabs."""
    calls, whole = [], collect.snapshot_all

    def snapshot_all(*args, **kwargs):
        shots = whole(*args, **kwargs)
        while calls:
            calls.pop()()
        return shots

    monkeypatch.setattr(collect, "snapshot_all", snapshot_all)
    return calls


def test_they_are_part_of_the_next_sample(driver, during):
    driver.probe(1), driver.probe(2)
    with ExitStack() as stack:
        stays = stack.enter_context(datastore.publish(0, driver=driver))
        leaves = stack.enter_context(datastore.publish(1, driver=driver))
        collector = stack.enter_context(Collector(driver))
        sampler = LatencySampler(collector, rate_hz=0.001)  # looks of its own are too rare to matter
        collector.collect()

        def complete(total_us):
            stays.core(1).execution_ended(1, 10, 0, total_us - 1, total_us)
            sampler._native.look()

        def both():
            complete(100)
            complete(200)

        stack.enter_context(datastore.publish(2, driver=driver))
        during.append(both)
        assert not any(each.total_us for each in latencies(collector.collect()).values())
        complete(300)
        leaves.close()
        during.append(lambda: complete(400))
        found = latencies(collector.collect())
        assert (found[0].total_us, found[0].device_us) == ((100, 200, 300), (99, 199, 299)), "once, and in their order"
        assert found[2].total_us == ()
        assert latencies(collector.collect())[0].total_us == (400,)
        assert latencies(collector.collect())[0].total_us == (), "taken once"


def test_two_changes_before_a_take_lose_nothing_either(driver):
    driver.probe(1)
    with (
        datastore.publish(0, driver=driver) as one,
        datastore.publish(1, driver=driver) as other,
        datastore.attach(one.pid, 0, driver=driver) as first,
        datastore.attach(other.pid, 1, driver=driver) as second,
        Collector(driver) as collector,
    ):
        sampler = LatencySampler(collector, rate_hz=0.001)
        for total_us, readers in ((0, {"a": first}), (5, {"a": first, "b": second}), (6, {"a": first}), (7, None)):
            if total_us:
                one.core(0).execution_ended(1, 10, 0, 1, total_us)
                other.core(0).execution_ended(1, 10, 0, 1, 10 * total_us)
            if readers:
                sampler.watch(readers)
        assert {key: kept.total_us for key, kept in sampler.take().items()} == {"a": (5, 6, 7)}
