"""Where the driver tells no slots, a process that was seen to give its slab back had the same key with its next."""

from dataclasses import replace

import pytest

from neuron_ds.collect import Collector, key_of
from neuron_ds.datastore import publish
from neuron_ds.errors import NoDevice
from neuron_ds.rates import deltas
from tests.processes import Child, Talk


@pytest.fixture
def unslotted(driver, monkeypatch):
    """A driver that tells neither slot nor generation nor age."""
    owners = driver.owners
    monkeypatch.setattr(
        driver, "owners", lambda device: [replace(o, slot=None, generation=None, age_s=None) for o in owners(device)]
    )
    return driver


def again(talk: Talk, root: str) -> None:
    from neuron_ds.driver.software import SoftwareDriver

    while True:
        producer = publish(0, driver=SoftwareDriver(root), tag="t")
        producer.core(0).infer_completed.add(talk.hear())
        talk.say("published")
        talk.hear()
        producer.close()
        talk.say("closed")


def test_each_use_is_another(unslotted, root):
    unslotted.probe(0)
    with Child(again, root) as process, Collector(unslotted) as collector:
        process.ask(100)
        first = collector.collect()
        process.ask(None)
        collector.collect()
        process.ask(60)
        last = collector.collect()
        (before,), (after,) = first.processes, last.processes
        assert key_of(before.owner) != key_of(after.owner)
        (delta,) = deltas(first, last).values()
        assert (delta.is_new, delta.nc(0, 1)) == (True, 60)


def test_a_blind_look_does_not_end_it(unslotted, root, monkeypatch):
    unslotted.probe(0)
    with Child(again, root) as process, Collector(unslotted) as collector:
        process.ask(100)
        collector.collect()
        process.ask(None)
        process.ask(3)
        collector.collect()
        first = collector.collect()
        with monkeypatch.context() as patch:
            patch.setattr(
                unslotted, "owners", lambda device: (_ for _ in ()).throw(NoDevice("is not to be had", device=0))
            )
            assert collector.collect().processes == ()
        last = collector.collect()
        assert [p.key for p in first.processes] == [p.key for p in last.processes]
        assert [delta.nc(0, 1) for delta in deltas(first, last).values()] == [0]
