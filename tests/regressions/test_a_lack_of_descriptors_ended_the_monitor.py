"""A host out of descriptors gave a bare OSError in the middle of a pass, which ended monitor and exporter."""

import http.client
import json
import os
import resource
import signal
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.cli.helpers import Producer, start
from tests.exporter.helpers import Scrape
from tests.monitor.schemas import check, runtime_of

#: Standard streams are all that a process may open; what it has open it keeps.
NO_MORE = 3


@contextmanager
def without_descriptors(pid):
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (NO_MORE, before[1]))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def test_the_exporter(tmp_path):
    directory = tmp_path / "ds"
    options = ("--listen", "127.0.0.1:0", "--label", "user", "--window", "0.1")
    work = "producer.core(0).infer_completed.add(3)"
    with (
        Producer(directory, tag="t", then=work) as producer,
        start("exporter", *options, directory=directory) as process,
    ):
        address = urlsplit(process.stderr.readline().split()[1]).netloc
        connection = http.client.HTTPConnection(address, timeout=20)

        def scrape():
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            return Scrape(response.read().decode())

        def counted(found):
            return found.get("neuron_ds_core_infer_completed_total", core=0)

        found = scrape()
        user = found.all("neuron_ds_runtime_processes", runtime_tag="t")[0][0]["user"]
        assert (counted(found), found.get("neuron_ds_slab_read_errors_total")) == (3, 0)
        with without_descriptors(process.pid):
            found = scrape()
            assert found.get("neuron_ds_slab_read_errors_total") > 0
            assert found.get("neuron_ds_device_readable") == 0
            assert found.get("execution_status_total", runtime_tag="t", status_type="completed", user=user) == 0
            with Producer(directory, tag="new"):  # windows go on to end meanwhile
                assert scrape().get("neuron_ds_processes", state="readable") == 2
            unanswered = http.client.HTTPConnection(address, timeout=20)
            unanswered.request("GET", "/healthz")
        assert unanswered.getresponse().read() == b"ok\n"
        unanswered.close()
        found = scrape()
        assert (counted(found), found.get("neuron_ds_device_readable")) == (3, 1)
        errors = found.get("neuron_ds_slab_read_errors_total")
        assert scrape().get("neuron_ds_slab_read_errors_total") == errors
        assert os.path.exists(f"/proc/{producer.pid}")
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(20), process.stderr.read()) == (0, "")


def test_the_monitor(tmp_path):
    directory = tmp_path / "ds"
    with Producer(directory, tag="t") as producer, start("monitor", "--period", "50ms", directory=directory) as process:

        def until(is_so):
            deadline = time.monotonic() + 20
            while not is_so(report := check(process.stdout.readline())):
                assert time.monotonic() < deadline, json.dumps(report["neuron_hardware_info"])
            return report

        until(lambda report: not report["neuron_hardware_info"]["error"])
        with without_descriptors(process.pid):
            report = until(lambda report: report["neuron_hardware_info"]["error"])
            assert "Too many open files" in report["neuron_hardware_info"]["error"]
            assert "ulimit -n" in report["neuron_hardware_info"]["error"]
            runtime = runtime_of(report, producer.pid)
            assert (runtime["neuron_runtime_tag"], runtime["error"]) == ("t", "")
            until(lambda report: "Too many open files" in report["system_data"]["vcpu_usage"]["error"])
        report = until(lambda report: not report["neuron_hardware_info"]["error"])
        assert report["system_data"]["vcpu_usage"]["error"] == ""
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert (process.wait(20), process.stderr.read()) == (0, "")
