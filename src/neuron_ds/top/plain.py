"""One picture as plain text or as JSON, for pipes, logs and terminals that can't do more. Needs no Textual."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from neuron_ds.diagnose.finding import Finding
from neuron_ds.live.details import memory_tree
from neuron_ds.live.frame import Cell, Frame, ProcessFrame, SlabFrame
from neuron_ds.live.history import Past
from neuron_ds.top import blocks, tables
from neuron_ds.top.blocks import View
from neuron_ds.top.text import PLAIN_SIGNS, Block, plain, safe

WIDTH = 120
LEAST_WIDTH = 60
#: What of a Frame is for rules and details, and not for programs that read JSON.
_INNER = ("sample", "look", "earlier")


def lines(frame: Frame, title: str, width: int = WIDTH, *, signs: bool = True) -> Iterator[str]:
    """All blocks of all processes, nothing folded and nothing cut off below. ``signs``: more than ASCII."""
    for line in _lines(frame, title, max(width, LEAST_WIDTH)):
        yield (line if signs else line.translate(PLAIN_SIGNS)).rstrip()


def _lines(frame: Frame, title: str, width: int) -> Iterator[str]:
    view = View(period_s=0)
    yield plain(blocks.header(frame, view, title, width))
    if frame.empty or frame.error:
        yield ""
        yield from tables.wrapped(frame.empty or frame.error, width)
        if not frame.devices:
            return
    yield ""
    yield from _block(blocks.cores(frame, view, width))
    yield ""
    yield plain(blocks.vcpu(frame, view))
    yield from map(plain, blocks.memory(frame, view, width))
    yield ""
    nodes = memory_tree(frame)
    yield from _block(tables.tree(nodes, frozenset(tables.parents(nodes)), width))
    if frame.processes:
        yield ""
        yield from _block(tables.processes(frame, view, width))
    for finding in frame.findings:
        yield ""
        yield from tables.wrapped(safe(f"! {finding.kind}: {finding.message}; next: {finding.advice}"), width)
    if frame.events:
        yield ""
        yield from _block(blocks.events(frame, view, width))


def _block(block: Block) -> Iterator[str]:
    yield from map(plain, block.fixed)
    yield from (plain(row.line) for row in block.rows)


def as_dict(frame: Frame) -> dict[str, object]:
    """A Frame as plain values, its fields by their names; null is not known."""
    return {f.name: _value(getattr(frame, f.name), frame) for f in fields(frame) if f.name not in _INNER}


def _value(value: object, frame: Frame) -> object:
    if isinstance(value, Finding):
        return value.to_dict(frame.time_ns)
    if isinstance(value, (Cell, ProcessFrame, SlabFrame)):
        return {name: _value(item, frame) for name, item in value._asdict().items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _value(getattr(value, f.name), frame) for f in fields(value)}
    if isinstance(value, (tuple, list, Past)):
        return [_value(item, frame) for item in value]
    return value
