"""The exporter on device nodes that a preloaded library stands in for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuron_ds.exporter.text import write
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import NO_INSTANCE, Scrape
from tests.standins import StandIn


@pytest.fixture(scope="module")
def nodes() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


def scraped_twice(ecc: str) -> list[str]:
    """Two scrapes where the nodes are; between them an ECC counter grows by 3."""
    watch = Watch(sample_hz=0, window_s=3600, per_process=True, instance=NO_INSTANCE)
    texts = [b"".join(write(watch.report())).decode()]
    total = Path(ecc) / "total"
    total.write_text(f"{int(total.read_text()) + 3}\n")
    for _ in range(2):  # what happened is told once, however often it is asked
        text = b"".join(write(watch.report())).decode()
    watch.close()
    return [*texts, text]


def test_processes_places_and_ecc_of_real_devices(nodes: StandIn) -> None:
    producer, _ = nodes.producer(0, "serving"), nodes.monitor(0)
    ecc = nodes.folder / "sysfs" / "neuron1" / "stats" / "hardware" / "mem_ecc_uncorrected"
    first, second = (Scrape(text) for text in nodes.call(scraped_twice, os.fspath(ecc)))
    assert second.get("execution_status_total", runtime_tag="serving", status_type="completed") == 0
    assert second.get("neuron_ds_process_core_inference_count_total", pid=producer.pid, slot="", core=0) == 5
    assert second.get("neuron_ds_core_inference_count_total", neuron_device=0, core=0) == 5
    # The producer, the monitor, and this exporter itself.
    assert second.by("neuron_ds_slots_used", "neuron_device") == {"0": 3, "1": 1}
    assert second.get("neuron_ds_processes", neuron_device=0, state="readable") == 1
    events = {"event_type": "mem_ecc_uncorrected", "neuron_device_index": 1}
    assert first.get("hardware_ecc_events_total", **events) == 0
    assert second.get("hardware_ecc_events_total", **events) == 3
    assert sum(value for _, value in second.all("hardware_ecc_events_total")) == 3
