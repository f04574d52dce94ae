"""The software driver on real files and locks: its own slot, the table lock, threads, forks, descriptors."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from neuron_ds import _core, datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import opened, software, steps
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    BadIndex,
    Closed,
    NoDevice,
    NoSlab,
    ProducerGone,
    StillOwned,
    TableBusy,
)
from tests.devices import seen_from_outside, slot_states, table_of
from tests.processes import Child, Program, Talk, outcome, result_of, run_threads, unshare


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- One's own slot -------------------------------------------------------------------------------------------------


def test_acquire_again_gives_the_same_lease(driver):
    driver.probe(0)
    lease = driver.acquire(0)
    assert driver.acquire(0) is lease
    assert (lease.device, lease.pid, lease.slot, lease.generation, lease.writable) == (0, os.getpid(), 0, 1, True)
    driver.release(lease)
    assert driver.owners(0) == []
    again = driver.acquire(0)
    assert again is not lease
    assert (again.slot, again.generation) == (1, 1)  # a never-used slot comes first
    driver.release(again)


def test_slots_go_round_longest_free_first(driver):
    driver.probe(0)
    seen = []
    for _ in range(2 * layout.SLOTS_PER_DEVICE + 3):
        lease = driver.acquire(0)
        seen.append((lease.slot, lease.generation))
        driver.release(lease)
    slots = list(range(layout.SLOTS_PER_DEVICE))
    assert seen == [(s, 1) for s in slots] + [(s, 3) for s in slots] + [(s, 5) for s in slots[:3]]


def test_a_slot_that_is_not_ours_any_more_is_left_alone_and_its_handles_die(root, driver):
    """Something in this process closed a descriptor of ``owners``: the locks are gone, another process recovered."""
    producer = datastore.publish(0, driver=driver)
    add = producer.core(0).inference_count
    add.add(5)
    os.close(os.open(f"{root}/neuron0/{d.OWNERS}", os.O_RDWR))  # what nobody may do

    def recover_and_take(talk: Talk) -> None:
        with datastore.publish(0, driver=SoftwareDriver(root), tag="other") as other:
            while other.slot != 0:
                other.close()
                other = datastore.publish(0, driver=SoftwareDriver(root), tag="other")
            talk.say(other.slot)
            talk.hear()
            talk.say([other.snapshot().tag, other.core(0).inference_count.get()])

    with Child(recover_and_take) as child:
        assert child.expect() == 0
        second = datastore.publish(0, driver=driver, tag="again")  # knows by its generation that the slot is lost
        assert second.slot == 1
        assert producer.closed
        with pytest.raises(Closed):
            add.add(1)
        producer.close()
        assert child.ask("look") == ["other", 0]
        second.close()


def test_release_after_the_slot_was_lost_touches_nothing(root, driver):
    producer = datastore.publish(0, driver=driver)
    os.close(os.open(f"{root}/neuron0/{d.OWNERS}", os.O_RDWR))

    def take_over(talk: Talk) -> None:
        other = SoftwareDriver(root)
        lease = other.acquire(0)
        talk.say(lease.slot)
        talk.hear()
        talk.say(other.acquire(0) is lease)

    with Child(take_over) as child:
        slot = child.expect()
        before = table_of(root).copy(0, t.TABLE_WORDS)
        producer.close()
        assert table_of(root).copy(0, t.TABLE_WORDS) == before
        assert child.ask("still yours?") is True
        assert [o.slot for o in driver.owners(0)] == [slot]


def test_two_directories_in_one_process(root, driver):
    other = SoftwareDriver(root + "-2")
    with datastore.publish(0, driver=driver) as first, datastore.publish(0, driver=other) as second:
        assert (first.slot, second.slot) == (0, 0)
        first.core(0).inference_count.set(1)
        second.core(0).inference_count.set(2)
        assert seen_from_outside(root) == [[0, os.getpid(), True]]
        assert seen_from_outside(root + "-2") == [[0, os.getpid(), True]]
        first.close()
        assert seen_from_outside(root) == []
        assert seen_from_outside(root + "-2") == [[0, os.getpid(), True]]
        assert second.core(0).inference_count.get() == 2


def test_one_directory_by_a_path_through_a_link_is_one_slab(root, driver):
    parent = os.path.dirname(root)
    os.symlink(parent, f"{parent}/link")
    with datastore.publish(0, driver=driver) as first:
        alias = SoftwareDriver(f"{parent}/link/devices")
        assert datastore.publish(0, driver=alias).slot == first.slot
        with datastore.attach(os.getpid(), driver=alias) as reader:
            assert reader.slot == first.slot
        both = SoftwareDriver(f"{root}:{parent}/link/devices")
        assert len(both.owners(0)) == 1
        with datastore.attach(os.getpid(), driver=both) as reader:  # not ambiguous with itself
            assert reader.slot == first.slot


def test_one_directory_by_a_bind_mount_is_one_slab(root):
    source = """
