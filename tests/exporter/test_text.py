"""Our own text against prometheus_client's, line by line, and the numbers in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.collector import metrics
from neuron_ds.exporter.families import FAMILIES
from neuron_ds.exporter.text import Labels, clean, label_text, number, write
from neuron_ds.exporter.watch import Watch


class Fixed(Collector):
    def __init__(self, found) -> None:
        self.found = found

    def collect(self):
        return self.found


def by_library(blocks, shared: dict[str, str], *, as_openmetrics: bool) -> list[str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed(list(metrics(blocks, shared))))
    text = openmetrics.generate_latest(registry) if as_openmetrics else generate_latest(registry)
    return text.decode().removesuffix("# EOF\n").split("\n")


@pytest.mark.parametrize("as_openmetrics", [False, True])
def test_text_is_the_librarys_line_by_line(
    driver: SoftwareDriver, watch: Callable[..., Watch], as_openmetrics: bool
) -> None:
    with datastore.publish(0, driver=driver, tag='odd "tag"\\\n of\u2028 ü', runtime_version=(2, 31, 7)) as producer:
        for core in range(8):
            producer.core(core).execution_ended(1, 1234567 * core, 0, 100, 2_000_000 + core)
            producer.core(core).mem_usage_tensors_device.set(10**core * 7)
            producer.core(core).mac_count.set(10 ** (2 * core) + core)
        watched = watch(per_process=True, choices=("pod", "container", "user", "command"))
        blocks = list(watched.report())
        ours = b"".join(write(blocks, openmetrics=as_openmetrics)).decode().split("\n")
        theirs = by_library(blocks, watched.shared_labels, as_openmetrics=as_openmetrics)
    assert len(ours) > 900
    for our_line, their_line in zip(ours, theirs, strict=True):
        assert our_line == their_line


@given(st.one_of(st.integers(-(2**64), 2**64), st.floats(), st.integers(0, 2**53).map(float)))
@example(999_999)
@example(1_000_000)
@example(2**53)
@example(1e16)
@example(-0.0)
@example(-12345678.5)
def test_a_number_is_written_as_the_library_does(value: float) -> None:
    assert number(value) == floatToGoString(value)


def test_labels_are_in_order_and_escaped() -> None:
    assert label_text({}) == ""
    assert label_text({"b": 'x"y', "a": "1\\2\n3"}) == '{a="1\\\\2\\n3",b="x\\"y"}'


def test_what_is_no_utf8_can_be_carried() -> None:
    assert clean("tag\udcff") == "tag\\xff"
    assert clean("é") == "é"


def test_labels_that_nobody_uses_are_forgotten() -> None:
    labels = Labels({"instance_id": "i-1"})
    for i in range(1000):
        labels.rows(("pid",), [(str(i),)])
        labels.sweep()
    assert len(labels._used) + len(labels._before) <= 2
    assert labels.rows(("pid",), [("5",)]).texts == ['{instance_id="i-1",pid="5"}']


def test_every_family_has_a_name_of_its_own_and_help_in_a_line() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.help
        assert not set(family.help) & set('"\\\n')
