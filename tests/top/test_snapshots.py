"""The main screens as a whole, beside how they once looked: tests/top/snapshots holds each as text.

``NEURON_DS_SNAPSHOTS=write`` writes them anew; look at the difference before it is committed.
"""

import os
import time
from pathlib import Path

import pytest

from tests.top.frames import fleet, frame, many
from tests.top.stage import plays

PLACE = Path(__file__).parent / "snapshots"


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def compare(name, lines):
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    path = PLACE / f"{name}.txt"
    if os.environ.get("NEURON_DS_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@plays(fleet(), size=(80, 24))
async def test_main_80x24(stage):
    compare("main-80x24", stage.screen)


@plays(fleet(), size=(130, 40))
async def test_main_130x40(stage):
    compare("main-130x40", stage.screen)


@plays(many(), size=(80, 24))
async def test_a_full_machine(stage):
    compare("full-80x24", stage.screen)


@plays(fleet(), size=(100, 30))
async def test_a_process(stage):
    await stage.press("2")
    compare("tab-100x30", stage.screen)
    await stage.press("i")
    compare("process-100x30", stage.screen)


@plays(fleet(), size=(100, 30))
async def test_a_core(stage):
    stage.focus("cores")
    await stage.press("right", "right", "enter")
    compare("core-100x30", stage.screen)


@plays(fleet(), size=(90, 40))
async def test_the_help(stage):
    await stage.press("question_mark")
    compare("help-90x40", stage.screen)


@plays(frame([], [], empty="no device; start a producer (neuron-ds simulate is one)"), size=(80, 24))
async def test_nothing(stage):
    compare("empty-80x24", stage.screen)
