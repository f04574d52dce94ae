"""Two flight files of the same second could be after the same name, and one was lost; a closed standard output was a
traceback of a thread; between two keyframes more was kept than there is room for."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from neuron_ds.cli.base import Failure
from neuron_ds.cli.record import _Kept
from neuron_ds.record import Recorder, Recording, flight
from tests.cli.helpers import environment, probe
from tests.record.conftest import Clock


def test_both_have_a_file(driver, producer, tmp_path, monkeypatch):
    monkeypatch.setattr(os.path, "exists", lambda path: False)  # as both saw it
    told = []
    ring = flight.Ring(10)
    with Recorder(ring, driver, rate_hz=100, now_ns=Clock(10_000)) as recorder:
        recorded = flight.FlightRecorder(
            recorder, ring, flight.Alarms(recorder), str(tmp_path), told=lambda *what: told.append(what)
        )
        for _ in range(20):
            recorder.tick()
        recorder.cut()
        segments = ring.take()
        together = threading.Barrier(2)

        def run() -> None:
            together.wait()
            recorded._run(str(tmp_path / "a.mcap"), segments, "it happened")

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(os.listdir(tmp_path)) == ["a-2.mcap", "a.mcap"]
    assert recorded.failed == 0
    for path, _ in told:
        with Recording(path) as recording:
            assert sum(1 for _ in recording.moments()) == 20


def test_what_is_kept_between_keyframes_is_bounded_too(driver, producer, tmp_path):
    most = 60_000
    ring = flight.Ring(3600, most)
    largest = 0
    with Recorder(ring, driver, rate_hz=1000, keyframe_s=3600, now_ns=Clock()) as recorder:
        recorded = flight.FlightRecorder(
            recorder, ring, flight.Alarms(recorder), str(tmp_path), told=lambda *what: None
        )
        for _ in range(20_000):
            producer.core(0).inference_count.add(1)
            recorder.tick()
            recorded.look()
            largest = max(largest, ring.size_bytes)
    assert ring.squeezed
    assert largest < 1.5 * most


def test_a_directory_that_takes_nothing_is_found_out_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(Failure, match="nothing can be written there"):
        _Kept(60, str(tmp_path), (), None, None, "zstd")


def test_a_closed_standard_output_ends_no_thread(tmp_path):
    """What nobody reads any more is written all the same, and nothing but lines is said."""
    probe(tmp_path / "ds")
    command = [sys.executable, "-m", "neuron_ds.cli", "record", "--keep", "10s", "--after", "100ms", "--rate", "100"]
    reading, writing = os.pipe()
    os.close(reading)
    with subprocess.Popen(
        [*command, "--out-dir", str(tmp_path), "--seconds", "30"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path / "ds"),
    ) as recorder:
        os.close(writing)
        deadline = time.monotonic() + 20
        with contextlib.suppress(ProcessLookupError):
            while not list(tmp_path.glob("*-signal*.mcap")) and time.monotonic() < deadline:
                if handles(recorder.pid, signal.SIGUSR1):
                    recorder.send_signal(signal.SIGUSR1)
                time.sleep(0.1)
        recorder.send_signal(signal.SIGTERM)
        told = recorder.stderr.read()
    assert list(tmp_path.glob("*-signal*.mcap"))
    assert "SIGUSR1 asked for it" in told
    assert "Traceback" not in told


def handles(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal by now."""
    with open(f"/proc/{pid}/status") as status:
        caught = next(line for line in status if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> number - 1 & 1)
