"""What the exporter's tests share: a scrape as values, over HTTP or straight from a Watch."""

from __future__ import annotations

import gzip
import http.client
import ssl
from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from neuron_ds.exporter.server import Server
from neuron_ds.exporter.text import Block, write
from neuron_ds.instance import InstanceInfo

#: Nothing is asked, whatever machine the tests run on.
NO_INSTANCE = InstanceInfo(ask=False, environ={})
INSTANCE_LABELS = frozenset(
    ("instance_name", "instance_id", "instance_type", "availability_zone", "region", "subnet_id")
)


class Scrape:
    """The series of one scrape; ``get`` finds one, ``all`` those with these labels among theirs."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series = [
            (s.name, {k: v for k, v in s.labels.items() if k not in INSTANCE_LABELS}, s.value)
            for family in text_string_to_metric_families(text)
            for s in family.samples
        ]
        keys = [(name, *sorted(labels.items())) for name, labels, _ in self.series]
        assert len(keys) == len(set(keys)), "a series stands there twice"

    def all(self, name: str, **labels: object) -> list[tuple[dict[str, str], float]]:
        wanted = {(k, str(v)) for k, v in labels.items()}
        return [(found, value) for n, found, value in self.series if n == name and wanted <= found.items()]

    def get(self, name: str, **labels: object) -> float:
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0][1]

    def by(self, name: str, label: str, **labels: object) -> dict[str, float]:
        return {found[label]: value for found, value in self.all(name, **labels)}


def scrape(blocks: Iterable[Block]) -> Scrape:
    return Scrape(b"".join(write(blocks)).decode())


def fetch(
    server: Server, path: str = "/metrics", *, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers, body; unzipped where it came so."""
    host, port = server.server_address[:2]
    if tls:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=20, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        response = connection.getresponse()
        found, body = dict(response.getheaders()), response.read()
    finally:
        connection.close()
    return response.status, found, gzip.decompress(body) if found.get("Content-Encoding") == "gzip" and body else body


def fetch_scrape(server: Server) -> Scrape:
    status, _, body = fetch(server)
    assert status == 200
    return Scrape(body.decode())
