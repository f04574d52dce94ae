"""What processes do, by name: each pattern is a small frozen value whose fields are its parameters.

A pattern turns a job into a script: all events of one process in the order of their times, the same for the same job.
It knows no producer and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import takewhile
from typing import ClassVar, Self

from neuron_ds.errors import BadValue
from neuron_ds.simulate import streams
from neuron_ds.simulate.events import Event, Executed
from neuron_ds.simulate.faults import disturb, faults_of
from neuron_ds.simulate.models import GIB, MIB, SERVING_MODELS, TRAINING_MODELS, CoreId
from neuron_ds.simulate.streams import Job, in_order, seconds

_READERS: dict[str, Callable[[str], object]] = {
    "float": float,
    "float | None": lambda text: None if text == "none" else float(text),
    "int | None": lambda text: None if text == "none" else int(text),
    "str": str,
    "bool": lambda text: {"true": True, "yes": True, "false": False, "no": False}[text.lower()],
}

_MOST = 1e6


def as_text(value: object) -> str:
    """A parameter as ``read_pattern`` takes it: ``none``, ``false``, ``60``."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Base of all. ``rate`` (executions or steps per second and core) and ``utilization`` (share of the time that a
    core executes) are the model's own where they are None; ``spread`` is how much durations differ."""

    name: ClassVar[str]
    role: ClassVar[str]  #: stands in the tag of a process
    models: ClassVar[tuple[str, ...]] = SERVING_MODELS

    rate: float | None = None
    utilization: float | None = None
    spread: float = 0.2

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate <= 100_000:
            raise BadValue(f"rate is {self.rate}; it is executions per second and core, above 0 and up to 100,000")
        if self.utilization is not None and not 0 < self.utilization <= 1:
            raise BadValue(f"utilization is {self.utilization}; it is above 0 and up to 1")
        if not 0 <= self.spread <= 2:
            raise BadValue(f"spread is {self.spread}; it is 0 to 2")
        for f in fields(self):
            value = getattr(self, f.name)
            least = 0 if f.name.endswith(("after_s", "_per_s", "_gib")) else 0.001 if f.name.endswith("_s") else None
            if value is not None and least is not None and not least <= value <= _MOST:
                raise BadValue(f"{f.name} is {value}; it is {least:g} to {_MOST:g}")

    def events(self, job: Job) -> Iterator[Event]:
        """The script: endless, unless the pattern says otherwise."""
        raise NotImplementedError

    def _rate(self, job: Job) -> float:
        return job.profile.rate if self.rate is None else self.rate

    def _utilization(self, job: Job) -> float:
        return job.profile.utilization if self.utilization is None else self.utilization

    # --- as text

    @classmethod
    def summary(cls) -> str:
        """One line for people."""
        return (cls.__doc__ or "").partition("\n")[0]

    @classmethod
    def parameters(cls) -> dict[str, tuple[object, str]]:
        """Name of each parameter: its default and its type."""
        return {f.name: (f.default, str(f.type)) for f in fields(cls)}

    @classmethod
    def read(cls, values: dict[str, str]) -> Self:
        """The pattern with parameters given as text. Raises BadValue (EINVAL), naming the parameter."""
        known = cls.parameters()
        read: dict[str, object] = {}
        for key, text in values.items():
            if key not in known:
                raise BadValue(f"{cls.name} has no parameter {key!r}; it has {', '.join(known)}")
            try:
                read[key] = _READERS[known[key][1]](text)
            except (ValueError, KeyError):
                raise BadValue(f"{cls.name}: {key} is {known[key][1]}, not {text!r}") from None
        make: Callable[..., Self] = cls
        return make(**read)

    def __str__(self) -> str:
        """As ``read_pattern`` takes it; what is at its default is left out."""
        changed = {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}
        return ",".join([self.name, *(f"{k}={as_text(v)}" for k, v in changed.items())])


@dataclass(frozen=True, kw_only=True)
class Inference(Pattern):
    """Requests arrive by chance and are executed one by one; now and then a new version is deployed

    swing: how far the rate of arrivals moves up and down. redeploy_s: seconds between two deployments, none = never.
    """

    name: ClassVar[str] = "inference"
    role: ClassVar[str] = "serving"

    swing: float = 0.2
    redeploy_s: float | None = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.swing < 1:
            raise BadValue(f"swing is {self.swing}; it is at least 0 and below 1")

    def events(self, job: Job) -> Iterator[Event]:
        strands = [streams.load_replicas(job), self._buffers(job), *(self._serve(job, core) for core in job.cores)]
        if self.redeploy_s is not None:
            strands.insert(1, streams.redeploy(job, seconds(self.redeploy_s)))
        return in_order(*strands)

    def _buffers(self, job: Job) -> Iterator[Event]:
        return streams.buffers(job)

    def _serve(self, job: Job, core: CoreId) -> Iterator[Event]:
        return self._healthy(job, core)

    def _healthy(self, job: Job, core: CoreId) -> Iterator[Executed]:
        return streams.serve(job, core, self._rate(job), self._utilization(job), self.spread, self.swing)


