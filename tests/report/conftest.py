"""Recordings for reports: one in which much happens, made once."""

import shutil
import tempfile

import pytest

from neuron_ds.record import Recording
from neuron_ds.report import survey
from tests.recordings import Made, record

PATTERNS = {"inference": {}, "erring": {"share": 0.3}, "hung": {"after_s": 10}, "idle": {}}
#: What a process may write into its slab to harm whoever reads a report.
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"'><svg onload=document.title='owned'>",
    "<!--<script>\u202e\x1b[31m&amp;",
)


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> Made:
    parent = tempfile.mkdtemp(prefix="neuron-ds-test-", dir="/dev/shm")
    try:
        path = str(tmp_path_factory.mktemp("recording") / "a.mcap")
        return record(
            path,
            f"{parent}/devices",
            PATTERNS,
            40,
            tags=HOSTILE,
            without=(21, 22, 23, 24, 25),
            late={30: (40_000, 1)},
        )
    finally:
        shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture(scope="session")
def data(made) -> dict:
    with Recording(made.path) as recording:
        return survey(recording)
