"""Run the rules on one driver: ``python -m tests.conformance.run --driver software|standin|kernel|replay``.

Prints a line per rule and, last, the counts per tag; exits 1 if a rule does not hold. Needs nothing but the package,
so that it runs in a guest without pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback

from tests.conformance.rules import RULES
from tests.conformance.world import WORLDS


def preload_standin() -> None:
    """Start this program again with the stand-in library loaded, unless it is."""
    if "NDS_STANDIN_DIR" in os.environ:
        return
    from tests.standin.build import build

    work = tempfile.mkdtemp(prefix="nds-standin-")
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build(os.path.join(work, "build"))),
        "NDS_STANDIN_DIR": os.path.join(work, "root"),
    }
    os.execve(sys.executable, [sys.executable, "-m", "tests.conformance.run", *sys.argv[1:]], environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", choices=sorted(WORLDS), required=True)
    parser.add_argument("--only", default="", help="run the rules whose name contains this")
    arguments = parser.parse_args()
    if arguments.driver == "standin":
        preload_standin()
    kind = WORLDS[arguments.driver]
    held: dict[str, int] = {}
    failed = 0
    for rule in RULES:
        if rule.tag not in kind.tags or arguments.only not in rule.name or (kind.only_reads and not rule.reads):
            continue
        started = time.monotonic()
        try:
            with kind() as world:
                rule.check(world)
        except Exception:
            failed += 1
            print(f"FAIL  {rule.tag}: {rule.name}", flush=True)
            traceback.print_exc()
            continue
        held[rule.tag] = held.get(rule.tag, 0) + 1
        print(f"ok    {rule.tag}: {rule.name} ({time.monotonic() - started:.2f} s)", flush=True)
    counts = ", ".join(f"{tag} {n}" for tag, n in sorted(held.items()))
    if arguments.driver == "standin":
        shutil.rmtree(os.path.dirname(os.environ["NDS_STANDIN_DIR"]), ignore_errors=True)
    print(f"conformance of the {arguments.driver} driver: {counts or 'nothing ran'}; {failed} failed", flush=True)
    return 1 if failed or not held else 0


if __name__ == "__main__":
    sys.exit(main())
