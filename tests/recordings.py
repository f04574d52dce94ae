"""Recordings of seeded simulations, made tick by tick on a clock of their own, and the bytes that are in each tick.

The slabs are real and the recorder is the real one; only time is made up, so that minutes take as long as their events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from neuron_ds.datastore import publish
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.record import Recorder
from neuron_ds.record.container import FileSink
from neuron_ds.simulate import PATTERNS, Player, Workload, script
from neuron_ds.simulate.playing import Playback
from tests.cli.helpers import Producer

#: When a recording begins, by its monotonic clock.
START_US = 1_000_000_000
CORES = 2


@dataclass
class Made:
    """A recording, and the bytes of each slab at each tick: {time_ns: {device: bytes}}."""

    path: str
    wall_offset_ns: int = 0
    slabs: dict[int, dict[int, bytes]] = field(default_factory=dict)


def record(
    path: str,
    root: str,
    patterns: Mapping[str, Mapping[str, object]],
    seconds: float,
    *,
    rate_hz: float = 1.0,
    tags: Iterable[str] = (),
    without: Iterable[int] = (),
    late: Mapping[int, tuple[int, int]] | None = None,
    at_tick: Callable[[int, Recorder], None] = lambda tick, recorder: None,
) -> Made:
    """Record these patterns (with their parameters), each on a device of its own.

    ``without``: ticks that aren't made. ``late``: by tick (microseconds late, ticks missed before it).
    """
    driver, made, now_us = SoftwareDriver(root), Made(path), START_US
    names = iter(tags)
    with ExitStack() as stack:
        plays = []
        for device, (name, parameters) in enumerate(patterns.items()):
            tag = next(names, f"{name}-{device}")
            cores = tuple((device, core) for core in range(CORES))
            pattern = PATTERNS[name.rstrip("0123456789")](**parameters)
            work = Workload(pattern=pattern, seed=device + 3, cores=cores, number=device, tag=f"{name}-{device}")
            driver.probe(device)
            producer = stack.enter_context(publish(device, driver=driver, tag=tag))
            plays.append(Playback(Player({device: producer}), script(work)))
        sink = FileSink(path)
        recorder = stack.enter_context(Recorder(sink, driver, rate_hz=rate_hz, now_ns=lambda: now_us * 1000))
        made.wall_offset_ns = recorder.session.wall_offset_ns
        for tick in range(int(seconds * rate_hz) + 1):
            us = round(tick * 1e6 / rate_hz)
            for play in plays:
                play.run(until_us=us)
            if tick in set(without):
                continue
            late_us, missed = (late or {}).get(tick, (0, 0))
            now_us = START_US + us + late_us
            recorder.tick(START_US + us if late_us else None, missed)
            made.slabs[recorder.last_us * 1000] = {o.device: recorder.raw(t) for t, o in recorder.tracks.items()}
            at_tick(tick, recorder)
        recorder.finish()
        sink.close()
    return made


def three_ends(path: str, root: str) -> None:
    """Six seconds with three processes: one stays, one leaves after the second tick, one is killed after the fourth."""
    driver, now_ns = SoftwareDriver(root), START_US * 1000
    sink = FileSink(path)
    with (
        publish(0, driver=driver, tag="stays"),
        Producer(root, tag="leaves") as leaves,
        Producer(root, tag="dies", then="producer.core(0).infer_completed.add(1)") as dies,
        Recorder(sink, driver, rate_hz=1, now_ns=lambda: now_ns) as recorder,
    ):
        for tick in range(6):
            if tick == 2:
                leaves.process.communicate(timeout=20)
                leaves.process.stdin = open("/dev/null")  # noqa: SIM115  the block closes it once more
            if tick == 4:
                dies.kill()
            now_ns += 10**9
            recorder.tick()
        recorder.finish()
    sink.close()
