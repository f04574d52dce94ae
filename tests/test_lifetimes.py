"""Real processes whose end is not the end, or is: zombies, forks, execs, pid namespaces, slabs that change hands."""

from __future__ import annotations

import errno
import os
import sys
import time

import pytest

from neuron_ds import ModelNode, datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import AmbiguousPid, NeuronDSError, NoSlab, ProducerGone
from tests.devices import COUNT, publish_and_wait
from tests.processes import Child, Program, Talk, adopt_orphans, outcome, process_state, unshare

# --- Deaths that are none, lives that go on -------------------------------------------------------------------------


def test_a_zombie_holds_no_slot(root, driver):
    with Child(publish_and_wait, root, "zombie") as child:
        slot = child.expect()
        reader = datastore.attach(child.pid, driver=driver)
        child.kill()
        child.wait_zombie()
        assert process_state(child.pid) == "Z"
        assert not reader.alive
        with pytest.raises(ProducerGone) as gone:
            reader.snapshot()
        assert gone.value.errno == errno.ESRCH
        with pytest.raises(NoSlab):
            datastore.attach(child.pid, driver=driver)
        assert [(o.slot, o.alive) for o in driver.owners(0)] == [(slot, False)]
        with datastore.publish(0, driver=driver) as producer:  # recovers it, though nobody has buried the process
            assert [o.pid for o in driver.owners(0)] == [os.getpid()]
            assert producer.slot == slot + 1
        assert process_state(child.pid) == "Z"
        reader.close()


def parent_of_a_child_that_outlives_it(talk: Talk, root: str) -> None:
    driver = SoftwareDriver(root)
    producer = datastore.publish(0, driver=driver, tag="parent")
    counter, model = producer.core(0).inference_count, producer.add_model(ModelNode.build(model_id=1))
    own_reader = datastore.attach(os.getpid(), driver=driver)
    counter.set(111)
    if os.fork() > 0:
        talk.say(producer.slot)
        talk.hear()
        os._exit(0)
    talk.hear()  # the parent's word comes to one of the two: the test tells twice
    talk.say(
        {
            "pid": os.getpid(),
            "add": outcome(lambda: counter.add(1)),
            "get": outcome(counter.get),
            "new handle": outcome(lambda: producer.core(1).counter(3)),
            "snapshot": outcome(producer.snapshot),
            "reader": outcome(own_reader.snapshot),
            "add_model": outcome(lambda: producer.add_model(ModelNode.build(model_id=2))),
            "update": outcome(lambda: model.update(ModelNode.build(model_id=2))),
            "delete": outcome(model.delete),
            "info": outcome(producer.set_process_info),
            "close": outcome(producer.close),
            "close again": outcome(producer.close),
            "close reader": outcome(own_reader.close),
            "closed": producer.closed,
        }
    )
    producer = counter = model = own_reader = None
    own = datastore.publish(0, driver=driver, tag="child")
    own.core(0).inference_count.set(222)
    talk.say(own.slot)
    talk.hear()
    own.close()
    talk.say("closed")
    talk.hear()


def test_a_forked_child_owns_nothing_and_outlives_its_parent(root, driver):
    adopt_orphans()
    with Child(parent_of_a_child_that_outlives_it, root) as parent:
        slot = parent.expect()
        reader = datastore.attach(parent.pid, driver=driver)
        parent.stop()  # so that what is told now is the child's
        answers = parent.ask("child, look")
        child_pid, closed = answers.pop("pid"), answers.pop("closed")
        assert closed is True
        assert {k: v for k, v in answers.items() if not k.startswith("close")} == dict.fromkeys(
            ("add", "get", "new handle", "snapshot", "reader", "add_model", "update", "delete", "info"), "ForkedChild"
        )
        assert {answers["close"], answers["close again"], answers["close reader"]} == {"ok"}
        child_slot = parent.expect()
        assert child_slot != slot
        assert reader.snapshot().nc(0, COUNT) == 111  # nothing of that touched the parent's slab or its lock
        assert sorted((o.slot, o.pid, o.alive) for o in driver.owners(0)) == [
            (slot, parent.pid, True),
            (child_slot, child_pid, True),
        ]
        parent.end()
        assert not reader.alive
        with pytest.raises(ProducerGone):
            reader.snapshot()
        with datastore.publish(0, driver=driver):
            assert {o.pid for o in driver.owners(0)} == {child_pid, os.getpid()}
        with datastore.attach(child_pid, driver=driver) as other:
            assert other.snapshot().nc(0, COUNT) == 222
            assert parent.ask("child, close") == "closed"
            with pytest.raises(ProducerGone):
                other.snapshot()
        parent.tell("child, end")
        assert os.waitpid(child_pid, 0)[1] == 0
        reader.close()


