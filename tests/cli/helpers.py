"""What the tests of the command and of what it shows share: real producers to look at, and the command itself.

Knows how to start processes and end them; knows nothing of what the command prints.
"""

import os
import subprocess
import sys
from pathlib import Path

#: Publishes, says its slot, does what its second argument holds, and stays until its standard input ends.
PRODUCER = """
import sys
import neuron_ds
from neuron_ds.records import ModelNode
producer = neuron_ds.publish(int(sys.argv[1]), tag=sys.argv[3] or None, runtime_version=(2, 31, 99))
exec(sys.argv[2])
print(producer.slot, flush=True)
sys.stdin.read()
if sys.argv[4] == "release":
    producer.close()
"""


def environment(directory: Path | str, **more: str) -> dict[str, str]:
    """The environment of a test's processes: devices in the directory, and nothing of the caller's that matters."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEURON_", "NO_COLOR", "PYTHON"))}
    return {**kept, "NEURON_DS_DIR": str(directory), "NEURON_DS_DRIVER": "software", **more}


class Producer:
    """A real process that publishes; it ends with the `with` block, releasing its slab."""

    def __init__(self, directory: Path, device: int = 0, *, tag: str = "", then: str = "", prefix=()) -> None:
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", PRODUCER, str(device), then, tag, "release"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(directory),
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the producer failed, see its error above"
        self.slot, self.pid = int(line), self.process.pid

    def kill(self) -> None:
        """SIGKILL: its slot stays taken until somebody recovers it."""
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def probe(directory: Path, device: int = 0, **properties: object) -> None:
    """Make a device that nobody publishes on, and that this process has not opened."""
    from neuron_ds.driver import directory as d

    d.make_root(str(directory))
    root = d.open_root(str(directory), produce=True, told=True)
    d.make_device(str(directory), root, device, **properties)
    os.close(root)


def start(*args: str | Path, directory: Path, **popen: object) -> subprocess.Popen:
    """The command as a process of its own, its output in pipes."""
    env = environment(directory, **popen.pop("env", {}))
    command = [sys.executable, "-m", "neuron_ds.cli", *map(str, args)]
    return subprocess.Popen(
        command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env, **popen}
    )


def run(*args: str | Path, directory: Path, **popen: object) -> subprocess.CompletedProcess:
    """The command, to its end."""
    with start(*args, directory=directory, **popen) as process:
        out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(args, process.returncode, out, err)


def one_line(done: subprocess.CompletedProcess, code: int = 2) -> str:
    """What a command said that had nothing to give: one line."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.startswith("neuron-ds: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr
