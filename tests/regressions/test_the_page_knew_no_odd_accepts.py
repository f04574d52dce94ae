"""``neuron-ds web`` read an ``Accept`` otherwise than the exporter: a version that is no number was a fault of the
server, a weight of 0 was not heeded, and of several lines only the first was."""

from __future__ import annotations

import http.client

import pytest

from neuron_ds.live.picture import Live
from neuron_ds.live.source import LiveSource
from tests.web.conftest import serve  # noqa: F401  # a fixture
from tests.web.helpers import get

CLASSIC = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
ASKED = "application/openmetrics-text"


@pytest.fixture
def port(serve, driver):  # noqa: F811
    driver.probe(0)
    told = []
    yield serve(Live(LiveSource(driver, sample_hz=0)), driver=driver, told=told.append).port
    assert told == []


def test_every_accept_gets_the_exporters_form(port):
    for accept, form in (
        (f"{ASKED};version=abc", CLASSIC),
        (f"{ASKED};version=99", CLASSIC),
        ("text/plain;version=x.y", CLASSIC),
        (f"{ASKED};q=0", CLASSIC),
        (f"{ASKED};q=0.1, text/plain", CLASSIC),
        (";;,=,q", CLASSIC),
        (ASKED, OPENMETRICS),
    ):
        status, headers, body = get(port, "/metrics", Accept=accept)
        assert (status, headers["content-type"]) == (200, form), accept
        assert body.endswith(b"# EOF\n") == (form == OPENMETRICS)


def test_a_list_in_several_lines(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest("GET", "/metrics")
    connection.putheader("Accept", "text/plain;q=0.5")
    connection.putheader("Accept", ASKED)
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.getheader("content-type") == OPENMETRICS
