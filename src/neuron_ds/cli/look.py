"""The commands that only look: ``ls``, ``show``, ``check`` and ``doctor``. None changes anything it looks at."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from neuron_ds.cli.base import NEGATIVE, OK, UNUSABLE, Failure, print_json, put, tell
from neuron_ds.cli.replay import recorded
from neuron_ds.errors import NeuronDSError

if TYPE_CHECKING:
    from neuron_ds import check as check_room
    from neuron_ds.driver import DeviceProperties
    from neuron_ds.layout import CounterDef
    from neuron_ds.snapshot import Snapshot

JSON = click.option("-j", "--json", "as_json", is_flag=True, help="The same as JSON.")
DEVICE = click.option("-d", "--device", type=int, help="Device number.  [default: where the pid publishes, or 0]")
SLOT = click.option("-s", "--slot", type=int, help="Slot on the device; where pids are ambiguous, or instead of one.")
WHAT = click.argument("what", required=False, metavar="[PID|FILE]")
#: How many findings of one rule are written out where not all are asked for.
PER_RULE = 6


@click.command(short_help="Devices, their slots, and who publishes in them.")
@JSON
@click.option("-w", "--wide", is_flag=True, help="Commands and tags in full.")
@recorded()
def ls(as_json: bool, wide: bool) -> int:
    """List devices, their slots, and who publishes in them.

    The JSON is that of neuron-ls -j, with some keys more. Exit 0; 1 if there is no device, 2 if none can be
    read, with the reason.
    """
    from neuron_ds.cli.text import listing_lines
    from neuron_ds.listing import survey, to_neuron_ls

    try:
        listing = survey()
    except NeuronDSError as e:
        return tell(str(e), UNUSABLE)
    for item in listing:
        if item.error:
            tell(item.error)
    if not listing:
        return tell(f"no Neuron device: {_where()}", NEGATIVE)
    if all(item.error for item in listing):
        return UNUSABLE
    if as_json:
        print_json(to_neuron_ls(listing, wide=wide))
    else:
        for line in listing_lines(listing, wide=wide):
            put(line)
    return OK


def _where() -> str:
    from neuron_ds.driver import get_driver, kernel

    driver = get_driver()
    roots = getattr(driver, "roots", None)
    if roots is not None:
        where = ", ".join(path for path, _ in roots())
        return f"none in {where}; neuron-ds doctor tells more, neuron-ds simulate makes one"
    if driver.name == "kernel":
        return f"there is no device node in {kernel.dev_root()}; neuron-ds doctor tells more"
    return f"the driver {driver.name} has none; neuron-ds doctor tells more"


@click.command(short_help="Everything in one slab, of a process or from a file.")
@WHAT
@DEVICE
@SLOT
@JSON
@click.option("--raw", "raw_file", metavar="FILE", help="Write the bytes of the blob to FILE, - for standard output.")
@click.option("-f", "--force", is_flag=True, help="Let --raw replace a file.")
@recorded()
def show(
    what: str | None, device: int | None, slot: int | None, as_json: bool, raw_file: str | None, force: bool
) -> int:
    """Show everything in the slab of a process, or in a file with its bytes.

    All digits are a pid; write ./123 for a file of that name, - for standard input. Exit 0; 2 if there is no such slab
    or it can't be read.
    """
    from neuron_ds.cli.source import open_slab
    from neuron_ds.cli.text import snapshot_lines

    if raw_file and as_json:
        raise Failure("--raw and --json are two answers; ask for one")
    slab = open_slab(what, device, slot)
    if raw_file:
        _write_raw(raw_file, bytes(slab.snapshot.raw), force)
    elif as_json:
        print_json(slab.snapshot.to_dict() | {"counters": named_counters(slab.snapshot, slab.properties)})
    else:
        for line in snapshot_lines(slab.snapshot, slab.name, slab.properties):
            put(line)
    return OK


def named_counters(snapshot: Snapshot, properties: DeviceProperties | None) -> dict[str, object]:
    """The counters by name, of the device and of each core that it has (all where nobody knows how many).

    A reserved counter, or a core beyond, is there only if something is in it.
    """
    from neuron_ds import layout

    def named(counters: Sequence[CounterDef], values: Sequence[int]) -> dict[str, int]:
        pairs = zip(counters, values, strict=True)
        return {c.name: value for c, value in pairs if value or c.kind != layout.RESERVED}

    known = properties.cores if properties and properties.cores is not None else layout.MAX_CORES
    values = {core: snapshot.nc_counters(core) for core in range(layout.MAX_CORES)}
    cores = {str(core): named(layout.NC, v) for core, v in values.items() if core < known or any(v)}
    return {"device": named(layout.ND, snapshot.nd_counters), "cores": cores}


def _write_raw(path: str, data: bytes, force: bool) -> None:
    if path == "-":
        if sys.stdout is None:  # closed; the descriptor's number may be another file's by now
            raise Failure("--raw -: there is no standard output; redirect it or name a file")
        if sys.stdout.isatty():
            raise Failure("--raw -: standard output is a terminal; redirect it or name a file")
        sys.stdout.flush()
    target = sys.stdout.fileno() if path == "-" else path
    name = "standard output" if path == "-" else path
    try:
        with open(target, "wb" if force or path == "-" else "xb", closefd=path != "-") as f:
            f.write(data)
    except BrokenPipeError:
        raise
    except FileExistsError:
        raise Failure(f"{path}: exists already; --force replaces it") from None
    except OSError as e:
        raise Failure(f"{name}: {e.strerror}") from None
    if path == "-":
        return
    tell(f"{path}: {len(data)} bytes written")


@click.command(short_help="One slab against every rule of the format.")
@WHAT
@DEVICE
@SLOT
@JSON
@click.option("-a", "--all", "show_all", is_flag=True, help="Every finding, not only the first of each rule.")
@recorded()
def check(what: str | None, device: int | None, slot: int | None, as_json: bool, show_all: bool) -> int:
    """Hold a slab, of a process or in a file, against every rule of the format.

    Faults break the format; notes are allowed, but worth knowing. Each comes with its byte offset in the slab. The
    file - is standard input. Exit 0 if there are no faults, 1 if there are, 2 if it is no readable slab.
    """
    from neuron_ds.check import check_snapshot
    from neuron_ds.cli.source import open_slab
    from neuron_ds.cli.text import plural

    slab = open_slab(what, device, slot)
    findings = check_snapshot(slab.snapshot, slab.tail)
    counts = Counter(f.kind for f in findings)
    if as_json:
        print_json(
            {
                "source": slab.name,
                "faults": counts["fault"],
                "notes": counts["note"],
                "findings": [f.to_dict() for f in findings],
            }
        )
    else:
        _print_findings(findings, show_all)
        tell(f"{slab.name}: {plural(counts['fault'], 'fault')}, {plural(counts['note'], 'note')}")
    return NEGATIVE if counts["fault"] else OK


def _print_findings(findings: list[check_room.Finding], show_all: bool) -> None:
    seen: Counter[str] = Counter()
    for f in findings:
        seen[f.rule] += 1
        if show_all or f.kind == "fault" or seen[f.rule] <= PER_RULE:
            kind = click.style(f"{f.kind:5}", fg="red" if f.kind == "fault" else None, bold=f.kind == "fault")
            put(f"{kind}  {f.offset:#07x} {f.offset:6}  {f.rule:12}  {f.message}")
    if not show_all:
        for rule, n in seen.items():
            more = n - PER_RULE
            if more > 0 and not any(f.kind == "fault" for f in findings if f.rule == rule):
                put(f"note                   {rule:12}  and {more} more; --all shows them")


@click.command(short_help="Why there is nothing to see, and what to do.")
@JSON
def doctor(as_json: bool) -> int:
    """Find out why there is nothing to see, and what to do about it.

    Exit 0 if there is something to see and no problem, 1 otherwise: what can't be read is a problem found, not one of
    the doctor's own. Warnings are no problem.
    """
    from neuron_ds.doctor import examine
    from neuron_ds.records import printable

    findings = examine()
    problems = sum(f.level == "problem" for f in findings)
    if as_json:
        print_json({"healthy": not problems, "findings": [f.to_dict() for f in findings]})
    else:
        colors = {"ok": "green", "warn": "yellow", "problem": "red"}
        for f in findings:
            level = click.style(f"{f.level:8}", fg=colors[f.level], bold=f.level == "problem")
            put(f"{level} {f.subject:12} {printable(f.message)}")
            if f.advice:
                put(f"{'':21} -> {printable(f.advice)}")
    return NEGATIVE if problems else OK
