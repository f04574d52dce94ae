"""Histories: the newest values, None where nothing was known, and what was handed out stays as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neuron_ds.live.history import KEPT, History, Past

VALUES = st.lists(st.none() | st.floats(allow_nan=False), min_size=1, max_size=KEPT + 30)


@given(VALUES, st.integers(-KEPT, KEPT))
def test_a_past_is_the_newest_values_as_they_were_then(values: list[float | None], at: int) -> None:
    history = History()
    pasts = [history.add(value) for value in values]
    for n, past in enumerate(pasts, 1):
        assert tuple(past) == tuple(values[:n][-KEPT:]) == past
    last, newest = pasts[-1], tuple(values[-KEPT:])
    assert len(last) == len(newest)
    assert last[at:] == newest[at:]
    assert last[-1] == newest[-1]
    assert hash(last) == hash(newest)


def test_no_more_than_so_many_are_kept() -> None:
    history = History()
    for value in range(KEPT + 2):
        past = history.add(value)
        assert past == tuple(range(max(0, value + 1 - KEPT), value + 1))
    assert len(past) == KEPT


def test_pasts_are_equal_by_what_they_hold() -> None:
    one, other = History(), History()
    assert one.add(1) == other.add(1.0)
    assert one.add(None) != other.add(0.0)
    assert Past(one.add(2)._values) == (1, None, 2)
    assert one.add(2) != [1, None, 2, 2]  # no list: those can change
