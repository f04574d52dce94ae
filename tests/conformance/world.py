"""The worlds the rules run in: one per driver, each able to start afresh and to fork agents.

A world knows how its driver is set up and nothing of the rules.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.conformance import agent as agent_module

DEVICES, CORES = 2, 8


class Failure(Exception):
    """A command gave an error; ``kind`` is its class, ``errno`` its number."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(f"{answer['error']}: {answer.get('text', '')}")
        self.kind, self.errno = answer["error"], answer.get("errno")


class Process:
    """The runner's end of an agent: ``p.publish(tag="x")`` is told to it and answered."""

    def __init__(self) -> None:
        here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            here.close()
            try:
                agent_module.serve(there)
            except BaseException:
                traceback.print_exc()
            os._exit(70)
        there.close()
        here.settimeout(60)
        self._socket, self._stream = here, here.makefile("rw")
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**arguments: Any) -> Any:
            self.tell(name, **arguments)
            answer = json.loads(self._stream.readline() or '{"error": "died"}')
            if "error" in answer:
                raise Failure(answer)
            return answer["value"]

        return call

    def tell(self, do: str, **arguments: Any) -> None:
        """Send a command and do not wait for its answer."""
        self._stream.write(json.dumps({"do": do, **arguments}) + "\n")
        self._stream.flush()

    def kill(self, number: int = signal.SIGKILL, *, reap: bool = True) -> None:
        """End the process and, unless told otherwise, take its status, so that it is no zombie."""
        if not self._ended:
            os.kill(self.pid, number)
            if reap:
                self.reap()

    def reap(self) -> None:
        if not self._ended:
            os.waitpid(self.pid, 0)
            self._ended = True

    def exit(self) -> None:
        """Let it leave by itself, without closing anything."""
        self._socket.shutdown(socket.SHUT_RDWR)  # a close would leave the copies that later agents inherited
        self.reap()


class World:
    """A driver, set up afresh for every rule."""

    kind = ""
    tags: frozenset[str] = frozenset()
    only_reads = False  #: of the rules only those about what a reader finds

    def __init__(self) -> None:
        self._processes: list[Process] = []

    def process(self) -> Process:
        """A new agent."""
        self._processes.append(Process())
        return self._processes[-1]

    def __enter__(self) -> World:
        self.set_up()
        return self

    def __exit__(self, *_: object) -> None:
        for p in self._processes:
            p.kill()
        self._processes.clear()
        self.tear_down()

    def set_up(self) -> None: ...

    def tear_down(self) -> None: ...


class SoftwareWorld(World):
    kind, tags = "software", frozenset({"common", "software"})

    def set_up(self) -> None:
        from neuron_ds.driver.software import SoftwareDriver

        self.root = tempfile.mkdtemp(prefix="nds-conformance-")
        os.environ.update(NEURON_DS_DIR=self.root, NEURON_DS_DRIVER="software")
        # A child makes the devices: the runner opens none itself.
        pid = os.fork()
        if pid == 0:
            for device in range(DEVICES):
                SoftwareDriver().probe(device, cores=CORES)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    def tear_down(self) -> None:
        shutil.rmtree(self.root)


class StandInWorld(World):
    """The preloaded library; the runner must run with it already (run.py sees to that)."""

    kind, tags = "standin", frozenset({"common", "kernel"})

    def set_up(self) -> None:
        from tests.standin.build import make_folder

        self.root = os.environ["NDS_STANDIN_DIR"]
        shutil.rmtree(self.root, ignore_errors=True)
        make_folder(Path(self.root), devices=DEVICES, cores=CORES)
        os.environ.update(
            NEURON_DS_DRIVER="kernel", NEURON_DS_DEV=f"{self.root}/dev", NEURON_DS_SYSFS=f"{self.root}/sysfs"
        )


class KernelWorld(World):
    """A real kernel with the test module, loaded anew for every rule."""

    kind, tags = "kernel", frozenset({"common", "kernel"})
    module = os.environ.get("NDS_TEST_MODULE", "/nds_test.ko")

    def set_up(self) -> None:
        subprocess.run(["insmod", self.module, f"devices={DEVICES}", f"cores={CORES}"], check=True)
        os.environ.update(NEURON_DS_DRIVER="kernel")

    def tear_down(self) -> None:
        subprocess.run(["rmmod", "nds_test"], check=True)


class RecordedProcess:
    """A process of the software driver and one that reads the recording of it; each command goes to whom it is for."""

    READS = frozenset(
        "attach snapshot value snapshot_value write_through_reader alive detach owners devices properties total "
        "feature_total versions report".split()
    )

    def __init__(self, world: ReplayWorld) -> None:
        self._world, self._producer = world, Process()
        self._reader: Process | None = None
        self.pid = self._producer.pid
        self.kill, self.reap, self.exit = self._producer.kill, self._producer.reap, self._producer.exit
        self.tell = self._producer.tell

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self.READS and (name != "maps" or self._reader is None):
            return getattr(self._producer, name)
        self._world.record()
        if self._reader is None:
            with self._world.reading():
                self._reader = Process()
        self._reader.catch_up()
        return getattr(self._reader, name)

    def end_reader(self) -> None:
        if self._reader is not None:
            self._reader.kill()


class ReplayWorld(SoftwareWorld):
    """The software driver, a recorder, and readers that see nothing but its file. Every read is of a fresh tick."""

    kind, tags, only_reads = "replay", frozenset({"common"}), True

    def set_up(self) -> None:
        super().set_up()
        self._file = f"{self.root}/recording.mcap"
        self._recorder = Process()
        self._recorder.record_begin(path=self._file)
        self._pairs: list[RecordedProcess] = []

    def record(self) -> None:
        """A tick, and on to the disk with it."""
        self._recorder.record_tick()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What is forked here reads the recording."""
        os.environ.update(NEURON_DS_DRIVER="replay", NEURON_DS_REPLAY=self._file, NEURON_DS_REPLAY_FOLLOW="1")
        try:
            yield
        finally:
            os.environ.update(NEURON_DS_DRIVER="software")

    def process(self) -> Any:
        pair = RecordedProcess(self)
        self._processes.append(pair._producer)
        self._pairs.append(pair)
        return pair

    def tear_down(self) -> None:
        for pair in self._pairs:
            pair.end_reader()
        self._recorder.kill()
        super().tear_down()


WORLDS: dict[str, type[World]] = {w.kind: w for w in (SoftwareWorld, StandInWorld, KernelWorld, ReplayWorld)}
