"""Values as text for people: sizes, ages, tables, and the reports that ``ls`` and ``show`` print.

Every function gives lines and prints nothing. Whatever a process wrote into its slab is made printable here: a
terminal must not obey a tag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from neuron_ds import layout
from neuron_ds.driver import DeviceProperties
from neuron_ds.layout import CounterDef
from neuron_ds.listing import DeviceListing, Process, brief, shorten, shorten_middle
from neuron_ds.records import ModelNode, Version, printable
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, RecordState, Snapshot

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def size(n: int) -> str:
    """Bytes in the largest unit that leaves at least 1: ``96 GiB``, ``1.5 MiB``."""
    value, unit = float(n), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def age(seconds: float | None) -> str:
    """A time span in its two largest units: ``3m 12s``, ``2d 4h``."""
    if seconds is None:
        return "-"
    s = int(seconds)
    if s < 60:
        return f"{s}s"
    for unit, name, part, part_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if s >= unit:
            return f"{s // unit}{name} {s % unit // part}{part_name}"
    raise AssertionError("unreachable")


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: ``0-3,6``."""
    out = []
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        members = [number for _, number in run]
        out.append(f"{members[0]}-{members[-1]}" if len(members) > 1 else str(members[0]))
    return ",".join(out)


def plural(n: int, word: str) -> str:
    """``1 fault``, ``2 faults``."""
    return f"{n} {word}" + ("" if n == 1 else "s")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "", indent: str = "  ") -> list[str]:
    """Columns as wide as their widest cell; those whose header is among the words of ``right`` are right-aligned."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    rights = set(right.split())
    out = []
    for row in cells:
        parts = [c.rjust(w) if h in rights else c.ljust(w) for c, w, h in zip(row, widths, header, strict=True)]
        out.append((indent + "  ".join(parts)).rstrip())
    return out


# --- ls -------------------------------------------------------------------------------------------------------------


def listing_lines(listing: Sequence[DeviceListing], *, wide: bool) -> Iterator[str]:
    """Each device with a line of its own and a table of its processes."""
    for i, item in enumerate(listing):
        if i:
            yield ""
        line = f"device {item.device}" if item.properties is None else device_line(item.properties)
        if item.error:
            yield f"{line}  not readable"
            continue
        yield f"{line}  {item.slots_used} of {layout.SLOTS_PER_DEVICE} slots used"
        if item.processes:
            header = ("SLOT", "PID", "AGE", "RUNTIME", "TAG", "COMMAND", "STATE")
            yield from table(header, (_process_row(p, wide) for p in item.processes), right="SLOT PID AGE")


def device_line(p: DeviceProperties) -> str:
    """What a device is, in one line."""
    parts = [f"device {p.device}", p.type or "unknown type"]
    if p.name:
        parts.append(printable(p.name))
    if p.cores is not None:
        logical = p.logical_cores
        parts.append(f"{p.cores} cores" + (f" ({logical} logical)" if logical not in (None, p.cores) else ""))
    if p.memory_bytes is not None:
        parts.append(size(p.memory_bytes))
    return "  ".join(parts)


def _process_row(process: Process, wide: bool) -> tuple[str, ...]:
    owner = process.owner
    tag, command = printable(process.tag or "-"), printable(process.command or "-")
    if not wide:
        tag, command = shorten(tag, 32), shorten_middle(brief(command))
    state = {True: "", False: "dead", None: "?"}[owner.alive]
    if owner.state == "attached":
        state = "attached, publishes nothing" + (" (this command)" if process.is_self else "")
    elif owner.state != "owned":
        state = f"{state} {owner.state}".strip()
    if owner.foreign and owner.who is None:
        state = f"{state} other pid namespace".strip()
    if process.error:
        state = f"{state}: {printable(process.error)}".removeprefix(": ")
    version = str(process.runtime_version or "-")
    slot = "-" if owner.slot is None else str(owner.slot)
    return slot, str(owner.pid), age(owner.age_s), version, tag, command, state


# --- show -----------------------------------------------------------------------------------------------------------


def snapshot_lines(snapshot: Snapshot, name: str, properties: DeviceProperties | None) -> Iterator[str]:
    """Everything in a slab that is not zero, by name and with units."""
    yield printable(name)
    yield from _who_lines(snapshot, properties)
    nd = [(c, v) for c, v in zip(layout.ND, snapshot.nd_counters, strict=True) if v]
    if nd:
        yield from ("", "device counters")
        yield from _counter_lines(nd)
    logical = properties.logical_config if properties else None
    latencies = False
    for core in range(layout.MAX_CORES):
        used = [(c, v) for c, v in zip(layout.NC, snapshot.nc_counters(core), strict=True) if v]
        if used:
            latencies |= any(c.kind == layout.LAST_VALUE for c, _ in used)
            yield from ("", f"core {core}" + (f" (half of logical core {core // logical})" if logical == 2 else ""))
            yield from _counter_lines(used)
    yield from _model_lines(snapshot)
    if latencies:
        yield ""
        yield "Last values (latency_device, latency_total, nc_time, cc_time) are shown in us: this project's reading;"
        yield "the format names no unit for them."


def _who_lines(snapshot: Snapshot, properties: DeviceProperties | None) -> Iterator[str]:
    info = snapshot.process_info
    rows = []
    if properties:
        rows.append(("on", device_line(properties)))
    rows.append(("tag", printable(snapshot.tag) if snapshot.tag else "none"))
    kind = f" (type {info.framework_type})" if info is not None else ""
    rows += [
        ("runtime", _version(snapshot.runtime_version)),
        ("framework", _version(info.framework_version if info else None) + kind),
        ("fal", _version(info.fal_version if info else None)),
    ]
    rows.append(("layout", _LAYOUTS[snapshot.layout]))
    if snapshot.generation is not None:
        rows.append(("generation", str(snapshot.generation)))
    rows += [("records", line) for line in _record_lines(snapshot)]
    yield from (f"  {key:<11}{value}" for key, value in rows)


def _version(version: Version | None) -> str:
    """A version; - where nobody has published one."""
    return str(version) if version and any(version) else "-"


_LAYOUTS = {
    "current": "current",
    "older": "older: the extension counters lie in the pad, off alignment; one may be read half updated",
    "mixed": "mixed: a fault, see neuron-ds check; the current one is read",
}


def _record_lines(snapshot: Snapshot) -> Iterator[str]:
    """How the records were read: how many of each state, and which where it is not as it should be."""
    states = snapshot.states()
    counts = Counter(states.values())
    yield ", ".join(f"{n} {state.name.lower()}" for state, n in sorted(counts.items())) or "none"
    for record, state in states.items():
        if state == RecordState.STALE:
            yield f"{record_name(record)} is torn; what is shown is an earlier copy"
        elif state == RecordState.TORN:
            yield f"{record_name(record)} is torn; not shown, see neuron-ds check"
        elif state == RecordState.UNPUBLISHED and record != RECORD_PROCESS_INFO_EXT:
            yield f"{record_name(record)} is not published"


def record_name(record: int) -> str:
    """What a record of a blob is called."""
    names = {RECORD_PROCESS_INFO: "process info", RECORD_PROCESS_INFO_EXT: "process info ext"}
    return names.get(record, f"model slot {record}")


def counter_value(counter: CounterDef, value: int) -> str:
    """A counter with its unit, in the form its kind asks for."""
    if counter.kind == layout.BITMAP:
        return f"{value:#x}"
    if counter.unit == "bytes":
        return f"{size(value)}" if value < 1024 else f"{size(value)} ({value:,})"
    if counter.unit == "us":
        return f"{value:,} us"
    if counter.name.endswith("_version") and counter.kind == layout.INFO and "neff" not in counter.name:
        return str(Version.unpack(value))
    return f"{value:,}"


def _counter_lines(counters: Sequence[tuple[CounterDef, int]]) -> Iterator[str]:
    values = [counter_value(c, v) for c, v in counters]
    name_width = max(len(c.name) for c, _ in counters)
    value_width = max(map(len, values))
    for (counter, _), value in zip(counters, values, strict=True):
        yield f"  {counter.name:<{name_width}}  {value:>{value_width}}  {counter.help}"


def _model_lines(snapshot: Snapshot) -> Iterator[str]:
    models = snapshot.models
    if not models:
        return
    yield from ("", "models")
    header = ("SLOT", "CORE", "NAME", "ID", "NODE", "SG", "UUID", "DEVICE", "HOST")
    rows = []
    for slot, model in models.items():
        host, device = (sum(cell[0] for cell in row) for row in model.mem_usage)
        identity = (str(model.model_id), str(model.model_node_id), str(model.sg_index), model.uuid.hex())
        rows.append((str(slot), str(model.nc_index), printable(model.name), *identity, size(device), size(host)))
    yield from table(header, rows, right="SLOT CORE ID NODE SG DEVICE HOST")
    if memory := list(_memory_rows(models)):
        yield from ("", "memory of models")
        yield from table(("SLOT", "WHERE", "WHAT"), memory, right="SLOT")


def _memory_rows(models: dict[int, ModelNode]) -> Iterator[tuple[str, str, str]]:
    for slot, model in models.items():
        for where, row in zip(layout.MEM_LOCATIONS, model.mem_usage, strict=True):
            used = [(_mem_slot_name(i), *cell) for i, cell in enumerate(row) if any(cell)]
            cells = [f"{name} {size(total)} in {plural(chunks, 'chunk')}" for name, total, chunks in used]
            if cells:
                yield str(slot), where, ", ".join(cells)


def _mem_slot_name(slot: int) -> str:
    return layout.MEM_SLOT_NAMES[slot] if slot < len(layout.MEM_SLOT_NAMES) else f"slot {slot}"