@dataclass(frozen=True, kw_only=True)
class Training(Pattern):
    """Steps: all cores compute, meet in the collectives and end together; checkpoints pass through the host

    checkpoint_s: seconds between two checkpoints, none = never.
    """

    name: ClassVar[str] = "training"
    role: ClassVar[str] = "training"
    models: ClassVar[tuple[str, ...]] = TRAINING_MODELS

    spread: float = 0.03
    checkpoint_s: float | None = 20.0

    def events(self, job: Job) -> Iterator[Event]:
        steps = streams.steps(job, self._rate(job), self._utilization(job), self.spread)
        strands = [streams.load_partition(job), steps]
        if self.checkpoint_s is not None:
            strands.insert(1, streams.checkpoints(job, seconds(self.checkpoint_s)))
        return in_order(*strands)


@dataclass(frozen=True, kw_only=True)
class Idle(Pattern):
    """Models are loaded and nothing runs: the script ends after loading"""

    name: ClassVar[str] = "idle"
    role: ClassVar[str] = "standby"

    def events(self, job: Job) -> Iterator[Event]:
        return streams.load_replicas(job)


@dataclass(frozen=True, kw_only=True)
class Erring(Inference):
    """Inference of which a share fails, in every way there is or in chosen ones

    share: of the executions that fail. kinds: all, or kinds of errors joined by +. after_s: the first of them.
    """

    name: ClassVar[str] = "erring"
    role: ClassVar[str] = "erring"

    share: float = 0.1
    kinds: str = "all"
    after_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.share <= 1:
            raise BadValue(f"share is {self.share}; it is 0 to 1")
        faults_of(self.kinds)

    def _serve(self, job: Job, core: CoreId) -> Iterator[Event]:
        faults, rng = faults_of(self.kinds), job.random("faults", core)
        return disturb(self._healthy(job, core), faults, self.share, seconds(self.after_s), rng)


@dataclass(frozen=True, kw_only=True)
class Hung(Inference):
    """Inference until an execution never ends: the core is in use, and nothing completes any more

    after_s: when it hangs. hung_cores: how many of the cores, from the first; none = all. symptom: busy (time in use
    goes on), timeout (each execution times out, after period_s), silent (all counters stand still).
    """

    name: ClassVar[str] = "hung"
    role: ClassVar[str] = "hung"

    redeploy_s: float | None = None
    after_s: float = 5.0
    hung_cores: int | None = None
    symptom: str = "busy"
    period_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.symptom not in _PERIODS:
            raise BadValue(f"symptom is {self.symptom!r}; it is one of {', '.join(_PERIODS)}")
        if self.hung_cores is not None and self.hung_cores < 1:
            raise BadValue(f"hung_cores is {self.hung_cores}; it is 1 or more, or none for all")

    def _buffers(self, job: Job) -> Iterator[Event]:
        if self.hung_cores is not None and self.hung_cores < len(job.cores):
            return streams.buffers(job)
        from_us = seconds(self.after_s)
        return takewhile(lambda event: event.at_us < from_us, streams.buffers(job))  # no new batches, nor are any done

    def _serve(self, job: Job, core: CoreId) -> Iterator[Event]:
        if core not in job.cores[: self.hung_cores]:
            yield from self._healthy(job, core)
            return
        from_us = seconds(self.after_s)
        yield from takewhile(lambda event: event.at_us < from_us, self._healthy(job, core))
        every_us = seconds(_PERIODS[self.symptom] if self.period_s is None else self.period_s)
        yield from streams.hang(core, from_us, self.symptom, every_us)


_PERIODS = {"busy": 0.1, "timeout": 2.0, "silent": 1.0}


