"""A Snapshot: one slab at one moment, decoded on demand, and how it was read.

It is made from bytes: a live slab's copy, a file, a recording. Nothing is decoded until somebody asks, and nothing
is ever written. This module knows the layout and the records; it knows no driver and opens no slab.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

from neuron_ds import _core, layout
from neuron_ds.errors import BadIndex, FormatError, NotReady, TooShort, WrongVersion
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Version, printable

#: Numbers of a blob's records: 0-63 the model slots, then these two.
RECORD_PROCESS_INFO = layout.MAX_MODELS
RECORD_PROCESS_INFO_EXT = layout.MAX_MODELS + 1
RECORDS = layout.MAX_MODELS + 2

_OLDER_END = layout.OLDER_EXT_NC_DATA.end
_ZERO_PAD = bytes(layout.PAD.size)
_ZERO_EXT = bytes(layout.REQUIRED_SIZE - layout.EXT_NC_REGION.offset)
_BASE_WORDS = struct.Struct(f"<{layout.BASE_NC_COUNTERS}Q")
_EXT_WORDS = struct.Struct(f"<{layout.EXT_NC_COUNTERS}Q")
_ALL_WORDS = struct.Struct(f"<{layout.NC_COUNTERS}Q")
_ND_WORDS = struct.Struct(f"<{layout.ND_COUNTERS}Q")


class RecordState(IntEnum):
    """How one record was read (csrc/nds_core.h, enum nds_state)."""

    ABSENT = 0  #: its model bit is clear
    UNPUBLISHED = 1  #: all zero: nobody has published it
    EXACT = 2  #: matched its hash
    RETRIED = 3  #: matched at the second read
    STALE = 4  #: torn; an earlier consistent copy of the same use of the slot is shown
    TORN = 5  #: torn, and there is nothing to show

    @property
    def has_value(self) -> bool:
        return RecordState.EXACT <= self <= RecordState.STALE


_READABLE = frozenset(int(s) for s in RecordState if s.has_value)
_STALE, _TORN = int(RecordState.STALE), int(RecordState.TORN)
_NC_INDEX = next(f.offset for f in layout.MODEL_FIELDS if f.name == "nc_index")


def header_error(
    header: int, *, device: int | None = None, pid: int | None = None, slot: int | None = None
) -> FormatError | None:
    """Why a blob with this header word can't be read: NotReady, WrongVersion, or None for the version we know."""
    if header == layout.HEADER_WORD:
        return None
    if header & 0xFFFF_FFFF == layout.HEADER_WORD & 0xFFFF_FFFF:
        return WrongVersion(
            f"the slab is of version {header >> 32}, this reader knows {layout.VERSION}; use a reader of that version",
            device=device,
            pid=pid,
            slot=slot,
        )
    what = "zero: its producer has not stamped it yet" if header == 0 else f"{header:#018x}: this is no slab"
    return NotReady(f"the header at offset 0 is {what}", device=device, pid=pid, slot=slot)


def check_header(header: int, *, device: int | None = None, pid: int | None = None, slot: int | None = None) -> None:
    """Raise NotReady or WrongVersion (EINVAL) unless this is the header word of the version we know."""
    if (error := header_error(header, device=device, pid=pid, slot=slot)) is not None:
        raise error


class Origin(NamedTuple):
    """Whose slab a snapshot shows; what is not known is None, as is the generation where the driver counts none."""

    device: int | None = None
    pid: int | None = None
    slot: int | None = None
    generation: int | None = None


_UNKNOWN = Origin()


class CoreView:
    """The counters of one core in a snapshot: by name as attributes, by index with ``counter``."""

    __slots__ = ("_snapshot", "core")

    def __init__(self, snapshot: Snapshot, core: int) -> None:
        self._snapshot, self.core = snapshot, core

    def __getattr__(self, name: str) -> int:
        counter = layout.NC_BY_NAME.get(name)
        if counter is None:
            raise AttributeError(f"a core has no counter {name!r}; see layout.NC")
        return self._snapshot.nc(self.core, counter.index)

    def counter(self, index: int) -> int:
        return self._snapshot.nc(self.core, index)

    def items(self) -> Iterator[tuple[str, int]]:
        """(name, value) of all 95 counters."""
        return zip((c.name for c in layout.NC), self._snapshot.nc_counters(self.core), strict=True)


