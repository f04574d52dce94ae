"""The rules of a driver, each stated once as a function and tagged common, software or kernel (docs/driver.md).

A rule gets a fresh world and drives real processes in it. Common rules hold on every driver; what one driver alone
promises is tagged with its name.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from neuron_ds import layout
from tests.conformance.world import CORES, DEVICES, Failure, Process, World


class Rule(NamedTuple):
    tag: str
    name: str
    check: Callable[[Any], None]
    reads: bool


RULES: list[Rule] = []


def rule(tag: str, *, reads: bool = False) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """``reads``: it is about what a reader finds, and so holds of a recording too."""

    def add(check: Callable[[Any], None]) -> Callable[[Any], None]:
        RULES.append(Rule(tag, check.__name__, check, reads))
        return check

    return add


@contextmanager
def refused(*kinds: str, number: int | None = None) -> Iterator[None]:
    """The command inside must fail with an error of one of these classes (and this errno)."""
    failure = None
    try:
        yield
    except Failure as e:
        failure = e
    assert failure is not None, f"nothing raised; expected {' or '.join(kinds)}"
    assert failure.kind in kinds, f"expected {' or '.join(kinds)}, got {failure}"
    assert number is None or failure.errno == number, f"expected errno {number}, got {failure.errno}"


def publishers(world: World, count: int, **more: Any) -> list[Process]:
    found = []
    for i in range(count):
        p = world.process()
        p.publish(tag=f"p{i}", **more)
        found.append(p)
    return found


# --- Slots ------------------------------------------------------------------------------------------------------------


@rule("common")
def a_slab_is_zero_and_whole_when_acquired(w: World) -> None:
    got = w.process().acquire()
    assert got["zero"]
    assert got["size"] == layout.SLAB_SIZE


@rule("common", reads=True)
def the_driver_leaves_the_header_to_the_datastore(w: World) -> None:
    p = w.process()
    assert p.acquire()["header"] == 0
    with refused("NotReady", number=errno.EINVAL):
        w.process().attach(pid=p.pid)


@rule("common")
def a_second_acquire_finds_the_same_slab(w: World) -> None:
    p = w.process()
    assert p.acquire()["place"] == p.acquire()["place"]


@rule("common")
def every_process_gets_a_slab_of_its_own(w: World) -> None:
    places = [w.process().acquire()["place"] for _ in range(6)]
    assert len(set(places)) == 6


@rule("common")
def threads_share_the_slab_of_their_process(w: World) -> None:
    p = w.process()
    p.publish()
    assert p.add_in_threads(core=0, name="inference_count", threads=4, times=500) == {"owners": 1}
    assert p.total(core=0, name="inference_count") == 2000


@rule("common", reads=True)
def acquire_by_pid_only_finds(w: World) -> None:
    reader, stranger = w.process(), w.process()
    with refused("NoSlab", number=errno.ENOENT):
        reader.attach(pid=stranger.pid)
    assert [o for o in reader.owners() if o["state"] == "owned"] == []


@rule("common")
def a_never_used_slot_is_taken_before_a_released_one(w: World) -> None:
    a, b = w.process(), w.process()
    first = a.acquire()["place"]
    a.release()
    assert b.acquire()["place"] != first


@rule("common")
def never_used_slots_are_taken_from_the_lowest(w: World) -> None:
    places = [w.process().acquire()["place"] for _ in range(5)]
    assert places == sorted(places)


@rule("common")
def of_released_slots_the_longest_free_is_taken(w: World) -> None:
    all_of_them = [w.process() for _ in range(14)]
    places = [p.acquire()["place"] for p in all_of_them]
    last = all_of_them[0]
    last.release()
    places.append(last.acquire()["place"])  # a 15th slot: places[0] was used already
    last.release()
    places.append(last.acquire()["place"])  # the 16th
    assert len(set(places)) == 16
    all_of_them[5].release()
    all_of_them[3].release()
    again = [all_of_them[3].acquire()["place"], all_of_them[5].acquire()["place"]]
    # Free were, by the time of their release: 0, the 15th, 5, 3.
    assert again == [places[0], places[14]]


@rule("common")
def sixteen_processes_publish_and_the_seventeenth_is_refused(w: World) -> None:
    publishers(w, 16)
    with refused("SlotsFull", "DeviceBusy"):
        w.process().publish()


@rule("common")
def a_refused_process_takes_a_slot_once_one_is_free(w: World) -> None:
    holders = publishers(w, 16)
    late = w.process()
    with refused("SlotsFull", "DeviceBusy"):
        late.publish()
    holders[7].kill()
    late.publish(tag="late")
    assert late.total(core=0, name="inference_count") == 0


# --- Release ----------------------------------------------------------------------------------------------------------


@rule("common", reads=True)
def there_is_no_reference_count(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    p.publish()
    p.close()
    with refused("NoSlab"):
        reader.attach(pid=p.pid)


@rule("common")
def handles_die_with_the_first_close(w: World) -> None:
    p = w.process()
    p.publish()
    p.use_producer()
    p.close()
    with refused("Closed", number=errno.EBADF):
        p.use_producer()


@rule("common", reads=True)
def a_reader_that_goes_leaves_the_producer_alone(w: World) -> None:
    p, reader, killed = w.process(), w.process(), w.process()
    p.publish(tag="stays")
    reader.detach(reader=reader.attach(pid=p.pid))
    killed.attach(pid=p.pid)
    killed.kill()
    p.add(core=0, name="inference_count", n=3)
    assert reader.snapshot(reader=reader.attach(pid=p.pid))["tag"] == "stays"


@rule("common")
def a_released_slab_is_zeroed_to_its_end(w: World) -> None:
    # All 16 slots are used and freed, so that the next claim gets the one that was filled.
    p = w.process()
    filled = p.acquire()["place"]
    p.fill()
    p.release()
    for _ in range(layout.SLOTS_PER_DEVICE - 1):
        p.acquire()
        p.release()
    again = p.acquire()
    assert again["place"] == filled
    assert again["zero"]


@rule("common", reads=True)
def release_rolls_the_counters_up(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.add(core=2, name="inference_count", n=41)
    p.add(core=7, name="hw_err_dma_abort", n=5)
    p.close()
    assert observer.total(core=2, name="inference_count") == 41
    assert observer.total(core=7, name="hw_err_dma_abort") == 5


def _death(w: World, end: Callable[[Process], None]) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.add(core=1, name="infer_completed", n=12)
    reader = observer.attach(pid=p.pid)
    end(p)
    with refused("ProducerGone", number=errno.ESRCH):
        observer.snapshot(reader=reader)
    assert [o for o in observer.owners() if o["state"] == "owned" and o["alive"]] == []
    assert observer.total(core=1, name="infer_completed") == 12
    late = w.process()
    late.publish()
    assert observer.total(core=1, name="infer_completed") == 12


@rule("common", reads=True)
def death_by_sigkill_releases(w: World) -> None:
    _death(w, lambda p: p.kill(signal.SIGKILL))


@rule("common", reads=True)
def death_by_a_fault_releases(w: World) -> None:
    _death(w, lambda p: p.kill(signal.SIGSEGV))


@rule("common", reads=True)
def an_exit_without_close_releases(w: World) -> None:
    _death(w, lambda p: p.exit())


@rule("common", reads=True)
def a_zombie_owns_nothing(w: World) -> None:
    def end(p: Process) -> None:
        p.kill(reap=False)
        os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped

    _death(w, end)


@rule("common", reads=True)
def another_program_in_the_process_owns_nothing(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.add(core=1, name="infer_completed", n=12)
    reader = observer.attach(pid=p.pid)
    p.tell("exec_sleep")
    deadline = time.monotonic() + 20
    while observer.alive(reader=reader) and time.monotonic() < deadline:
        time.sleep(0.01)
    with refused("ProducerGone"):
        observer.snapshot(reader=reader)
    with refused("NoSlab", "ProducerGone"):
        observer.attach(pid=p.pid)
    assert observer.total(core=1, name="infer_completed") == 12


# --- Fork -------------------------------------------------------------------------------------------------------------


@rule("common")
def a_forked_child_owns_nothing(w: World) -> None:
    p = w.process()
    p.publish()
    assert p.use_producer() == 1
    answer = p.forked(what="use_producer")
    assert answer["error"] == "ForkedChild"
    assert p.use_producer() == 2


@rule("common", reads=True)
def a_close_in_a_forked_child_touches_nothing(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish(tag="parent")
    assert "error" not in p.forked(what="close_producer")
    assert p.use_producer() == 1
    assert reader.snapshot(reader=reader.attach(pid=p.pid))["tag"] == "parent"


@rule("common", reads=True)
def a_forked_child_may_publish_for_itself(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish(tag="parent")
    child = p.forked(what="publish")["value"]
    assert child["place"] != p.publish()["place"]
    assert [o["pid"] for o in observer.owners() if o["state"] == "owned" and o["alive"]] == [p.pid]


@rule("common", reads=True)
def a_child_that_outlives_its_parent_does_not_keep_the_slab(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.add(core=0, name="inference_count", n=9)
    reader = observer.attach(pid=p.pid)
    child = p.fork_stays()
    try:
        p.kill()
        with refused("ProducerGone"):
            observer.snapshot(reader=reader)
        assert observer.total(core=0, name="inference_count") == 9
    finally:
        os.kill(child, signal.SIGKILL)


@rule("common")
def the_mapping_is_not_inherited(w: World) -> None:
    p = w.process()
    p.publish()
    assert len(p.maps()) == 1
    assert p.forked(what="maps")["value"] == []


# --- Reading ----------------------------------------------------------------------------------------------------------


@rule("common", reads=True)
def a_reader_maps_read_only(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    handle = reader.attach(pid=p.pid)
    assert [m[0] for m in reader.maps()] == ["r--s"]
    with refused("ReadOnly", number=errno.EPERM):
        reader.write_through_reader(reader=handle)


@rule("common", reads=True)
def mappings_are_marked_not_to_be_copied(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    reader.attach(pid=p.pid)
    for flags in (p.maps()[0][1], reader.maps()[0][1]):
        assert "dc" in flags.split()


@rule("common", reads=True)
def a_reader_sees_what_the_producer_adds(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    handle = reader.attach(pid=p.pid)
    p.add(core=3, name="mac_count", n=1 << 40)
    p.add(core=7, name="hw_err_collectives", n=2)
    assert reader.value(reader=handle, core=3, name="mac_count") == 1 << 40
    assert reader.snapshot_value(reader=handle, core=7, name="hw_err_collectives") == 2


@rule("common", reads=True)
def a_reader_of_a_reassigned_slab_shows_no_value_of_the_second(w: World) -> None:
    p, reader, second = w.process(), w.process(), w.process()
    place = p.publish(tag="first")["place"]
    p.add(core=0, name="inference_count", n=1)
    handle = reader.attach(pid=p.pid)
    p.kill()
    # The second process takes and frees slots until it has the very slab that the reader still maps.
    for _ in range(layout.SLOTS_PER_DEVICE + 1):
        if second.publish(tag="second")["place"] == place:
            break
        second.close()
    else:
        raise AssertionError("the slab never came round")
    second.add(core=0, name="inference_count", n=777)
    for _ in range(20):
        with refused("ProducerGone", number=errno.ESRCH):
            reader.snapshot(reader=handle)
        with refused("ProducerGone", number=errno.ESRCH):
            reader.value(reader=handle, core=0, name="inference_count")
    assert reader.alive(reader=handle) is False


@rule("common", reads=True)
def a_reader_notices_a_release_by_the_owner_itself(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    handle = reader.attach(pid=p.pid)
    p.close()
    with refused("ProducerGone"):
        reader.snapshot(reader=handle)
    with refused("ProducerGone"):
        reader.value(reader=handle, core=0, name="inference_count")


@rule("common", reads=True)
def a_slab_of_another_version_is_refused(w: World) -> None:
    p = w.process()
    p.acquire()
    p.store_header(word=layout.HEADER_WORD + (1 << 32))
    with refused("WrongVersion", number=errno.EINVAL):
        w.process().attach(pid=p.pid)


@rule("common", reads=True)
def a_process_may_watch_itself(w: World) -> None:
    p = w.process()
    p.publish(tag="self")
    handle = p.attach(pid=p.pid)
    p.add(core=0, name="inference_count", n=4)
    assert p.value(reader=handle, core=0, name="inference_count") == 4
    assert p.snapshot(reader=handle)["tag"] == "self"


# --- Devices ----------------------------------------------------------------------------------------------------------


@rule("common", reads=True)
def devices_are_listed_with_their_cores(w: World) -> None:
    p = w.process()
    assert p.devices() == list(range(DEVICES))
    assert [p.properties(device=d)["cores"] for d in range(DEVICES)] == [CORES] * DEVICES


@rule("common")
def a_device_that_does_not_exist_is_an_error(w: World) -> None:
    p = w.process()
    with refused("NoDevice", number=errno.ENODEV):
        p.publish(device=DEVICES + 5)
    with refused("BadIndex", number=errno.EINVAL):
        p.publish(device=64)


@rule("common", reads=True)
def devices_do_not_share_slots(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish(device=0)
    p.publish(device=1)
    p.add(device=1, core=0, name="inference_count", n=3)
    p.close(device=0)
    assert observer.total(device=0, core=0, name="inference_count") == 0
    assert observer.total(device=1, core=0, name="inference_count") == 3
    assert [o["pid"] for o in observer.owners(device=1) if o["state"] == "owned"] == [p.pid]


@rule("common", reads=True)
def owners_are_listed_by_pid(w: World) -> None:
    some, observer = publishers(w, 3), w.process()
    assert sorted(o["pid"] for o in observer.owners() if o["state"] == "owned") == sorted(p.pid for p in some)


# --- Totals -----------------------------------------------------------------------------------------------------------


@rule("common", reads=True)
def totals_are_the_gone_and_the_living(w: World) -> None:
    gone, alive, observer = w.process(), w.process(), w.process()
    for p, n in ((gone, 5), (alive, 7)):
        p.publish()
        p.add(core=4, name="time_in_use", n=n)
    assert observer.total(core=4, name="time_in_use") == 12
    gone.kill()
    assert observer.total(core=4, name="time_in_use") == 12
    alive.add(core=4, name="time_in_use", n=1)
    assert observer.total(core=4, name="time_in_use") == 13


@rule("common", reads=True)
def totals_match_to_the_unit_for_a_process_stopped_read_and_killed(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    handle = observer.attach(pid=p.pid)
    for n in (1, 10, 100):
        p.add(core=6, name="infer_completed", n=n)
    os.kill(p.pid, signal.SIGSTOP)
    read = observer.snapshot_value(reader=handle, core=6, name="infer_completed")
    p.kill()
    assert observer.total(core=6, name="infer_completed") == read == 111


@rule("common", reads=True)
def gauges_and_last_values_die_with_their_process(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.add(core=0, name="mem_usage_tensors_device", n=4096)
    p.set(core=0, name="latency_total", n=17)
    assert observer.total(core=0, name="mem_usage_tensors_device") == 4096
    p.kill()
    assert observer.total(core=0, name="mem_usage_tensors_device") == 0


@rule("common", reads=True)
def the_differential_report_gives_what_was_added_since(w: World) -> None:
    p, q, observer = w.process(), w.process(), w.process()
    p.publish()
    p.add(core=0, name="inference_count", n=5)
    assert observer.report() == {}
    p.add(core=0, name="inference_count", n=2)
    q.publish()
    q.add(core=1, name="inference_count", n=3)
    p.kill()
    assert observer.report() == {"0/inference_count": 2, "1/inference_count": 3}
    assert observer.report() == {}


@rule("common", reads=True)
def a_device_counts_on_after_many_processes(w: World) -> None:
    observer, expected = w.process(), 0
    for i in range(20):
        p = w.process()
        p.publish()
        p.add(core=0, name="infer_timed_out", n=i)
        expected += i
        p.kill() if i % 2 else p.exit()
        assert observer.total(core=0, name="infer_timed_out") == expected


@rule("common", reads=True)
def a_bystander_is_left_alone(w: World) -> None:
    bystander, observer = w.process(), w.process()
    bystander.publish(tag="bystander")
    bystander.add(core=5, name="inference_count", n=55)
    handle = observer.attach(pid=bystander.pid)
    before = observer.snapshot(reader=handle)["raw"]
    for p in publishers(w, 4):
        p.add(core=5, name="inference_count", n=1)
        p.kill()
    assert observer.snapshot(reader=handle)["raw"] == before


# --- The software driver alone ----------------------------------------------------------------------------------------


@rule("software")
def a_slot_s_generation_rises_with_every_change_of_hands(w: World) -> None:
    p = w.process()
    seen = []
    for _ in range(layout.SLOTS_PER_DEVICE + 1):
        got = p.publish()
        seen.append((got["slot"], got["generation"]))
        p.close()
    assert seen[0] == (0, 1)
    assert seen[-1] == (0, 3)  # released: one more; claimed again: one more


@rule("software")
def slots_full_names_the_number(w: World) -> None:
    publishers(w, 16)
    with refused("SlotsFull", number=errno.ENOMEM):
        w.process().publish()


@rule("software")
def a_dead_owner_is_seen_before_it_is_recovered(w: World) -> None:
    p, observer = w.process(), w.process()
    p.publish()
    p.kill()
    assert [(o["alive"], o["state"]) for o in observer.owners()] == [(False, "owned")]
    w.process().publish()
    assert [o["alive"] for o in observer.owners()] == [True]


@rule("software")
def feature_bits_and_versions_are_kept(w: World) -> None:
    p, q, observer = w.process(), w.process(), w.process()
    p.publish(runtime_version=[2, 31, 7])
    p.features(bits=2)
    p.kill()
    q.publish(runtime_version=[2, 31, 7])
    q.features(bits=1)
    assert observer.feature_total() == 3
    assert observer.versions() == [{"2.31.7": 2}, 0]


@rule("software")
def versions_beyond_sixteen_are_other(w: World) -> None:
    p = w.process()
    for build in range(1, 20):
        p.publish(runtime_version=[1, 0, build])
        p.close()
    found, other = p.versions()
    assert len(found) == 16
    assert other == 3


@rule("software")
def reset_refuses_while_an_owner_lives(w: World) -> None:
    p, operator = w.process(), w.process()
    p.publish()
    p.add(core=0, name="inference_count", n=5)
    with refused("StillOwned", number=errno.EBUSY):
        operator.reset()
    p.kill()
    operator.reset()
    assert operator.total(core=0, name="inference_count") == 0


# --- The kernel driver alone ------------------------------------------------------------------------------------------


@rule("kernel")
def one_descriptor_per_device(w: World) -> None:
    p = w.process()
    p.publish()
    first = p.descriptor()
    p.attach(pid=p.pid)
    p.owners()
    p.close()
    p.publish()
    assert p.descriptor() == first
    assert p.descriptor() == first


@rule("kernel")
def the_seventeenth_process_may_not_even_look(w: World) -> None:
    for _ in range(16):
        w.process().owners()
    with refused("DeviceBusy", number=errno.EBUSY):
        w.process().owners()


@rule("kernel")
def a_monitor_is_attached_and_publishes_nothing(w: World) -> None:
    monitor, p = w.process(), w.process()
    p.publish()
    assert sorted((o["pid"], o["state"]) for o in monitor.owners()) == sorted(
        [(monitor.pid, "attached"), (p.pid, "owned")]
    )


@rule("kernel")
def the_close_of_any_duplicate_releases(w: World) -> None:
    p, observer = w.process(), w.process()
    fd = p.node_open()
    p.node_acquire(fd=fd)
    assert [o["pid"] for o in observer.owners() if o["state"] == "owned"] == [p.pid]
    p.node_dup_close(fd=fd)
    assert [o["pid"] for o in observer.owners() if o["state"] == "owned"] == []


@rule("kernel")
def a_second_open_keeps_the_first_one_s_slab(w: World) -> None:
    p, observer = w.process(), w.process()
    fd = p.node_open()
    p.node_acquire(fd=fd)
    p.node_close(fd=p.node_open())
    assert [o["pid"] for o in observer.owners() if o["state"] == "owned"] == [p.pid]


@rule("kernel")
def only_whole_slabs_can_be_mapped(w: World) -> None:
    p = w.process()
    fd = p.node_open()
    offset, size = p.node_acquire(fd=fd)
    assert size == layout.SLAB_SIZE
    p.node_map(fd=fd, offset=offset, size=size, write=True)
    for wrong in (size // 2, size * 2):
        with refused("SystemFailure", number=errno.EINVAL):
            p.node_map(fd=fd, offset=offset, size=wrong, write=False)
    with refused("SystemFailure", number=errno.EINVAL):
        p.node_map(fd=fd, offset=offset + 4096, size=size, write=False)


@rule("kernel")
def the_kernel_would_let_a_reader_write(w: World) -> None:
    p, reader = w.process(), w.process()
    p.publish()
    fd = reader.node_open()
    offset, size = reader.node_acquire(fd=fd, pid=p.pid)
    reader.node_map(fd=fd, offset=offset, size=size, write=True)


@rule("kernel")
def release_by_another_does_nothing(w: World) -> None:
    p, other = w.process(), w.process()
    p.publish(tag="mine")
    other.node_release(fd=other.node_open(), pid=p.pid)
    assert other.snapshot(reader=other.attach(pid=p.pid))["tag"] == "mine"


@rule("kernel")
def a_write_only_open_has_no_datastore(w: World) -> None:
    p = w.process()
    fd = p.node_open(flags=os.O_WRONLY)
    with refused("SystemFailure"):
        p.node_acquire(fd=fd)


@rule("kernel")
def an_unknown_ioctl_is_refused(w: World) -> None:
    p = w.process()
    with refused("OSError", number=errno.ENOTTY):
        p.node_ioctl(fd=p.node_open(), number=0x80084EF0)


@rule("kernel")
def the_last_close_clears_what_nobody_attached(w: World) -> None:
    # A slot of a process that only inherited the descriptor outlives its owner, until the file's last close.
    opener = w.process()
    opener.node_open()
    assert "value" in opener.forked(what="inherited_acquire")
    assert [s[0] for s in opener.node_table(fd=opener.fd())["slots"] if s[0]] != []
    roll_ups = opener.node_table(fd=opener.fd())["roll_ups"]
    opener.node_close(fd=opener.fd())
    later = w.process()
    table = later.node_table(fd=later.node_open())
    assert [s[0] for s in table["slots"] if s[0]] == []
    assert table["roll_ups"] == roll_ups


@rule("kernel")
def a_second_datastore_in_the_process_keeps_its_slab(w: World) -> None:
    # An in-process runtime has published through a descriptor of its own; our Producer joins, and its close gives
    # nothing back that it did not take.
    p, observer = w.process(), w.process()
    fd = p.node_open()
    p.node_acquire(fd=fd)
    p.node_stamp(fd=fd)
    p.publish(tag="ours")
    p.close()
    assert [o["pid"] for o in observer.owners() if o["state"] == "owned"] == [p.pid]
