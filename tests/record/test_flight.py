"""The flight recorder keeps what it should, notices what it should, and writes what can be read."""

import os
import signal
import subprocess
import sys
import time

import pytest

from neuron_ds.datastore import publish
from neuron_ds.record import Recorder, Recording, flight
from neuron_ds.record import format as f
from tests.cli.helpers import environment
from tests.record.conftest import Clock, other_process, play_some, workload

S = 1_000_000_000


class Flight:
    """A flight recorder that ticks when told to, on a clock of its own."""

    def __init__(self, driver, directory, *, keep_s=10.0, step_us=10_000, **more) -> None:
        self.told: list[tuple[str, str]] = []
        self.ring = flight.Ring(keep_s)
        self.recorder = Recorder(self.ring, driver, rate_hz=100, keyframe_s=keep_s / 6, now_ns=Clock(step_us))
        alarms = flight.Alarms(
            self.recorder, hang_s=more.pop("hang_s", 2), kinds=more.pop("kinds", flight.KINDS), quiet_s=keep_s
        )
        self.flight = flight.FlightRecorder(
            self.recorder,
            self.ring,
            alarms,
            str(directory),
            after_s=1,
            told=lambda *what: self.told.append(what),
            **more,
        )

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.recorder.tick()
            self.flight.look()

    def end(self) -> list[tuple[str, str]]:
        self.flight.finish()
        self.recorder.close()
        return self.told


@pytest.fixture
def flying(driver, tmp_path):
    made = []

    def begin(**more) -> Flight:
        made.append(Flight(driver, tmp_path, **more))
        return made[-1]

    yield begin
    for each in made:
        each.recorder.close()


def test_it_keeps_the_last_minutes_and_not_much_more(flying, producer):
    flown = flying(keep_s=6)
    sizes = []
    for _ in range(30):
        flown.tick(100)
        sizes.append(flown.ring.size_bytes)
    assert 6 <= flown.ring.kept_s <= 6 + 6 / 6 + 2
    assert max(sizes[10:]) < 1.5 * min(sizes[10:])
    assert not flown.ring.squeezed
    assert flown.end() == []


def test_its_space_is_bounded_whatever_happens(driver, producer):
    ring = flight.Ring(3600, most_bytes=200_000)
    events = workload(rate=200)
    with Recorder(ring, driver, rate_hz=1000, keyframe_s=0.5, now_ns=Clock()) as recorder:
        for _ in range(6000):
            play_some(producer, events, 3)
            recorder.tick()
    assert ring.squeezed
    assert ring.size_bytes <= 200_000
    assert ring.kept_s > 0.5


def test_an_error_counter_that_moves(flying, producer):
    flown = flying()
    producer.core(3).hw_err_hbm_ue.add(5)  # before the first look: no news
    flown.tick(300)
    assert not flown.told
    producer.core(3).hw_err_hbm_ue.add(1)
    flown.tick(50)
    producer.core(3).hw_err_hbm_ue.add(1)  # into the same file
    flown.tick(300)
    producer.core(3).hw_err_hbm_ue.add(1)  # and this is no news again
    flown.tick(300)
    ((path, text),) = flown.end()
    assert text == f"process {producer.pid} counted hw_err_hbm_ue"
    assert path.endswith("-error.mcap")
    with Recording(path) as recording:
        assert recording.damage == ()
        counts = [s.processes[0].snapshot.core(3).hw_err_hbm_ue for s in recording.samples()]
        assert counts == sorted(counts)
        assert {5, 6, 7} <= set(counts)
        ((when_ns, mark),) = recording.marks()
        assert mark == f"error: {text}"
        assert abs(recording.end_ns - when_ns - S) < S // 5, "what follows is in it, as long as was asked for"
        assert when_ns - recording.start_ns > 2 * S


def test_a_process_that_dies(flying, driver, producer, root):
    with other_process(root) as other:
        flown = flying(kinds=["death"])
        other.ask(3)
        flown.tick(100)
        producer.core(0).err_hw.add(1)  # not asked for
        other.kill()
        other.wait()
        flown.tick(200)
        ((path, text),) = flown.end()
    assert text == f"process {other.pid} is gone"
    with Recording(path) as recording:
        first, *_, last = recording.samples()
        assert {p.owner.pid for p in first.processes if p.snapshot} == {producer.pid, other.pid}
        assert {p.owner.pid for p in last.processes if p.snapshot} == {producer.pid}


def test_a_core_that_hangs(flying, producer):
    flown, core = flying(hang_s=2, keep_s=30), producer.core(1)
    for _ in range(20):
        core.execution_ended(1, 1000, 5)
        flown.tick(10)
    flown.tick(400)  # idle: nothing is in use
    assert flown.told == []
    for _ in range(150):
        core.execution_ended(1, 1000, 5)  # slow, but it completes
        flown.tick(2)
    for _ in range(350):
        core.time_in_use.add(10_000)
        flown.tick()
    ((path, text),) = flown.end()
    assert text == f"core 1 of process {producer.pid} is in use and completes nothing"
    assert path.endswith("-hang.mcap")
    with Recording(path) as recording:
        ((when_ns, _),) = recording.marks()
        busy = [(s.time_ns, s.processes[0].snapshot.core(1).infer_completed) for s in recording.samples()]
        last_completion_ns = next(t for t, n in busy if n == busy[-1][1])
        assert abs(when_ns - last_completion_ns - 2 * S) < S // 3


