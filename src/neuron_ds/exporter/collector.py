"""The families as prometheus_client's metrics: for a registry of one's own, and for our server's small families.

``NeuronCollector`` is registered like any other collector. This module knows prometheus_client and no slab.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from neuron_ds.driver import Driver
from neuron_ds.exporter.families import COUNTER, FAMILIES, GAUGE, INFO, PER_PROCESS, Family
from neuron_ds.exporter.text import Block
from neuron_ds.exporter.watch import SAMPLE_HZ, WINDOW_S, Watch

_KINDS: dict[str, Callable[[str, str], Metric]] = {
    GAUGE: GaugeMetricFamily,
    COUNTER: CounterMetricFamily,
    INFO: InfoMetricFamily,
}


class NeuronCollector(Collector):
    """All families for a registry: ``REGISTRY.register(NeuronCollector())``. Close it, or use it as a context manager.

    It keeps a thread that ends the windows and one that looks at latencies; see ``Watch`` for the arguments.
    """

    def __init__(
        self,
        driver: Driver | None = None,
        *,
        window_s: float = WINDOW_S,
        sample_hz: float = SAMPLE_HZ,
        per_process: bool = False,
        choices: Sequence[str] = (),
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch or Watch(
            driver, window_s=window_s, sample_hz=sample_hz, per_process=per_process, choices=choices
        )

    def collect(self) -> Iterator[Metric]:
        """Every family that has series at this moment; none once it is closed, so that the registry goes on."""
        if self.watch.closed:
            return iter(())
        return metrics(self.watch.report(), self.watch.shared_labels)

    def describe(self) -> Iterator[Metric]:
        """The names, so that a registry can refuse another collector with one of them."""
        left_out = () if self.watch.per_process else PER_PROCESS
        return (_empty(family) for family in FAMILIES if family not in left_out)

    def close(self) -> None:
        self.watch.close()

    def __enter__(self) -> NeuronCollector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def metrics(blocks: Iterable[Block], shared: dict[str, str]) -> Iterator[Metric]:
    """The library's metric of each block."""
    for family, rows, values in blocks:
        metric = _empty(family)
        for labels, value in zip(rows.values, values, strict=True):
            metric.add_sample(family.sample, {**shared, **dict(zip(rows.names, labels, strict=True))}, float(value))
        yield metric


def _empty(family: Family) -> Metric:
    return _KINDS[family.kind](family.name, family.help)
