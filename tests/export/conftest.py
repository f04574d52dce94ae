"""A small recording for all tests of this room: a healthy load, one with errors, and one that sleeps."""

import shutil
import tempfile

import pytest

from neuron_ds.record import Recording
from tests.recordings import Made, record

PATTERNS = {"inference": {"redeploy_s": 3}, "erring": {}, "idle": {}}
TAGS = ('serve,"me"\n', "</script>erring", "idle")


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    parent = tempfile.mkdtemp(prefix="neuron-ds-test-", dir="/dev/shm")
    try:
        path = str(tmp_path_factory.mktemp("recording") / "a.mcap")
        return record(path, f"{parent}/devices", PATTERNS, 6, rate_hz=2, tags=TAGS)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def recording(made):
    with Recording(made.path) as opened:
        yield opened
