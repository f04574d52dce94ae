"""The page in a browser: what it shows of frames whose figures are known, and how it is used."""

from dataclasses import replace

import pytest

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.live.frame import Event
from tests.web.browser import Sight, browser
from tests.web.helpers import GIB, Shown, cell, device, frame, process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BUSY = {"state": "busy", "executions_s": 1500.0, "errors_s": 0.0, "memory": (GIB, 2 * GIB, 0, 0, 0)}
NASTY = "<img src=x onerror=alert(1)>"


def known():
    """Two devices with four cores each; a process on the first, one on both, one whose slab is unreadable."""
    zero = [
        cell(0, 0, utilization=0.57, flops_s=1.25e13, **BUSY),
        cell(0, 1, utilization=1.0, flops_s=0.0, **{**BUSY, "state": "hung", "executions_s": 0.0}),
        cell(0, 2, utilization=0.3, flops_s=1e12, **{**BUSY, "state": "slow"}),
        cell(0, 3, utilization=0.0, flops_s=0.0, executions_s=0.0, errors_s=0.0, state="idle"),
    ]
    one = [cell(1, 0, utilization=0.125, flops_s=1e12, **{**BUSY, "errors_s": 2.0}), cell(1, 1), cell(1, 2), cell(1, 3)]
    return frame(
        [
            device(0, zero, memory=(3 * GIB, 6 * GIB, 0, 0, 0), memory_total_bytes=96 * GIB),
            device(1, one, error="device 1: its table is damaged"),
        ],
        [
            process("101", zero[:2], tag="alpha", latency_p50_us=1500, latency_p99_us=25_000, errors=12345),
            process("102", [zero[2], one[0]], tag=NASTY, executions_s=None, latency_p50_us=None, latency_p99_us=None),
            process("103", [], tag="gone-dark", state="unreadable", error="its header is torn"),
        ],
        events=[
            Event(1, 1000.0, "came", "began to publish", 101, "alpha", 0, process="101"),
            Event(2, 1001.0, "error", "err_hw +2: hardware errors", 102, NASTY, 1, 0, "err_hw", 2, process="102"),
        ],
        findings=[
            Finding("hung-core", Severity.CRITICAL, "nothing completes", "restart it", 0, 0, 0, 101, "alpha", 3),
            Finding("errors", Severity.WARNING, "it errs", "look at its log", 0, 1, 0, 102, NASTY, 0),
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    with browser() as found:
        yield found


@pytest.fixture
def sight(chromium):
    opened = []

    def look(**options):
        opened.append(Sight(chromium, **options))
        return opened[-1]

    yield look
    for each in opened:
        each.close()


@pytest.fixture
def shown():
    return Shown(known())


@pytest.fixture
def url(serve, shown):
    return serve(shown, period_s=0.2).url


def test_it_loads_without_a_fault_and_asks_no_other_host(sight, url):
    page = sight().open(url)
    page.until("document.querySelectorAll('#graphs canvas').length === 6")
    page.page.click("#theme")
    page.cell(0, 0).click()
    page.until("!document.getElementById('details').hidden")
    assert page.said == []
    assert page.asked == {url.removeprefix("http://").strip("/")}


def test_every_figure(sight, url):
    page = sight().open(url)
    assert page.cells() == {
        "0.0": "57", "0.1": "100\nhung", "0.2": "30\nslow", "0.3": "0",
        "1.0": "13", "1.1": "–\n?", "1.2": "–\n?", "1.3": "–\n?",
    }  # fmt: skip
    assert page.label(0, 1) == "Device 0, core 1: Utilization 100 %, hung"
    assert page.label(1, 3) == "Device 1, core 3: Utilization –, unknown"
    assert page.text("#heatmap tbody tr:nth-child(2) th") == "1 unreadable"
    rows = page.rows()
    assert list(rows) == ["alpha", NASTY, "gone-dark"]
    assert rows["alpha"][1:12] == [
        "101", "running", "0/0–1", "50 %", "10", "12 345", "1", "1.5 ms", "25 ms", "1 GiB", "1 MiB",
    ]  # fmt: skip
    assert rows[NASTY][3:6] == ["0/2 1/0", "50 %", "–"]
    assert rows["gone-dark"][2] == "⚠ unreadable"
    totals = page.totals()
    assert totals["Cores busy"] == "2 of 8, 1 hung, 1 slow"
    assert totals["Utilization"] == "40 %"
    assert totals["Compute"] == "14.5 TFLOP/s"
    assert totals["Errors"] == "2/s"
    assert totals["Host"] == "CPU 30 %, memory 25 %, 8 vCPU"
    assert "9 GiB of 96 GiB" in page.text("#memory")
    assert page.page.get_attribute("#memory li:first-child .bar", "aria-label") == (
        "Device 0: tensors 3 GiB, constants 6 GiB"
    )
    assert "p50 1.5 ms, p99 25 ms" in page.text("#latency")
    assert [line.partition("\n")[0] for line in page.page.locator("#findings li").all_inner_texts()] == [
        "‼ critical", "! warning",
    ]  # fmt: skip
    events = page.page.locator("#events li").all_inner_texts()
    assert "err_hw +2: hardware errors" in events[0]
    assert "alpha" in events[1]
    assert page.said == []  # the tag was text


def test_the_cells_show_what_is_chosen(sight, url):
    page = sight().open(url)
    for title, cells in {
        "TFLOP/s": ["12.5", "0\nhung", "1\nslow", "0"],
        "Executions/s": ["1.5k", "0\nhung", "1.5k\nslow", "0"],
        "Errors/s": ["0", "0\nhung", "0\nslow", "0"],
    }.items():
        page.page.get_by_role("radio", name=title).check(force=True)
        page.until("(title) => document.querySelector('#heatmap td').ariaLabel.includes(title)", title)
        assert list(page.cells().values())[:4] == cells
    assert page.page.url.endswith("#metric=errors_s")


def test_a_click_narrows_to_a_core_and_back(sight, url):
    page = sight().open(url)
    page.cell(0, 1).click()
    page.until("document.getElementById('focus-text').innerText === 'Only device 0, core 1'")
    page.until("document.querySelectorAll('#graphs figure').length === 4")
    assert list(page.rows()) == ["alpha"]
    assert page.page.url.endswith("#core=0.1")
    assert page.page.locator("#findings li").count() == 1
    assert page.text("#memory").split("\n")[0] == "Core 1"
    assert page.totals()["State"] == "hung"
    assert page.totals()["Device memory"] == "3 GiB"
    assert page.cell(0, 1).get_attribute("aria-selected") == "true"
    page.page.keyboard.press("Escape")
    page.until("document.getElementById('focus').hidden")
    assert len(page.rows()) == 3
    assert page.page.locator("#graphs figure").count() == 6


def test_a_click_narrows_to_a_process_and_back(sight, url):
    page = sight().open(url)
    page.page.get_by_role("button", name=NASTY).click()
    page.until("document.getElementById('focus-text').innerText.startsWith('Only process <img')")
    assert page.totals()["Cores"] == "2"
    cells = page.cells()
    assert cells["0.0"] == "·"
    assert cells["0.2"] != "·"
    assert page.label(0, 0) == "Device 0, core 0: not used by this process"
    assert [text.count("err_hw") for text in page.page.locator("#events li").all_inner_texts()] == [1]
    assert page.page.url.endswith("#process=102")
    page.page.go_back()
    page.until("document.getElementById('focus').hidden")
    page.page.go_forward()
    page.page.click("#clear")
    page.until("document.getElementById('focus').hidden")


def test_an_address_has_the_focus(sight, url):
    page = sight().open(f"{url}#core=1.0&metric=errors_s")
    assert page.cells()["1.0"] == "2"
    assert list(page.rows()) == [NASTY]
    page = sight().open(f"{url}#process=999")
    assert page.text("#focus-text") == "Only process 999, which is not there any more"
    page.until("document.getElementById('details-body').innerText.includes('It is not there any more.')")


def test_everything_by_keyboard(sight, url):
    page = sight().open(url)
    press = page.page.keyboard.press
    page.cell(0, 0).focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "End", "ArrowUp", "ArrowLeft", "Enter"):
        press(key)
    page.until("location.hash === '#core=0.2'")
    assert page.page.evaluate("document.activeElement.at") == "0.2"
    press("Enter")  # once more: off
    page.until("location.hash === ''")
    page.page.locator("#processes thead button").nth(6).focus()
    press("Enter")
    assert next(iter(page.rows())) == "alpha"  # the most errors first
    assert page.page.get_attribute("#processes thead th:nth-child(7)", "aria-sort") == "descending"
    page.page.get_by_role("button", name="alpha").focus()
    press("Enter")
    page.until("location.hash === '#process=101'")
    press("Escape")
    page.until("location.hash === ''")
    page.page.focus("#filter")
    page.page.keyboard.type("102")
    page.until("document.querySelectorAll('#processes tbody tr').length === 1")


def test_an_empty_page_says_why(sight, serve):
    page = sight().open(serve(Shown(frame(empty="no device: load the driver"))).url)
    assert page.text("#empty") == "no device: load the driver"


def test_events_are_said_aloud_but_not_all_the_time(sight, url, shown):
    page = sight().open(url)
    page.page.evaluate(
        "window.heard = []; new MutationObserver(() => heard.push(document.getElementById('announcer').textContent))"
        ".observe(document.getElementById('announcer'), { childList: true })"
    )
    for n in range(3, 9):
        late = Event(n, 5000.0 + n, "error", f"number {n}", 101, "alpha", 0, 0, process="101")
        shown.now = replace(shown.now, events=(*shown.now.events, late))
        shown.wait(shown.looks + 2)
    page.until("window.heard.length === 1")
    page.until("window.heard.length === 2")
    assert page.page.evaluate("heard[1]").endswith("the newest: number 8")


def test_a_lost_connection_is_said_and_found_again(sight, serve, shown):
    server = serve(shown, period_s=0.2)
    page = sight().open(server.url)
    port = server.port
    server.close()
    page.until("document.getElementById('connection').dataset.state === 'lost'")
    assert "connection lost" in page.text("#connection")
    page.until("/picture \\d+ s old/.test(document.getElementById('age').innerText)")
    again = Shown(frame([device(7, [cell(7, 0, state="busy", utilization=0.42)])]))
    serve(again, period_s=0.2, port=port)
    page.until("document.getElementById('connection').dataset.state === 'live'")
    page.until("document.querySelectorAll('#heatmap td').length === 1")
    assert page.cells() == {"7.0": "42"}


def test_a_server_that_falls_silent_is_said(sight, serve, shown):
    server = serve(shown, period_s=0.2)
    page = sight().open(server.url)
    server._pump.period_s = 60
    page.until("document.getElementById('connection').dataset.state === 'late'")
    assert page.text("#connection") == "no news from the server"


def test_the_colours_can_be_chosen_and_are_remembered(sight, url):
    page = sight(scheme="light").open(url)
    back = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.page.evaluate(back)
    page.page.click("#theme")
    assert page.page.evaluate(back) == light
    page.page.click("#theme")
    dark = page.page.evaluate(back)
    assert dark != light
    page.open(url)
    assert page.page.evaluate(back) == dark
    assert sight(scheme="dark").open(url).page.evaluate(back) == dark


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 1300), ("light", 360), ("dark", 360)])
@pytest.mark.parametrize("where", ["", "#core=0.1", "#process=102&metric=flops_s"])
def test_axe_finds_no_serious_fault(sight, url, scheme, width, where):
    from axe_playwright_python.base import AXE_FILE_PATH  # the library itself; it's MPL, and none of ours

    page = sight(scheme=scheme, width=width).open(url + where)
    page.until("document.querySelectorAll('#graphs canvas').length >= 4")
    page.page.evaluate(AXE_FILE_PATH.read_text())
    found = page.page.evaluate("axe.run(document)")
    bad = [
        (fault["id"], fault["impact"], [node["html"][:200] for node in fault["nodes"]][:3])
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert bad == []
    assert len(found["passes"]) > 20
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_text_of_a_cell_stands_out(sight, url):
    page = sight().open(url)
    worst = page.page.evaluate("""async () => {
        const { shade } = await import("./palette.js");
        const light = (rgb) => rgb.map((c) => c / 255)
            .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const ratios = [];
        for (let i = 0; i <= 1000; i++) {
            const { color, text } = shade(i / 1000);
            const back = light(color.match(/\\d+/g).map(Number)), front = text === "#fff" ? 1 : 0;
            ratios.push((Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05));
        }
        return Math.min(...ratios);
    }""")
    assert worst >= 4.5