@dataclass(frozen=True, kw_only=True)
class Straggling(Pattern):
    """The cores of one job work without a break, and one of them becomes slower than the others

    after_s: when. slow_core: which, counted within the job. slow_factor: how much longer it takes. lockstep: they are
    the cores of a training, which all wait for it.
    """

    name: ClassVar[str] = "straggling"
    role: ClassVar[str] = "straggling"
    models: ClassVar[tuple[str, ...]] = TRAINING_MODELS

    spread: float = 0.03
    after_s: float = 5.0
    slow_core: int | None = None
    slow_factor: float = 2.0
    lockstep: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.slow_factor <= 1000:
            raise BadValue(f"slow_factor is {self.slow_factor}; it is 1 to 1000")

    def straggler(self, job: Job) -> CoreId:
        """The core that becomes slow: the last one, unless it was chosen."""
        return job.cores[-1 if self.slow_core is None else self.slow_core % len(job.cores)]

    def events(self, job: Job) -> Iterator[Event]:
        slow, from_us = self.straggler(job), seconds(self.after_s)
        pace = self._rate(job), self._utilization(job), self.spread

        def slowness(core: CoreId, at_us: int) -> float:
            return self.slow_factor if core == slow and at_us >= from_us else 1.0

        if self.lockstep:
            return in_order(streams.load_partition(job), streams.steps(job, *pace, slowness))
        work = (streams.grind(job, core, *pace, slowness) for core in job.cores)
        return in_order(streams.load_replicas(job), *work)


@dataclass(frozen=True, kw_only=True)
class Leaking(Inference):
    """Inference that never frees some of its memory, on every core and on the host

    after_s: when it begins. device_mib_per_s, host_mib_per_s: how fast, for each core and for the host. limit_gib: of
    each core; from there on allocations fail.
    """

    name: ClassVar[str] = "leaking"
    role: ClassVar[str] = "leaking"

    after_s: float = 5.0
    device_mib_per_s: float = 16.0
    host_mib_per_s: float = 8.0
    limit_gib: float = 6.0

    def events(self, job: Job) -> Iterator[Event]:
        device_rate, host_rate = self.device_mib_per_s * MIB, self.host_mib_per_s * MIB
        leak = streams.leak(job, seconds(self.after_s), device_rate, host_rate, round(self.limit_gib * GIB))
        return in_order(super().events(job), leak)


@dataclass(frozen=True, kw_only=True)
class Filling(Inference):
    """Inference that takes device memory until there is hardly any left, and keeps it

    after_s: when it begins. over_s: how long it takes. device_gib: what each of its cores holds in the end.
    """

    name: ClassVar[str] = "filling"
    role: ClassVar[str] = "filling"

    after_s: float = 5.0
    over_s: float = 10.0
    device_gib: float = 11.5

    def events(self, job: Job) -> Iterator[Event]:
        size = round(self.device_gib * GIB)
        return in_order(super().events(job), streams.fill(job, seconds(self.after_s), seconds(self.over_s), size))


@dataclass(frozen=True, kw_only=True)
class Collapsing(Inference):
    """Inference to which only a share of the requests comes any more

    after_s: when. remaining: that share.
    """

    name: ClassVar[str] = "collapsing"
    role: ClassVar[str] = "collapsing"

    after_s: float = 5.0
    remaining: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.remaining <= 1:
            raise BadValue(f"remaining is {self.remaining}; it is 0 to 1")

    def _serve(self, job: Job, core: CoreId) -> Iterator[Event]:
        rng = job.random("remaining", core)
        return streams.thin_out(self._healthy(job, core), self.remaining, seconds(self.after_s), rng)


@dataclass(frozen=True, kw_only=True)
class Slowing(Inference):
    """Inference that becomes slower on all cores, for the same work

    after_s: when. slow_factor: how much longer an execution takes. With a utilization near 1 requests queue up then.
    """

    name: ClassVar[str] = "slowing"
    role: ClassVar[str] = "slowing"

    utilization: float | None = 0.3
    after_s: float = 5.0
    slow_factor: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.slow_factor <= 1000:
            raise BadValue(f"slow_factor is {self.slow_factor}; it is 1 to 1000")

    def _serve(self, job: Job, core: CoreId) -> Iterator[Event]:
        from_us = seconds(self.after_s)

        def slowness(core: CoreId, at_us: int) -> float:
            return self.slow_factor if at_us >= from_us else 1.0

        pace = self._rate(job), self._utilization(job), self.spread, self.swing
        return streams.serve(job, core, *pace, slowness)


PATTERNS: dict[str, type[Pattern]] = {
    cls.name: cls
    for cls in (Inference, Training, Idle, Erring, Hung, Straggling, Leaking, Filling, Collapsing, Slowing)
}


def read_pattern(text: str) -> Pattern:
    """``NAME[,KEY=VALUE...]`` as a pattern. Raises BadValue (EINVAL), naming what is wrong and what there is."""
    name, *rest = text.split(",")
    if name not in PATTERNS:
        raise BadValue(f"no pattern is called {name!r}; there are {', '.join(PATTERNS)}")
    values: dict[str, str] = {}
    for item in rest:
        key, equals, value = item.partition("=")
        if not equals:
            raise BadValue(f"{item!r} is no parameter; write {name},KEY=VALUE")
        values[key] = value
    return PATTERNS[name].read(values)
