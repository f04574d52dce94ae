"""Objects that are integers without being int (numpy's) were refused with a TypeError from 2**63 on."""

import pytest

from neuron_ds import _core, layout


class Number:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


@pytest.mark.parametrize("value", [0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1])
def test_any_integer_type_will_do(value):
    mapping = _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)
    counter = mapping.nc(1, 1)
    counter.set(Number(value))
    assert counter.get() == value
    counter.set(0)
    counter.add(Number(value))
    assert counter.get() == value
    mapping.store(Number(5), Number(value))
    assert mapping.load(Number(5)) == value


def test_beyond_a_word_it_is_still_an_overflow():
    counter = _core.map(-1, 0, layout.REQUIRED_SIZE, True, None).nd(0)
    for value in (2**64, 2**80, -1, -(2**80)):
        with pytest.raises(OverflowError):
            counter.add(Number(value))
    assert counter.get() == 0
