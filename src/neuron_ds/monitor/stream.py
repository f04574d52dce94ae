"""The stream: when to look, which groups are due, and the report that comes of it, as a line of JSON.

A Monitor holds a Collector, its sampler and a look at the host; each period of the configuration compares with its own
last look. It waits and writes through its caller, so that it knows no signal and no descriptor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from neuron_ds.collect import Collector, Key, LatencySampler, Process, Sample
from neuron_ds.driver import Driver, get_driver
from neuron_ds.driver.clock import clock_of
from neuron_ds.host import HostCollector, HostSample, ProcessUse
from neuron_ds.identity import Identities
from neuron_ds.instance import InstanceInfo
from neuron_ds.kubernetes import PodResources
from neuron_ds.monitor import runtimes as r
from neuron_ds.monitor.config import Config
from neuron_ds.monitor.hardware import hardware_info
from neuron_ds.monitor.pods import kubernetes_info
from neuron_ds.monitor.system import SYSTEM, process_vcpu_usage, use_of
from neuron_ds.numbering import Numbering, numbering
from neuron_ds.rates import deltas, elapsed_s

#: The first line compares over at most so long, so that it is there within two seconds of the start.
FIRST_NS = 500_000_000
DEFAULT_SAMPLE_HZ = 100.0
#: Of one process and period at most so many latencies are kept; a sampler at 1 kHz gives so many in minutes.
MAX_LATENCIES = 1 << 20

#: Waits until a time of CLOCK_MONOTONIC; False if the stream is to end.
Wait = Callable[[int], bool]
#: Told what people may want to know, and from which verbosity on.
Tell = Callable[[int, str], None]
Report = dict[str, object]


@dataclass(slots=True)
class _Pace:
    """The groups of one period: when they are due, and what they compare with."""

    period_ns: int
    sample: Sample
    host: HostSample
    due_ns: int
    latencies: dict[Key, tuple[list[int], list[int]]] = field(default_factory=dict)

    def add_latencies(self, sample: Sample) -> None:
        for p in sample.processes:
            if p.latencies.total_us:
                total_us, device_us = self.latencies.setdefault(p.key, ([], []))
                if len(total_us) < MAX_LATENCIES:
                    total_us += p.latencies.total_us
                    device_us += p.latencies.device_us

    def latencies_of(self, runtime: r.Runtime) -> r.Pooled:
        found = [self.latencies[s.process.key] for s in runtime.slabs if s.process.key in self.latencies]
        return [v for total_us, _ in found for v in total_us], [v for _, device_us in found for v in device_us]

    def start_anew(self, sample: Sample, host: HostSample, now_ns: int) -> None:
        self.sample, self.host = sample, host
        self.latencies.clear()
        late = max(0, now_ns - self.due_ns)
        self.due_ns += (1 + late // self.period_ns) * self.period_ns  # what was missed is not made up for


class Monitor:
    """The stream of one configuration. A context: close it, so that its sampler ends."""

    def __init__(
        self,
        config: Config,
        driver: Driver | None = None,
        *,
        sample_hz: float = DEFAULT_SAMPLE_HZ,
        models: bool = True,
        instance: InstanceInfo | None = None,
        tell: Tell | None = None,
        pods: PodResources | None = None,
    ) -> None:
        """sample_hz: how often latencies are looked at, 0 for never. models: whether ``loaded_models`` is there.

        pods: where names of pods come from if the configuration wants them; whoever made it closes it.
        """
        driver = driver or get_driver()
        self._config, self._models = config, models
        self._instance = instance or InstanceInfo(ask=False)
        self._tell = tell or (lambda level, text: None)
        self._clock = clock_of(driver)
        self._collector = Collector(driver, totals=False)
        self._host = HostCollector(driver)
        self._pods, self._identities = pods, Identities(pods) if config.kubernetes_ns else None
        self._sampler: LatencySampler | None = None
        if sample_hz and config.wants_latencies:
            self._sampler = LatencySampler(self._collector, sample_hz)
        self._paces: list[_Pace] = []
        self._seen: dict[Process, str] = {}

    # --- looking

    def _look(self) -> tuple[Sample, HostSample]:
        sample = self._collector.collect()
        pids = [p.owner.pid for p in sample.processes if p.owner.alive is not False and not p.owner.foreign]
        devices = [d.device for d in sample.devices]
        if self._identities:
            self._identities.look(sample)
        return sample, self._host.collect(pids, devices)

    def begin(self) -> Sample:
        """The first look, with which the first report compares."""
        sample, host = self._look()
        now_ns = self._clock.now_ns()
        periods = self._config.periods_ns
        first_ns = now_ns + min(periods[0], FIRST_NS)
        self._paces = [_Pace(period_ns, sample, host, first_ns) for period_ns in periods]
        return sample

    @property
    def due_ns(self) -> int:
        """When the next report is due, on the driver's clock."""
        return min(pace.due_ns for pace in self._paces)

    def reports(self, wait: Wait) -> Iterator[Report]:
        """Reports as they become due, until ``wait`` says to end, or a recording is over."""
        if not self._paces:
            self.begin()
        while not self._clock.over and wait(self._clock.real_ns(self.due_ns)):
            yield self.report()

    def lines(self, wait: Wait, *, pretty: bool = False) -> Iterator[bytes]:
        """The reports as JSON, each with a newline behind it."""
        encoder = msgspec.json.Encoder()
        for report in self.reports(wait):
            line = encoder.encode(report)
            yield (msgspec.json.format(line, indent=2) if pretty else line) + b"\n"

    # --- reporting

    def report(self) -> Report:
        """Look now, and report the groups that are due."""
        began_ns, begun_ns = self._clock.now_ns(), time.monotonic_ns()
        due = {pace.period_ns: pace for pace in self._paces if pace.due_ns <= began_ns}
        sample, host = self._look()
        for pace in self._paces:
            pace.add_latencies(sample)
        numbers = numbering(sample.properties)
        report: Report = {
            "neuron_runtime_data": self._runtimes(due, sample, host, numbers),
            "system_data": {
                name: make(due[period].host, host)
                for name, make in SYSTEM.items()
                if (period := self._config.system_ns.get(name)) in due
            },
            "instance_info": self._instance.group(),
            "neuron_hardware_info": hardware_info(sample, numbers),
        }
        if self._identities and (wanted := due.get(self._config.kubernetes_ns or 0)):
            report["neuron_k8s_info"] = kubernetes_info(
                sample.processes,
                self._identities,
                elapsed_s(wanted.sample, sample),
                self._pods.error if self._pods else "",
            )
        for pace in due.values():
            pace.start_anew(sample, host, began_ns)
        self._tell(2, f"looked and reported in {(time.monotonic_ns() - begun_ns) / 1e6:.1f} ms")
        return report

    def _runtimes(self, due: Mapping[int, _Pace], sample: Sample, host: HostSample, numbers: Numbering) -> list[Report]:
        """Each runtime that a rule of the configuration matches, with those of its groups that are due."""
        views = {
            period: r.runtimes(sample, deltas(pace.sample, sample), elapsed_s(pace.sample, sample), numbers)
            for period, pace in due.items()
        }
        if not views:
            return []
        idle: Mapping[str, object] = r.idle_cores(numbers)
        entries: list[Report] = []
        seen: dict[Process, str] = {}
        for i, runtime in enumerate(next(iter(views.values()))):  # all views list the same runtimes in one order
            seen[runtime.process] = runtime.tag
            rule = self._config.rule_of(runtime.tag)
            if rule is None:
                continue
            report = {
                group: self._group(group, views[period][i], due[period], host, numbers, idle)
                for group, period in rule.periods_ns.items()
                if period in due
            }
            entries.append(
                {"pid": runtime.pid, "neuron_runtime_tag": runtime.tag, "error": runtime.error, "report": report}
            )
        self._tell_changes(seen)
        return entries

    def _group(
        self,
        group: str,
        runtime: r.Runtime,
        pace: _Pace,
        host: HostSample,
        numbers: Numbering,
        idle: Mapping[str, object],
    ) -> r.Group:
        if group == "neuroncore_counters":
            return r.neuroncore_counters(runtime, numbers, idle)
        if group == "execution_stats":
            return r.execution_stats(runtime, pace.latencies_of(runtime))
        if group == "memory_used":
            use = use_of(host, runtime.pid, foreign=runtime.foreign)
            rss_bytes = use.rss_bytes if isinstance(use, ProcessUse) else use
            return r.memory_used(runtime, numbers, rss_bytes, models=self._models)
        return process_vcpu_usage(pace.host, host, runtime.pid, foreign=runtime.foreign)

    def _tell_changes(self, seen: dict[Process, str]) -> None:
        for process in seen.keys() - self._seen.keys():
            self._tell(1, f"runtime {seen[process]} (pid {process[0]}) is there")
        for process in self._seen.keys() - seen.keys():
            self._tell(1, f"runtime {self._seen[process]} (pid {process[0]}) is gone")
        self._seen = seen

    def close(self) -> None:
        """Detach from everything and end the sampler."""
        self._collector.close()
        if self._sampler:
            self._tell(1, f"the latency sampler took {self._sampler.busy_s:.3f} s of processor time")
            self._sampler = None

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
