"""A device whose number of cores changed, or became known, failed every look from then on: no window ended any more."""

from dataclasses import replace

import pytest

from neuron_ds.datastore import publish
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE, scrape


@pytest.fixture
def cores(driver, monkeypatch):
    """Say how many cores the driver tells from now on."""
    driver.probe(0)
    told = driver.properties

    def tell(number: int | None) -> None:
        monkeypatch.setattr(driver, "properties", lambda device: replace(told(device), cores=number))

    return tell


def test_it_goes_on_with_what_is_there(driver, cores):
    with publish(0, driver=driver, tag="t") as producer:
        cores(None)
        with Watch(driver, window_s=3600, sample_hz=0, per_process=True, instance=NO_INSTANCE) as watch:
            for n, (number, shown) in enumerate(((None, 16), (8, 8), (2, 2), (32, 16)), 1):
                cores(number)
                watch.end_window()
                producer.core(0).infer_completed.add(5)
                found = scrape(watch.report())
                assert len(found.all("neuron_ds_process_core_infer_completed_total")) == shown
                counted = found.get("execution_status_total", status_type="completed", runtime_tag="t")
                assert counted in (5, 5 * n)  # since its shape is known, or since the process came


def test_a_look_that_fails_is_not_the_last(driver, monkeypatch):
    driver.probe(0)
    with Watch(driver, window_s=0.1, sample_hz=0, instance=NO_INSTANCE) as watch:
        look, failed = watch._look, []

        def fail() -> object:
            failed.append(watch.problem)
            if len(failed) > 2:
                monkeypatch.setattr(watch, "_look", look)
            raise ValueError("as nobody thought of")

        monkeypatch.setattr(watch, "_look", fail)
        while len(failed) < 3 or watch.problem:
            assert watch._thread.is_alive()
        assert failed[-1] == "the last window could not be ended: ValueError('as nobody thought of')"
