"""The page in a real browser, from disk: it says nothing, asks nobody, and shows what the data say.

Needs Debian's package ``chromium``.
"""

from pathlib import Path

import pytest

from neuron_ds.report import page
from tests.report.conftest import HOSTILE
from tests.web.browser import Sight, browser

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def url(data, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(data, HOSTILE[0]))
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_from_disk(chromium, url, data, scheme):
    sight = Sight(chromium, scheme=scheme)
    asked = []
    sight.page.on("request", lambda request: asked.append(request.url))
    sight.page.goto(url)
    sight.page.wait_for_load_state("networkidle")
    assert sight.said == []
    assert asked == [url]
    assert sight.page.title() == f"{HOSTILE[0]} - neuron-ds report"
    assert sight.page.evaluate("JSON.parse(document.getElementById('data').textContent)") == data
    assert sight.page.evaluate("document.images.length + document.scripts.length") == 1
    sight.context.close()


def test_pictures_and_tables_are_seen(chromium, url, data):
    sight = Sight(chromium)
    sight.page.goto(url)
    boxes = sight.page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map((s) => s.getBoundingClientRect().height)"
    )
    assert len(boxes) >= 6
    assert min(boxes) > 20
    assert sight.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    rows = sight.page.evaluate("[...document.querySelectorAll('svg[role=img]')][0].querySelectorAll('g').length")
    assert rows == len(data["cores"])
    text = sight.page.inner_text("main")
    for core in data["cores"]:
        assert f"{100 * core['mean_utilization']:.1f} %" in text
    sight.context.close()


def test_a_narrow_window_needs_no_scrolling_sideways(chromium, url):
    sight = Sight(chromium, width=400)
    sight.page.goto(url)
    assert sight.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    sight.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_everybody(chromium, url, scheme):
    from axe_playwright_python.sync_playwright import Axe

    sight = Sight(chromium, scheme=scheme)
    sight.context.close()
    sight.context = chromium.new_context(bypass_csp=True, color_scheme=scheme)  # for axe, which is a script
    page = sight.context.new_page()
    page.goto(url)
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found] == []
    sight.context.close()
