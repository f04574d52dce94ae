"""The command in a browser, over real processes: their figures, their coming and going, and a restart of the server."""

import json
from contextlib import ExitStack

import pytest

from neuron_ds import layout
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.cli.helpers import Producer
from tests.cli.helpers import start as start_command
from tests.web.browser import Sight, browser
from tests.web.helpers import get
from tests.web.test_command import address

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

EVENTS = 600
PERIOD_S = "0.5"


@pytest.fixture
def directory(root, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", root)
    monkeypatch.delenv("NEURON_DS_DRIVER", raising=False)
    return root


@pytest.fixture
def serve(directory):
    """Start the command; gives its process and port."""
    with ExitStack() as stack:

        def begin(port=0):
            arguments = ("web", "--listen", f"127.0.0.1:{port}", "--period", PERIOD_S, "--no-imds")
            process = stack.enter_context(start_command(*arguments, directory=directory))
            stack.callback(process.kill)
            return process, address(process)[0]

        yield begin


@pytest.fixture
def sight():
    with browser() as chromium:
        page = Sight(chromium)
        yield page
        page.close()


def url(port):
    return f"http://127.0.0.1:{port}/"


def number(port):
    """Of the latest frame."""
    return json.loads(get(port, "/api/frame")[2])["number"]


def test_the_figures_are_the_simulations(directory, serve, sight):
    workload = Workload(pattern=PATTERNS["erring"](share=0.4), seed=11, cores=((0, 0), (0, 1)), tag="seeded")
    with start(workload, events=EVENTS, speed=None) as process:
        assert process.wait_played() == EVENTS
        expected = process.expected()[0]
        _, port = serve()
        sight.open(url(port))
        sight.page.get_by_role("button", name="seeded").click()
        sight.until("document.querySelectorAll('#details .figures tbody tr').length > 3")
        sight.page.get_by_label("also counters at zero").check()
        found = sight.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('#details div:last-child tbody tr')]"
            ".map((row) => [row.children[2].innerText, row.children[3].innerText.replace(/\\D/g, '')]))"
        )
        row = sight.rows()["seeded"]
    sums = {
        c.name: sum(value for key, value in expected.counters.items() if key[0] == "nc" and key[2] == c.index)
        for c in layout.NC
        if c.kind == layout.COUNTER
    }
    assert sums
    assert {name: found[name] for name in sums} == {name: str(value) for name, value in sums.items()}
    assert sums["infer_completed"] > 0
    assert int(row[6].replace(" ", "")) > 0
    assert row[1] == str(process.pid)
    assert row[13] == str(len(expected.models))
    assert sight.said == []


def test_who_comes_appears_and_who_goes_disappears_within_two_periods(directory, serve, sight):
    with Producer(directory, tag="stays"):
        _, port = serve()
        sight.open(url(port))
        assert list(sight.rows()) == ["stays"]
        with Producer(directory, tag="comes") as producer:
            since = number(port)
            sight.until("document.querySelectorAll('#processes tbody tr').length === 2")
            # The look that was on its way may have missed it, the next one can't.
            assert sight.frame() <= since + 2
            assert set(sight.rows()) == {"stays", "comes"}
            producer.kill()
            since = number(port)
            sight.until(
                "![...document.querySelectorAll('#processes tbody tr')].some((row) => row.dataset.state === 'running'"
                " && row.innerText.includes('comes'))"
            )
            assert sight.frame() <= since + 2
            assert sight.rows().get("comes", ["", "", "✝ dead"])[2] == "✝ dead"
        with Producer(directory, tag="leaves"):
            sight.until("document.getElementById('processes').innerText.includes('leaves')")
        since = number(port)
        sight.until("!document.getElementById('processes').innerText.includes('leaves')")
        assert sight.frame() <= since + 2
        sight.until("document.getElementById('events').innerText.includes('died')")


def test_it_goes_on_after_the_server_restarts(directory, serve, sight):
    with Producer(directory, tag="before"):
        process, port = serve()
        sight.open(url(port))
        sight.page.get_by_role("button", name="before").click()
        process.terminate()
        assert process.wait(20) == 0
        sight.until("document.getElementById('connection').dataset.state === 'lost'")
        with Producer(directory, tag="after"):
            serve(port)
            sight.until("document.getElementById('connection').dataset.state === 'live'")
            sight.until("document.querySelectorAll('#processes tbody tr').length === 2")
            assert sight.text("#focus-text").startswith("Only process before")
    # Chromium itself says that it was refused; the page says nothing.
    assert all("net::ERR_" in said for said in sight.said)
