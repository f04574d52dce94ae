"""Where the directory of the devices did not exist, or could not be opened for a rare reason, some calls raised the
system's own OSError."""

import errno

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NoDevice, SystemFailure


@pytest.mark.parametrize("call", ["properties", "owners", "totals", "reset"])
def test_no_root(driver, root, call):
    with pytest.raises(NoDevice) as missing:
        getattr(driver, call)(0)
    assert root in str(missing.value)


@pytest.mark.parametrize("call", ["properties", "owners", "totals", "reset", "acquire", "probe"])
def test_a_path_that_no_file_system_takes(root, call):
    odd = SoftwareDriver(f"{root}/{'x' * 5000}")
    with pytest.raises(SystemFailure) as failed:
        getattr(odd, call)(0)
    assert failed.value.errno == errno.ENAMETOOLONG
    with pytest.raises(SystemFailure):
        odd.devices()
