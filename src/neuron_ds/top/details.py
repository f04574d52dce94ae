"""The detail screens as lines of text: all there is to say of a process, and every counter of a core.

Pure functions of a Frame and of what ``live.details`` decodes from it. Nothing here knows a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from neuron_ds import layout
from neuron_ds.diagnose.finding import Finding
from neuron_ds.live.details import CounterLine, core_counters, process_details
from neuron_ds.live.frame import DEVICE_MEMORY, HOST_MEMORY, Cell, DeviceFrame, Event, Frame, ProcessFrame, SlabFrame
from neuron_ds.top import text as t
from neuron_ds.top.blocks import LOOKS, SEVERITY_LOOKS, event_line, memory_name, name_of
from neuron_ds.top.tables import STATE_LOOKS, wrapped
from neuron_ds.top.text import Block, Line, Row, safe

GONE = "it is not there any more; what it was counted is in its devices' totals"
_KEY = 18
_CHART_LINES = 4
_EVENTS = 8


def process_block(frame: Frame, id: str, width: int) -> Block:
    """A process: who it is, what it does, its slabs, models, counters by name with rate and total, its events."""
    process, more = frame.process(id), process_details(frame, id)
    if process is None or more is None:
        return Block((_title("Process"),), (_row(GONE),))
    title = _title(f"Process {name_of(process)}", f"  pid {process.pid}")
    rows: list[Row] = []
    state = f"{process.state}: {process.error}" if process.error else process.state
    rows += _pair("state", state, width, STATE_LOOKS.get(process.state, "red" if process.error else ""))
    rows += _findings([f for f in frame.findings if frame.concerns(f, process)], width)
    who = more.identity
    pod = f"{who.namespace}/{who.pod}" if who.pod else who.pod_uid
    for key, value in (
        ("tag", more.tag),
        ("command", who.command),
        ("user", who.user),
        ("container", who.container or who.container_id),
        ("pod", pod),
        ("pid namespace", "another one: its pid means nothing here" if process.foreign else ""),
        *(
            (f"{name} version" if name in ("runtime", "framework", "fal") else name, v)
            for name, v in more.versions.items()
        ),
        *((name, f"not read exactly: {state}") for name, state in more.records.items()),
    ):
        if value:
            rows += _pair(key, safe(value), width)
    rows += _rates(process, width)
    rows += _memory(process, width)
    rows += _section("Slabs", "ND   SLOT  CORES             MODELS")
    rows += [_slab(slab, width) for slab in process.slabs]
    if more.models:
        rows += _section(
            "Models", f"{'NAME':{max(12, width - 46)}}  {'ID':>6} {'NODE':>6}  ND   NC {'DEVICE':>8} {'HOST':>8}"
        )
    for m in more.models:
        place = f"{m.model_id:6} {m.node_id:6}  {m.device:<4} {m.core:<2}"
        name = t.left(safe(m.name) or "-", max(12, width - 46))
        rows.append(_row(f"{name}  {place} {t.size(m.device_bytes):>8} {t.size(m.host_bytes):>8}"))
    rows += _section("Counters, summed over its cores and devices", _counter_heading(width))
    rows += [_counter(c, width) for c in more.counters]
    rows += _events(frame, width, lambda e: e.process == process.id)
    return Block((title,), tuple(rows))


def core_block(frame: Frame, device: int, core: int, width: int, process_id: str | None = None) -> Block:
    """A logical core: what it does and did, who uses it, and all counters of the physical cores it is made of."""
    found = frame.by_device.get(device)
    cell = next((c for c in found.cells if c.core == core), None) if found else None
    if found is None or cell is None:
        return Block((_title(f"Core ND{device} NC{core}"),), (_row(GONE),))
    physical = ", ".join(map(str, cell.physical))
    title = _title(f"Core ND{device} NC{core}", f"  {found.type}  physical {physical}")
    rows: list[Row] = []
    rows += _pair("state", cell.state, width, LOOKS.get(cell.state, ""))
    rows += _findings([f for f in frame.findings if f.device == device and f.core in cell.physical], width)
    rows += _pair("utilization", t.fine_share(cell.utilization), width)
    rows += _pair("TFLOP/s", t.tera(cell.flops_s), width)
    rows += _pair("executions/s", t.rate(cell.executions_s), width)
    rows += _pair("errors/s", t.rate(cell.errors_s), width, "red" if cell.errors_s else "")
    rows += _kinds("device memory", DEVICE_MEMORY, cell.memory, width)
    rows += _history(found, cell, width)
    lines = core_counters(frame, device, core, process_id)
    if not lines:
        rows += _section("Counters", "no process that can be read uses this core")
    for (id, number), counters in groupby(lines, key=lambda line: (line.process, line.physical)):
        process = frame.process(id)
        who = f"{name_of(process)} (pid {process.pid})" if process else id
        rows += _section(f"Physical core {number} as {who} counts it", _counter_heading(width))
        rows += [_counter(c, width) for c in counters]
    rows += _events(frame, width, lambda e: e.device == device and e.core == core)
    return Block((title,), tuple(rows))


# --- Parts of both ----------------------------------------------------------------------------------------------------


def _title(text: str, more: str = "") -> Line:
    return ((text, "bold"), (more, ""))


def _row(text: str, look: str = "") -> Row:
    return Row(((text, look),))


def _pair(key: str, value: str, width: int, look: str = "") -> Iterator[Row]:
    for i, line in enumerate(wrapped(value, max(20, width - _KEY))):
        yield Row(((t.left("" if i else key, _KEY), "dim"), (line, look)))


def _section(title: str, heading: str = "") -> Iterator[Row]:
    yield _row("")
    yield _row(title, "bold")
    if heading:
        yield _row(heading, "dim")


def _findings(findings: Sequence[Finding], width: int) -> Iterator[Row]:
    for f in findings:
        look = SEVERITY_LOOKS[f.severity.name.lower()]
        yield from _pair(f"! {f.kind}", safe(f"{f.message}; next: {f.advice}"), width, look)


def _kinds(title: str, kinds: Sequence[str], values: Sequence[int], width: int) -> Iterator[Row]:
    figures = [f"{memory_name(kind)} {t.size(n)}" for kind, n in zip(kinds, values, strict=True)]
    yield from _pair(title, ", ".join([f"total {t.size(sum(values))}", *figures]), width)


def _rates(p: ProcessFrame, width: int) -> Iterator[Row]:
    spark = max(0, min(120, width - _KEY - 26))
    for key, value, history in (
        ("executions/s", t.rate(p.executions_s), p.executions_history),
        ("latency", f"p50 {t.latency(p.latency_p50_us)}  p99 {t.latency(p.latency_p99_us)}", p.latency_history),
    ):
        drawn = t.spark(history, min(spark, len(history)))
        yield Row(((t.left(key, _KEY), "dim"), (t.left(value, 24), ""), (f"  {drawn}", "cyan")))
    yield from _pair("utilization", f"{t.fine_share(p.utilization)} of {len(p.cells)} cores", width)
    yield from _pair("TFLOP/s", t.tera(p.flops_s), width)
    yield from _pair("errors", f"{p.errors} in all, {t.rate(p.errors_s)}/s", width, "red" if p.errors else "")
    yield from _pair("vCPU", f"user {t.fine_share(p.vcpu_user)}  system {t.fine_share(p.vcpu_system)}", width)


def _memory(p: ProcessFrame, width: int) -> Iterator[Row]:
    yield from _kinds("host memory", HOST_MEMORY, p.host_memory, width)
    yield from _kinds("device memory", DEVICE_MEMORY, p.device_memory, width)


def _slab(slab: SlabFrame, width: int) -> Row:
    cores = ",".join(str(cell.core) for cell in slab.cells) or "-"
    slot = "-" if slab.slot is None else str(slab.slot)
    text = f"{slab.device:<4} {slot:>4}  {cores:<16}  {slab.models:6}"
    if slab.error:
        return Row(((text, ""), (t.cut(f"  UNREADABLE: {slab.error}", width - len(text)), "bold red")))
    return _row(text)


def _history(device: DeviceFrame, cell: Cell, width: int) -> Iterator[Row]:
    histories = dict(zip((c.core for c in device.cells), device.utilization_history, strict=False))
    values = histories.get(cell.core, ())
    if not values:
        return
    yield from _section("Utilization so far, the newest to the right")
    lines = t.chart(values, min(len(values), width - 6), _CHART_LINES, 1.0)
    for i, line in enumerate(lines):
        label = "100% " if i == 0 else "  0% " if i == len(lines) - 1 else "     "
        yield Row(((label, "dim"), (line, "cyan")))


_NAME, _VALUE, _RATE = 30, 22, 12


def _counter_heading(width: int) -> str:
    return t.cut(f"{'NAME':{_NAME}} {'TOTAL':>{_VALUE}} {'PER SECOND':>{_RATE}}  WHAT IT IS", width)


def _counter(c: CounterLine, width: int) -> Row:
    """One counter; what is zero is there too, but steps back."""
    if c.kind == layout.BITMAP:
        value = f"{c.value:#x}"
    elif c.unit == "bytes" and c.value >= 1024:
        value = f"{c.value:,} ({t.size(c.value)})" if c.value < 1 << 63 else f"{c.value:,}"
    else:
        value = f"{c.value:,}" + (" us" if c.unit == "us" else "")
    per_s = "" if c.kind != layout.COUNTER else t.rate(c.rate)
    look = "" if c.value else "dim"
    if (
        c.value
        and c.kind == layout.COUNTER
        and ("err" in c.name or "fail" in c.name or c.name in ("oob", "infer_timed_out"))
    ):
        look = "red"
    used = _NAME + _VALUE + _RATE + 4
    line = f"{c.name:{_NAME}} {value:>{_VALUE}} {per_s:>{_RATE}}  "
    return Row(((line, look), (t.cut(c.help, max(0, width - used)), "dim")))


def _events(frame: Frame, width: int, wanted: Callable[[Event], bool]) -> Iterator[Row]:
    found = [e for e in reversed(frame.events) if wanted(e)][:_EVENTS]
    if found:
        yield from _section("Its last events")
        for event in found:
            yield Row(event_line(event, width))
