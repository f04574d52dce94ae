"""The strands a pattern is twisted from: loading, serving, steps, buffers, leaks, errors. Each is an endless or finite
series of events in the order of their times.

All chance comes from the job's seed and the strand's own name, so that a strand is the same whatever runs beside it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import count
from operator import itemgetter

from neuron_ds.runtime import ApiFailure, DeviceMemory, HostMemory, Status
from neuron_ds.simulate.events import (
    ApiFailed,
    DeviceMemoryChanged,
    Event,
    Executed,
    FeaturesUsed,
    HostMemoryChanged,
    ModelLoaded,
    ModelUnloaded,
    StillBusy,
)
from neuron_ds.simulate.models import KIB, MIB, CoreId, Model, Profile, partition, replica

SECOND_US = 1_000_000

#: What the runtime itself needs, beside the models.
RUNTIME_DEVICE_BYTES = 20 * MIB
RUNTIME_HOST_BYTES = 48 * MIB
MULTICORE_FEATURE = 1 << 1

_SWING_PERIOD_S = 40.0
_TAIL_SHARE, _TAIL_FACTOR = 0.01, 3.0
_NC_SHARE = 0.92  # of a device's latency; the rest is data transfer
_COMPUTE_SHARE = 0.85  # of a training step; the rest is collectives


#: By how much an execution on a core takes longer than usual, at a time (us) of the script.
Slowness = Callable[[CoreId, int], float]


@dataclass(frozen=True, slots=True)
class Job:
    """What a pattern runs on: a seed, the cores, and what is loaded there."""

    seed: int
    cores: tuple[CoreId, ...]
    profile: Profile

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted({device for device, _ in self.cores}))

    def random(self, *label: object) -> random.Random:
        """The source of chance of one strand."""
        return random.Random("/".join(map(str, (self.seed, *label))))


def in_order(*strands: Iterable[Event]) -> Iterator[Event]:
    """The strands as one, by time; of equal times the earlier strand comes first."""
    return merge(*strands, key=itemgetter(0))


def seconds(value: float) -> int:
    """Seconds as the microseconds of a script."""
    return round(value * SECOND_US)


# --- Loading ----------------------------------------------------------------------------------------------------------


def boot(job: Job) -> Iterator[Event]:
    """What a runtime needs on every core before the first model."""
    for device in job.devices:
        own = [core for d, core in job.cores if d == device]
        yield HostMemoryChanged(0, device, HostMemory.MISC, RUNTIME_HOST_BYTES)
        if len(own) > 1:
            yield FeaturesUsed(0, device, MULTICORE_FEATURE)
        for core in own:
            yield DeviceMemoryChanged(0, device, core, DeviceMemory.MISC, RUNTIME_DEVICE_BYTES)


def load(at_us: int, device: int, model: Model) -> Iterator[Event]:
    """Memory first, then the record: a model never shows more than its core has in use."""
    yield from _memory(at_us, device, model, 1)
    yield ModelLoaded(at_us, device, model)


def unload(at_us: int, device: int, model: Model) -> Iterator[Event]:
    yield ModelUnloaded(at_us, device, model)
    yield from _memory(at_us, device, model, -1)


def _memory(at_us: int, device: int, model: Model, sign: int) -> Iterator[Event]:
    for host, (size, _) in zip(HostMemory, model.host, strict=False):
        if size:
            yield HostMemoryChanged(at_us, device, host, sign * size)
    for category, (size, _) in zip(DeviceMemory, model.device, strict=False):
        if size:
            yield DeviceMemoryChanged(at_us, device, model.core, category, sign * size)


def load_replicas(job: Job) -> Iterator[Event]:
    """The whole model on each core."""
    yield from boot(job)
    for index, (device, _) in enumerate(job.cores):
        for model in _replica(job, index, version=1):
            yield from load(0, device, model)


def redeploy(job: Job, every_us: int) -> Iterator[Event]:
    """New versions of what ``load_replicas`` loaded, core after core."""
    for turn in count():
        at_us = (turn + 1) * every_us
        version, index = divmod(turn, len(job.cores))
        device = job.cores[index][0]
        for model in _replica(job, index, version + 1):
            yield from unload(at_us, device, model)
        for model in _replica(job, index, version + 2):
            yield from load(at_us, device, model)


def _replica(job: Job, index: int, version: int) -> list[Model]:
    """One version of the model on one of the job's cores: the same whenever it is asked for."""
    number = index + (version - 1) * len(job.cores)
    return replica(job.profile, job.cores[index], number, version, job.random("model", version))