class Snapshot:
    """One slab at one moment. Immutable; whatever is asked is decoded then.

    Counters are not one transaction: each is exact, all lie within the few microseconds of the copy.
    """

    __slots__ = ("_layout", "_origin", "_raw", "_stale", "_states", "_time_ns", "_words")

    def __init__(
        self,
        raw: bytes | memoryview,
        origin: Origin = _UNKNOWN,
        time_ns: int | None = None,
        states: bytes | None = None,
        stale: Mapping[int, bytes] | None = None,
    ) -> None:
        """Wraps a copy of a blob that is already known to have a good header; see ``from_bytes`` for any other."""
        self._raw = raw
        self._origin = origin
        self._time_ns = time_ns
        self._states = states
        self._stale = stale
        self._words: memoryview | None = None
        self._layout: str | None = None

    @classmethod
    def from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        *,
        device: int | None = None,
        pid: int | None = None,
        slot: int | None = None,
    ) -> Snapshot:
        """A snapshot of these bytes; what follows the blob is left out.

        Raises TooShort, NotReady or WrongVersion, each naming what and where.
        """
        if len(data) < layout.REQUIRED_SIZE:
            raise TooShort(
                f"holds {len(data)} bytes, and a slab has {layout.REQUIRED_SIZE}; dump it again, whole",
                device=device,
                pid=pid,
                slot=slot,
            )
        raw = bytes(data[: layout.REQUIRED_SIZE])
        check_header(int.from_bytes(raw[:8], "little"), device=device, pid=pid, slot=slot)
        return cls(raw, Origin(device, pid, slot))

    @classmethod
    def from_file(cls, path: str | Path) -> Snapshot:
        """A snapshot of a dumped slab. Raises as ``from_bytes`` does, and OSError where the file can't be read."""
        with open(path, "rb") as f:
            data = f.read(layout.REQUIRED_SIZE)
        try:
            return cls.from_bytes(data)
        except FormatError as e:
            raise type(e)(e.message, path=str(path)) from None

    # --- whose and when --------------------------------------------------------------------------------------------

    @property
    def device(self) -> int | None:
        return self._origin.device

    @property
    def pid(self) -> int | None:
        """The producer's pid, in its own pid namespace."""
        return self._origin.pid

    @property
    def slot(self) -> int | None:
        return self._origin.slot

    @property
    def generation(self) -> int | None:
        """The slot's, None where the driver does not count."""
        return self._origin.generation

    @property
    def time_ns(self) -> int | None:
        """CLOCK_MONOTONIC when the copy was finished, None for bytes of unknown age."""
        return self._time_ns

    def __reduce__(self) -> tuple[type[Snapshot], tuple[object, ...]]:
        """For pickle and copy: the bytes are taken along, not the memory of a pass they may lie in."""
        return type(self), (bytes(self._raw), self._origin, self._time_ns, self._states, self._stale)

    def __repr__(self) -> str:
        o = self._origin
        known = [("device", o.device), ("pid", o.pid), ("slot", o.slot), ("generation", o.generation)]
        where = " ".join(f"{name} {value}" for name, value in known if value is not None)
        return f"<Snapshot {where or 'of bytes'} tag {self.tag!r}>"

    # --- bytes and words -------------------------------------------------------------------------------------------

    @property
    def raw(self) -> bytes | memoryview:
        """The blob as read, torn records included."""
        return self._raw

    def word(self, index: int) -> int:
        """The u64 at a word index of the blob."""
        if self._words is None:
            self._words = memoryview(self._raw).cast("Q")
        if not 0 <= index < layout.REQUIRED_WORDS:
            raise BadIndex(f"word {index} is outside the blob of {layout.REQUIRED_WORDS}")
        return int(self._words[index])

    @property
    def layout(self) -> str:
        """Where the extension counters are: "current"; "older", where they may be torn; "mixed", a fault."""
        if self._layout is None:
            pad = bytes(self._raw[layout.PAD.offset : layout.PAD.end])
            if pad == _ZERO_PAD:
                self._layout = "current"
            else:
                ext_empty = self._raw[layout.EXT_NC_REGION.offset :] == _ZERO_EXT
                gap = pad[_OLDER_END - layout.PAD.offset :]
                self._layout = "older" if ext_empty and not any(gap) else "mixed"
        return self._layout

    # --- counters --------------------------------------------------------------------------------------------------

    def nd(self, counter: int) -> int:
        """Device counter 0-30. Raises BadIndex (EINVAL)."""
        return self.word(layout.nd_index(counter))

    def nc(self, core: int, counter: int) -> int:
        """Counter 0-94 of physical core 0-15. Raises BadIndex (EINVAL)."""
        index = layout.nc_index(core, counter)
        in_base = core < layout.BASE_CORES and counter < layout.BASE_NC_COUNTERS
        if in_base or self.layout != "older":
            return self.word(index)
        at = layout.older_nc_offset(core, counter)
        return int.from_bytes(self._raw[at : at + 8], "little")

    def core(self, core: int) -> CoreView:
        """All counters of one physical core, by name."""
        layout.nc_index(core, 0)
        return CoreView(self, core)

    @property
    def nd_counters(self) -> tuple[int, ...]:
        """All 31 device counters."""
        return _ND_WORDS.unpack_from(self._raw, layout.ND_REGION.offset)

    def nc_counters(self, core: int) -> tuple[int, ...]:
        """All 95 counters of one physical core."""
        older = self.layout == "older"
        if core >= layout.BASE_CORES:
            at = layout.older_nc_offset(core, 0) if older else layout.nc_index(core, 0) * 8
            return _ALL_WORDS.unpack_from(self._raw, at)
        at = layout.nc_index(core, 0) * 8
        first = layout.BASE_NC_COUNTERS
        ext = layout.older_nc_offset(core, first) if older else layout.nc_index(core, first) * 8
        return _BASE_WORDS.unpack_from(self._raw, at) + _EXT_WORDS.unpack_from(self._raw, ext)

    # --- records ---------------------------------------------------------------------------------------------------

    @property
    def model_bitmap(self) -> int:
        """Bit s: model slot s is in use."""
        return self.word(layout.MODEL_BITMAP.offset // 8)

    def state(self, record: int) -> RecordState:
        """How a record was read: model slots 0-63, then RECORD_PROCESS_INFO and RECORD_PROCESS_INFO_EXT."""
        if not 0 <= record < RECORDS:
            raise BadIndex(f"record {record} does not exist; there are {RECORDS}, from 0")
        return RecordState(self._verified()[record])

    def states(self) -> dict[int, RecordState]:
        """The state of every record that is not absent."""
        return {r: s for r in range(RECORDS) if (s := self.state(r)) != RecordState.ABSENT}

    @property
    def torn(self) -> dict[int, RecordState]:
        """The records that were torn: STALE where an earlier copy is shown for it, TORN where nothing is."""
        states = self._verified()
        if _TORN not in states and _STALE not in states:
            return {}
        return {r: RecordState(s) for r, s in enumerate(states) if s in (_TORN, _STALE)}

    def models_by_core(self) -> dict[int, int]:
        """How many models there are on each physical core that has any; no record is decoded for it."""
        found: dict[int, int] = {}
        states, raw = self._verified(), self._raw
        bitmap = self.model_bitmap
        while bitmap:
            slot = (bitmap & -bitmap).bit_length() - 1
            bitmap &= bitmap - 1
            if states[slot] == _STALE and self._stale is not None:
                core = self._stale[slot][_NC_INDEX]
            elif states[slot] in _READABLE:
                core = raw[layout.MODELS.offset + slot * layout.MODEL_SIZE + _NC_INDEX]
            else:
                continue
            found[core] = found.get(core, 0) + 1
        return found

    def _verified(self) -> bytes:
        """The state of each record, one byte each."""
        if self._states is None:
            self._states = _core.verify(self._raw)
        return self._states

    def _bytes_of(self, record: int, offset: int, size: int) -> bytes | None:
        state = self._verified()[record]
        if state == _STALE:
            assert self._stale is not None
            return self._stale[record]
        return bytes(self._raw[offset : offset + size]) if state in _READABLE else None

    @property
    def said(self) -> tuple[bytes, bytes, bytes]:
        """The bytes that ``tag`` and ``runtime_version`` come from: cheaper to compare than those are to decode."""
        info = self._bytes_of(RECORD_PROCESS_INFO, layout.PROCESS_INFO.offset, layout.PROCESS_INFO_SIZE)
        ext = self._bytes_of(RECORD_PROCESS_INFO_EXT, layout.PROCESS_INFO_EXT.offset, layout.PROCESS_INFO_EXT_SIZE)
        at = layout.nd_index(layout.ND_BY_NAME["runtime_version"].index) * 8
        return info or b"", ext or b"", bytes(self._raw[at : at + 8])

    def model(self, slot: int) -> ModelNode | None:
        """The model in a slot, None where ``state(slot)`` says there is none to show. Raises BadIndex (EINVAL)."""
        data = self._bytes_of(slot, layout.model_offset(slot), layout.MODEL_SIZE)
        return None if data is None else ModelNode(data)

    @property
    def models(self) -> dict[int, ModelNode]:
        """Every model that can be shown, by slot. Torn and unpublished ones are missing: ``states`` names them."""
        found, at, size = {}, layout.MODELS.offset, layout.MODEL_SIZE
        for slot, state in enumerate(self._verified()[: layout.MAX_MODELS]):
            if state in _READABLE and (data := self._bytes_of(slot, at + slot * size, size)) is not None:
                found[slot] = ModelNode._of(data)
        return found

    @property
    def process_info(self) -> ProcessInfo | None:
        data = self._bytes_of(RECORD_PROCESS_INFO, layout.PROCESS_INFO.offset, layout.PROCESS_INFO_SIZE)
        return None if data is None else ProcessInfo(data)

    @property
    def process_info_ext(self) -> ProcessInfoExt | None:
        data = self._bytes_of(RECORD_PROCESS_INFO_EXT, layout.PROCESS_INFO_EXT.offset, layout.PROCESS_INFO_EXT_SIZE)
        return None if data is None else ProcessInfoExt(data)

    @property
    def tag(self) -> str | None:
        """The name the process goes by: its long tag, else the short one, else its pid; None with none of them."""
        ext, info = self.process_info_ext, self.process_info
        tag = (ext.tag if ext else "") or (info.tag if info else "")
        return tag or (None if self.pid is None else str(self.pid))

    @property
    def runtime_version(self) -> Version | None:
        """From process info, else from the packed device counter, None where neither is set."""
        info = self.process_info
        if info is not None and any(info.runtime_version):
            return info.runtime_version
        word = self.nd(layout.ND_BY_NAME["runtime_version"].index)
        return Version.unpack(word) if word else None

    # --- all of it -------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Everything as plain values. A record that cannot be shown is null; ``records`` says why."""
        info, ext = self.process_info, self.process_info_ext
        names = {RECORD_PROCESS_INFO: "process_info", RECORD_PROCESS_INFO_EXT: "process_info_ext"}
        tag = self.tag
        return {
            "version": layout.VERSION,
            "layout": self.layout,
            "device": self.device,
            "pid": self.pid,
            "slot": self.slot,
            "generation": self.generation,
            "time_ns": self.time_ns,
            "tag": None if tag is None else printable(tag),
            "nd": list(self.nd_counters),
            "nc": [list(self.nc_counters(core)) for core in range(layout.MAX_CORES)],
            "process_info": info.to_dict() if info else None,
            "process_info_ext": ext.to_dict() if ext else None,
            "models": [{"slot": slot, **model.to_dict()} for slot, model in self.models.items()],
            "model_bitmap": self.model_bitmap,
            "records": {names.get(r, f"model_{r}"): s.name.lower() for r, s in self.states().items()},
        }
