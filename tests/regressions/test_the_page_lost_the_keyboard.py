"""A row that moved to its new place in the table lost the keyboard; and what was pressed right after a choice was
taken as if nothing had been chosen yet."""

import pytest

from tests.web.browser import Sight, browser
from tests.web.conftest import serve  # noqa: F401  # a fixture
from tests.web.helpers import Shown, cell, device, frame, process

CELLS = [cell(0, 0, utilization=0.5), cell(0, 1, utilization=0.5)]


def shares(first, second):
    processes = [
        process("101", CELLS[:1], tag="alpha", utilization=first),
        process("102", CELLS[1:], tag="beta", utilization=second),
    ]
    return frame([device(0, CELLS)], processes)


pytestmark = pytest.mark.slow


@pytest.fixture
def page(serve):  # noqa: F811
    shown = Shown(shares(0.9, 0.1))
    with browser() as chromium:
        sight = Sight(chromium).open(serve(shown).url)
        sight.shown = shown
        yield sight


@pytest.mark.parametrize("who", ["alpha", "beta"])
def test_a_row_that_moves_keeps_it(page, who):
    page.page.get_by_role("button", name="Utilization").click()
    page.until("document.querySelector('#processes tbody tr button').textContent === 'alpha'")
    page.page.get_by_role("button", name=who, exact=True).focus()
    page.shown.now = shares(0.1, 0.9)
    page.until("document.querySelector('#processes tbody tr button').textContent === 'beta'")
    assert page.page.evaluate("document.activeElement.textContent") == who


@pytest.mark.parametrize("again", ["Enter", "Escape"])
def test_what_is_pressed_at_once(page, again):
    page.page.get_by_role("button", name="alpha", exact=True).focus()
    script = """(again) => {
      const at = document.activeElement;
      at.click();
      const chosen = location.hash;
      if (again === "Enter") at.click();
      else at.dispatchEvent(new KeyboardEvent("keydown", { key: again, bubbles: true }));
      return [chosen, location.hash];
    }"""
    assert page.page.evaluate(script, again) == ["#process=101", ""]
