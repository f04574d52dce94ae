"""The rows of the cores that a blob shows as used: as the counters one by one, and shared where nothing moved."""

import gc
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import _core, errors, layout
from neuron_ds.snapshot import Snapshot

COUNTERS = st.tuples(
    st.integers(0, layout.MAX_CORES - 1), st.integers(0, layout.NC_COUNTERS - 1), st.integers(0, 2**64 - 1)
)


def blob(*counted: tuple[int, int, int]) -> bytes:
    """A blob with these (core, counter, value)."""
    data = bytearray(layout.REQUIRED_SIZE)
    struct.pack_into("<Q", data, 0, layout.HEADER_WORD)
    for core, counter, value in counted:
        struct.pack_into("<Q", data, layout.nc_index(core, counter) * 8, value)
    return bytes(data)


@given(st.lists(COUNTERS, max_size=12), st.integers(0, layout.NC_COUNTERS))
def test_rows_are_the_counters_of_the_cores_that_have_any(counted: list[tuple[int, int, int]], count: int) -> None:
    data = blob(*counted)
    shot = Snapshot(data)
    wanted = {core: row for core in range(layout.MAX_CORES) if any(row := shot.nc_counters(core)[:count])}
    assert _core.used_rows(data, count, {}) == wanted
    assert _core.used_rows(memoryview(b"." + data)[1:], count, {}) == wanted  # wherever it lies


@given(st.lists(COUNTERS, max_size=6), st.lists(COUNTERS, max_size=6))
def test_what_did_not_move_is_the_very_row_of_before(
    first: list[tuple[int, int, int]], then: list[tuple[int, int, int]]
) -> None:
    before = _core.used_rows(blob(*first), layout.NC_COUNTERS, {})
    kept = dict(before)
    now = _core.used_rows(blob(*then), layout.NC_COUNTERS, before)
    assert before == kept
    assert now == _core.used_rows(blob(*then), layout.NC_COUNTERS, {})
    assert (now is before) == (now == before)
    assert all((row is before.get(core)) == (row == before.get(core)) for core, row in now.items())


def test_a_core_that_was_zeroed_is_gone() -> None:
    before = _core.used_rows(blob((0, 1, 5), (9, 40, 6)), 53, {})
    now = _core.used_rows(blob((9, 40, 6)), 53, before)
    assert list(now) == [9]
    assert now[9] is before[9]


def test_rows_of_another_width_are_no_rows_of_before() -> None:
    data = blob((3, 2, 7))
    before = _core.used_rows(data, 10, {})
    assert _core.used_rows(data, 53, before) == _core.used_rows(data, 53, {})
    assert _core.used_rows(data, 10, {3: [0, 0, 7]}) == before  # type: ignore[dict-item]


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(errors.TooShort):
        _core.used_rows(blob()[:-1], 53, {})
    with pytest.raises(errors.BadIndex):
        _core.used_rows(blob(), layout.NC_COUNTERS + 1, {})
    with pytest.raises(TypeError):
        _core.used_rows(blob(), 53, None)  # type: ignore[arg-type]


def test_what_no_row_can_hold_is_no_row_of_before() -> None:
    ran = []

    class Odd:
        def __index__(self) -> int:
            ran.append(self)
            before.clear()
            return 1

    before: dict[int, tuple[int, ...]] = {}
    for odd in (-1, 2**64, "x", True, None, Odd()):
        before[0] = (odd, 0)  # type: ignore[assignment]
        assert _core.used_rows(blob((0, 0, 1)), 2, before) == {0: (1, 0)}
    assert not ran, "no code of others runs while rows are compared"


@pytest.mark.parametrize(("count", "before"), [(53, {}), (2, {0: (1, 2)}), (96, {}), (53, None), ("x", {})])
def test_the_buffer_is_given_back(count: int, before: dict[int, tuple[int, ...]]) -> None:
    arena = _core.arena(1)
    with suppress(errors.BadIndex, TypeError):
        _core.used_rows(memoryview(arena), count, before)
    gc.collect()
    assert not arena.in_use
