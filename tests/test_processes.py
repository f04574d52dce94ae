"""Real processes on one device: races, deaths, forks, execs, namespaces. What is long is marked slow."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter

import pytest

from neuron_ds import ModelNode, RecordState, datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import AmbiguousPid, NeuronDSError, NoSlab, NotReady, ProducerGone, SlotsFull, TableBusy
from tests import kill
from tests.devices import COUNT, publish_and_wait
from tests.kill import Bench
from tests.processes import Child, Program, Talk, adopt_orphans, outcome, process_state, unshare


@pytest.fixture
def bench(root):
    made = Bench(root)
    yield made
    made.close()


# --- A writer at full speed, and readers ----------------------------------------------------------------------------


def node(k: int) -> ModelNode:
    """A record whose fields all follow from one number: a mixture of two shows."""
    return ModelNode.build(
        model_id=k,
        model_node_id=k ^ 0xFFFF,
        name=f"{k:08d}" * 31,
        uuid=bytes([k & 0xFF]) * 16,
        nc_index=k & 7,
        sg_index=k & 0xFF,
        mem_usage=[[(k, k & 0xFFFF)] * 12] * 2,
    )


NODES = 256


def write(talk: Talk, root: str) -> dict[str, int]:
    """Update two models and add to counters as fast as can be until told; says how often."""
    nodes = [node(k) for k in range(NODES)]
    producer = datastore.publish(0, driver=SoftwareDriver(root))
    models = [producer.add_model(nodes[0]) for _ in range(2)]
    core = producer.core(5)
    count, macs, ext = core.inference_count, core.mac_count, core.counter(60)
    talk.say("ready")
    os.set_blocking(talk._in.fileno(), False)
    rounds = 0
    while talk._in.read(1) is None:
        for k in range(NODES):
            models[k & 1].update(nodes[k])
            count.inc()
            macs.add(3)
            ext.add(1 << 33)
        rounds += NODES
    talk.say({"rounds": rounds})
    os.set_blocking(talk._in.fileno(), True)
    talk.hear()


def read(talk: Talk, root: str, pid: int, seconds: float) -> dict[str, int]:
    """Snapshot as fast as can be; every record given must be one that was written, every count one that follows."""
    whole = {node(k).raw for k in range(NODES)}
    reader = datastore.attach(pid, driver=SoftwareDriver(root))
    seen, last, handle = Counter(), (0, 0, 0), reader.core(5).inference_count
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = handle.get()
        snapshot = reader.snapshot()
        after = handle.get()
        for slot in range(2):
            state = snapshot.state(slot)
            seen[state.name] += 1
            model = snapshot.model(slot)
            assert (model is not None) == state.has_value
            assert model is None or model.raw in whole, f"a torn record was returned as {state.name}"
        now = snapshot.nc(5, COUNT), snapshot.core(5).mac_count, snapshot.nc(5, 60)
        assert before <= now[0] <= after
        assert all(a >= b for a, b in zip(now, last, strict=True)), "a counter went back"
        assert now[2] % (1 << 33) == 0, "a counter was torn"
        last = now
        seen["snapshots"] += 1
    return dict(seen)


def race(root: str, seconds: float, readers: int) -> Counter:
    with Child(write, root) as writer:
        assert writer.expect() == "ready"
        looking = [Child(read, root, writer.pid, seconds) for _ in range(readers)]
        seen = Counter()
        for child in looking:
            seen.update(child.expect())
            child.close()
        writer.tell("enough")
        rounds = writer.expect()["rounds"]
        with datastore.attach(writer.pid, driver=SoftwareDriver(root)) as reader:
            snapshot = reader.snapshot()
            assert snapshot.nc(5, COUNT) == rounds
            assert snapshot.core(5).mac_count == 3 * rounds
            assert snapshot.nc(5, 60) == (rounds << 33) % 2**64
            assert snapshot.states() == dict.fromkeys((0, 1, 64, 65), RecordState.EXACT)
        writer.tell("go")
    return seen


def test_readers_beside_a_writer_at_full_speed(root, capsys):
    seen = race(root, 1.5, 2)
    with capsys.disabled():
        print(f"\nreaders beside a writer: {dict(seen)}")
    assert seen["snapshots"] > 500
    assert seen["EXACT"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_readers_beside_a_writer_at_full_speed_for_long(root, capsys):
    seen = race(root, 15, 3)
    with capsys.disabled():
        print(f"\nreaders beside a writer: {dict(seen)}")
    assert seen["snapshots"] > 5000
    assert seen["RETRIED"] + seen["STALE"] > 0, "no read ever met a write: nothing was shown"


def add_with_threads(talk: Talk, root: str) -> int:
    import threading

    producer = datastore.publish(0, driver=SoftwareDriver(root))
    handle = producer.core(1).inference_count

    def work() -> None:
        for _ in range(20_000):
            handle.inc()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return handle.get()


def test_sums_of_threads_are_exact(root):
    with Child(add_with_threads, root) as child:
        assert child.expect() == 80_000


# --- 64 for 16 ------------------------------------------------------------------------------------------------------


def contend(talk: Talk, root: str) -> None:
    driver = SoftwareDriver(root)
    talk.say("ready")
    talk.hear()
    while True:
        try:
            producer = datastore.publish(0, driver=driver)
        except SlotsFull as e:
            talk.say([-1, e.errno])
        except TableBusy:
            continue  # 64 processes on a busy machine may well take more than the 2 s
        else:
            producer.core(0).inference_count.add(os.getpid())
            talk.say([producer.slot, 0])
        break
    talk.hear()


def race_for_slots(root: str) -> None:
    driver = SoftwareDriver(root)
    driver.probe(0)
    children = [Child(contend, root) for _ in range(64)]
    try:
        for child in children:
            child.expect()
        for child in children:
            child.tell("go")
        answers = [child.expect() for child in children]
        won = {slot: child for child, (slot, _) in zip(children, answers, strict=True) if slot >= 0}
        assert sorted(won) == list(range(layout.SLOTS_PER_DEVICE)), "16 win, and no two share one"
        assert [code for slot, code in answers if slot < 0] == [errno.ENOMEM] * 48
        for slot, child in won.items():
            with datastore.attach(child.pid, driver=driver) as reader:
                assert reader.slot == slot
                assert reader.snapshot().nc(0, COUNT) == child.pid
        with pytest.raises(SlotsFull, match="all 16 slots are taken") as full:
            datastore.publish(0, driver=driver)
        assert full.value.errno == errno.ENOMEM
        next(iter(won.values())).end()
        with datastore.publish(0, driver=driver) as producer:  # and one death makes room
            assert producer.slot == next(iter(won))
    finally:
        for child in children:
            child.close()
    assert driver.totals(0).nc(0, COUNT) == sum(child.pid for child in won.values())


def test_64_processes_race_for_16_slots(root):
    race_for_slots(root)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_64_processes_race_for_16_slots_again_and_again(root):
    for i in range(20):
        race_for_slots(f"{root}{i}")
        shutil.rmtree(f"{root}{i}")


# --- SIGKILL at every step ------------------------------------------------------------------------------------------


def sequences() -> dict[str, list[str]]:
    """The recorded steps of a life, by what it finds at its first lock-taking."""
    found = {}
    for what, leftover in kill.LEFTOVERS.items():
        root = tempfile.mkdtemp(dir="/dev/shm")
        try:
            found[what] = kill.record(f"{root}/r", leftover)
        finally:
            shutil.rmtree(root)
    return found


def kill_everywhere(bench: Bench, hits: int) -> tuple[Counter, int]:
    recorded = sequences()
    named = {name for sequence in recorded.values() for name in sequence} - {kill.ADD}
    assert named | {"reset.zeroed", "reset.committed"} == kill.names_in_source(), "a step is missing in the lives"
    count, told = Counter[str](), 0
    while any(count[name] < hits for name in named):
        for what, sequence in recorded.items():
            for position, name in enumerate(sequence):
                # Where nothing else was left over, every step; else what only the leftover leads to.
                if count[name] >= hits or (what != "nothing" and name in recorded["nothing"]):
                    continue
                if kill.LEFTOVERS[what] is not None:
                    kill.kill_at(bench.root, kill.LEFTOVERS[what])
                    bench.expected += kill.ADDED
                told += bench.kill(sequence, position, watched=count[name] % 2 == 1)
                count[name] += 1
    return count, told


def summary(title: str, count: Counter) -> str:
    return f"\n{title}: " + ", ".join(f"{name} {n}" for name, n in sorted(count.items()))


def test_sigkill_at_every_step(bench, capsys):
    count, told = kill_everywhere(bench, 2)
    with capsys.disabled():
        print(summary("killed at", count), f"; readers told {told}", sep="")
    assert min(count.values()) >= 2
    assert told >= 5


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigkill_at_every_step_20_times(bench, capsys):
    count, told = kill_everywhere(bench, 20)
    with capsys.disabled():
        print(summary("killed at", count), f"; readers told {told}", sep="")
    assert min(count.values()) >= 20
    assert told >= 50


@pytest.mark.parametrize("step", ["reset.zeroed", "reset.committed"])
def test_sigkill_within_a_reset(root, step):
    driver = SoftwareDriver(root)

    def work(talk: Talk) -> None:
        kill.live(root, lambda name: None)
        kill.steps.set_hook(lambda name: name == step and os.kill(os.getpid(), signal.SIGKILL))
        talk.say(driver.totals(0).nc(0, COUNT))
        driver.reset(0)

    with Child(work) as child:
        assert child.expect() == kill.ADDED
        assert child.wait() == -signal.SIGKILL
    assert driver.totals(0).nc(0, COUNT) == (kill.ADDED if step == "reset.zeroed" else 0)
    driver.reset(0)
    assert driver.totals(0).nc(0, COUNT) == 0


def kill_at_random(bench: Bench, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(kills):
        ledger = kill.Ledger()
        with Child(kill.busy, bench.root, ledger) as child:
            assert child.expect() == "ready"
            time.sleep(rng.random() * 0.012)  # the instant itself, nothing is waited for
            child.end()
        done, begun = ledger.range
        total = bench.total() - bench.expected
        assert done <= total <= begun, f"{total} counted of {done} to {begun}"
        bench.expected += total
        bench.check_after_death()
        bench.check_after_recovery()


def test_sigkill_at_random_instants(bench):
    kill_at_random(bench, 60, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_sigkill_at_a_thousand_random_instants(bench):
    kill_at_random(bench, 1000, 2)


# --- Observers while slots change hands ------------------------------------------------------------------------------


def come_and_go(talk: Talk, root: str, ledger: kill.Ledger) -> None:
    """Publish, count and close without end, in ever other slots."""
    driver = SoftwareDriver(root)
    talk.say("ready")
    while True:
        with datastore.publish(0, driver=driver) as producer:
            ledger.begin()
            producer.core(0).inference_count.add(kill.ADDED)
            ledger.done()


def sum_up(talk: Talk, root: str, seconds: float) -> dict[str, int]:
    """Read the device's totals as fast as can be: they never go back."""
    driver, seen, last = SoftwareDriver(root), Counter(), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            now = driver.totals(0).nc(0, COUNT)
        except TableBusy:
            seen["never still"] += 1
            continue
        assert now >= last, "the totals went back"
        last = now
        seen["sums"] += 1
    return {**seen, "last": last}


