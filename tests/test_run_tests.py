"""The tool that runs the tests: a failure anywhere is a failure, and every file is run once."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "run_tests.py"
GOOD, BAD, SLOW = (
    "def test_it(capsys):\n    with capsys.disabled():\n        print('a word')\n",
    "def test_it():\n    assert 1 == 2\n",
    "import pytest\n\n@pytest.mark.slow\ndef test_it():\n    raise AssertionError\n",
)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -q\n")

    def make(**files: str) -> Path:
        for name, text in files.items():
            path = tmp_path / "tests" / name / f"test_{name}.py"
            path.parent.mkdir(parents=True)
            path.write_text(text + "#" * 50_000)  # two are more than a portion
        return tmp_path

    return make


def run(tree: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, "-m", "not slow", *more], cwd=tree, capture_output=True, text=True, timeout=60
    )


def begun(tree: Path) -> subprocess.Popen[str]:
    """The tool at work, once a test there has said that it began."""
    process = subprocess.Popen([sys.executable, TOOL, "-m", "not slow"], cwd=tree, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not (tree / "began").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_all_pass(tree):
    done = run(tree(one=GOOD, two=GOOD, three=SLOW))
    assert done.returncode == 0, done.stdout
    assert re.search(r"^1 deselected, 2 passed in \d+ s$", done.stdout, re.MULTILINE)
    assert done.stdout.count("  a word\n") == 2


def test_one_fails(tree):
    done = run(tree(one=GOOD, two=BAD))
    assert done.returncode == 1
    assert "assert 1 == 2" in done.stdout
    assert done.stdout.endswith("failed: tests/two/test_two.py\n")


@pytest.mark.parametrize("files", [{}, {"one": SLOW}, {"one": "import nothing_of_this_name\n"}])
def test_nothing_ran(tree, files):
    assert run(tree(**files)).returncode == 1


def test_one_that_dies_is_a_failure(tree):
    done = run(tree(one=GOOD, two="import os\ndef test_it():\n    os.abort()\n"))
    assert done.returncode == 1
    assert "tests/two/test_two.py: ended with -6" in done.stdout


@pytest.mark.parametrize(
    "ending",
    [
        "os._exit(5)",
        "os._exit(0)",
        "os.write(1, b'caf\\xe9'); sys.stdout.flush(); os._exit(0)",
        "os.kill(os.getpid(), 9)",
    ],
)
def test_a_test_that_ends_pytest_is_a_failure(tree, ending):
    done = run(tree(one=GOOD, two=f"import os, sys\ndef test_it():\n    {ending}\n"))
    assert done.returncode == 1
    assert done.stdout.endswith("failed: tests/two/test_two.py\n")


def test_bytes_that_are_no_text_are_shown(tree):
    source = "import os\ndef test_it(capfd):\n    with capfd.disabled():\n        os.write(1, b'caf\\xe9\\n')\n"
    done = run(tree(one=GOOD, two=source))
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_waited_for(tree, number):
    slow = """
import pathlib, time
def test_it():
    try:
        pathlib.Path("began").touch()
        time.sleep(60)
    finally:
        time.sleep(0.3)
        pathlib.Path("cleaned").touch()
"""
    here = tree(one=slow)
    process = begun(here)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert (here / "cleaned").exists()


def test_a_second_signal_kills_what_does_not_heed_the_first(tree):
    deaf = """
import pathlib, signal, time
def test_it():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pathlib.Path("began").touch()
    time.sleep(100)
"""
    here = tree(one=deaf)
    process = begun(here)
    deadline = time.monotonic() + 30
    while process.poll() is None:
        assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
    process.communicate()
    assert process.returncode == 130


def test_nobody_has_to_read_on(tree):
    process = subprocess.Popen(
        f"{sys.executable} {TOOL} -m 'not slow' | true",
        cwd=tree(one=GOOD),
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.communicate(timeout=60)[1] == ""


def test_with_more_arguments_there_is_one_pytest(tree):
    done = run(tree(one=GOOD, two=BAD), "tests/one")
    assert done.returncode == 0
    assert "1 passed" in done.stdout
