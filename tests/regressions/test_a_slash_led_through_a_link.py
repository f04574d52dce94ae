"""O_NOFOLLOW looks at the last part of a path only: with a slash behind it, a root that was a link was used."""

import os

import pytest

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import UnsafeDirectory


@pytest.mark.parametrize("path", ["{}/", "{}/.", "{}//"])
def test_a_link_with_a_slash_behind_it(root, driver, path):
    driver.probe(0)
    os.symlink(root, f"{root}-link")
    other = SoftwareDriver(path.format(f"{root}-link"))
    for use in (lambda: other.properties(0), other.devices, lambda: datastore.publish(0, driver=other)):
        with pytest.raises(UnsafeDirectory, match="symbolic link"):
            use()