def test_two_things_make_two_files(flying, producer, driver):
    flown = flying()
    flown.tick(100)
    flown.flight.happened(flight.SIGNAL, "first")
    flown.tick(150)
    flown.flight.happened(flight.SIGNAL, "second")
    flown.tick(150)
    told = flown.end()
    assert sorted(text for _, text in told) == ["first", "second"]
    assert len({path for path, _ in told}) == 2
    spans = []
    for path, _ in sorted(told, key=lambda each: each[1]):
        with Recording(path) as recording:
            spans.append((recording.start_ns, recording.end_ns))
    assert spans[0][1] < spans[1][0], "nothing is written twice"
    assert spans[1][0] - spans[0][1] < S // 10, "and nothing is left out"


def test_what_cannot_be_written_is_told_and_it_goes_on(flying, producer, tmp_path):
    flown = flying()
    flown.flight._directory = str(tmp_path / "absent")
    flown.tick(50)
    flown.flight.happened(flight.SIGNAL, "x")
    flown.tick(150)
    ((path, text),) = flown.end()
    assert path == ""
    assert "can't be written" in text
    assert flown.flight.failed == 1


def test_what_is_due_at_the_end_is_written(flying, producer):
    flown = flying()
    flown.tick(50)
    flown.flight.happened(flight.SIGNAL, "x")
    assert len(flown.end()) == 1


def test_errors_are_what_the_layout_says(producer):
    from neuron_ds import layout

    names = {layout.NC[i].name for i in flight.ERROR_COUNTERS}
    assert {"infer_timed_out", "err_numerical", "hw_err_dma_abort", "oob", "generic_fail"} <= names
    assert not names & {"time_in_use", "infer_completed", "inference_count", "mac_count", "model_load_count"}


def test_the_ring_gives_messages_in_their_order():
    ring = flight.Ring(10)
    ring.put(f.WORLD, 0, 0, b"w0")
    ring.put(f.KEYFRAME, 0, 0, b"k0")
    ring.put(f.TICKS, 1, 1, b"t0")
    ring.put(f.WORLD, 2 * S, 2 * S, b"w1")
    ring.put(f.KEYFRAME, 2 * S, 2 * S, b"k1")
    assert ring.size_bytes == 10
    assert [[m[3] for m in segment] for segment in ring.take()] == [[b"w0", b"k0", b"t0"], [b"w1", b"k1"]]
    assert (ring.size_bytes, ring.kept_s) == (0, 0)


# --- The command ------------------------------------------------------------------------------------------------------


def test_a_signal_makes_the_command_write(tmp_path, root, driver):
    with publish(0, tag="seen", driver=driver) as producer:
        command = [sys.executable, "-m", "neuron_ds", "record", "--keep", "1m", "--after", "500ms"]
        with subprocess.Popen(
            [*command, "--out-dir", str(tmp_path), "--rate", "200", "--on", "death"],
            env=environment(root),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as recorder:
            _until_it_catches(recorder.pid, signal.SIGUSR1)
            producer.core(0).inference_count.add(7)
            time.sleep(0.3)
            recorder.send_signal(signal.SIGUSR1)
            path = recorder.stdout.readline().strip()
            assert os.path.dirname(path) == str(tmp_path)
            recorder.send_signal(signal.SIGTERM)
            assert recorder.wait(20) == 0
            said = recorder.stderr.read()
    assert "SIGUSR1 asked for it" in said
    assert "1 file written" in said
    with Recording(path) as recording:
        *_, last = recording.samples()
        assert last.processes[0].snapshot.core(0).inference_count == 7
        assert [mark for _, mark in recording.marks()] == ["signal: SIGUSR1 asked for it"]


def _until_it_catches(pid: int, number: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with open(f"/proc/{pid}/status") as file:
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
        if caught >> (number - 1) & 1:
            return
        time.sleep(0.02)
    raise AssertionError("it never listened")


def test_the_oldest_of_its_files_go_and_nobody_elses(flying, tmp_path):
    (tmp_path / "neuron-ds-20260101-000000-death.mcap").write_bytes(b"of an earlier run")
    flown = flying(most_files=2)
    for _ in range(4):
        flown.flight.happened(flight.SIGNAL, "asked")
        flown.tick(110)
    paths = [path for path, _ in flown.end()]
    assert len(paths) == 4
    assert sorted(map(str, tmp_path.iterdir())) == sorted(
        [*paths[2:], str(tmp_path / "neuron-ds-20260101-000000-death.mcap")]
    )


def test_without_a_limit_all_stay(flying, tmp_path):
    flown = flying(most_files=0)
    for _ in range(3):
        flown.flight.happened(flight.SIGNAL, "asked")
        flown.tick(110)
    assert sorted(path for path, _ in flown.end()) == sorted(map(str, tmp_path.iterdir()))
