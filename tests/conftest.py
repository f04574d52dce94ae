"""Fixtures that every room's tests share: the golden slabs, and a place for devices of the test's own."""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuron_ds import datastore
from neuron_ds.driver import steps
from neuron_ds.driver.software import SoftwareDriver
from tests.processes import result_of
from tests.standins import StandIn

# Whoever runs the tests in the background of a shell lets them ignore SIGINT, and with them all that they start, which
# then rightly goes on ignoring it; what the tests send must be heard.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

GOLDEN = Path(__file__).parent / "golden"


class Golden:
    """The golden files, by their names in tests/golden without ending; its README says what each is."""

    def path(self, name: str) -> Path:
        return GOLDEN / f"{name}.bin"

    def bytes(self, name: str) -> bytes:
        return self.path(name).read_bytes()

    def json(self, name: str) -> dict:
        return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.fixture(scope="session")
def golden() -> Golden:
    return Golden()


@pytest.fixture
def root() -> Iterator[str]:
    """A path for a directory of devices that does not exist yet, in shared memory like the real ones."""
    parent = tempfile.mkdtemp(prefix="neuron-ds-test-", dir="/dev/shm")
    yield f"{parent}/devices"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def driver(root: str) -> SoftwareDriver:
    """The software driver over an empty directory of the test's own."""
    return SoftwareDriver(root)


@pytest.fixture
def producer(driver: SoftwareDriver) -> Iterator[datastore.Producer]:
    """This process as a producer of device 0."""
    with datastore.publish(0, driver=driver) as made:
        yield made


@pytest.fixture
def reader(producer: datastore.Producer, driver: SoftwareDriver) -> Iterator[datastore.Reader]:
    """A reader of that."""
    with datastore.attach(producer.pid, driver=driver) as made:
        yield made


@pytest.fixture(scope="module")
def standin() -> Iterator[StandIn]:
    """The stand-in of a kernel driver, for all tests of a module."""
    with StandIn() as made:
        yield made


@pytest.fixture
def nodes(standin: StandIn) -> StandIn:
    """Its device nodes as good as new."""
    return standin.renew()


@pytest.fixture
def hook() -> Iterator[list]:
    """A list of functions that are called with each named step of this process."""
    calls: list = []
    steps.set_hook(lambda name: [call(name) for call in list(calls)])
    yield calls
    steps.set_hook(None)


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def device0(root) -> str:
    """A device that was made by another process, so that this one knows nothing of it."""
    assert result_of(lambda talk: SoftwareDriver(root).probe(0).type) == "trn2"
    return f"{root}/neuron0"
