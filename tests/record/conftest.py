"""What the tests of recordings share: a producer of the test's own, and a recorder that ticks when it is told to."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from neuron_ds.datastore import Producer, publish
from neuron_ds.record import Recorder, Recording
from neuron_ds.record.container import FileSink
from neuron_ds.simulate import PATTERNS, Workload, play, script

CORES = ((0, 0), (0, 1), (0, 5))


class Clock:
    """A clock that goes on by so much with every look at it."""

    def __init__(self, step_us: int = 1000) -> None:
        self.now, self.step_us = 5_000_000_000, step_us

    def __call__(self) -> int:
        self.now += self.step_us * 1000
        return self.now


class Tape:
    """A recording that is made tick by tick, and the bytes that each tick must give back."""

    def __init__(self, path: str, driver, **options) -> None:
        self.path = path
        self.sink = FileSink(path)
        self.recorder = Recorder(self.sink, driver, **options)
        self.raws: list[dict[int, bytes]] = []
        self.times_ns: list[int] = []

    def tick(self, **more) -> None:
        self.recorder.tick(**more)
        self.raws.append({track: self.recorder.raw(track) for track in self.recorder.tracks})
        self.times_ns.append(self.recorder.last_us * 1000)

    def end(self) -> None:
        self.recorder.finish()
        self.recorder.close()
        self.sink.close()

    def read(self) -> Recording:
        self.end()
        return Recording(self.path)


@pytest.fixture
def taping(driver, tmp_path) -> Iterator:
    """``taping(**options)`` begins a recording of the test's own devices."""
    made: list[Tape] = []

    def begin(name: str = "a.mcap", **options) -> Tape:
        made.append(Tape(str(tmp_path / name), driver, **{"rate_hz": 1000, **options}))
        return made[-1]

    yield begin
    for tape in made:
        tape.recorder.close()
        tape.sink.abandon()


@pytest.fixture
def producer(driver) -> Iterator[Producer]:
    with publish(0, tag="serving", runtime_version=(2, 31, 99), driver=driver) as made:
        yield made


@contextmanager
def other_process(root: str, tag: str = "other"):
    """Another process with a slab; it adds when told to and ends when the block does."""
    from tests.processes import Program

    source = """
from neuron_ds import publish
producer = publish(0, tag=sys.argv[1])
say(producer.slot)
while True:
    n = hear()
    if n is None:
        producer.close()
        say("closed")
    else:
        producer.core(0).inference_count.add(n)
        say(n)
"""
    with Program(source, tag, env={"NEURON_DS_DIR": root, "NEURON_DS_DRIVER": "software"}) as program:
        program.expect()
        yield program


def workload(seed: int = 7, **more):
    """Events of a seeded simulation, endless."""
    return script(Workload(pattern=PATTERNS["inference"](**{"rate": 50, **more}), seed=seed, cores=CORES, tag="bert"))


def play_some(producer: Producer, events, count: int) -> None:
    play({0: producer}, events, limit=count)
