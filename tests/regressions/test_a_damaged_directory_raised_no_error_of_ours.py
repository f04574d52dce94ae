"""A device that lacked a file, had one cut short, or told of impossible properties raised a bare OSError, was reported
as missing, or was believed."""

import os

import pytest

from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.errors import LayoutMismatch
from tests.devices import USES, put_word


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", d.FILE_SIZES)
def test_a_missing_file_is_named(driver, device0, use, name):
    os.unlink(f"{device0}/{name}")
    with pytest.raises(LayoutMismatch, match="lacks a file") as damaged:
        USES[use](driver)
    assert damaged.value.path == device0


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", [name for name, size in d.FILE_SIZES.items() if size])
def test_a_file_that_is_cut_short_is_no_crash(driver, device0, use, name):
    os.truncate(f"{device0}/{name}", d.FILE_SIZES[name] - 8)
    with pytest.raises(LayoutMismatch, match=f"{name} is cut short"):
        USES[use](driver)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (t.W_MAGIC, 0, "no slot table at all"),
        (t.W_CORES, 0, "damaged: 0 cores"),
        (t.W_CORES, 17, "damaged: 17 cores"),
        (t.W_LOGICAL, 0, "damaged: 8 cores, 0 to a logical one"),
    ],
)
def test_a_damaged_table_is_refused(driver, device0, use, index, value, message):
    put_word(f"{device0}/{d.TABLE}", index, value)
    with pytest.raises(LayoutMismatch, match=message):
        USES[use](driver)
