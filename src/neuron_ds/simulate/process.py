"""A simulated process as its parent holds it: started, halted between two events, continued, ended, or killed.

It is a process of its own, with its own pid and slabs, that shares nothing with us but two pipes. It never outlives us:
the kernel kills it when we die, also while it is stopped. What it publishes is not known here; ``expect`` says it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, Self

import neuron_ds.errors as errors
from neuron_ds.errors import NeuronDSError, ProducerGone
from neuron_ds.simulate.devices import DEFAULT_TYPE, driver_name, prepare
from neuron_ds.simulate.expect import ExpectedSlab, fold, published
from neuron_ds.simulate.launch import Lines, launch
from neuron_ds.simulate.workload import Workload, script

#: How long a process may take to start, to answer and to end.
PATIENCE_S = 30.0
_ENDING_S = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """How a process ended. events: how many it had played, None if it could not say. error: "" if all is well."""

    pid: int
    tag: str
    events: int | None
    exit_code: int
    error: str


class SimulatedProcess:
    """Started by ``start`` or a Fleet. As a context it is ended when the context closes."""

    def __init__(
        self, workload: Workload, *, driver: str, directory: str | None, speed: float | None, events: int | None
    ) -> None:
        """Starts the process; ``wait_ready`` comes next."""
        self.workload = workload
        self.tag = workload.tag
        self.slots: dict[int, int | None] = {}  #: by device, once it is ready
        self.played: int | None = None  #: how many events, while it holds; None while it runs
        self.report: Report | None = None  #: once it has ended
        self._script, self._expected, self._folded = script(workload), published(workload), 0
        self._command = 0
        self._frozen = False
        self._last: dict[str, Any] = {}
        arguments = [*workload.arguments(), "--driver", driver, "--parent", str(os.getpid())]
        arguments += ["--speed", "inf" if speed is None else str(float(speed))]
        if events is not None:
            arguments += ["--events", str(events)]
        environment = dict(os.environ)
        if directory is not None:
            environment["NEURON_DS_DIR"] = directory
        self._process = launch([sys.executable, "-m", "neuron_ds.simulate", *arguments], environment)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self._lines = Lines(self._process.stdout.fileno())

    # --- what it says

    def _hear(self, line: bytes) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(line)
        self._last = said
        return said

    def _expect_line(self, deadline_s: float) -> dict[str, Any]:
        line = self._lines.next(deadline_s)
        if line is None:
            if not self._lines.ended:
                raise self._error(NeuronDSError, f"did not answer within {PATIENCE_S:g} s; if it is frozen, thaw it")
            raise self._error(ProducerGone, self._finish().error or "has ended")
        said = self._hear(line)
        if said["state"] == "failed":
            self._finish()
            kind = getattr(errors, said["kind"], NeuronDSError)
            raise kind(
                said["error"],
                device=said["device"],
                pid=self.pid,
                slot=said["slot"],
                path=said["path"],
                code=said["errno"],
            )
        return said

    def _error(self, kind: type[NeuronDSError], message: str) -> NeuronDSError:
        return kind(f"the simulated process {self.tag} {message}", pid=self.pid)

    def wait_ready(self) -> None:
        """Until its slabs are published. Raises what it met instead, as the same class of error."""
        said = self._expect_line(time.monotonic() + PATIENCE_S)
        self.slots = {int(device): slot for device, slot in said["slots"].items()}

    def wait_played(self) -> int:
        """Until it holds, having played as many events as it was told (or all there are): how many those are."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.played is None:
            said = self._expect_line(deadline_s)
            if said["state"] == "played" and said["command"] == self._command:
                self.played = int(said["events"])
        return self.played

    # --- what it is told

    def _tell(self, words: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # it has ended; whoever waits for an answer hears of it
            self._process.stdin.write(words.encode() + b"\n")
            self._process.stdin.flush()

    def pause(self) -> int:
        """Halt it between two events; how many it has played so far, exactly."""
        if self._frozen:
            raise self._error(NeuronDSError, "is frozen and can't answer; thaw it first")
        if self.played is None:
            self._command += 1
            self._tell(f"hold {self._command}")
        return self.wait_played()

    def advance(self, events: int) -> int:
        """Let it play exactly so many more events and hold again; how many those are in all."""
        return self.resume(self.pause() + events).wait_played()

    def resume(self, until: int | None = None) -> Self:
        """Let it go on, at its speed: without an end, or until it has played so many events in all."""
        self.played = None
        self._command += 1  # also for "go", which is not answered: what was said before does not count any more
        self._tell("go" if until is None else f"until {self._command} {until}")
        return self

    def freeze(self) -> None:
        """SIGSTOP: on return it stands still, wherever it was."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._frozen = True

    def thaw(self) -> None:
        """SIGCONT. What it missed in between it does not catch up on."""
        self._process.send_signal(signal.SIGCONT)
        self._frozen = False

    def expected(self) -> dict[int, ExpectedSlab]:
        """What its slabs must show, by device, while it holds. Raises NeuronDSError while it runs."""
        if self.played is None:
            raise self._error(NeuronDSError, "is running, so nobody can say what it shows; pause it first")
        fold(self._expected, islice(self._script, self.played - self._folded))
        self._folded = self.played
        return {device: slab.copy() for device, slab in self._expected.items()}

    # --- how it ends

    @property
    def ended(self) -> bool:
        """Whether it has ended, as far as was noticed; ``Fleet.wait`` and ``end`` notice."""
        return self.report is not None

    def kill(self) -> Report:
        """SIGKILL: its slots stay taken until the next producer recovers them."""
        self._process.kill()
        return self._finish()

    def ask_to_end(self) -> None:
        """Tell it to give its slabs back and exit; ``end`` waits for that."""
        self.thaw()  # whoever stopped it
        self._tell("end")

    def end(self) -> Report:
        """Let it give its slabs back and exit, or kill it if it does not."""
        if self.report is None:
            self.ask_to_end()
            deadline_s = time.monotonic() + _ENDING_S
            while (line := self._lines.next(deadline_s)) is not None:
                self._hear(line)
            if not self._lines.ended:
                self._process.kill()
        return self._finish()

    def notice(self) -> bool:
        """Take note of what it said, without waiting. Whether it has ended."""
        while self.report is None and (line := self._lines.next(0.0)) is not None:
            said = self._hear(line)
            if said["state"] == "played" and said["command"] == self._command:
                self.played = int(said["events"])
        if self._lines.ended:
            self._finish()
        return self.ended

    def fileno(self) -> int:
        """A descriptor that is readable when there is something to ``notice``."""
        return self._lines.fd

    def _finish(self) -> Report:
        if self.report is None:
            assert self._process.stdout is not None
            assert self._process.stdin is not None
            code = self._process.wait()
            while (line := self._lines.next(0.0)) is not None:
                self._hear(line)
            self._process.stdout.close()
            with suppress(BrokenPipeError):  # a command it did not live to read
                self._process.stdin.close()
            self._lines.ended = True
            events = self._last["events"] if self._last.get("state") == "ended" else self.played
            self.report = Report(self.pid, self.tag, events, code, self._reason(code))
        return self.report

    def _reason(self, code: int) -> str:
        if self._last.get("state") == "failed":
            return str(self._last["error"])
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return "" if code == 0 else f"exited with status {code}; its standard error says why"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        state = "ended" if self.ended else "running" if self.played is None else f"held after {self.played} events"
        return f"<SimulatedProcess {self.pid} {self.tag} {state}>"


def start(
    workload: Workload,
    *,
    events: int | None = None,
    speed: float | None = 1.0,
    type: str = DEFAULT_TYPE,
    driver: str | None = None,
    directory: str | None = None,
) -> SimulatedProcess:
    """Start a workload as a real process and wait until it has published.

    events: hold after so many; it keeps its slabs and waits to be told. speed: times real time, None = as fast as
    possible. type: of its devices, where there are none yet. driver: the software driver unless another is named.
    directory: stands for NEURON_DS_DIR. Raises NoDriver, and whatever kept the process from publishing: SlotsFull
    (ENOMEM), NoSpace (ENOSPC), UnsafeDirectory (EACCES) and so on.
    """
    name = driver_name(driver)
    prepare(dict.fromkeys(workload.devices, type), workload.cores, name, directory)
    process = SimulatedProcess(workload, driver=name, directory=directory, speed=speed, events=events)
    try:
        process.wait_ready()
    except BaseException:
        process.end()
        raise
    return process
