"""Real processes on one device: races, deaths, forks, execs, namespaces. What is long is marked slow."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter

import pytest

from neuron_ds import ModelNode, RecordState, datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NoSlab, NotReady, ProducerGone, SlotsFull, TableBusy
from tests import kill
from tests.devices import COUNT
from tests.kill import Bench
from tests.processes import Child, Talk


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
