"""Where devices could not be looked at, their memory was 0, utilization had no series, and the host had no device."""

import pytest

from neuron_ds.datastore import publish
from neuron_ds.errors import AccessDenied
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE, scrape


@pytest.fixture
def watched(driver):
    with publish(0, driver=driver, tag="t") as producer:
        producer.core(0).mem_usage_tensors_device.add(1000)
        with Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch:
            producer.core(0).infer_completed.add(5)
            yield watch


def refuse(*_: object) -> None:
    raise AccessDenied("may not be opened", device=0)


def test_seen_it_is_all_there(watched):
    found = scrape(watched.report())
    assert found.get("neuron_ds_devices_listed") == found.get("neuron_ds_devices") == 1
    assert found.get("neuron_runtime_memory_used_bytes", memory_location="neuron_device") == 1000


@pytest.mark.parametrize("blind", ["devices", "owners"])
def test_what_is_not_known_is_not_zero(driver, watched, monkeypatch, blind):
    before = scrape(watched.report())
    monkeypatch.setattr(driver, blind, refuse)
    for _ in range(2):
        found = scrape(watched.report())
        assert found.get("execution_status_total", status_type="completed") == 5
        assert found.all("neuron_runtime_memory_used_bytes") == []
        assert found.all("neuroncore_memory_usage_tensors") == []
        assert found.all("neuroncore_utilization_ratio") == []
        (_, info), (_, known) = (s.all("neuron_hardware_info")[0][::-1] for s in (found, before))
        assert info == known
    if blind == "devices":
        assert found.get("neuron_ds_devices_listed") == 0
        assert found.all("neuron_ds_devices") == []
    else:
        assert (found.get("neuron_ds_devices_listed"), found.get("neuron_ds_device_readable")) == (1, 0)
    monkeypatch.undo()
    again = scrape(watched.report())
    assert again.get("neuron_runtime_memory_used_bytes", memory_location="neuron_device") == 1000
    assert again.get("execution_status_total", status_type="completed") == 5
