"""An index of 2**64 or 2**32 and more was cut down to its low bits: store(2**64 + 3, v) wrote word 3."""

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import PROCESS_INFO, words

BEYOND = 2**64


@pytest.fixture
def mapping():
    return _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)


def test_words(mapping):
    mapping.store(3, 5)
    for call in (
        lambda: mapping.store(BEYOND + 3, 9),
        lambda: mapping.load(BEYOND + 3),
        lambda: mapping.load_many(BEYOND + 3, 1),
        lambda: mapping.load_many(3, BEYOND + 1),
        lambda: mapping.load_many(3, 1, BEYOND + 1),
        lambda: mapping.zero(BEYOND + 3, 1),
        lambda: mapping.zero(3, BEYOND + 1),
        lambda: mapping.copy(BEYOND + 3, 1),
        lambda: mapping.copy(3, BEYOND + 1),
        lambda: mapping.store(-BEYOND + 3, 9),
        lambda: mapping.zero(-1, 1),
    ):
        with pytest.raises(OverflowError):
            call()
    assert mapping.copy(0, 8) == words(0, 0, 0, 5, 0, 0, 0, 0)


def test_records(mapping):
    for number in (2**32 + PROCESS_INFO, BEYOND + PROCESS_INFO, PROCESS_INFO - 2**32):
        with pytest.raises(errors.BadIndex):
            mapping.publish(number, b"\1" * layout.PROCESS_INFO_SIZE)
    assert mapping.read_record(PROCESS_INFO) == (1, None)


def test_mappings():
    for offset, size in ((BEYOND, 8), (0, BEYOND + 8), (-8, 8), (0, -8)):
        with pytest.raises(OverflowError):
            _core.map(-1, offset, size, True, None)


def test_guards(mapping):
    table = _core.map(-1, 0, 4096, True, None)
    for index, value in ((BEYOND, 0), (0, BEYOND), (-1, 0)):
        with pytest.raises(OverflowError):
            mapping.guard(table, index, value, None, 0)


def test_totals(mapping):
    size = 8 * _core.totals_layout()[0]
    totals = _core.map(-1, 0, 2 * size, True, None)
    for source, target in ((2**32, 1), (0, 2**32 + 1), (-(2**32), 1)):
        with pytest.raises(errors.BadIndex):
            totals.roll_up(source, target, mapping)
    with pytest.raises(OverflowError):
        mapping.add_to(bytearray(size), BEYOND, True)
