"""The command: run the benches, print each figure beside its limit, exit 1 on a miss.

Standard output is the table, standard error the talk. It knows which benches there are and nothing of what they do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Iterator

from benches import counters, drivers, endurance, exporter, monitor, record, slabs, startup, top, web
from benches.harness import LEAST_ROUNDS, Comparison, Figure, Reading, measure
from neuron_ds.errors import NeuronDSError

ROUNDS = 101
GROUPS = {
    "counters": counters,
    "slabs": slabs,
    "drivers": drivers,
    "startup": startup,
    "exporter": exporter,
    "monitor": monitor,
    "record": record,
    "top": top,
    "web": web,
    "endurance": endurance,
}
#: Take too long to be measured each time: only where they are named.
ON_REQUEST = {"endurance"}
OK, MISSED, CANNOT_RUN = 0, 1, 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benches",
        description="Every limit of speed, as a ratio of two things measured in one run, and of what programs use.",
        epilog=f"exit status: {OK} all limits are kept, {MISSED} one is missed, {CANNOT_RUN} a bench could not run",
    )
    parser.add_argument("groups", nargs="*", metavar="group", help=f"only these: {', '.join(GROUPS)}")
    parser.add_argument("--json", metavar="FILE", help="write all figures, each round's ratio among them, to a file")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"rounds of each comparison, at least {LEAST_ROUNDS} (%(default)s)"
    )
    args = parser.parse_args()
    if unknown := set(args.groups) - GROUPS.keys():
        parser.error(f"no such group: {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    return args


def selected(groups: list[str]) -> Iterator[Comparison | Reading]:
    for name in groups or [name for name in GROUPS if name not in ON_REQUEST]:
        yield from GROUPS[name].comparisons()


def row(name: str, yardstick: str, figure: str, limit: str, verdict: str) -> str:
    return f"{name:34}  {yardstick:37} {figure:>10}  {limit:>12}  {verdict}".rstrip()


def line(figure: Figure) -> str:
    sign = "≥" if figure.faster else "≤"
    unit = f" {figure.unit}" if figure.unit else ""
    return row(
        figure.name,
        figure.yardstick,
        f"{figure.ratio:.2f}{unit}",
        f"{sign} {figure.limit:.2f}{unit}",
        "ok" if figure.ok else "MISSED",
    )


def report(figures: list[Figure], rounds: int) -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "rounds": rounds,
        "ok": all(figure.ok for figure in figures),
        "figures": [figure.as_dict() for figure in figures],
    }


def main() -> int:
    args = arguments()
    rounds = max(args.rounds, LEAST_ROUNDS)
    print(row("what", "against", "figure", "limit", ""), flush=True)
    figures = []
    for comparison in selected(args.groups):
        figures.append(measure(comparison, rounds))
        print(line(figures[-1]), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(report(figures, rounds), file, indent=1)
    missed = [figure.name for figure in figures if not figure.ok]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    return MISSED if missed else OK


def _stop(number: int, frame: object) -> None:
    sys.exit(128 + number)  # leaves all contexts, so that no process and no directory stays behind


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    try:
        sys.exit(main())
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at the end
        sys.exit(CANNOT_RUN)
    except ImportError as e:
        print(f"a bench lacks a package: {e}; pip install 'neuron-datastore[bench]'", file=sys.stderr)
        sys.exit(CANNOT_RUN)
    except (NeuronDSError, RuntimeError) as e:
        print(f"a bench could not run: {e}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
