"""A kill storm: many lives at once on one device, ended by SIGKILL at random instants and at every named step.

Each life keeps a ledger outside the device: *intent* before an add, *done* after it. Whatever is killed when, the
device totals lie between the two, to every observer, at every moment; and processes that were stopped, read and then
killed are counted to the unit.
"""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver import steps
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError, SlotsFull, TableBusy
from tests.kill import names_in_source

WORKERS = 12
INTENT, DONE, COUNTED, HIT = range(4)
COUNTER = "inference_count"
INDEX = layout.NC_BY_NAME[COUNTER].index
#: The steps that the kernel driver alone names, or that no life of this storm goes through.
ELSEWHERE = {"reset.zeroed", "reset.committed", "delete.bit", "delete.zeroed", "publish.bit"}


class Ledger:
    """Shared words: intent and done of each worker, how often each step killed, and a flag that ends observers."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._words = memoryview(mmap.mmap(-1, mmap.PAGESIZE * 4)).cast("Q")

    def add_intent(self, worker: int, n: int) -> None:
        self._words[worker * 2 + INTENT] += n

    def add_done(self, worker: int, n: int) -> None:
        self._words[worker * 2 + DONE] += n

    def total(self, which: int) -> int:
        return sum(self._words[worker * 2 + which] for worker in range(WORKERS))

    def hit(self, name: str) -> None:
        self._words[256 + self.names.index(name)] += 1

    def hits(self) -> dict[str, int]:
        return {name: self._words[256 + i] for i, name in enumerate(self.names)}

    def stop(self) -> None:
        self._words[255] = 1

    @property
    def stopped(self) -> bool:
        return self._words[255] != 0


def live(root: str, ledger: Ledger, worker: int, seed: int) -> None:
    """One life: publish, add a random number of times, close or not; perhaps die at the n-th time of a step."""
    rng = random.Random(seed)
    if rng.random() < 0.6:
        # Few lives find something to recover: half of them are to die at the step that killed least so far.
        hits = ledger.hits()
        doomed = rng.choice(ledger.names) if rng.random() < 0.5 else min(hits, key=hits.__getitem__)
        left = rng.randint(1, 2)

        def die(name: str) -> None:
            nonlocal left
            if name == doomed:
                left -= 1
                if left == 0:
                    ledger.hit(name)
                    os.kill(os.getpid(), signal.SIGKILL)

        steps.set_hook(die)
    try:
        producer = datastore.publish(0, driver=SoftwareDriver(root))
    except (SlotsFull, TableBusy):
        return
    counter = getattr(producer.core(worker % 8), COUNTER)
    for _ in range(rng.randint(0, rng.choice((60, 20_000)))):
        n = rng.randint(1, 1000)
        ledger.add_intent(worker, n)
        counter.add(n)
        ledger.add_done(worker, n)
    if rng.random() < 0.5:
        producer.close()


def total_of(driver: SoftwareDriver) -> int:
    totals = driver.totals(0)
    return sum(totals.nc(core, INDEX) for core in range(layout.MAX_CORES))


def observe(root: str, ledger: Ledger) -> None:
    """Look until told to stop: never less than was done before the look, nor more than was meant after it, nor back."""
    driver, last, looks = SoftwareDriver(root), 0, 0
    while not ledger.stopped:
        done = ledger.total(DONE)
        try:
            total = total_of(driver)
        except TableBusy:
            continue
        intent = ledger.total(INTENT)
        assert done <= total <= intent, (done, total, intent)
        assert last <= total, (last, total)
        last, looks = total, looks + 1
    assert looks > 20


def fork(work, *arguments) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        except BaseException as e:
            os.write(2, f"{type(e).__name__}: {e}\n".encode())
        os._exit(code)
    return pid


def deaths(root: str, ledger: Ledger, kills: int, rng: random.Random) -> Iterator[bool]:
    """Keep all workers alive until so many SIGKILLs landed; yields for every death whether it was one."""
    running: dict[int, int] = {}  # pid: worker
    killed, life = 0, 0
    try:
        while killed < kills:
            for worker in sorted(set(range(WORKERS)) - set(running.values())):
                life += 1
                running[fork(live, root, ledger, worker, rng.randrange(1 << 40))] = worker
            time.sleep(rng.random() * 0.004)
            if rng.random() < 0.7:
                os.kill(rng.choice(list(running)), signal.SIGKILL)
            while running:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid not in running:
                    raise AssertionError(f"an observer ended with status {status}")
                del running[pid]
                if os.WIFSIGNALED(status):
                    killed += 1
                else:
                    assert status == 0, f"a life ended with status {status}"
                yield os.WIFSIGNALED(status)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def storm(root: str, kills: int, seed: int) -> tuple[Ledger, int]:
    names = sorted(names_in_source() - ELSEWHERE)
    ledger, rng = Ledger(names), random.Random(seed)
    driver = SoftwareDriver(root)
    driver.probe(0)
    observers = [fork(observe, root, ledger) for _ in range(2)]
    landed = sum(deaths(root, ledger, kills, rng))
    ledger.stop()
    for pid in observers:
        assert os.waitpid(pid, 0)[1] == 0, "an observer saw totals out of bounds"
    assert ledger.total(DONE) <= total_of(driver) <= ledger.total(INTENT)
    # Everything is recovered: all slots are free again, and the totals did not move by that.
    before = total_of(driver)
    datastore.publish(0, driver=driver).close()
    assert driver.owners(0) == []
    assert total_of(driver) == before
    return ledger, landed


@pytest.mark.timeout(100)
def test_a_short_storm(root: str) -> None:
    _, landed = storm(root, 60, seed=1)
    assert landed >= 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_thousands_of_kills_at_random_instants_and_at_every_step(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    ledger, landed = storm(root, 4000, seed=2)
    hits = ledger.hits()
    with capsys.disabled():
        print(f"\nkill storm: {landed} SIGKILLs; by step:")
        for name, count in hits.items():
            print(f"  {count:5} {name}")
        print(f"  done {ledger.total(DONE):,} <= intent {ledger.total(INTENT):,}")
    assert landed >= 4000
    assert min(hits.values()) >= 20, f"steps hit too rarely: {hits}"


def test_stopped_read_and_killed_match_to_the_unit(root: str) -> None:
    driver, rng, expected = SoftwareDriver(root), random.Random(5), 0
    driver.probe(0)

    def count_for_ever() -> None:
        producer = datastore.publish(0, driver=driver)
        add = producer.core(0).inference_count.add
        while True:
            add(rng.randint(1, 9))

    for _ in range(40):
        pid = fork(count_for_ever)
        reader = None
        while reader is None:
            try:
                reader = datastore.attach(pid, driver=driver)
            except NeuronDSError:
                time.sleep(0.0005)
        time.sleep(rng.random() * 0.01)
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        expected += reader.snapshot().core(0).inference_count
        reader.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert total_of(driver) == expected
    assert expected > 1000
