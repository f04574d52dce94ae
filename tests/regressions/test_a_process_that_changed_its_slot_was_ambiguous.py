"""A process that closed and published again while its pid was looked for was found in both slots, and attach said that
the pid was ambiguous."""

from neuron_ds import datastore, layout
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import Child, Talk


def move(talk: Talk, root: str) -> None:
    """Publish in each slot and in the first again, then in the next whenever told."""
    driver = SoftwareDriver(root)
    for _ in range(layout.SLOTS_PER_DEVICE):
        datastore.publish(0, driver=driver).close()
    while True:
        with datastore.publish(0, driver=driver) as producer:
            talk.say(producer.slot)
            talk.hear()


def test_it_is_found_where_it_is(root, driver, monkeypatch):
    with Child(move, root) as child:
        assert child.expect() == 0
        read_slot, read = t.read_slot, []

        def look_and_let_it_move(words, slot):
            view = read_slot(words, slot)
            read.append((slot, view.state))
            if len(read) == 1:
                assert child.ask("move") == 1
            return view

        monkeypatch.setattr(t, "read_slot", look_and_let_it_move)
        with datastore.attach(child.pid, driver=driver) as reader:
            assert read[:2] == [(0, t.OWNED), (1, t.OWNED)]
            assert reader.slot == 1
            assert reader.snapshot().tag == str(child.pid)
