#!/usr/bin/env python3
"""Boots the test guest in QEMU, runs one command in it and ends with that command's exit code.

Knows QEMU and the guest's last line; what is in the guest is build_guest.py's matter. Exit codes of its own:
77 this machine lacks something (it says what to install), 124 out of time, 125 the guest or its kernel failed.
"""

from __future__ import annotations

import argparse
import gzip
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from build_guest import BUILD, NEEDS, ROOT, CannotBuild, Guest, Tree, build

CANNOT_RUN, TIMED_OUT, GUEST_FAILED = 77, 124, 125
SELFTEST = "python3 -m tests.kernel.selftest"
#: It loads the module itself, anew for every rule.
CONFORMANCE = "rmmod nds_test && python3 -m tests.conformance.run --driver kernel"
LAST_LINE = re.compile(r"NDS GUEST EXIT (\d+) (.*)")


def default_command() -> str:
    """The stand-in's own test, then the conformance suite on it."""
    has_suite = (ROOT / "tests" / "conformance" / "run.py").exists()
    return f"{SELFTEST} && {CONFORMANCE}" if has_suite else SELFTEST


def boot(guest: Guest, command: str, module: str, timeout_s: float) -> tuple[int, str]:
    """(exit code, why). The console's lines go to our output as they come."""
    initramfs = guest.initramfs.with_name("initramfs-run.gz")
    order = Tree()
    order.add("etc/nds-command", f"{command}\n".encode())
    order.add("etc/nds-module", f"{module}\n".encode())
    # The kernel unpacks one archive after the other.
    initramfs.write_bytes(guest.initramfs.read_bytes() + gzip.compress(b"".join(order.archive())))
    qemu = [
        *"qemu-system-x86_64 -accel tcg -m 1024 -smp 2 -no-reboot -nodefaults -display none -serial stdio".split(),
        *("-kernel", str(guest.kernel), "-initrd", str(initramfs)),
        *("-append", "console=ttyS0 quiet panic=-1 oops=panic"),
    ]
    with subprocess.Popen(qemu, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(timeout_s, expire)
        timer.start()
        try:
            ended = show(process)
        finally:
            timer.cancel()
            process.kill()  # without effect once it has ended, as it has unless we were interrupted
    if ended:
        return ended
    if expired.is_set():
        return TIMED_OUT, f"no end within {timeout_s:g} s"
    return GUEST_FAILED, f"the guest stopped without a last line; QEMU ended with {process.returncode}"


def show(process: subprocess.Popen[bytes]) -> tuple[int, str] | None:
    """Pass the console's lines on; what the last line says, if it came."""
    ended = None
    assert process.stdout is not None
    for raw in process.stdout:
        line = raw.decode("utf-8", "replace").rstrip()
        if match := LAST_LINE.search(line):
            ended = int(match[1]), match[2]
        elif not ended:  # behind it the kernel says that it powers down
            print(line, flush=True)
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--command",
        default=default_command(),
        help="shell command to run, in the folder that holds the package and the tests (default: %(default)s)",
    )
    parser.add_argument("--devices", type=int, default=2, help="number of devices (default: %(default)s)")
    parser.add_argument("--cores", type=int, default=8, help="physical cores per device (default: %(default)s)")
    parser.add_argument("--timeout", type=float, default=600, help="seconds the guest may take (default: %(default)g)")
    parser.add_argument("--packages", action="store_true", help="print the Debian packages this needs, and end")
    args = parser.parse_args()
    if args.packages:
        print(*NEEDS.values())
        return 0
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="run-") as folder:
        began = time.monotonic()
        try:
            guest = build(Path(folder))
        except CannotBuild as error:
            print(f"run_guest: can't run the kernel tests here: {error}", file=sys.stderr)
            return CANNOT_RUN
        built = time.monotonic()
        print(f"run_guest: guest built in {built - began:.1f} s, boots {guest.kernel.name}", file=sys.stderr)
        code, why = boot(guest, args.command, f"devices={args.devices} cores={args.cores}", args.timeout)
    took = time.monotonic() - built
    print(f"run_guest: {args.command}: exit code {code}, {why}; {took:.1f} s", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
