"""Clocks and playbacks, with a clock that we move."""

import math

import pytest

from neuron_ds.simulate import Playback, RealTime, playing
from neuron_ds.simulate.events import StillBusy

EVENTS = [StillBusy(at_us, 0, 0, 1) for at_us in (0, 10_000, 20_000, 500_000, 1_000_000)]


class Recorder:
    """In place of a Player: what was applied, and when."""

    def __init__(self, machine):
        self.machine, self.applied = machine, []

    def apply(self, event):
        self.applied.append((event.at_us, round(self.machine.now_s - 100, 6)))


class Machine:
    """A monotonic clock that only sleeping moves."""

    def __init__(self):
        self.now_s, self.slept, self.wake_after = 100.0, [], None

    def sleep(self, sleep_s):
        self.slept.append(sleep_s)
        if self.wake_after is not None and len(self.slept) > self.wake_after:
            return False
        self.now_s += sleep_s
        return True


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(playing.time, "monotonic", lambda: machine.now_s)
    return machine


@pytest.mark.parametrize("speed", [1.0, 4.0, 0.5])
def test_events_come_at_their_times(machine, speed):
    player = Recorder(machine)
    Playback(player, EVENTS, RealTime(speed, machine.sleep)).run()
    assert player.applied == [(e.at_us, pytest.approx(e.at_us / 1e6 / speed)) for e in EVENTS]


def test_as_fast_as_possible_sleeps_never_but_looks_up_now_and_then(machine):
    player = Recorder(machine)
    events = [StillBusy(at_us * 1000, 0, 0, 1) for at_us in range(1000)]
    Playback(player, events, RealTime(math.inf, machine.sleep)).run()
    assert len(player.applied) == 1000
    assert set(machine.slept) == {0}
    assert 10 <= len(machine.slept) <= 20


def test_a_clock_that_is_always_late_looks_up_too(machine):
    player = Recorder(machine)
    clock = RealTime(1.0, machine.sleep)
    events = [StillBusy(0, 0, 0, 1) for _ in range(1000)]
    Playback(player, events, clock).run()
    assert len(machine.slept) >= 10


def test_a_clock_woken_early_gives_the_event_back(machine):
    player = Recorder(machine)
    playback = Playback(player, EVENTS, RealTime(1.0, machine.sleep))
    machine.wake_after = 1
    playback.run()
    assert (playback.played, playback.at_us) == (2, 10_000)
    machine.wake_after = None
    playback.run()
    assert [at_us for at_us, _ in player.applied] == [e.at_us for e in EVENTS]
    assert playback.over


def test_who_was_stopped_does_not_catch_up(machine):
    player = Recorder(machine)
    playback = Playback(player, EVENTS, RealTime(1.0, machine.sleep))
    playback.run(until=3)
    machine.now_s += 3600
    playback.run()
    late = [now_s for _, now_s in player.applied[3:]]
    assert late[0] == pytest.approx(3600.02)
    assert late[1] - late[0] == pytest.approx(0.5)


def test_after_a_restart_the_next_event_is_due_at_once(machine):
    player = Recorder(machine)
    clock = RealTime(1.0, machine.sleep)
    playback = Playback(player, EVENTS, clock)
    playback.run(until=3)
    clock.restart()
    playback.run()
    assert [now_s for _, now_s in player.applied[2:]] == pytest.approx([0.02, 0.02, 0.52])


def test_a_playback_stops_at_a_count_and_at_a_time_and_goes_on(machine):
    player = Recorder(machine)
    playback = Playback(player, EVENTS)
    playback.run(until=2)
    assert playback.played == 2
    playback.run(until=1)
    assert playback.played == 2
    playback.run(until_us=20_000)
    assert playback.played == 3
    playback.run()
    assert (playback.played, playback.over, playback.at_us) == (5, True, 1_000_000)