import os, subprocess
from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
root, other = sys.argv[1], sys.argv[1] + "-bound"
SoftwareDriver(root).probe(0)
os.mkdir(other, 0o700)
subprocess.run(["mount", "--bind", root, other], check=True)
first = datastore.publish(0, driver=SoftwareDriver(root))
second = datastore.publish(0, driver=SoftwareDriver(other))
say(first.slot, second.slot, len(SoftwareDriver(other).owners(0)))
second.close()
say(first.closed, len(SoftwareDriver(root).owners(0)))
"""
    with Program(source, root, wrapper=unshare("--mount")) as program:
        assert program.expect() == [0, 0, 1]
        assert program.expect() == [True, 0]


# --- Locks and descriptors ------------------------------------------------------------------------------------------


def test_readers_in_the_owners_process_do_not_drop_its_lock(root, driver):
    """Closing any descriptor of a file drops the process's locks on it; so nothing here may."""
    with datastore.publish(0, driver=driver) as producer:
        for _ in range(3):
            with datastore.attach(os.getpid(), driver=driver) as reader:
                assert reader.snapshot().pid == os.getpid()
            del reader
            driver.owners(0)
            driver.totals(0)
            fd = os.open(f"{root}/neuron0", os.O_RDONLY)
            file = _core.open_lock_file(fd, d.OWNERS)
            os.close(fd)
            assert file.holder(0) == os.getpid()
            file.close()
            del file
            gc.collect()
        assert seen_from_outside(root) == [[producer.slot, os.getpid(), True]]


def test_the_lock_outlives_everything_that_is_forgotten_of_the_device(root, driver):
    producer = datastore.publish(0, driver=driver)
    software._open.clear()
    del producer
    gc.collect()
    assert seen_from_outside(root) == [[0, os.getpid(), True]]


def test_publish_and_close_leave_no_descriptor_behind(root, driver):
    datastore.publish(0, driver=driver).close()
    before = descriptors()
    for _ in range(200):
        datastore.publish(0, driver=driver).close()
    assert descriptors() == before


def test_attach_and_close_leave_no_descriptor_behind(root, driver):
    with datastore.publish(0, driver=driver):
        with datastore.attach(os.getpid(), driver=driver):
            pass
        before = descriptors()
        for _ in range(200):
            with datastore.attach(os.getpid(), driver=driver) as reader:
                reader.snapshot()
            driver.owners(0)
        assert descriptors() == before


def test_failed_calls_leave_no_descriptor_behind(root, driver):
    for call in (lambda: driver.attach(0, 1), lambda: driver.acquire(5), lambda: driver.properties(3)):
        outcome(call)
        before = descriptors()
        for _ in range(20):
            assert outcome(call) == "NoDevice"
        assert descriptors() == before
    driver.probe(0)
    before = descriptors()
    for _ in range(50):
        with pytest.raises(NoSlab):
            driver.attach(0, 1)
        with pytest.raises(NoSlab):
            driver.attach(0, slot=3)
    assert descriptors() == before


# --- Owners and attach ----------------------------------------------------------------------------------------------


def test_owners_say_who_and_since_when(root, driver):
    assert driver.probe(0).device == 0
    assert driver.owners(0) == []
    with datastore.publish(0, driver=driver) as producer:
        (owner,) = driver.owners(0)
        assert (owner.device, owner.slot, owner.pid, owner.alive) == (0, 0, os.getpid(), True)
        assert (owner.foreign, owner.state, owner.generation) == (False, "owned", producer.generation)
        assert owner.path == f"{root}/neuron0"
        assert owner.namespace == os.stat("/proc/self/ns/pid").st_ino
        assert 0 <= owner.age_s < 60


@pytest.mark.parametrize("slot", [-1, layout.SLOTS_PER_DEVICE, 1 << 40])
def test_attach_to_no_slot(driver, slot):
    driver.probe(0)
    with pytest.raises(BadIndex, match="slots 0 to 15") as bad:
        driver.attach(0, slot=slot)
    assert bad.value.errno == errno.EINVAL


def test_attach_needs_to_know_whom(driver):
    driver.probe(0)
    with pytest.raises(BadIndex, match="pid or a slot"):
        driver.attach(0)


def test_attach_to_a_free_slot_and_to_a_slot_of_another_pid(driver):
    driver.probe(0)
    with pytest.raises(NoSlab, match="free"):
        driver.attach(0, slot=0)
    with datastore.publish(0, driver=driver) as producer:
        with pytest.raises(ProducerGone):
            driver.attach(0, 1, slot=producer.slot)
        with datastore.attach(os.getpid(), slot=producer.slot, driver=driver) as reader:
            assert reader.slot == producer.slot


