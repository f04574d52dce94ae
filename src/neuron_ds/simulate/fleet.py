"""A fleet: the processes of a plan, started together and ended together.

Leaving the context ends every one of them, whatever happened inside. It knows a plan and processes; what they publish
is not its business.
"""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from neuron_ds.simulate.devices import driver_name, prepare
from neuron_ds.simulate.plans import Plan
from neuron_ds.simulate.process import Report, SimulatedProcess

#: poll takes no longer wait than some weeks; it is simply called again.
_LONGEST_S = 3600.0


class Fleet:
    """``with Fleet(plan) as fleet:`` - all have published when the context begins, and then start to work at once."""

    def __init__(
        self,
        plan: Plan,
        *,
        speed: float | None = 1.0,
        events: int | None = None,
        driver: str | None = None,
        directory: str | None = None,
        same_type: bool = False,
    ) -> None:
        """speed, events, driver, directory: as for ``start``. same_type: a device that is there with another type than
        the plan's is an error, not one to be used as it is. Raises NoDriver (ENODEV)."""
        self.plan = plan
        self.reports: list[Report] = []  #: of all, once the context is left
        self.processes: list[SimulatedProcess] = []
        self._speed, self._events, self._directory = speed, events, directory
        self._driver = driver_name(driver)
        self._same_type = same_type

    def __enter__(self) -> Self:
        """Raises what kept a device or a process from starting; nothing runs on then."""
        cores = [core for workload in self.plan.workloads for core in workload.cores]
        prepare(dict(self.plan.devices), cores, self._driver, self._directory, same_type=self._same_type)
        try:
            for workload in self.plan.workloads:
                self.processes.append(
                    SimulatedProcess(
                        workload, driver=self._driver, directory=self._directory, speed=self._speed, events=0
                    )
                )
            for process in self.processes:
                process.wait_ready()
            for process in self.processes:
                process.resume(self._events)
        except BaseException:
            self.close()
            raise
        return self

    def wait(
        self,
        seconds: float | None = None,
        *,
        told: Callable[[Report], None] | None = None,
        output: int | None = None,
    ) -> list[SimulatedProcess]:
        """Let them work for so long, or until all have ended by themselves; those that have.

        told: called with the report of each as it ends. output: a descriptor that somebody reads; BrokenPipeError once
        nobody does any more.
        """
        deadline_s = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        running = {process.fileno(): process for process in self.processes if not process.ended}
        for fd in running:
            poll.register(fd, select.POLLIN)
        if output is not None:
            poll.register(output, 0)  # errors and hang-ups are told unasked
        while running:
            left_s = _LONGEST_S if deadline_s is None else deadline_s - time.monotonic()
            for fd, _ in poll.poll(max(0.0, min(left_s, _LONGEST_S)) * 1000):
                if fd == output:
                    raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
                if running[fd].notice():
                    poll.unregister(fd)
                    report = running.pop(fd).report
                    if told is not None and report is not None:
                        told(report)
            if left_s <= 0:
                break
        return [process for process in self.processes if process.ended]

    def close(self) -> None:
        """End them all. Calling it again does nothing."""
        for process in self.processes:
            if not process.ended:
                process.ask_to_end()
        self.reports = [process.end() for process in self.processes]

    def __iter__(self) -> Iterator[SimulatedProcess]:
        return iter(self.processes)

    def __len__(self) -> int:
        return len(self.processes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
