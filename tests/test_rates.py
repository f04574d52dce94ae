"""Differences of two Samples as pure functions: wrap-around, comings and goings, percentiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import Snapshot, layout
from neuron_ds.collect import DeviceSample, ProcessSample, Sample
from neuron_ds.driver import Owner
from neuron_ds.rates import deltas, elapsed_s, grown, percentiles, utilization
from neuron_ds.snapshot import Origin

COUNT = layout.NC_BY_NAME["inference_count"].index
SECOND = 1_000_000_000


def process(pid: int, value: int | None, *, at_s: float = 0.0, generation: int = 1) -> ProcessSample:
    owner = Owner(0, 0, pid, True, generation=generation)
    if value is None:
        return ProcessSample(owner, None, "torn away")
    raw = bytearray(layout.REQUIRED_SIZE)
    at = layout.nc_index(2, COUNT) * 8
    raw[at : at + 8] = value.to_bytes(8, "little")
    snapshot = Snapshot(bytes(raw), Origin(0, pid, 0, generation), int(at_s * SECOND), None, None)
    return ProcessSample(owner, snapshot, "")


def sample(at_s: float, *processes: ProcessSample) -> Sample:
    return Sample(int(at_s * SECOND), (DeviceSample(0, None, processes, None, len(processes), ""),), "")


def growth(before: Sample | None, after: Sample) -> dict[int, int]:
    return {key[3]: delta.nc(2, COUNT) for key, delta in deltas(before, after).items()}


def test_a_counter_grows_by_the_difference() -> None:
    assert growth(sample(0, process(1, 10)), sample(5, process(1, 25))) == {1: 15}


def test_the_first_look_has_nothing_to_compare_with() -> None:
    assert growth(None, sample(0, process(1, 10))) == {1: 0}


def test_a_process_that_came_counts_from_zero() -> None:
    assert growth(sample(0, process(1, 10)), sample(5, process(1, 10), process(2, 7))) == {1: 0, 2: 7}


def test_a_process_that_left_has_no_difference() -> None:
    assert growth(sample(0, process(1, 10), process(2, 7)), sample(5, process(1, 11))) == {1: 1}


def test_a_slab_that_changed_hands_is_another_process() -> None:
    before, after = sample(0, process(1, 1000, generation=1)), sample(5, process(1, 3, generation=3))
    assert growth(before, after) == {1: 3}


def test_a_process_that_could_not_be_read_before_has_no_difference_yet() -> None:
    assert growth(sample(0, process(1, None)), sample(5, process(1, 500))) == {1: 0}
    assert growth(sample(0, process(1, 5)), sample(5, process(1, None))) == {}


def test_the_period_is_that_of_the_two_copies() -> None:
    before, after = sample(1, process(1, 0, at_s=0.5)), sample(6.5, process(1, 0, at_s=6.0))
    (delta,) = deltas(before, after).values()
    assert delta.period_s == pytest.approx(5.5)
    assert elapsed_s(before, after) == pytest.approx(5.5)


@pytest.mark.parametrize(
    ("before", "after", "by"), [(5, 9, 4), (2**64 - 3, 4, 7), (9, 5, 0), (0, 2**63 - 1, 2**63 - 1), (7, 7, 0)]
)
def test_growth_wraps_around_and_never_goes_back(before: int, after: int, by: int) -> None:
    assert grown(before, after) == by


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1))
def test_growth_is_what_was_added_modulo_the_word(start: int, added: int) -> None:
    assert grown(start, (start + added) % 2**64) == added


def test_utilization_is_a_clamped_share() -> None:
    assert utilization(500_000, 1.0) == 0.5
    assert utilization(3_000_000, 1.0) == 1.0
    assert utilization(5, 0.0) == 0.0


def test_percentiles_are_nearest_ranks() -> None:
    assert percentiles(()) is None
    assert percentiles((7,)) == dict.fromkeys((0, 1, 25, 50, 75, 99, 100), 7)
    assert percentiles(range(1, 101)) == {0: 1, 1: 1, 25: 25, 50: 50, 75: 75, 99: 99, 100: 100}
    assert percentiles((15, 20, 35, 40, 50), (5, 30, 40, 50, 100)) == {5: 15, 30: 20, 40: 20, 50: 35, 100: 50}


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_percentiles_are_values_in_order(values: list[int]) -> None:
    found = percentiles(values)
    assert found is not None
    ordered = [found[p] for p in (0, 1, 25, 50, 75, 99, 100)]
    assert ordered == sorted(ordered)
    assert set(ordered) <= set(values)
    assert (ordered[0], ordered[-1]) == (min(values), max(values))
