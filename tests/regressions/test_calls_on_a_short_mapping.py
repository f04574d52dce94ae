"""Calls that forgot to look at a mapping's size: read_record gave BadIndex, a bench's copy read outside the mapping."""

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import in_child


@pytest.fixture
def short():
    return _core.map(-1, 0, 4096, True, None)


def test_read_record(short):
    with pytest.raises(errors.TooShort):
        short.read_record(0)
    with pytest.raises(errors.BadIndex):
        _core.map(-1, 0, layout.REQUIRED_SIZE, True, None).read_record(66)


def test_the_copies_of_the_benches(short):
    def work():
        arena = _core.arena(2)
        for _ in range(50):
            _core.bench_memcpy_many((short, short), arena)
            for call in (_core.bench_memcpy_bytes, _core.bench_verify64, lambda m: _core.bench_adds(m, 0, 1)):
                with pytest.raises(errors.NeuronDSError):
                    call(short)
        return bytes(memoryview(arena)) == bytes(2 * layout.REQUIRED_SIZE)

    assert in_child(work)
