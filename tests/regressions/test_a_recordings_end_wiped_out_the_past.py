"""When a recording was over, its last moment took the place of all others in the past; and a clock that was put back
made the past go back and forth, and the page's graphs stand still."""

import pytest

from neuron_ds.web.app import STATIC
from neuron_ds.web.history import History
from tests.web.browser import browser
from tests.web.helpers import cell, device, frame


def at(wall_s, utilization=0.5):
    return frame([device(0, [cell(0, 0, utilization=utilization)])], wall_s=wall_s)


def test_the_last_moment_is_remembered_once():
    history = History(moments=4)
    for wall_s in (1.0, 2.0, 3.0, 3.0, 3.0, 3.0):
        history.add(at(wall_s))
    assert history.of_whole()["wall_s"] == [1.0, 2.0, 3.0]
    assert history.of_core(0, 0)["wall_s"] == [1.0, 2.0, 3.0]


def test_what_the_clock_took_back_is_forgotten():
    history = History()
    for wall_s, utilization in ((1.0, 0.0), (2.0, 0.25), (9.0, 0.5), (3.0, 0.75), (4.0, 1.0)):
        history.add(at(wall_s, utilization))
    assert history.of_whole()["wall_s"] == [1.0, 2.0, 3.0, 4.0]
    assert history.of_core(0, 0)["utilization"] == [0.0, 0.25, 0.75, 1.0]


@pytest.mark.slow
def test_the_page_does_so_too():
    script = """(source) => {
      const { Past } = new Function(source.replaceAll("export ", "") + "; return { Past };")();
      const past = new Past({ wall_s: [], x: [] });
      for (const [wall_s, x] of [[1, 10], [2, 20], [9, 30], [9, 31], [3, 40], [4, 50]]) past.add(wall_s, { x });
      return [past.columns.wall_s, past.columns.x];
    }"""
    with browser() as chromium:
        page = chromium.new_page()
        times, values = page.evaluate(script, (STATIC / "store.js").read_text())
    assert (times, values) == ([1, 2, 3, 4], [10, 20, 40, 50])
