"""Runs the tests a portion at a time, each in a pytest of its own and as many at once as there are processors.

Much of the tests' time is waiting for other processes, and a process that has met every library forks slowly. Arguments
are for pytest; with more than the marks to run there is one pytest, as without this tool. It knows the tree of tests
and pytest's exit codes; it knows nothing of what is tested.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

TESTS = Path("tests")
#: A portion has no more bytes of source, so that none keeps the rest waiting in the end.
MOST_BYTES = 72_000
#: More at once would only be in each other's way: they start processes themselves.
MOST_AT_ONCE = 6
#: How long an interrupted pytest may take to clean up.
PATIENCE_S = 20.0
PASSED, NOTHING_TO_DO, INTERRUPTED = 0, 5, 130
_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_COUNT = re.compile(r"(\d+) ([a-z]+)")
#: Lines that say nothing beside the summary.
_PROGRESS = re.compile(r"\s*[.sxX]*\s*(\[ *\d+%\])?\s*")


def _is_said(line: str) -> bool:
    """Whether a line is what a test says for people to read."""
    return not _PROGRESS.fullmatch(line) and not _SUMMARY.match(line)


def portions(tests: Path) -> list[list[str]]:
    """The files of tests, those of a folder together as far as that goes; the largest portions first."""
    found: list[tuple[int, list[str]]] = []
    for folder in sorted({path.parent for path in tests.rglob("test_*.py")}):
        size, files = 0, []
        for path in sorted(folder.glob("test_*.py")):
            if files and size + path.stat().st_size > MOST_BYTES:
                found.append((size, files))
                size, files = 0, []
            size += path.stat().st_size
            files.append(str(path))
        found.append((size, files))
    return [files for _, files in sorted(found, key=lambda each: -each[0])]


class Run:
    """All portions, and what became of them."""

    def __init__(self, options: Sequence[str]) -> None:
        self._command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
        self._left = portions(TESTS)
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False
        self.portions, self.told = len(self._left), 0
        self.counts: dict[str, int] = {}
        self.failed: list[str] = []

    def work(self) -> None:
        """One portion after the other, until there is none left."""
        while (files := self._next()) is not None:
            try:
                self._run(files)
            except Exception as e:  # whatever it is, these tests are not known to have passed
                self._tell(files, -1, f"{e!r}\n", 0.0)

    def _next(self) -> list[str] | None:
        with self._lock:
            return self._left.pop(0) if self._left and not self._ended else None

    def _run(self, files: list[str]) -> None:
        began = time.monotonic()
        with self._lock:
            if self._ended:
                return
            process = subprocess.Popen(
                [*self._command, *files],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # an interrupt from the terminal is passed on once, and not also met
            )
            self._running.add(process)
        output, _ = process.communicate()
        with self._lock:
            self._running.discard(process)
        self._tell(files, process.returncode, output, time.monotonic() - began)

    def _tell(self, files: list[str], code: int, output: str, took_s: float) -> None:
        name = files[0] if len(files) == 1 else f"{files[0]} to {Path(files[-1]).name}"
        summary = _SUMMARY.findall(output)
        passed = code in (PASSED, NOTHING_TO_DO) and bool(summary)  # a test may end pytest, with any code
        with self._lock:
            self.told += 1
            for number, what in _COUNT.findall(summary[-1]) if summary else ():
                self.counts[what] = self.counts.get(what, 0) + int(number)
            if passed:
                output = "".join(f"  {line}\n" for line in output.splitlines() if _is_said(line))
            else:
                self.failed.append(name)
            print(output, end="")
            print(f"{name}: {summary[-1] if summary else f'ended with {code}'}, {took_s:.0f} s", flush=True)

    def end(self) -> None:
        """Interrupt what runs, as one would on a terminal; the second time, or where that doesn't help, kill it."""
        with self._lock:
            for process in self._running:
                if self._ended:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                else:
                    process.send_signal(signal.SIGINT)
            if not self._ended:
                timer = threading.Timer(PATIENCE_S, self.end)
                timer.daemon = True
                timer.start()
            self._ended = True


def main(arguments: list[str]) -> int:
    # -m and an expression are how make calls it; whatever else is there may name tests.
    if len(arguments) > 2:
        return subprocess.call([sys.executable, "-m", "pytest", *arguments])
    began = time.monotonic()
    run = Run(arguments)
    at_once = min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: (stopped.set(), run.end()))
    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(run.work) for _ in range(at_once)]:
            done.result()
    if stopped.is_set():
        return INTERRUPTED
    counts = ", ".join(f"{number} {what}" for what, number in sorted(run.counts.items(), key=lambda each: each[0]))
    print(f"\n{counts or 'no test'} in {time.monotonic() - began:.0f} s")
    for name in run.failed:
        print(f"failed: {name}")
    whole = not run.failed and run.told == run.portions and run.counts.get("passed")
    return 0 if whole else 1


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads what is told: no reason for a traceback
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