@pytest.mark.parametrize("device", [-1, layout.MAX_DEVICES, 1000])
@pytest.mark.parametrize("call", ["acquire", "attach", "properties", "owners", "probe", "totals", "reset"])
def test_a_device_outside_the_format(driver, call, device):
    args = (device, 1) if call == "attach" else (device,)
    with pytest.raises(BadIndex, match="0 to 63") as bad:
        getattr(driver, call)(*args)
    assert bad.value.device == device


@pytest.mark.parametrize("call", ["acquire", "attach", "properties", "owners", "totals"])
def test_a_device_that_does_not_exist(driver, call):
    args = (7, 1) if call == "attach" else (7,)
    with pytest.raises(NoDevice) as missing:
        getattr(driver, call)(*args)
    assert missing.value.errno == errno.ENODEV
    assert missing.value.device == 7


def test_reset_refuses_while_an_owner_lives_and_names_it(driver):
    with datastore.publish(0, driver=driver) as producer:
        producer.core(0).inference_count.add(3)
        with pytest.raises(StillOwned, match=str(os.getpid())) as owned:
            driver.reset(0)
        assert owned.value.errno == errno.EBUSY
    index = layout.NC_BY_NAME["inference_count"].index
    assert driver.totals(0).nc(0, index) == 3
    driver.reset(0)
    assert driver.totals(0).nc(0, index) == 0


# --- The table lock -------------------------------------------------------------------------------------------------


def stop_with_the_lock(talk: Talk, root: str, step: str) -> None:
    """Acquire and release until this step, and stop there by our own hand; the table lock is held."""
    steps.set_hook(lambda name: name == step and os.kill(os.getpid(), signal.SIGSTOP))
    driver = SoftwareDriver(root)
    driver.release(driver.acquire(0))
    talk.say("went on")
    talk.hear()


@pytest.fixture
def stopped(root, driver) -> Iterator[Child]:
    driver.probe(0)
    with Child(stop_with_the_lock, root, "acquire.owned") as child:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield child


def test_a_stopped_holder_is_named_within_two_seconds(root, driver, stopped):
    begin = time.monotonic()
    with pytest.raises(TableBusy, match=rf"process {stopped.pid} had the table lock for 2 s.*continue or kill") as busy:
        datastore.publish(0, driver=driver)
    assert 1.9 <= time.monotonic() - begin < 10
    assert (busy.value.errno, busy.value.pid, busy.value.device) == (errno.ETIMEDOUT, stopped.pid, 0)
    assert isinstance(busy.value, TimeoutError)
    # Who only looks never waits.
    assert driver.owners(0)[0].pid == stopped.pid
    assert driver.totals(0).nc(0, 1) == 0
    stopped.resume()
    assert stopped.expect() == "went on"
    datastore.publish(0, driver=driver).close()


def test_a_killed_holder_is_no_hindrance(root, driver, stopped):
    stopped.end()
    with datastore.publish(0, driver=driver) as producer:
        assert seen_from_outside(root) == [[producer.slot, os.getpid(), True]]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(opened, "LOCK_WAIT_S", 0.05)


@pytest.fixture
def publishing(driver) -> datastore.Producer:
    return datastore.publish(0, driver=driver)


@pytest.mark.usefixtures("impatient")
def test_a_close_that_cannot_have_the_lock_is_made_up_for(root, driver, publishing, stopped):
    counter = publishing.core(0).inference_count
    counter.add(9)
    with pytest.raises(TableBusy) as busy:
        publishing.close()
    assert busy.value.pid == stopped.pid
    assert publishing.closed
    with pytest.raises(Closed):
        counter.add(1)
    publishing.close()  # again: nothing
    assert slot_states(root)[publishing.slot] == t.OWNED
    assert [publishing.slot, os.getpid(), True] in seen_from_outside(root)
    with pytest.raises(TableBusy):
        datastore.publish(0, driver=driver)
    stopped.end()
    with datastore.publish(0, driver=driver) as again:  # our next lock-taking releases it first
        assert seen_from_outside(root) == [[again.slot, os.getpid(), True]]
        assert again.slot != publishing.slot
        assert again.core(0).inference_count.get() == 0
    assert driver.totals(0).nc(0, layout.NC_BY_NAME["inference_count"].index) == 9
    assert slot_states(root) == [t.FREE] * layout.SLOTS_PER_DEVICE


