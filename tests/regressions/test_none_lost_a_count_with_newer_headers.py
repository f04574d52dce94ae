"""A core built with the headers of Python 3.12 or newer took None's count away in 3.11, which then died of it."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "csrc"
CALLS = 100_000
PROOF = f"""
import sys
from importlib.util import module_from_spec, spec_from_file_location

from neuron_ds import layout

spec = spec_from_file_location("neuron_ds._core", sys.argv[1])
core = module_from_spec(spec)
spec.loader.exec_module(core)
assert core.__file__ == sys.argv[1]
counter = core.map(-1, 0, layout.REQUIRED_SIZE, True, None).nc(0, 0)
before = sys.getrefcount(None)
for _ in range({CALLS}):
    counter.add(1)
assert counter.get() == {CALLS}
print(before - sys.getrefcount(None))
"""


def newer_headers():
    """The folders with the headers of every CPython from 3.12 on that is installed here."""
    named = (shutil.which(f"python3.{minor}") for minor in range(12, 20))
    managed = Path.home().glob(".pyenv/versions/3.*/bin/python3")
    found = set()
    for python in [*filter(None, named), *map(str, managed)]:
        code = "import sys, sysconfig; print(sys.version_info >= (3, 12), sysconfig.get_path('include'))"
        asked = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
        newer, _, include = asked.stdout.strip().partition(" ")
        if newer == "True" and (Path(include) / "Python.h").is_file():
            found.add(include)
    return sorted(found)


def test_the_header_counts_none_itself():
    text = (SOURCES / "python" / "binding.h").read_text()
    own = text.index("#undef Py_RETURN_NONE\n#define Py_RETURN_NONE return Py_NewRef(Py_None)\n")
    assert own > text.index("#include <Python.h>")
    for source in SOURCES.glob("python/*.c"):
        assert "Py_RETURN_TRUE" not in source.read_text()
        assert "Py_RETURN_FALSE" not in source.read_text()


@pytest.mark.slow
def test_none_keeps_its_count_with_newer_headers(tmp_path):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = "-D_GNU_SOURCE -DPy_LIMITED_API=0x030B0000 -std=c11 -O2 -fPIC -shared -pthread -fvisibility=hidden".split()
    sources = [*SOURCES.glob("*.c"), *SOURCES.glob("python/*.c")]
    for i, headers in enumerate(newer_headers()):
        core = tmp_path / str(i) / "_core.abi3.so"
        core.parent.mkdir()
        folders = ["-I", headers, "-I", SOURCES, "-I", SOURCES / "python"]
        subprocess.run([*compiler, *flags, *folders, *sources, "-o", core], check=True)
        done = subprocess.run([sys.executable, "-c", PROOF, core], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), headers
        assert abs(int(done.stdout)) < CALLS // 100, headers  # other code may come and go with a few
