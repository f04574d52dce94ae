"""A file shorter than what was to be mapped was mapped all the same, and the first touch ended the process (SIGBUS)."""

import os

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import Slab, in_child


@pytest.mark.parametrize("size", [0, 1, 4096, layout.REQUIRED_SIZE - 1])
def test_it_is_refused(size):
    slab = Slab(size=size)

    def work():
        for offset, wanted in ((0, layout.REQUIRED_SIZE), (0, layout.SLAB_SIZE), (layout.SLAB_SIZE, 8)):
            for writable in (False, True):
                with pytest.raises(errors.TooShort, match="device 3, pid 7, slot 1: the file ends"):
                    _core.map(slab.fd, offset, wanted, writable, (3, 7, 1)).snapshot()
        return True

    assert in_child(work)
    slab.close()


def test_the_end_itself_is_inside():
    slab = Slab(size=2 * layout.SLAB_SIZE)
    mapping = _core.map(slab.fd, layout.SLAB_SIZE, layout.SLAB_SIZE, True, None)
    mapping.store(layout.SLAB_SIZE // 8 - 1, 1)
    with pytest.raises(errors.TooShort):
        _core.map(slab.fd, layout.SLAB_SIZE, layout.SLAB_SIZE + 8, True, None)
    with pytest.raises(errors.TooShort):
        _core.map(slab.fd, 2**64 - layout.SLAB_SIZE, layout.SLAB_SIZE, True, None)
    slab.close()


def test_what_is_no_file_has_no_end():
    zero = os.open("/dev/zero", os.O_RDWR)
    assert _core.map(zero, 0, layout.SLAB_SIZE, False, None).snapshot()[0] == bytes(layout.REQUIRED_SIZE)
    os.close(zero)
