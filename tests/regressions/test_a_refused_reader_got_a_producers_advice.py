"""A reader that may not read a device's files was told to set NEURON_DS_DIR to a directory of its own, as if it wanted
to publish; and where it may not enter the device's folder, the error named neither the device nor where it is."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import AccessDenied
from tests.cli.helpers import probe
from tests.processes import Talk, as_root, result_of


def refused_as_nobody(talk: Talk, root: str) -> list[object]:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    with pytest.raises(AccessDenied) as refused:
        datastore.attach(1, driver=SoftwareDriver(root))
    return [refused.value.device, refused.value.path, str(refused.value)]


@as_root
@pytest.mark.parametrize("closed", ["", d.TABLE, d.OWNERS, d.SLABS])
def test_a_reader_is_told_what_a_reader_can_do(root, closed):
    probe(root)
    path = os.path.join(root, "neuron0")
    for folder in (os.path.dirname(root), root, path):
        os.chmod(folder, 0o755)
    for file in d.FILE_SIZES:
        os.chmod(os.path.join(path, file), 0o644)
    os.chmod(os.path.join(path, closed), 0)
    device, where, text = result_of(refused_as_nobody, root)
    assert (device, where) == (0, path)
    assert "NEURON_DS_GROUP" in text
    assert "of your own" not in text
