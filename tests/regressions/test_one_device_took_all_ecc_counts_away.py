"""Where one device had no ECC counters to read, or none that could be read, no other's were told either."""

from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.watch import Watch
from neuron_ds.host import ECC, HostCollector
from neuron_ds.monitor.system import neuron_hw_counters
from tests.exporter.helpers import NO_INSTANCE, scrape
from tests.monitor.schemas import ANY, STRICT

NONE_THERE = "the driver shows no hardware counters there"


@pytest.fixture
def hardware(tmp_path, monkeypatch):
    """The counters of device 0, beside a device 1 without any."""
    monkeypatch.setenv("NEURON_DS_SYSFS", str(tmp_path))
    base = tmp_path / "neuron0" / "stats" / "hardware"
    base.mkdir(parents=True)
    (base / ECC[0]).write_text("7\n")
    (tmp_path / "neuron1").mkdir()
    return base


@pytest.fixture
def host():
    return HostCollector(SimpleNamespace(name="kernel"))


def refused(monkeypatch, where: Path):
    """What is below can't be read from now on, as it is for others than root."""
    read = Path.read_text

    def refuse(self, *args, **kwargs):
        if self.is_relative_to(where):
            raise PermissionError(13, "Permission denied", str(self))
        return read(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)


def test_each_device_stands_for_itself(hardware, host):
    found = host.collect([], [0, 1]).ecc
    assert found[0] == (7, 0, 0, 0)
    assert found[1].endswith(f"neuron1/stats/hardware: {NONE_THERE}")


def test_a_refused_counter_is_no_zero(hardware, host, monkeypatch):
    refused(monkeypatch, hardware)
    assert host.collect([], [0]).ecc[0].endswith("Permission denied")


def test_the_stream_shows_the_others_and_says_why(hardware, host, monkeypatch):
    def group(before, after):
        found = neuron_hw_counters(before, after)
        for validator in (ANY, STRICT):
            schema = validator.schema
            (part,) = _parts(schema, "neuron_hw_counters")
            jsonschema.Draft202012Validator(part).validate(found)
        return found

    before = host.collect([], [0, 1])
    (hardware / ECC[0]).write_text("9\n")
    shown = group(before, host.collect([], [0, 1]))
    assert shown["neuron_devices"] == [{"neuron_device_index": 0} | dict.fromkeys(ECC, 0) | {ECC[0]: 2}]
    assert shown["error"].endswith(f"neuron1/stats/hardware: {NONE_THERE}")

    later = hardware.parents[2] / "neuron1" / "stats" / "hardware"
    later.mkdir(parents=True)
    (later / ECC[1]).write_text("5\n")
    shown = group(before, host.collect([], [0, 1]))
    assert [device[ECC[1]] for device in shown["neuron_devices"]] == [0, 0], "nothing to compare with"
    assert shown["error"] == ""

    refused(monkeypatch, hardware.parents[2])
    shown = group(before, host.collect([], [0, 1]))
    assert shown["neuron_devices"] is None
    assert shown["error"].count("Permission denied") == 2


def _parts(schema, name):
    """The schemas of this property, wherever it stands in one."""
    if isinstance(schema, list):
        return [part for each in schema for part in _parts(each, name)]
    if not isinstance(schema, dict):
        return []
    found = [part for key, value in schema.items() for part in _parts(value, name)]
    own = schema.get("properties", {})
    return [own[name], *found] if isinstance(own, dict) and name in own and "type" in own[name] else found


def test_the_exporters_sums_stay_and_nothing_counts_twice(root, hardware, host, monkeypatch):
    driver = SoftwareDriver(root)
    driver.probe(0), driver.probe(1)
    with Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch:
        watch._ecc, watch._ecc_seen = {}, {}  # as if its devices were hardware
        watch._host = host

        def events(device):
            watch.end_window()
            found = scrape(watch.report()).by("hardware_ecc_events_total", "event_type", neuron_device_index=device)
            return found.get(ECC[0])

        assert (events(0), events(1)) == (0, None)
        (hardware / ECC[0]).write_text("9\n")
        assert events(0) == 2
        with monkeypatch.context() as patch:
            refused(patch, hardware)
            assert events(0) == 2
        (hardware / ECC[0]).write_text("10\n")
        assert events(0) == 3
