"""A real Prometheus scrapes the exporter, and promtool reads what it serves (Debian's package ``prometheus``)."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.families import FAMILIES
from neuron_ds.exporter.server import Server, own_process
from neuron_ds.exporter.watch import Watch
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.exporter.helpers import fetch, fetch_scrape

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("prometheus"), reason="apt-get install prometheus brings what is tested with"),
]
PATIENCE_S = 60.0


class Prometheus:
    """One that scrapes an exporter every half second; asked through its HTTP API."""

    def __init__(self, folder: Path, target: Server) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        host, port = target.server_address[:2]
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "neuron", "static_configs": [{"targets": [f"{host}:{port}"]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            stderr=subprocess.DEVNULL,
        )

    def query(self, promql: str) -> list[tuple[dict[str, str], float]]:
        url = f"http://127.0.0.1:{self.port}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return [(each["metric"], float(each["value"][1])) for each in result]

    def until(self, promql: str, holds: Callable[[list[tuple[dict[str, str], float]]], bool]) -> None:
        """Wait until the answer is as it should be."""
        deadline, found = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < deadline:
            try:
                found = self.query(promql)
                if holds(found):
                    return
            except (OSError, urllib.error.URLError):
                pass  # not there yet
            time.sleep(0.1)
        pytest.fail(f"{promql}: {found}")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def server(root: str, driver: SoftwareDriver, watch: Callable[..., Watch], serve: Callable[..., Server]) -> Server:
    driver.probe(0)
    return serve(watch(per_process=True, window_s=1, sample_hz=500), registry=own_process())


@pytest.fixture
def prometheus(tmp_path: Path, server: Server) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path, server)
    yield found
    found.close()


def test_prometheus_has_the_right_values(root: str, server: Server, prometheus: Prometheus) -> None:
    prometheus.until("up", lambda found: [value for _, value in found] == [1])
    work = Workload(pattern=PATTERNS["training"](), seed=3, cores=((0, 0), (0, 1)), tag='odd "tag"\\')
    with start(work, events=500, speed=None, directory=root) as process:
        process.wait_played()
        expected = process.expected()[0].counters
        completed = sum(expected.get(("nc", c, layout.NC_BY_NAME["infer_completed"].index), 0) for c in (0, 1))
        assert completed > 0
        total = 'execution_status_total{status_type="completed"}'
        prometheus.until(total, lambda found: [value for _, value in found] == [completed])
        ((labels, _),) = prometheus.query(total)
        assert labels["runtime_tag"] == 'odd "tag"\\\\'

        # Every series of a scrape is one there too, with the value it has now that nothing moves.
        moving = ("process_", "python_", "system_", "neuron_ds_sample", "neuron_ds_window", "neuron_ds_look")
        moving += ("neuron_ds_record_reads", "neuron_runtime_vcpu", "neuron_runtime_memory", "execution_latency")
        prometheus.until("sum(neuroncore_utilization_ratio)", lambda found: [value for _, value in found] == [0])
        served = fetch_scrape(server)
        held: dict[tuple[str, ...], float] = {}
        for labels, value in prometheus.query('{job="neuron"}'):
            name = labels.pop("__name__")
            held[name, *sorted(f"{k}={v}" for k, v in labels.items() if k not in ("job", "instance"))] = value
        for name, labels, value in served.series:
            key = (name, *sorted(f"{k}={v}" for k, v in labels.items() if v))
            assert key in held, key
            if not name.startswith(moving):
                assert held[key] == value, key
        names = {labels[0] for labels in held}
        assert {family.sample for family in FAMILIES if family.name != "execution_latency_seconds"} <= names

    # It has ended: its series are gone at the next scrape, what the device counted is not.
    prometheus.until(total, lambda found: found == [])
    assert prometheus.query('{runtime_tag!=""}') == []
    ((_, value),) = prometheus.query("sum(neuron_ds_core_infer_completed_total)")
    assert value == completed
    assert prometheus.query("up == 0") == []


def test_prometheus_has_latencies_and_utilization(
    driver: SoftwareDriver, server: Server, prometheus: Prometheus
) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:

        def work_until(value: float) -> Callable[[list[tuple[dict[str, str], float]]], bool]:
            def holds(found: list[tuple[dict[str, str], float]]) -> bool:
                producer.core(1).execution_ended(1, 10**9, 0, 100, 2500)
                return {each for _, each in found} == {value}

            return holds

        prometheus.until('execution_latency_seconds{runtime_tag="t"}', work_until(0.0025))
        assert len(prometheus.query("execution_latency_seconds")) == 7
        # Half of logical core 0 is busy all the time, whatever the window.
        prometheus.until('neuroncore_utilization_ratio{neuroncore="0"}', work_until(0.5))


@pytest.mark.parametrize("busy", [False, True])
def test_promtool_finds_nothing_but_the_vendors_name(driver: SoftwareDriver, server: Server, busy: bool) -> None:
    if busy:
        with datastore.publish(0, driver=driver, tag="t", runtime_version=(2, 31, 7)) as producer:
            producer.core(0).execution_ended(1, 10, 0, 100, 200)
            text = fetch(server)[2]
        assert b"execution_errors_total" in text
    else:
        text = fetch(server)[2]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60)
    lines = done.stderr.decode().splitlines()
    assert [line for line in lines if not line.startswith("system_vcpu_count ")] == []
    assert len(lines) == 1
