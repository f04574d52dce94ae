"""A child that was forked while a recording was replayed waited for ever for a lock of its parent's thread, or played
into its parent's memory; a fast ``--loop`` played round after round that nobody saw, and never answered."""

from neuron_ds.datastore import attach
from neuron_ds.record.replay import ReplayDriver
from tests.processes import Child, result_of
from tests.record.conftest import Clock


def tape_of(producer, taping, ticks: int = 50) -> str:
    tape = taping(now_ns=Clock())
    for _ in range(ticks):
        producer.core(0).inference_count.add(1)
        tape.tick()
    tape.end()
    return tape.path


def completed(driver) -> int:
    (device,) = driver.devices()
    (owner,) = driver.owners(device)
    with attach(owner.pid, device, driver=driver) as reader:
        return reader.snapshot().core(0).inference_count


def test_a_child_is_not_locked_out(driver, producer, taping):
    with ReplayDriver(tape_of(producer, taping), speed=1000, loop=True) as replay:
        for _ in range(20):
            assert 0 < result_of(lambda talk: completed(replay)) <= 50


def test_a_child_plays_by_itself(driver, producer, taping):
    with ReplayDriver(tape_of(producer, taping), speed=0) as replay:
        assert [completed(replay) for _ in range(3)] == [1, 2, 3]
        with Child(lambda talk: [talk.hear(), [completed(replay) for _ in range(5)]][1]) as child:
            assert [completed(replay) for _ in range(4)] == [4, 5, 6, 7]
            assert child.ask() == [4, 5, 6, 7, 8]
            assert [completed(replay) for _ in range(2)] == [8, 9]


def test_rounds_that_nobody_sees_are_not_played(driver, producer, taping, monkeypatch):
    with ReplayDriver(tape_of(producer, taping), speed=0, loop=True) as replay:
        rounds, begin = [], replay._begin_anew
        monkeypatch.setattr(replay, "_begin_anew", lambda: (rounds.append(1), begin()))
        assert completed(replay) == 1
        begun_ns = replay.moment_ns
        replay.go_on(begun_ns + 3600 * 1_000_000_000)
        assert len(rounds) <= 1
        assert abs(begun_ns + 3600 * 1_000_000_000 - replay.moment_ns) < 2_000_000
