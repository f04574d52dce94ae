"""Processes that idle or die at work, slots that run out, slabs that are damaged or of another version."""

from __future__ import annotations

import pytest

from neuron_ds import datastore, layout
from neuron_ds.collect import Collector
from neuron_ds.diagnose import Severity, Thresholds, Watcher, look_at
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.devices import node, publish_and_wait, write_header
from tests.diagnose.stage import device, look, played, process, row, series, watch, work
from tests.processes import Child

# --- Idle -------------------------------------------------------------------------------------------------------------


def test_idle_is_told_after_five_minutes(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("idle")], 400))
    ((when, finding),) = story.began
    assert 290 <= when <= 310
    assert (finding.kind, finding.severity) == ("idle-allocated", Severity.INFO)
    assert finding.evidence["models"] == 4
    assert finding.evidence["used_bytes"] > 0


@pytest.mark.parametrize("last_s", [100, 500])
def test_who_works_now_and_then_is_not_idle_before_the_window_has_forgotten_it(last_s: int) -> None:
    def at(n: int):
        return process(n, {0: row(infer_completed=min(n, last_s) // 100, mem_usage_code_device=5)}, models={0: 1})

    idle = watch(series(at, last_s + 1000)).of("idle-allocated")
    assert [when > last_s + 850 for when, _ in idle] == [True]


def test_who_holds_nothing_is_not_idle() -> None:
    assert watch(series(lambda n: process(n, {0: row(infer_completed=5)}), 400)).began == []


# --- Death ------------------------------------------------------------------------------------------------------------


def test_a_process_that_is_killed_at_work_is_told_at_the_next_look(root: str, driver: SoftwareDriver) -> None:
    workload = Workload(pattern=PATTERNS["inference"](), seed=3, cores=((0, 0), (0, 1)), tag="victim")
    with start(workload, events=500, speed=None, directory=root) as victim, Collector(driver) as collector:
        watcher, seen = Watcher(), None
        victim.wait_played()
        for _ in range(3):
            victim.advance(200)
            seen = look_at(collector.collect(), seen)
            assert watcher.add(seen) == ([], [], [])
        victim.kill()
        seen = look_at(collector.collect(), seen)
        ((finding,), began, _) = watcher.add(seen)
        assert began == [finding]
        assert (finding.kind, finding.severity, finding.pid) == ("died-working", Severity.CRITICAL, victim.pid)
        assert finding.tag == "victim"
        assert 350 <= finding.evidence["completed_before"] <= 400
        assert finding.since_ns == seen.time_ns
        datastore.publish(0, driver=driver).close()  # recovers the slot
        seen = look_at(collector.collect(), seen)
        assert watcher.add(seen) == ([finding], [], []), "and it is told although its slot is another's"


def test_a_process_that_ends_as_it_should_is_no_death(root: str, driver: SoftwareDriver) -> None:
    workload = Workload(pattern=PATTERNS["inference"](), seed=3, cores=((0, 0),))
    watcher, seen = Watcher(), None
    with start(workload, events=500, speed=None, directory=root) as it, Collector(driver) as collector:
        it.wait_played()
        for _ in range(3):
            it.advance(100)
            seen = look_at(collector.collect(), seen)
            watcher.add(seen)
        it.end()
        for _ in range(2):
            seen = look_at(collector.collect(), seen)
            assert watcher.add(seen) == ([], [], [])


def dies(n: int, after: int, done: int):
    rows = {0: row(infer_completed=done)}
    return process(n, rows, alive=False, error="died") if n > after else process(n, rows)


def test_a_process_that_dies_while_it_waits_is_no_loss_of_work() -> None:
    assert watch(series(lambda n: dies(n, 40, min(n, 20) * 10), 60)).began == []


def test_a_death_is_told_for_five_minutes() -> None:
    story = watch(series(lambda n: dies(n, 40, min(n, 40) * 10), 600))
    assert [(when, f.kind) for when, f in story.began] == [(41.0, "died-working")]
    assert [(340 <= when <= 360, f.kind) for when, f in story.over] == [(True, "died-working")]


def test_a_process_that_was_dead_all_the_time_is_no_news() -> None:
    assert watch(series(lambda n: dies(n, -1, 100), 20)).began == []


# --- Slots ------------------------------------------------------------------------------------------------------------


def test_slots_that_run_out_are_told() -> None:
    def at(n: int, used: int):
        return look(n, devices=[device(slots_used=used), device(1, slots_used=1)])

    assert watch([at(n, layout.SLOTS_PER_DEVICE - 3) for n in range(5)]).began == []
    ((_, finding),) = watch([at(n, layout.SLOTS_PER_DEVICE - 2) for n in range(5)]).began
    assert (finding.kind, finding.severity, finding.device) == ("slots-nearly-exhausted", Severity.WARNING, 0)
    ((_, finding),) = watch([at(n, layout.SLOTS_PER_DEVICE) for n in range(5)]).began
    assert finding.severity == Severity.CRITICAL
    assert finding.evidence == {"slots_used": 16, "slots": 16, "dead": 0}


def test_slots_of_the_dead_are_as_good_as_free() -> None:
    dead = [process(0, {}, slot=slot, pid=slot + 1, alive=False, error="died") for slot in range(16)]
    (finding,) = watch([look(0, *dead)]).last
    assert finding.severity == Severity.WARNING
    assert finding.evidence["dead"] == 16
    assert "recovers" in finding.advice


def test_real_processes_fill_the_slots(root: str, driver: SoftwareDriver) -> None:
    driver.probe(0)
    children = [Child(publish_and_wait, root, f"p{n}") for n in range(14)]
    try:
        for child in children:
            child.__enter__().expect()
        with Collector(driver) as collector:
            (finding,), _, _ = Watcher().add(look_at(collector.collect()))
        assert (finding.kind, finding.evidence["slots_used"]) == ("slots-nearly-exhausted", 14)
    finally:
        for child in children:
            child.__exit__(None, None, None)


# --- Slabs ------------------------------------------------------------------------------------------------------------


def test_an_unknown_version_is_told_at_the_next_look(root: str, driver: SoftwareDriver) -> None:
    with Child(publish_and_wait, root, "newer") as child, Collector(driver) as collector:
        slot = child.expect()
        watcher = Watcher()
        seen = look_at(collector.collect())
        assert watcher.add(seen)[0] == []
        write_header(root, slot, layout.HEADER_WORD + (5 << 32))
        for _ in range(3):  # as it is read, as it can't be attached to
            seen = look_at(collector.collect(), seen)
            (finding,), _, _ = watcher.add(seen)
            assert (finding.kind, finding.pid, finding.tag) == ("unknown-version", child.pid, "newer")
            assert finding.evidence["error"] == "WrongVersion"
            assert "version" in finding.message


def test_a_header_that_is_none_is_damage_once_it_was_seen_twice(root: str, driver: SoftwareDriver) -> None:
    with Child(publish_and_wait, root, "corrupt") as child, Collector(driver) as collector:
        slot = child.expect()
        watcher = Watcher()
        seen = look_at(collector.collect())
        watcher.add(seen)
        write_header(root, slot, 0x1234567890ABCDEF)
        found = []
        for _ in range(3):
            seen = look_at(collector.collect(), seen)
            found.append([f.kind for f in watcher.add(seen)[0]])
        assert found == [[], ["damaged-slab"], ["damaged-slab"]]


def test_a_record_torn_twice_is_damage(root: str, driver: SoftwareDriver) -> None:
    with datastore.publish(0, driver=driver, tag="torn") as producer, Collector(driver) as collector:
        producer.add_model(node(7))
        watcher = Watcher()
        seen = look_at(collector.collect())
        assert watcher.add(seen)[0] == []
        with open(f"{root}/neuron0/{d.SLABS}", "r+b") as f:  # what a producer leaves that stops in a publish
            f.seek(producer.slot * layout.SLAB_SIZE + layout.model_offset(0) + layout.MODEL_SIZE - 8)
            f.write(b"\xff" * 8)
        found = []
        for _ in range(3):
            seen = look_at(collector.collect(), seen)
            found.append(watcher.add(seen)[0])
        assert [[f.kind for f in each] for each in found] == [[], ["damaged-slab"], ["damaged-slab"]]
        assert found[-1][0].evidence["model_slot_0"] in ("torn", "stale")


def test_one_torn_record_at_a_time_is_a_record_being_rewritten() -> None:
    def at(n: int):
        return process(n, {}, odd={f"model slot {n % 2}": "torn"})

    assert watch(series(at, 20)).began == []


def test_what_is_not_ours_to_read_is_no_damage() -> None:
    story = watch(series(lambda n: process(n, {}, error="may not be opened", error_kind="AccessDenied"), 20))
    assert story.began == []


def test_thresholds_of_slots_can_be_set() -> None:
    looks = [look(n, devices=[device(slots_used=10)]) for n in range(3)]
    assert watch(looks).began == []
    assert watch(looks, Thresholds(slots_left=6)).kinds == {"slots-nearly-exhausted"}
