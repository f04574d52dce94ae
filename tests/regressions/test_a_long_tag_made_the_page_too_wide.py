"""A tag of many letters without a space, as the title of the details, made the page wider than a phone."""

import pytest

from tests.web.browser import Sight, browser
from tests.web.conftest import serve  # noqa: F401  # a fixture
from tests.web.helpers import Shown, cell, device, frame, process


@pytest.mark.slow
def test_it_fits_a_phone(serve):  # noqa: F811
    cells = [cell(0, 0)]
    shown = Shown(frame([device(0, cells)], [process("7", cells, tag="ä" * 128)]))
    url = serve(shown).url
    with browser() as chromium:
        sight = Sight(chromium, width=360).open(f"{url}#process=7")
        sight.until("document.getElementById('details-title').textContent.includes('ää')")
        assert sight.page.evaluate("document.documentElement.scrollWidth") <= 360