def follow(talk: Talk, root: str, pids: list[int], seconds: float) -> dict[str, int]:
    """Attach to processes that come and go: found or not, but never with the data of another."""
    driver, seen = SoftwareDriver(root), Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in pids:
            try:
                with datastore.attach(pid, driver=driver) as reader:
                    tag = reader.snapshot().tag
            except (NoSlab, ProducerGone, NotReady) as e:
                seen[type(e).__name__] += 1
            else:
                assert tag == str(pid), "the slab of another"
                seen["found"] += 1
    return dict(seen)


def test_observers_while_slots_change_hands(root, driver, capsys):
    driver.probe(0)
    ledgers = [kill.Ledger() for _ in range(4)]
    moving = [Child(come_and_go, root, ledger) for ledger in ledgers]
    try:
        for child in moving:
            child.expect()
        pids = [child.pid for child in moving]
        with Child(sum_up, root, 1.5) as summing, Child(follow, root, pids, 1.5) as following:
            summed, followed = summing.expect(), following.expect()
    finally:
        for child in moving:
            child.close()
    with capsys.disabled():
        print(f"\nwhile slots change hands: totals {summed}, attach {followed}")
    assert summed["sums"] > 50
    assert followed["found"] > 50
    done, begun = (sum(amounts) for amounts in zip(*(ledger.range for ledger in ledgers), strict=True))
    assert summed["last"] <= done <= driver.totals(0).nc(0, COUNT) <= begun, "a slab was counted twice or not at all"
    assert begun - done <= 4 * kill.ADDED
    with datastore.publish(0, driver=driver):
        assert len(driver.owners(0)) == 1


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
