"""Every query of the dashboard brings data from a real Prometheus that scrapes a real exporter."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.server import Server
from neuron_ds.exporter.watch import Watch
from neuron_ds.simulate import PATTERNS, Workload, start
from tests.exporter.helpers import NO_INSTANCE
from tests.exporter.test_prometheus import Prometheus

pytestmark = pytest.mark.slow

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana" / "neuron-ds.json").read_text())
#: What Grafana puts in place of its variables.
VARIABLES = {"$__rate_interval": "10s", "$__range": "10s", "$job": ".*", "$instance": ".*"}


def queries() -> Iterator[tuple[str, str]]:
    """(panel, expression) of all, as Grafana would send them."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            yield panel["title"], expression


def test_every_query_of_the_dashboard_brings_data(root: str, driver: SoftwareDriver, tmp_path: Path) -> None:
    assert shutil.which("prometheus"), "prometheus is missing: apt-get install prometheus brings it"
    driver.probe(0)
    with ExitStack() as stack:
        work = Workload(pattern=PATTERNS["inference"](), seed=3, cores=((0, 0), (0, 1)), tag="serving")
        stack.enter_context(start(work, directory=root))
        watch = stack.enter_context(Watch(driver, window_s=1, sample_hz=100, instance=NO_INSTANCE))
        server = stack.enter_context(Server(watch, "127.0.0.1", 0))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        prometheus = Prometheus(tmp_path, server)
        stack.callback(prometheus.close)
        prometheus.until("execution_latency_seconds", bool)
        prometheus.until(f"rate(execution_status_total[{VARIABLES['$__rate_interval']}]) > 0", bool)
        for panel, expression in queries():
            assert prometheus.query(expression), f"{panel}: {expression}"
