"""What machine this is: from firmware tables, from a metadata service on loopback, and without either."""

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from neuron_ds.instance import ENDPOINT_VARIABLE, FIELDS, InstanceInfo

ANSWERS = {
    "instance-id": "i-0123",
    "instance-type": "trn2.48xlarge",
    "placement/availability-zone": "xx-east-1a",
    "placement/availability-zone-id": "xxe1-az1",
    "placement/region": "xx-east-1",
    "ami-id": "ami-1",
    "mac": "02:00",
    "network/interfaces/macs/02:00/subnet-id": "subnet-1\x1b",
}


class Service(BaseHTTPRequestHandler):
    """Tells ANSWERS to whoever shows the token it gave."""

    def do_PUT(self):
        self._say("token" if self.path == "/latest/api/token" else None)

    def do_GET(self):
        known = self.headers.get("X-aws-ec2-metadata-token") == "token"
        self._say(ANSWERS.get(self.path.removeprefix("/latest/meta-data/")) if known else None)

    def _say(self, text):
        self.send_response(404 if text is None else 200)
        self.end_headers()
        self.wfile.write((text or "").encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def dmi(tmp_path):
    def write(vendor):
        for name, text in {"sys_vendor": vendor, "product_name": "inf2.xlarge", "board_asset_tag": "i-9"}.items():
            (tmp_path / name).write_text(text + "\n")
        return tmp_path

    return write


def test_elsewhere_nothing_is_known_and_nobody_asked(dmi):
    info = InstanceInfo(environ={}, dmi=dmi("Acme"))
    assert info.asked is None
    assert info.group() == {**dict.fromkeys(FIELDS, ""), "error": ""}


def test_type_and_id_stand_in_the_firmware(dmi):
    info = InstanceInfo(ask=False, environ={}, dmi=dmi("Amazon EC2"))
    assert info.asked is None
    assert (info.group()["instance_type"], info.group()["instance_id"]) == ("inf2.xlarge", "i-9")
    assert info.group()["instance_region"] == ""


def test_the_service_tells_the_rest(dmi, service):
    info = InstanceInfo(environ={ENDPOINT_VARIABLE: service}, dmi=dmi("Acme"))
    info.asked.join(30)
    assert info.group() == {
        "instance_name": "",
        "instance_id": "i-0123",
        "instance_type": "trn2.48xlarge",
        "instance_availability_zone": "xx-east-1a",
        "instance_availability_zone_id": "xxe1-az1",
        "instance_region": "xx-east-1",
        "ami_id": "ami-1",
        "subnet_id": "subnet-1\\x1b",
        "error": "",
    }


def test_what_the_service_does_not_tell_is_named(dmi, service, monkeypatch):
    monkeypatch.delitem(ANSWERS, "ami-id")
    info = InstanceInfo(environ={ENDPOINT_VARIABLE: service}, dmi=dmi("Amazon EC2"))
    info.asked.join(30)
    assert info.group()["error"] == "the instance metadata service does not tell ami_id"


@pytest.fixture
def once(monkeypatch):
    """Nobody is asked again."""
    monkeypatch.setattr("neuron_ds.instance.WAITS_S", ())


@pytest.mark.usefixtures("once")
def test_a_service_that_does_not_answer_keeps_nobody_waiting(dmi):
    with HTTPServer(("127.0.0.1", 0), Service) as silent:  # accepts and says nothing
        began = time.monotonic()
        info = InstanceInfo(environ={ENDPOINT_VARIABLE: f"http://127.0.0.1:{silent.server_port}"}, dmi=dmi("x"))
        assert "not answered yet" in info.group()["error"]
        assert time.monotonic() - began < 0.9
        info.asked.join(30)
    assert "does not answer" in info.group()["error"]


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "file:///etc", "nonsense"])
def test_an_address_where_nobody_is(dmi, endpoint):
    info = InstanceInfo(environ={ENDPOINT_VARIABLE: endpoint}, dmi=dmi("x"))
    info.asked.join(30)
    assert "does not answer" in info.group()["error"]


def test_it_can_be_told_not_to_ask(dmi, service):
    environ = {ENDPOINT_VARIABLE: service, "AWS_EC2_METADATA_DISABLED": "True"}
    assert InstanceInfo(environ=environ, dmi=dmi("Amazon EC2")).asked is None
