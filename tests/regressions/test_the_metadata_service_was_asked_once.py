"""A metadata service that did not answer while the machine booted left zone, region and subnet empty for ever."""

import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from neuron_ds.exporter.watch import Watch
from neuron_ds.instance import DISABLED_VARIABLE, ENDPOINT_VARIABLE, FIELDS, WAITS_S, InstanceInfo
from tests.exporter.helpers import scrape

KNOWN = {"placement/region": "xx-east-1", "mac": "02:00", "network/interfaces/macs/02:00/subnet-id": "subnet-1"}


class Booting(BaseHTTPRequestHandler):
    """Hangs up on the first ``server.deaf`` questions, and answers the others with ``server.status``."""

    def do_PUT(self):
        self.server.asked += 1
        if self.server.asked > self.server.deaf:
            self._say(self.server.status, "token")

    def do_GET(self):
        path = self.path.removeprefix("/latest/meta-data/")
        self._say(200 if path in KNOWN else 404, KNOWN.get(path, ""))

    def _say(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    with HTTPServer(("127.0.0.1", 0), Booting) as server:
        server.asked, server.deaf, server.status = 0, 2, 200
        server.environ = {ENDPOINT_VARIABLE: f"http://127.0.0.1:{server.server_port}"}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked_to_the_end(service, tmp_path, **options):
    """What became known, and how long was waited in between."""
    waits = []
    info = InstanceInfo(environ=service.environ, dmi=tmp_path, pause=waits.append, **options)
    info.asked.join(30)
    assert not info.asked.is_alive()
    return info.group(), waits


def test_it_is_asked_again(service, tmp_path):
    group, waits = asked_to_the_end(service, tmp_path)
    assert (group["instance_region"], group["subnet_id"]) == ("xx-east-1", "subnet-1")
    assert "does not answer" not in group["error"]
    assert waits == [5, 15]


def test_it_is_asked_five_times_and_no_more(service, tmp_path):
    service.deaf = 1000
    group, waits = asked_to_the_end(service, tmp_path)
    assert (service.asked, tuple(waits)) == (5, WAITS_S)
    assert waits == [5, 15, 45, 135]
    assert "does not answer" in group["error"]
    assert not any(group[name] for name in FIELDS)


def test_who_refuses_has_answered(service, tmp_path):
    service.deaf, service.status = 0, 403
    group, waits = asked_to_the_end(service, tmp_path)
    assert (service.asked, waits) == (1, [])
    assert group["error"].startswith("the instance metadata service refuses to tell: "), "which is an answer"


def test_an_address_that_can_not_be_is_not_asked_again(service, tmp_path):
    service.environ = {ENDPOINT_VARIABLE: "file:///etc"}
    assert asked_to_the_end(service, tmp_path)[1] == []


def test_where_it_is_disabled_nobody_is_asked_at_all(service, tmp_path):
    info = InstanceInfo(environ=service.environ | {DISABLED_VARIABLE: "true"}, dmi=tmp_path, pause=pytest.fail)
    assert info.asked is None
    assert info.tried.is_set()
    assert service.asked == 0


def test_nobody_waits_for_the_second_question(service, driver, tmp_path):
    go_on = threading.Event()
    info = InstanceInfo(environ=service.environ, dmi=tmp_path, pause=lambda wait_s: go_on.wait(30))
    with closing(Watch(driver, window_s=3600, sample_hz=0, instance=info)) as watch:
        assert info.tried.is_set(), "that much the first report waits for"
        assert info.asked.is_alive()
        assert "does not answer" in info.group()["error"]
        assert 'region=""' in scrape(watch.report()).text
        go_on.set()
        info.asked.join(30)
        assert 'region="xx-east-1"' in scrape(watch.report()).text, "labels follow"
