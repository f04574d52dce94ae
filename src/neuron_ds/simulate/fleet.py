"""A fleet: the processes of a plan, started together and ended together.

Leaving the context ends every one of them, whatever happened inside. It knows a plan and processes; what they publish
is not its business.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from neuron_ds.simulate.devices import driver_name, prepare
from neuron_ds.simulate.plans import Plan
from neuron_ds.simulate.process import Report, SimulatedProcess


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
    ) -> None:
        """speed, events, driver, directory: as for ``start``. Raises NoDriver (ENODEV)."""
        self.plan = plan
        self.reports: list[Report] = []  #: of all, once the context is left
        self.processes: list[SimulatedProcess] = []
        self._speed, self._events, self._directory = speed, events, directory
        self._driver = driver_name(driver)

    def __enter__(self) -> Self:
        """Raises what kept a device or a process from starting; nothing runs on then."""
        cores = [core for workload in self.plan.workloads for core in workload.cores]
        prepare(dict(self.plan.devices), cores, self._driver, self._directory)
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

    def wait(self, seconds: float | None = None) -> list[SimulatedProcess]:
        """Let them work for so long, or until all have ended by themselves; those that have."""
        deadline_s = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        running = {process.fileno(): process for process in self.processes if not process.notice()}
        for fd in running:
            poll.register(fd, select.POLLIN)
        while running:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                break
            for fd, _ in poll.poll(None if left_s is None else left_s * 1000):
                if running[fd].notice():
                    poll.unregister(fd)
                    del running[fd]
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
