"""A workload: one process to simulate, as a plain value, and the script that follows from it.

Everything that decides what the process will publish is in here, so that whoever has the workload can say what its
counters must be. It starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from re import compile

from neuron_ds.errors import BadValue
from neuron_ds.layout import MAX_CORES, MAX_DEVICES
from neuron_ds.records import Version
from neuron_ds.simulate.events import Event
from neuron_ds.simulate.models import MODELS, CoreId
from neuron_ds.simulate.patterns import Inference, Pattern, read_pattern
from neuron_ds.simulate.streams import Job

FRAMEWORK_TYPE = 2
FRAMEWORK_VERSION = Version(2, 5, 1)
FAL_VERSION = Version(2, 0, 4722)
RUNTIME_VERSION = Version(2, 24, 53)


@dataclass(frozen=True, slots=True)
class Workload:
    """One process: what it does, on which (device, physical core)s, under which name.

    tag: made of model, pattern and ``number`` by default. Raises BadValue (EINVAL) for what no process can be.
    """

    pattern: Pattern = field(default_factory=Inference)
    seed: int = 0
    cores: tuple[CoreId, ...] = ((0, 0),)
    model: str = ""
    tag: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        if not self.model:
            object.__setattr__(self, "model", self.pattern.models[self.number % len(self.pattern.models)])
        if self.model not in MODELS:
            raise BadValue(f"no model is called {self.model!r}; there are {', '.join(MODELS)}")
        if not self.tag:
            family = self.model.partition("-")[0]
            object.__setattr__(self, "tag", f"{family}-{self.pattern.role}-{self.number}")
        if not self.cores:
            raise BadValue(f"{self.tag} has no core to run on; give it one, as in 0/0")
        if len(set(self.cores)) != len(self.cores):
            raise BadValue(f"{self.tag} names a core twice: {cores_text(self.cores)}")
        for device, core in self.cores:
            if not 0 <= device < MAX_DEVICES:
                raise BadValue(f"device {device} does not exist; devices are 0 to {MAX_DEVICES - 1}")
            if not 0 <= core < MAX_CORES:
                raise BadValue(f"core {core} does not exist; cores of a device are 0 to {MAX_CORES - 1}")

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices it publishes on, ascending."""
        return tuple(sorted({device for device, _ in self.cores}))

    def job(self) -> Job:
        return Job(self.seed, self.cores, MODELS[self.model])

    def arguments(self) -> list[str]:
        """The command line of ``python -m neuron_ds.simulate`` that means this workload."""
        arguments = [str(self.pattern), "--cores", cores_text(self.cores), "--model", self.model]
        return [*arguments, "--seed", str(self.seed), f"--tag={self.tag}"]

    @classmethod
    def of_arguments(cls, pattern: str, cores: str, model: str, seed: int, tag: str) -> Workload:
        """The other direction of ``arguments``."""
        return cls(pattern=read_pattern(pattern), seed=seed, cores=read_cores(cores), model=model, tag=tag)


def script(workload: Workload) -> Iterator[Event]:
    """All that happens in the process, in order: the same for the same workload. Endless for most patterns."""
    return workload.pattern.events(workload.job())


# --- Cores as text ----------------------------------------------------------------------------------------------------

_CORES = compile(r"(\d+)/(\d+)(?:-(\d+))?")


def cores_text(cores: Iterable[CoreId]) -> str:
    """``0/0-3,1/0``: runs of cores of one device."""
    runs = []
    for _, run in groupby(enumerate(cores), key=lambda item: (item[1][0], item[1][1] - item[0])):
        members = [core for _, core in run]
        (device, first), last = members[0], members[-1][1]
        runs.append(f"{device}/{first}" if first == last else f"{device}/{first}-{last}")
    return ",".join(runs)


def read_cores(text: str) -> tuple[CoreId, ...]:
    """The other direction of ``cores_text``. Raises BadValue (EINVAL)."""
    cores: list[CoreId] = []
    for part in text.split(","):
        match = _CORES.fullmatch(part)
        if match is None:
            raise BadValue(f"{part!r} names no cores; write DEVICE/CORE or DEVICE/FIRST-LAST, as in 0/0-3")
        device, first, last = (int(g) if g else None for g in match.groups())
        assert device is not None
        assert first is not None
        last = first if last is None else last
        if not first <= last < MAX_CORES:
            raise BadValue(f"{part!r} names no cores; those of a device are 0 to {MAX_CORES - 1}, the lower first")
        cores += [(device, core) for core in range(first, last + 1)]
    return tuple(cores)
