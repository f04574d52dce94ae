"""In the live picture a process got the id of one that had just left, and with it that one's events."""

from dataclasses import replace

import pytest

from neuron_ds.datastore import publish
from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from tests.processes import Child, Talk


def container(talk: Talk, root: str) -> None:
    from neuron_ds.driver.software import SoftwareDriver

    producer = publish(0, driver=SoftwareDriver(root), tag=talk.hear())
    talk.say("published")
    while errors := talk.hear():
        producer.core(0).err_hw.add(errors)
        talk.say("counted")
    producer.close()
    talk.say("closed")


@pytest.fixture
def abroad(driver, monkeypatch):
    """Every process is the first of a pid namespace of its own."""
    owners = driver.owners
    monkeypatch.setattr(
        driver, "owners", lambda device: [replace(o, pid=1, foreign=True, namespace=o.pid) for o in owners(device)]
    )
    return driver


def test_events_of_one_that_left_are_not_of_the_next(abroad, root, monkeypatch):
    abroad.probe(0)
    attach = abroad.attach
    monkeypatch.setattr(abroad, "attach", lambda device, pid=None, **more: attach(device, None, **more))
    with Live(LiveSource(abroad, sample_hz=0)) as live:
        live.frame()
        with Child(container, root) as old, Child(container, root) as new:
            old.ask("old")
            assert [p.id for p in live.frame().processes] == ["1"]
            old.ask(5)
            live.frame()
            old.ask(0)
            assert live.frame().processes == ()
            new.ask("new")
            frame = live.frame()
            (process,) = frame.processes
            assert (process.id, process.tag) == ("1~2", "new")
            told = {(e.kind, e.process) for e in frame.events}
            assert {kind for kind, id in told if id == "1~2"} == {"came"}
            assert (
                {"came", "error", "began", "left", "cleared"}
                >= {kind for kind, id in told if id == "1"}
                >= {"error", "left"}
            )
            new.ask(0)