def test_a_close_that_could_not_have_the_lock_ends_with_the_process(root, driver):
    driver.probe(0)

    def close_in_vain(talk: Talk) -> None:
        opened.LOCK_WAIT_S = 0.05
        producer = datastore.publish(0, driver=SoftwareDriver(root))
        talk.say(producer.slot)
        talk.hear()
        talk.say(outcome(producer.close))
        talk.hear()

    with Child(close_in_vain) as child:
        slot = child.expect()
        with Child(stop_with_the_lock, root, "acquire.owned") as holder:
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            assert child.ask("close") == "TableBusy"
        assert [slot, child.pid, True] in seen_from_outside(root)
        child.end()
        with datastore.publish(0, driver=driver) as producer:
            assert seen_from_outside(root) == [[producer.slot, os.getpid(), True]]


@pytest.mark.usefixtures("impatient")
def test_a_thread_of_our_own_that_has_the_lock_is_named(driver, hook):
    driver.probe(0)
    inside, go = threading.Event(), threading.Event()

    def stay(name: str) -> None:
        if name == "acquire.owned" and threading.current_thread() is thread:
            inside.set()
            go.wait(30)

    thread = threading.Thread(target=lambda: driver.release(driver.acquire(0)))
    hook.append(stay)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(TableBusy, match="another thread of this process") as busy:
        driver.acquire(0)
    assert busy.value.pid == os.getpid()
    go.set()
    thread.join(30)
    driver.release(driver.acquire(0))


# --- Threads of one process -----------------------------------------------------------------------------------------


def test_threads_contend_for_one_device(root, driver):
    driver.probe(0)

    def work() -> None:
        for _ in range(25):
            try:
                with datastore.publish(0, driver=driver) as producer:
                    producer.core(0).inference_count.add(1)
            except Closed:
                pass  # another thread's close ended this slab: the first close ends all

    assert run_threads(work, 6) == []
    assert seen_from_outside(root) == []
    assert slot_states(root) == [t.FREE] * layout.SLOTS_PER_DEVICE
    fd = os.open(f"{root}/neuron0", os.O_RDONLY)
    file = _core.open_lock_file(fd, d.OWNERS)
    os.close(fd)
    assert [file.holder(byte) for byte in range(layout.SLOTS_PER_DEVICE + 1)] == [None] * 17
    with datastore.publish(0, driver=driver) as producer:
        assert producer.core(0).inference_count.get() == 0


def test_threads_on_devices_of_their_own(root, driver):
    for device in range(4):
        driver.probe(device)
    numbers = iter(range(4))

    def work() -> None:
        device = next(numbers)
        for i in range(20):
            with datastore.publish(device, driver=driver) as producer:
                producer.core(0).inference_count.set(i)
                assert producer.device == device

    assert run_threads(work, 4) == []
    assert [driver.owners(device) for device in range(4)] == [[]] * 4


# --- Forks ----------------------------------------------------------------------------------------------------------


def test_a_child_of_a_process_that_is_inside_the_table_is_not_stuck(root, driver, hook):
    driver.probe(0)
    inside, go = threading.Event(), threading.Event()

    def stay(name: str) -> None:
        if name == "acquire.owned" and threading.current_thread() is thread:
            inside.set()
            go.wait(30)

    def main() -> None:
        leases.append(driver.acquire(0))

    leases: list = []
    thread = threading.Thread(target=main)
    hook.append(stay)
    thread.start()
    assert inside.wait(30)

    def publish(talk: Talk) -> None:
        steps.set_hook(None)
        talk.say("forked")
        talk.hear()
        with datastore.publish(0, driver=driver) as producer:
            talk.say([producer.slot, sorted(o.pid for o in driver.owners(0))])

    with Child(publish) as child:  # while a thread of ours has the mutexes
        child.expect()
        go.set()
        thread.join(30)
        slot, pids = child.ask("go on")
        assert slot != leases[0].slot
        assert pids == sorted((os.getpid(), child.pid))
    driver.release(leases[0])


def test_a_child_drops_nothing_of_its_parent_when_it_forgets(root, driver):
    with datastore.publish(0, driver=driver) as producer:

        def forget(talk: Talk) -> list:
            nonlocal producer
            producer.close()
            producer = None
            software._open.clear()
            gc.collect()
            with datastore.publish(0, driver=driver) as own:
                return [own.slot, outcome(lambda: driver.attach(0, os.getppid()))]

        assert result_of(forget) == [1, "ok"]
        assert seen_from_outside(root) == [[0, os.getpid(), True]]


def test_a_subprocess_inherits_no_descriptor(root, driver):
    with datastore.publish(0, driver=driver), datastore.attach(os.getpid(), driver=driver):
        listed = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
        ).stdout
        assert root not in listed
        assert seen_from_outside(root) == [[0, os.getpid(), True]]
