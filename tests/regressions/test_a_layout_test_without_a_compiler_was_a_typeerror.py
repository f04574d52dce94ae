"""Without a compiler the test of the layout ended in `Value after * must be an iterable, not NoneType`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_it_says_what_to_install():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_layout.py::test_the_sizes"],
        cwd=ROOT,
        env={**os.environ, "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "install gcc or clang" in done.stdout
    assert "TypeError" not in done.stdout
