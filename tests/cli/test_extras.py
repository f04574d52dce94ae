"""Each command with the extras that it is documented to need and no other, and without them: a line, no traceback.

What isn't in the extras is hidden from a process of its own; this environment has everything.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.helpers import environment, probe
from tests.processes import PATIENCE_S

ROOT = Path(__file__).resolve().parent.parent.parent
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: What the packages of the extras, and those that they bring along, are imported as.
IMPORTED = {
    "grpcio": ("grpc",),
    "mcap": ("mcap", "lz4", "zstandard"),
    "msgspec": ("msgspec",),
    "opentelemetry-sdk": ("opentelemetry",),
    "opentelemetry-exporter-otlp-proto-http": ("opentelemetry", "google", "requests"),
    "prometheus_client": ("prometheus_client",),
    "psutil": ("psutil",),
    "pyarrow": ("pyarrow", "numpy"),
    "starlette": ("starlette", "anyio"),
    "textual": ("textual", "rich"),
    "uvicorn": ("uvicorn", "h11"),
}
#: Where a push goes that nobody takes, and how long it tries.
NOBODY = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
HIDING = """
import sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
from neuron_ds.cli import main
main()
"""

#: A command that ends by itself, and the extras that it takes. {here}: the test's folder, {recording}: one in it.
ENDS = {
    "ls": (),
    "show --slot 0": (),
    "doctor": (),
    "sysfs": (),
    "diagnose --for 1": (),
    "simulate --seconds 0.2": (),
    "monitor --once": ("monitor",),
    "top --once": ("top",),
    "record --seconds 0.2 -o {here}/new.mcap": ("record",),
    "ls --from {recording}": ("record",),
    "diagnose --from {recording}": ("record",),
    "export {recording} -o {here}/out.csv": ("record",),
    "export {recording} -o {here}/out.json": ("record",),
    "export {recording} -o {here}/out.perfetto-trace": ("record",),
    "export {recording} -o {here}/out.parquet": ("record", "parquet"),
    "report {recording} -o {here}/out.html": ("record",),
    "monitor --from {recording} --speed 0 --count 2": ("record", "monitor"),
    "top --once --from {recording}": ("record", "top"),
}
#: One that goes on until it is stopped.
GOES_ON = {
    "exporter --listen 127.0.0.1:0": ("exporter",),
    "exporter --listen none --otlp": ("otlp",),
    "web --listen 127.0.0.1:0 --no-imds": ("web",),
}


def modules(extras: tuple[str, ...]) -> set[str]:
    packages = [re.split(r"[<>=!~;\[ ]", each)[0] for extra in extras for each in EXTRAS[extra]]
    return {name for package in packages for name in IMPORTED[package]}


def start(directory: Path, line: str, extras: tuple[str, ...]) -> subprocess.Popen[str]:
    hidden = {name for names in IMPORTED.values() for name in names} - modules(extras)
    return subprocess.Popen(
        [sys.executable, "-c", HIDING, ",".join(hidden), *line.split()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(directory, AWS_EC2_METADATA_DISABLED="true", **NOBODY),
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory):
    """A device with a producer, and a recording of it."""
    here = tmp_path_factory.mktemp("extras")
    directory = here / "ds"
    probe(directory)
    producer = subprocess.Popen(
        [sys.executable, "-m", "neuron_ds", "simulate", "--speed", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(directory),
    )
    try:
        assert producer.stdout is not None
        assert producer.stdout.readline()
        done = start(directory, f"record --seconds 0.5 -o {here}/whole.mcap", ("record",))
        said = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == 0, said
        yield here
    finally:
        producer.terminate()
        producer.communicate()


def given(line: str, here: Path) -> str:
    return line.format(here=here, recording=here / "whole.mcap")


def test_every_extra_for_users_is_tried() -> None:
    ours = set(EXTRAS) - {"test", "lint", "docs", "bench"}
    assert {extra for extras in (*ENDS.values(), *GOES_ON.values()) for extra in extras} == ours - {"kubernetes"}


@pytest.mark.parametrize("line", ENDS)
def test_it_takes_no_more_than_its_extras(world: Path, line: str) -> None:
    process = start(world / "ds", given(line, world), ENDS[line])
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert process.returncode == 0 or (process.returncode == 1 and line.startswith(("diagnose", "doctor"))), err
    assert out or line.startswith(("diagnose", "export", "record", "report"))


@pytest.mark.parametrize("line", GOES_ON)
def test_it_goes_on_with_no_more_than_its_extras(world: Path, line: str) -> None:
    process = start(world / "ds", given(line, world), GOES_ON[line])
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, ""), first + err
    assert "Traceback" not in first + err


@pytest.mark.parametrize("line", [line for line, extras in {**ENDS, **GOES_ON}.items() if extras])
def test_what_is_missing_is_told_in_a_line(world: Path, line: str) -> None:
    process = start(world / "ds", given(line, world), ())
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err.count("\n")) == (2, "", 1), err
    named = re.fullmatch(r"neuron-ds: .* not installed; pip install 'neuron-datastore\[(\w+)\]'\n", err)
    assert named, err
    assert named[1] in {**ENDS, **GOES_ON}[line]