def load_partition(job: Job) -> Iterator[Event]:
    """One model spread over all cores."""
    yield from boot(job)
    for (device, _), model in partition(job.profile, job.cores, job.random("model", 1)):
        yield from load(0, device, model)


# --- Working ----------------------------------------------------------------------------------------------------------


class _Durations:
    """Lognormal durations around a mean, with a tail of slow ones."""

    def __init__(self, rng: random.Random, mean_us: float, spread: float, tail: float = _TAIL_SHARE) -> None:
        self._rng, self._spread, self._tail = rng, spread, tail
        self._mu = math.log(mean_us / (1 + tail * (_TAIL_FACTOR - 1))) - spread * spread / 2

    def draw(self) -> float:
        drawn = self._rng.lognormvariate(self._mu, self._spread)
        return drawn * _TAIL_FACTOR if self._rng.random() < self._tail else drawn


def serve(
    job: Job,
    core: CoreId,
    rate: float,
    utilization: float,
    spread: float,
    swing: float,
    slowness: Slowness = lambda core, at_us: 1.0,
) -> Iterator[Executed]:
    """Requests arrive by chance, at a rate that swings slowly, and are executed one after the other."""
    rng = job.random("serve", core)
    durations = _Durations(rng, utilization / rate * SECOND_US, spread)
    phase = job.random("swing").random() * 2 * math.pi
    arrival_s, free_us = 0.0, 0
    while True:
        now = rate * (1 + swing * math.sin(phase + 2 * math.pi * arrival_s / _SWING_PERIOD_S))
        arrival_s += rng.expovariate(now)
        arrival_us = seconds(arrival_s)
        busy_us = max(1, round(durations.draw() * slowness(core, arrival_us)))
        free_us = max(arrival_us, free_us) + busy_us
        yield _execution(job, core, free_us, busy_us, free_us - arrival_us + rng.randrange(40, 160))


def grind(
    job: Job, core: CoreId, rate: float, utilization: float, spread: float, slowness: Slowness
) -> Iterator[Executed]:
    """Work without end: the next execution comes as soon as the last one is done."""
    rng = job.random("grind", core)
    durations = _Durations(rng, utilization / rate * SECOND_US, spread)
    gap_us = (1 - utilization) / rate * SECOND_US
    at_us = round(rng.random() * gap_us)
    while True:
        busy_us = max(1, round(durations.draw() * slowness(core, at_us)))
        at_us += busy_us
        yield _execution(job, core, at_us, busy_us, busy_us + rng.randrange(40, 160))
        at_us += round(rng.expovariate(1 / gap_us)) if gap_us else 0


def _execution(job: Job, core: CoreId, at_us: int, busy_us: int, total_us: int) -> Executed:
    return Executed(
        at_us,
        *core,
        Status.SUCCESS,
        busy_us=busy_us,
        macs=job.profile.macs,
        device_us=busy_us,
        total_us=total_us,
        nc_us=max(1, round(busy_us * _NC_SHARE)),
    )


def steps(
    job: Job, rate: float, utilization: float, spread: float, slowness: Slowness = lambda core, at_us: 1.0
) -> Iterator[Executed]:
    """Training: every core computes, waits for the slowest in the collectives, and all end the step together."""
    rng = job.random("steps")
    mean_us = utilization / rate * SECOND_US
    compute = _Durations(rng, mean_us * _COMPUTE_SHARE, spread, tail=0.0)
    gap = _Durations(rng, max(1.0, (1 - utilization) / rate * SECOND_US), 0.3, tail=0.0)
    at_us = 0
    while True:
        computed = [max(1, round(compute.draw() * slowness(core, at_us))) for core in job.cores]
        transfer_us = round(mean_us * (1 - _COMPUTE_SHARE) * rng.uniform(0.9, 1.1))
        step_us = max(computed) + transfer_us
        at_us += step_us
        for core, computed_us in zip(job.cores, computed, strict=True):
            yield Executed(
                at_us,
                *core,
                Status.SUCCESS,
                busy_us=step_us,
                macs=job.profile.macs,
                device_us=step_us,
                total_us=step_us + rng.randrange(200, 900),
                nc_us=computed_us,
                cc_us=step_us - computed_us,
            )
        at_us += max(1, round(gap.draw()))


def hang(core: CoreId, from_us: int, symptom: str, every_us: int) -> Iterator[Event]:
    """A core that completes nothing any more: busy, timing out, or silent."""
    if symptom == "silent":
        return
    for at_us in count(from_us + every_us, every_us):
        if symptom == "timeout":
            yield Executed(at_us, *core, Status.TIMEOUT, busy_us=every_us)
        else:
            yield StillBusy(at_us, *core, every_us)


def thin_out(executions: Iterable[Executed], share: float, from_us: int, rng: random.Random) -> Iterator[Executed]:
    """From some time on only a share of what would have come does come."""
    return (each for each in executions if each.at_us < from_us or rng.random() < share)


# --- Memory -----------------------------------------------------------------------------------------------------------


def buffers(job: Job) -> Iterator[Event]:
    """Batches come and go: the host's and the cores' tensors grow for a while and shrink again."""
    rng = job.random("buffers")
    at_us = 0
    while True:
        device, core = rng.choice(job.cores)
        size = rng.randrange(64, 2048) * 16 * KIB
        at_us += seconds(rng.expovariate(2.0))
        end_us = at_us + seconds(rng.uniform(0.2, 1.0))
        for when, delta in ((at_us, size), (end_us, -size)):
            yield HostMemoryChanged(when, device, HostMemory.TENSORS, delta)
            yield DeviceMemoryChanged(when, device, core, DeviceMemory.TENSORS, delta)
        at_us = end_us


def checkpoints(job: Job, every_us: int) -> Iterator[Event]:
    """Now and then the weights are copied to the host and written away."""
    size = job.profile.device["constants"]
    for turn in count(1):
        for at_us, sign in ((turn * every_us, 1), (turn * every_us + every_us // 10, -1)):
            for device in job.devices:
                yield HostMemoryChanged(at_us, device, HostMemory.CONSTANTS, sign * size)


def leak(job: Job, from_us: int, device_rate: float, host_rate: float, limit_bytes: int) -> Iterator[Event]:
    """Memory that is never freed, on every core and on the host (bytes per second). At the limit of a core its
    allocations fail instead."""
    rng = job.random("leak")
    every_us = SECOND_US // 4
    leaked = 0
    for at_us in count(from_us + every_us, every_us):
        portion = every_us / SECOND_US * rng.uniform(0.5, 1.5)
        size, host = round(device_rate * portion), round(host_rate * portion)
        full = leaked + size > limit_bytes
        for device, core in job.cores:
            if full:
                yield ApiFailed(at_us, device, core, ApiFailure.RESOURCE)
            elif size:
                yield DeviceMemoryChanged(at_us, device, core, DeviceMemory.TENSORS, size)
        if full:
            continue
        leaked += size
        for device in job.devices:
            if host:
                yield HostMemoryChanged(at_us, device, HostMemory.TENSORS, host)


def fill(job: Job, from_us: int, over_us: int, device_bytes: int) -> Iterator[Event]:
    """Device memory is taken in ten steps until every core holds so much, what its model and the runtime need
    included, and is kept."""
    own = sum(job.profile.device.values()) + RUNTIME_DEVICE_BYTES
    step = max(0, device_bytes - own) // 10
    for n in range(10):
        for device, core in job.cores if step else ():
            yield DeviceMemoryChanged(from_us + n * over_us // 10, device, core, DeviceMemory.TENSORS, step)