EXEC = """
import os, sys
from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
root, image = sys.argv[1:3]
driver = SoftwareDriver(root)
if image == "second":
    say("second image")
    hear()
producer = datastore.publish(0, driver=driver, tag=image)
producer.core(0).inference_count.set(111 if image == "first" else 222)
say(producer.slot, producer.generation)
hear()
if image == "first":
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[3], root, "second", ""])
"""


def test_exec_gives_the_slot_up_and_the_new_image_has_its_own(root, driver):
    from tests import processes

    source = processes._PRELUDE + EXEC
    with Program(EXEC, root, "first", source) as program:
        first = program.expect()
        reader = datastore.attach(program.pid, driver=driver)
        assert reader.snapshot().tag == "first"
        assert program.ask("exec") == "second image"
        assert not reader.alive  # the same pid and start time, and yet
        with pytest.raises(ProducerGone):
            reader.snapshot()
        with pytest.raises(NoSlab):
            datastore.attach(program.pid, driver=driver)
        second = program.ask("publish")
        assert second[0] != first[0]
        assert [(o.slot, o.pid) for o in driver.owners(0)] == [(second[0], program.pid)]
        with datastore.attach(program.pid, driver=driver) as other:
            assert (other.snapshot().tag, other.snapshot().nc(0, COUNT)) == ("second", 222)
        with pytest.raises(ProducerGone):
            reader.core(0).inference_count.get()
        reader.close()


# --- Pid namespaces -------------------------------------------------------------------------------------------------


PID_NAMESPACE = ["--pid", "--fork", "--kill-child", "--mount-proc"]

NAMESPACED = """
import os, sys
from neuron_ds import _core, datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError
driver = SoftwareDriver(sys.argv[1])
if sys.argv[2]:
    producer = datastore.publish(0, driver=driver, tag=sys.argv[2])
    say(os.getpid(), producer.slot)
else:
    say(os.getpid(), -1)
while question := hear():
    if question == "own":
        with datastore.attach(os.getpid(), driver=driver) as reader:
            say(reader.slot, reader.snapshot().tag)
    elif question == "holders":
        fd = os.open(sys.argv[1] + "/neuron0", os.O_RDONLY)
        file = _core.open_lock_file(fd, "owners")
        say([file.holder(slot) for slot in range(3)])
    elif question == "owners":
        say([[o.pid, o.slot, o.alive, o.foreign] for o in driver.owners(0)])
    elif question == "attach 1":
        try:
            with datastore.attach(1, driver=driver) as reader:
                say(reader.snapshot().tag)
        except NeuronDSError as e:
            say(type(e).__name__, str(e))
"""


def test_pid_namespaces(root, driver):
    wrapper = unshare(*PID_NAMESPACE)
    with (
        Program(NAMESPACED, root, "red", wrapper=wrapper) as red,
        Program(NAMESPACED, root, "blue", wrapper=wrapper) as blue,
        Program(NAMESPACED, root, "", wrapper=wrapper) as monitor,
    ):
        (red_pid, red_slot), (blue_pid, blue_slot), (monitor_pid, _) = (p.expect() for p in (red, blue, monitor))
        assert (red_pid, blue_pid, monitor_pid) == (1, 1, 1)
        assert {red_slot, blue_slot} == {0, 1}
        # From outside: both pids are 1 and neither is ours.
        assert [(o.pid, o.slot, o.alive, o.foreign) for o in driver.owners(0)] == [
            (1, 0, True, True),
            (1, 1, True, True),
        ]
        with pytest.raises(AmbiguousPid, match=r"slot 0.*slot 1.*attach by slot") as ambiguous:
            datastore.attach(1, driver=driver)
        assert ambiguous.value.errno == errno.ENOTUNIQ
        for slot, tag in ((red_slot, "red"), (blue_slot, "blue")):
            with datastore.attach(slot=slot, driver=driver) as reader:
                assert reader.snapshot().tag == tag
                assert reader.pid == 1
        # From inside: one's own namespace comes first.
        assert red.ask("own") == [red_slot, "red"]
        assert blue.ask("own") == [blue_slot, "blue"]
        assert red.ask("attach 1") == "red"
        assert red.ask("owners") == [[1, s, True, s != red_slot] for s in (0, 1)]
        # From a third: the kernel tells holders no pid, and 1 is ambiguous there too.
        assert monitor.ask("holders") == [0, 0, None]
        assert monitor.ask("attach 1")[0] == "AmbiguousPid"
        # A death in another namespace is seen and recovered like any other.
        with datastore.attach(slot=red_slot, driver=driver) as reader:
            red.end()
            wait_for_death(reader)
        with datastore.publish(0, driver=driver) as producer:
            assert producer.slot == 2
            assert [(o.pid, o.foreign) for o in driver.owners(0)] == [(1, True), (os.getpid(), False)]
            with datastore.attach(1, driver=driver) as reader:  # the only one left with that pid
                assert reader.snapshot().tag == "blue"


