"""Every rule of the format, held against the bytes of one slab: what breaks it, and what is merely worth knowing.

``check`` is pure: bytes in, findings out, each with its rule and its byte offset; nothing makes it raise. What a
finding means for an exit code is decided above. This module knows the layout, the records and the Snapshot; no file, no
driver, no process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from neuron_ds import _core, layout
from neuron_ds.errors import FormatError, TooShort
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Record
from neuron_ds.snapshot import RECORD_PROCESS_INFO, RECORD_PROCESS_INFO_EXT, RecordState, Snapshot

#: Every rule by its name, with what it says. The first three are faults only; those behind them notes only.
RULES = {
    "size": "a slab has at least the bytes of the blob",
    "header": "the first word is the signature and the version this reader knows",
    "hash": "a record in use matches the hash at its start",
    "pad": "the pad is zero, or holds the extension of an older runtime and today's extension is zero",
    "tail": "what follows the blob in a slab is zero",
    "padding": "padding inside a record is zero; it carries nothing, and the hash covers it",
    "clear-bit": "a model record whose bit is clear is zero",
    "reserved": "a reserved counter or word is zero",
    "older-layout": "the extension counters lie where today's layout puts them",
    "unpublished": "a model record whose bit is set has been published",
}

#: Faults of these rules mean that nothing else could be looked at.
UNREADABLE = frozenset({"size", "header"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found. kind: "fault" breaks the format; "note" is allowed. offset: its first byte in the slab."""

    kind: Literal["fault", "note"]
    rule: str
    offset: int
    message: str

    def to_dict(self) -> dict[str, object]:
        return {"kind": self.kind, "rule": self.rule, "offset": self.offset, "message": self.message}


def check(raw_blob: bytes | bytearray | memoryview, tail: bytes | bytearray | memoryview = b"") -> list[Finding]:
    """All findings in a blob and in what follows it up to the slab's end, by offset.

    Bytes that are no slab give one fault of a rule in ``UNREADABLE`` and nothing else.
    """
    try:
        snapshot = Snapshot.from_bytes(raw_blob)
    except FormatError as e:
        short = isinstance(e, TooShort)
        return [Finding("fault", "size" if short else "header", len(raw_blob) if short else 0, e.message)]
    return check_snapshot(snapshot, tail)


def check_snapshot(snapshot: Snapshot, tail: bytes | bytearray | memoryview = b"") -> list[Finding]:
    """As ``check``, for a Snapshot: a record that a live producer was rewriting is judged as the reader judged it."""
    found = [*_counters(snapshot), *_records(snapshot), *_pad(snapshot), *_tail(tail)]
    return sorted(found, key=lambda f: f.offset)


# --- Records ------------------------------------------------------------------------------------------------------


def _records(snapshot: Snapshot) -> Iterator[Finding]:
    bitmap = snapshot.model_bitmap
    for slot in range(layout.MAX_MODELS):
        offset, what = layout.model_offset(slot), f"model slot {slot}"
        if bitmap >> slot & 1:
            yield from _record(snapshot, slot, ModelNode, offset, what)
            if snapshot.state(slot) == RecordState.UNPUBLISHED:
                yield Finding(
                    "note", "unpublished", offset, f"{what} is in use but its record is zero: nobody has published it"
                )
        else:
            data = bytes(snapshot.raw[offset : offset + ModelNode.SIZE])
            if any(data):
                kind = "a good record" if ModelNode.decode(data).is_intact else "a record that matches no hash"
                yield Finding("note", "clear-bit", offset, f"{what} is not in use but holds {kind}; readers skip it")
    for record, region, kind_of in (
        (RECORD_PROCESS_INFO, layout.PROCESS_INFO, ProcessInfo),
        (RECORD_PROCESS_INFO_EXT, layout.PROCESS_INFO_EXT, ProcessInfoExt),
    ):
        yield from _record(snapshot, record, kind_of, region.offset, region.name.replace("_", " "))


def _record(snapshot: Snapshot, number: int, kind: type[Record], offset: int, what: str) -> Iterator[Finding]:
    state = snapshot.state(number)
    if state in (RecordState.TORN, RecordState.STALE):
        record = kind.decode(snapshot.raw[offset : offset + kind.SIZE])
        yield Finding(
            "fault",
            "hash",
            offset,
            f"{what} is torn: its hash says {record.hash:#010x}, its bytes give {_core.record_hash(record.raw):#010x}",
        )
    elif state in (RecordState.EXACT, RecordState.RETRIED):
        for at, data in kind.decode(snapshot.raw[offset : offset + kind.SIZE]).padding():
            at += _first_nonzero(data) or 0
            yield Finding("note", "padding", offset + at, f"{what} has padding that is not zero, at its byte {at}")


# --- Counters -----------------------------------------------------------------------------------------------------


def _counters(snapshot: Snapshot) -> Iterator[Finding]:
    for counter in layout.ND:
        if counter.kind == layout.RESERVED and (value := snapshot.nd(counter.index)):
            yield _reserved(layout.nd_index(counter.index) * 8, f"device counter {counter.index}", value)
    older = snapshot.layout == "older"
    reserved = [c.index for c in layout.NC if c.kind == layout.RESERVED]
    for core in range(layout.MAX_CORES):
        values = snapshot.nc_counters(core)
        for index in reserved:
            if value := values[index]:
                at = layout.older_nc_offset(core, index) if older else layout.nc_index(core, index) * 8
                yield _reserved(at, f"core {core} counter {index}", value)
        behind = _word_behind(core, older)
        if behind is not None and (value := int.from_bytes(snapshot.raw[behind : behind + 8], "little")):
            yield _reserved(behind, f"the word behind core {core}'s counters", value)


def _word_behind(core: int, older: bool) -> int | None:
    """Byte offset of the word that follows a core's last counter in its section and belongs to none."""
    last = layout.NC_COUNTERS - 1
    if older:
        return layout.older_nc_offset(core, last) + 8
    return (layout.nc_index(core, last) + 1) * 8 if core >= layout.BASE_CORES else None


def _reserved(offset: int, what: str, value: int) -> Finding:
    return Finding("note", "reserved", offset, f"{what} is reserved but holds {value}; a newer runtime may use it")


# --- What should be empty -----------------------------------------------------------------------------------------


def _pad(snapshot: Snapshot) -> Iterator[Finding]:
    pad = bytes(snapshot.raw[layout.PAD.offset : layout.PAD.end])
    if snapshot.layout == "older":
        yield Finding(
            "note",
            "older-layout",
            layout.PAD.offset,
            "the extension counters lie in the pad: an older runtime; off alignment, so one may be read half updated",
        )
    elif snapshot.layout == "mixed":
        gap = layout.OLDER_EXT_NC_DATA.end - layout.PAD.offset
        if (at := _first_nonzero(pad[gap:])) is not None:
            at, why = at + gap, "where no layout keeps anything"
        else:
            at = _first_nonzero(pad) or 0
            why = "and so is today's extension: two layouts at once; the current one is read"
        yield Finding("fault", "pad", layout.PAD.offset + at, f"the pad is not zero {why}")


def _tail(tail: bytes | bytearray | memoryview) -> Iterator[Finding]:
    if (at := _first_nonzero(tail)) is not None:
        offset = layout.REQUIRED_SIZE + at
        yield Finding("fault", "tail", offset, f"the slab is not zero behind the blob: {tail[at]:#04x} is the first")


def _first_nonzero(data: bytes | bytearray | memoryview) -> int | None:
    data = bytes(data)
    rest = data.lstrip(b"\0")
    return len(data) - len(rest) if rest else None
