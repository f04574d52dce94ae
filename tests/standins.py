"""Device nodes for the tests of what stands on the kernel driver: a folder of them, and processes that meet them.

The library is only loaded in processes started here: the test's own sees files in a folder. Functions of a test module
are run in forks of one such process, which opens no device itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.processes import Program
from tests.standin.build import build, environment, make_folder

ROOT = Path(__file__).resolve().parent.parent

#: Forks a child for each call, and says what the function returned there, or what it raised.
SERVER = """
import importlib, traceback
sys.path.insert(0, sys.argv[1])
while True:
    module, name, arguments, variables = hear()
    function = getattr(importlib.import_module(module), name)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        os.environ.update(variables)
        try:
            say({"value": function(*arguments)})
        except BaseException:
            say({"raised": traceback.format_exc()})
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        say({"raised": f"the call ended with status {os.waitstatus_to_exitcode(status)}"})
"""

PRODUCER = """
import neuron_ds
producer = neuron_ds.publish(int(sys.argv[1]), tag=sys.argv[2], runtime_version=(2, 31, 99))
producer.core(0).inference_count.add(5)
say(os.getpid())
hear()
"""
MONITOR = """
from neuron_ds.driver import get_driver
for device in map(int, sys.argv[1:]):
    get_driver().owners(device)
say(os.getpid())
hear()
"""


class StandIn:
    """Two devices with eight cores each; use it in a with statement. ``renew`` makes them anew."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="neuron-ds-test-", dir="/dev/shm"))
        self._place.chmod(0o755)  # tests come as other users too
        self.folder = self._place / "standin"
        self._library = build()
        self.environment = {
            **{name: "" for name in os.environ if name.startswith("NEURON_")},
            **environment(self._library, self.folder),
            "NEURON_DS_DIR": str(self._place / "software"),
            "NEURON_DS_DRIVER": "",
        }
        self._server: Program | None = None
        self._programs: list[Program] = []
        self.renew()

    def renew(self) -> Self:
        self.end_programs()
        shutil.rmtree(self.folder, ignore_errors=True)
        make_folder(self.folder, devices=2, cores=8, library=self._library)
        return self

    def node(self, device: int = 0) -> Path:
        return self.folder / "dev" / f"neuron{device}"

    def call(self, function: Callable[..., Any], *arguments: Any, **variables: str) -> Any:
        """What a function of a test module returns where the nodes are; ``variables`` are set for it."""
        if self._server is None:
            self._server = Program(SERVER, str(ROOT), env=self.environment)
        return self._server.ask([function.__module__, function.__name__, arguments, variables])["value"]

    def program(self, source: str, *arguments: object) -> Program:
        """A program that meets the nodes, back once it has said something."""
        program = Program(source, *map(str, arguments), env=self.environment)
        self._programs.append(program)
        program.expect()
        return program

    def producer(self, device: int = 0, tag: str = "serving") -> Program:
        return self.program(PRODUCER, device, tag)

    def monitor(self, *devices: int) -> Program:
        """A process that has devices open and publishes nothing."""
        return self.program(MONITOR, *devices)

    def command(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """neuron-ds, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "neuron_ds.cli", *map(str, arguments)],
            env={**os.environ, **self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def end_programs(self) -> None:
        while self._programs:
            self._programs.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_programs()
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._place, ignore_errors=True)
