"""What ``neuron-ds record`` takes at 1 kHz while four runtimes work on eight cores each: processor, file, lateness.

The recorder is the command in a process of its own, the runtimes are others; one run at each rate of executions gives
all figures of that rate. Looks that were left out count as late: they came too late to be made. It asks for
``--realtime``, which root gets, so that it is the recorder that is measured and not who else uses the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from benches.crowd import runtimes
from benches.fixtures import directory
from benches.harness import Reading
from neuron_ds.record.recording import Recording

PROCESSES = 4
SECONDS = 20.0
#: What starting costs is not measured: from here on.
SETTLED_S = 2.0
#: Executions a second on each core, and how much a minute of the file may be.
RATES = {25: 2.0, 100: 3.5}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Run:
    """What one run came to."""

    percent: float
    late_percent: float
    mb_per_minute: float


def comparisons() -> Iterator[Reading]:
    for rate_hz, limit_mb in RATES.items():
        take = Runs(rate_hz).take
        when = f"{PROCESSES} × 8 cores, {rate_hz} executions/s each"
        yield Reading("record at 1 kHz, processor time", when, partial(take, "percent"), 15, "%")
        yield Reading("record at 1 kHz, late by 1 ms", when, partial(take, "late_percent"), 0.5, "%")
        yield Reading("record at 1 kHz, file", when, partial(take, "mb_per_minute"), limit_mb, "MB/min")


class Runs:
    """Runs at one rate of executions, as many as are needed: each of its figures is told once."""

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._run: Run | None = None
        self._told: set[str] = set()

    def take(self, name: str) -> float:
        if self._run is None or name in self._told:
            self._run, self._told = _run(self._rate_hz), set()
        self._told.add(name)
        return float(getattr(self._run, name))


def _run(rate_hz: int) -> Run:
    with (
        directory(devices=PROCESSES) as path,
        runtimes(path, processes=PROCESSES, devices=PROCESSES, rate_hz=rate_hz),
        tempfile.TemporaryDirectory() as folder,
    ):
        file = f"{folder}/bench.mcap"
        command = [sys.executable, "-m", "neuron_ds", "record", "--rate", "1000", "--realtime", "-o", file]
        with subprocess.Popen(
            command, env=os.environ | {"NEURON_DS_DIR": path, "NEURON_DS_DRIVER": "software"}, stderr=subprocess.PIPE
        ) as recorder:
            time.sleep(SETTLED_S)
            before, began = _cpu_s(recorder.pid), time.monotonic()
            time.sleep(SECONDS)
            spent, passed = _cpu_s(recorder.pid) - before, time.monotonic() - began
            recorder.send_signal(signal.SIGTERM)
            _, said = recorder.communicate()
            if recorder.returncode != 0:
                raise RuntimeError(f"the recorder did not end well: {said.decode().strip()}")
        with Recording(file) as recording:
            _check_that_late_is_said(recording)
            counts, length_s = recording.counts, (recording.end_ns - recording.start_ns) / 1e9
            late = (counts.late + counts.missed) / (counts.ticks + counts.missed)
        return Run(100 * spent / passed, 100 * late, os.path.getsize(file) / 1e6 * 60 / length_s)


def _check_that_late_is_said(recording: Recording) -> None:
    """Each tick that is late by its own time must say so: the sums of what the ticks say are the recorder's."""
    moments = [moment for _, moment in recording.moments()]
    late, missed = sum(m.late_us > 0 for m in moments), sum(m.missed for m in moments)
    counts = recording.counts
    if (late, missed, len(moments)) != (counts.late, counts.missed, counts.ticks):
        raise RuntimeError(f"{late} ticks say that they are late, {missed} that some were missed; counted: {counts}")


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
