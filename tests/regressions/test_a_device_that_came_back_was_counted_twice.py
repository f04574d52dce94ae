"""A runtime on two devices was told a whole slab once more when its device came back or changed its shape."""

from dataclasses import replace

import pytest

from neuron_ds.datastore import publish
from neuron_ds.errors import NoDevice
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE, scrape


@pytest.fixture
def producers(driver):
    """One process on two devices, which comes after the watch began."""
    driver.probe(0)
    driver.probe(1)
    with (
        Watch(driver, window_s=3600, sample_hz=0, instance=NO_INSTANCE) as watch,
        publish(0, driver=driver, tag="t") as first,
        publish(1, driver=driver, tag="t") as second,
    ):
        first.core(0).infer_completed.add(100)
        second.core(0).infer_completed.add(1)
        yield watch, first


def completed(watch: Watch) -> float:
    return scrape(watch.report()).get("execution_status_total", status_type="completed", runtime_tag="t")


def gone(driver, monkeypatch) -> None:
    monkeypatch.setattr(driver, "devices", lambda: [1])


def blind(driver, monkeypatch) -> None:
    owners = driver.owners

    def refuse(device: int) -> list:
        if device == 0:
            raise NoDevice("is not to be had", device=0)
        return owners(device)

    monkeypatch.setattr(driver, "owners", refuse)


def other_cores(number: int | None):
    def change(driver, monkeypatch) -> None:
        told = driver.properties
        monkeypatch.setattr(driver, "properties", lambda device: replace(told(device), cores=number))

    return change


@pytest.mark.parametrize("happens", [gone, blind, other_cores(None), other_cores(4), other_cores(40)])
def test_nothing_is_counted_twice_or_lost(driver, producers, monkeypatch, happens):
    watch, first = producers
    assert completed(watch) == 101
    for round in range(1, 4):
        with monkeypatch.context() as patch:
            happens(driver, patch)
            first.core(0).infer_completed.add(5)
            assert completed(watch) in (101 + 5 * round, 101 + 5 * (round - 1))
        first.core(0).infer_completed.add(0)
        assert completed(watch) == 101 + 5 * round
