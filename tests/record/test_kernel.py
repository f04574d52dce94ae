"""Recording devices whose nodes a preloaded library stands in for: no slots, no generations, and who goes is seen."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from neuron_ds.record import Recorder, Recording
from neuron_ds.record.container import FileSink
from tests.standins import StandIn


@pytest.fixture
def nodes() -> Iterator[StandIn]:
    with StandIn() as made:
        yield made


def recorded(path: str, pid: int) -> list[bytes]:
    """Record a process of the nodes at each tick, kill it, and record what comes then; the slab at each tick."""
    sink, raws = FileSink(path), []
    with Recorder(sink, rate_hz=5) as recorder:
        for _ in range(3):
            recorder.tick()
            raws.append(recorder.raw(0))
            time.sleep(0.11)  # so that the next tick looks who is there
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while recorder.tracks and time.monotonic() < deadline:
            recorder.tick()
        recorder.finish()
    sink.close()
    return [raw.hex() for raw in raws]


def test_a_real_device(nodes: StandIn, tmp_path) -> None:
    producer = nodes.producer(0, "serving")
    path = str(tmp_path / "a.mcap")
    raws = nodes.call(recorded, path, producer.pid)
    with Recording(path) as recording:
        assert recording.damage == ()
        assert recording.session.driver == "kernel"
        samples = list(recording.samples())
        for sample, raw in zip(samples[: len(raws)], raws, strict=True):
            (process,) = sample.processes
            assert (process.owner.pid, process.owner.slot, process.owner.generation) == (producer.pid, None, None)
            assert process.snapshot.tag == "serving"
            assert bytes(process.snapshot.raw).hex() == raw
            assert sample.devices[0].totals.core(0)["inference_count"] == 5
        assert samples[-1].processes == ()