def wait_for_death(reader: datastore.Reader) -> None:
    """The wrapper was killed and not the process in the namespace itself, which dies a moment later."""
    deadline = time.monotonic() + 20
    while reader.alive:
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- A reassigned slab ----------------------------------------------------------------------------------------------


def take_slot(talk: Talk, root: str, wanted: int) -> None:
    """Publish and close until the slot has come round; then count in it."""
    driver = SoftwareDriver(root)
    producer = datastore.publish(0, driver=driver, tag="second")
    while producer.slot != wanted:
        producer.close()
        producer = datastore.publish(0, driver=driver, tag="second")
    for counter in (producer.core(0).inference_count, producer.core(0).counter(60), producer.core(5).counter(3)):
        counter.set(222)
    producer.nd.counter(8).set(222)
    producer.add_model(ModelNode.build(model_id=222))
    talk.say("ready")
    talk.hear()


def test_a_reader_never_sees_the_next_owner_of_a_slab(root, driver):
    with Child(publish_and_wait, root, "first") as first:
        slot = first.expect()
        reader = datastore.attach(first.pid, driver=driver)
        handles = [
            reader.core(0).inference_count,
            reader.core(0).counter(60),
            reader.core(5).counter(3),
            reader.nd.counter(8),
        ]
        assert [h.get() for h in handles] == [111, 0, 0, 0]
        assert reader.snapshot().tag == "first"
        first.end()
        with Child(take_slot, root, slot) as second:
            second.expect()
            for read in (reader.snapshot, lambda: reader.snapshot(verify=False), *(h.get for h in handles)):
                with pytest.raises(ProducerGone) as gone:
                    read()
                assert (gone.value.device, gone.value.pid, gone.value.slot) == (0, first.pid, slot)
            assert not reader.alive
            with pytest.raises(NoSlab):
                datastore.attach(first.pid, driver=driver)
            (result,) = datastore.snapshot_all([reader], datastore.ArenaPool())
            assert isinstance(result, ProducerGone)
            with datastore.attach(second.pid, driver=driver) as other:
                assert other.slot == slot
                assert other.snapshot().nc(0, COUNT) == 222
        reader.close()


def watch(talk: Talk, root: str, pid: int) -> list[object]:
    """Read without pause until the slab is gone: only ever values of its producer."""
    reader = datastore.attach(pid, driver=SoftwareDriver(root))
    handle, reads = reader.core(0).inference_count, 0
    talk.say("looking")
    while True:
        try:
            value = handle.get()
            assert value == 111, f"a value of another: {value}"
            snapshot = reader.snapshot()
            assert (snapshot.nc(0, COUNT), snapshot.tag) == (111, "first")
            reads += 1
        except ProducerGone:
            break
    talk.hear()  # the slab is another's by now
    return [reads, outcome(handle.get), outcome(reader.snapshot)]


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_readers_at_the_moment_a_slab_changes_hands(root, driver, end):
    for _ in range(10):
        with Child(publish_and_close, root) as first:
            slot = first.expect()
            with Child(watch, root, first.pid) as watcher:
                watcher.expect()
                if end == "closed":
                    first.tell("close")
                else:
                    first.end()
                with Child(take_slot, root, slot) as second:
                    second.expect()
                    assert watcher.ask("it changed hands")[1:] == ["ProducerGone", "ProducerGone"]


def publish_and_close(talk: Talk, root: str) -> None:
    producer = datastore.publish(0, driver=SoftwareDriver(root), tag="first")
    producer.core(0).inference_count.set(111)
    talk.say(producer.slot)
    talk.hear()
    producer.close()
    talk.hear()


def test_the_interpreter_that_runs_these_tests_can_be_started_afresh():
    """What ``Program`` relies on."""
    with Program("say(sys.version_info[:2])") as program:
        assert tuple(program.expect()) == sys.version_info[:2]
        assert program.wait() == 0
    assert issubclass(ProducerGone, NeuronDSError)
