"""How a scene looks on terminals of any size: nothing that matters is cut off, and what has no room is counted.

Knows scenes made by hand; where real ones come from is tested with the demo.
"""

import os
import re
from io import StringIO

import pytest

from neuron_ds.cli.screen import LAYOUTS, Screen
from neuron_ds.demo import CoreUse, ProcessUse, Scene
from neuron_ds.driver import DeviceProperties

CORE = CoreUse(15, 0.97, 54321.6, 9_999, 12_345, 1000 << 20, ("llama-3.2-1b-v1/rank00",))
DEVICE = DeviceProperties(0, "trn2", "trn2-0", 8, 96 << 30, 2, "/dev/shm/x")


class Terminal(StringIO):
    """A text file that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def drawn(monkeypatch, columns: int, rows: int, processes: int = 1, events=()) -> list[str]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, rows)))
    out = Terminal()
    uses = tuple(ProcessUse(0, 15, 4194304, "a-tag-that-goes-on-and-on", (CORE,)) for _ in range(processes))
    Screen(out, color=False).draw(Scene(1.0, (DEVICE,), uses, tuple(events)), 10)
    return re.sub("\x1b\\[[^A-Za-z]*[A-Za-z]", "", out.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [200, 129, 128, 110, 93, 90, 84, 80, 70])
def test_what_matters_stays_whole(monkeypatch, columns):
    lines = drawn(monkeypatch, columns, 40)
    assert all(len(line) < columns for line in lines)
    header, row = lines[2], lines[4]
    assert header.split()[0] == "slot"
    for name, value in (("errors", "12,345"), ("memory", "1000 MiB"), ("latency", "9,999 us"), ("exec/s", "54,321.6")):
        assert header.index(name) + len(name) == row.index(value) + len(value)
    assert ("4194304" in row) == ("pid" in header) == (columns >= 93)
    assert ("llama" in row) == ("model" in header) == (columns > 100)


def test_each_layout_is_as_wide_as_it_says(monkeypatch):
    assert [c.width for c in LAYOUTS] == sorted((c.width for c in LAYOUTS), reverse=True)
    for layout in LAYOUTS:
        row = drawn(monkeypatch, layout.width + 1, 40)[4]
        assert len(row) == layout.width


def test_what_has_no_row_is_counted(monkeypatch):
    lines = drawn(monkeypatch, 80, 10, processes=16)
    assert len(lines) == 9
    assert lines[-1] == "  ... 12 more"
    assert drawn(monkeypatch, 80, 1, processes=16) == ["  ... 20 more"]
    assert not any("more" in line for line in drawn(monkeypatch, 80, 40, processes=16))


def test_an_event_goes_on_in_the_next_line(monkeypatch):
    event = " 4.0 s  kill -9 22844 (bert-serving-0): its numbers are shown no more, its slot is dead"
    lines = drawn(monkeypatch, 80, 40, events=[event])
    assert " ".join(line.strip() for line in lines[-2:]) == event.strip()
