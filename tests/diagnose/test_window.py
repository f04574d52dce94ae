"""Which Looks a Window keeps, and what it answers."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds.collect import Latencies
from neuron_ds.diagnose import ProcessLook, Window
from neuron_ds.diagnose.looks import SOME_LATENCIES
from neuron_ds.diagnose.window import DENSE_S, LONGEST_S, MOST_DENSE, SPARSE_S
from tests.diagnose.stage import START_NS, look, process, row


def seconds(looks) -> list[float]:
    return [(each.time_ns - START_NS) / 1e9 for each in looks]


def filled(times) -> Window:
    return Window([look(t) for t in times])


def test_all_of_the_last_minute_and_some_of_what_lies_behind() -> None:
    window = filled(range(2000))
    times = seconds(window)
    assert times == sorted(times)
    recent = [t for t in times if t >= 1999 - DENSE_S]
    assert recent == [float(t) for t in range(1999 - int(DENSE_S), 2000)]
    older = [t for t in times if t < 1999 - DENSE_S]
    assert all(SPARSE_S <= b - a <= SPARSE_S + 1 for a, b in pairwise(older))
    assert 1999 - LONGEST_S <= times[0] <= 1999 - LONGEST_S + SPARSE_S + 1
    assert len(window) == len(times)
    assert window.span_s == 1999 - times[0]


def test_however_often_is_looked_it_stays_small() -> None:
    assert len(filled(n / 100 for n in range(5000))) <= MOST_DENSE + 50 / SPARSE_S + 2


def test_now_before_at_and_since() -> None:
    window = filled(range(30))
    assert window.now.time_ns == look(29).time_ns
    assert window.before is not None
    assert window.before.time_ns == look(28).time_ns
    assert seconds([window.at(5)]) == [24.0]
    assert seconds([window.at(0.01)]) == [28.0], "never the newest itself"
    assert window.at(40) is None
    assert seconds(window.since(3)) == [26.0, 27.0, 28.0, 29.0]
    assert seconds(window.since(2.5)) == [26.0, 27.0, 28.0, 29.0], "one more, so that the whole time is covered"
    assert seconds(window.since(1000)) == [float(t) for t in range(30)]


def test_a_look_that_comes_a_little_early_is_old_enough() -> None:
    window = filled([0.0, 0.97, 2.01, 3.0, 4.02, 4.98])
    assert seconds([window.at(5)]) == [0.0]
    assert seconds([window.at(1)]) == [4.02]


def test_an_empty_window_and_one_look() -> None:
    with pytest.raises(IndexError):
        _ = Window().now
    window = filled([1])
    assert window.before is None
    assert window.at(1) is None
    assert seconds(window.since(5)) == [1.0]


def test_time_that_goes_back_begins_anew() -> None:
    window = filled([1, 2, 3])
    window.add(look(2))
    assert seconds(window) == [2.0]


def test_once_is_once_per_look() -> None:
    window, calls = filled([1, 2]), []

    def make(of: Window, value: int) -> int:
        calls.append(value)
        return value + len(of)

    assert [window.once("a", 1, make), window.once("a", 1, make), window.once("b", 1, make)] == [3, 3, 3]
    assert window.once("a", 5, make) == 7
    window.add(look(3))
    assert window.once("a", 5, make) == 8
    assert calls == [1, 1, 5, 5]


@given(st.lists(st.floats(0.01, 400), min_size=1, max_size=80), st.floats(0.05, 1000))
def test_at_gives_the_newest_that_is_old_enough(steps: list[float], age: float) -> None:
    times, now = [], 0.0
    for step in steps:
        now += step
        times.append(now)
    window = filled(times)
    found = window.at(age)
    kept = seconds(window)
    slack = max(age * 0.02, 0.05) + 1e-6
    old = [t for t in kept[:-1] if kept[-1] - t >= age - slack]
    if found is None:
        assert not [t for t in kept[:-1] if kept[-1] - t >= age]
    else:
        assert seconds([found])[0] in old
        assert not [t for t in kept[:-1] if t > seconds([found])[0] and kept[-1] - t >= age]


def crowded(n: int, moving: int):
    rows = {core: row(infer_completed=n) for core in range(8)}
    still = [STILL.setdefault(slot, process(0, {0: row(infer_completed=1)}, slot=slot)) for slot in range(moving, 16)]
    return look(n, *(process(n, rows, slot=slot) for slot in range(moving)), *still)


STILL: dict[int, ProcessLook] = {}


def test_rows_that_change_are_bounded_and_those_that_looks_share_cost_nothing() -> None:
    window = Window(most_rows=100)
    for n in range(50):
        window.add(crowded(n, 4))
    assert seconds(window) == [46.0, 47.0, 48.0, 49.0], "three times 32 rows beside the newest's"
    idle = Window(most_rows=100)
    for n in range(50):
        idle.add(crowded(n, 0))
    assert len(idle) == 50


def test_of_latencies_some_are_kept_but_of_the_newest_all() -> None:
    many = Latencies(tuple(range(1000)), tuple(range(1000)), dropped=7)
    window = Window([look(n, process(n, {}, latencies=many)) for n in range(3)])
    *older, newest = (p.latencies for each in window for p in each.processes.values())
    assert newest == many
    for kept in older:
        assert len(kept.total_us) == SOME_LATENCIES
        assert (kept.total_us[0], kept.dropped) == (0, 7)
        assert kept.total_us[SOME_LATENCIES // 2] == 500
