"""Records of a slab as values: ModelNode, ProcessInfo and ProcessInfoExt, each a frozen view over its raw bytes.

Decoding keeps the bytes and encoding gives them back, so a record survives both unchanged, whatever stands behind
a NUL or in the padding. This module knows the fields from ``layout`` and the hash from the core; it knows no slab,
no file and no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from neuron_ds import _core
from neuron_ds.errors import BadValue, TooShort
from neuron_ds.layout import (
    MEM_LOCATIONS,
    MEM_SLOTS,
    MEM_USAGE_FIELDS,
    MODEL_FIELDS,
    MODEL_SIZE,
    OBJECT_MODEL_NODE,
    OBJECT_PROCESS_INFO,
    OBJECT_PROCESS_INFO_EXT,
    PROCESS_INFO_EXT_FIELDS,
    PROCESS_INFO_EXT_SIZE,
    PROCESS_INFO_FIELDS,
    PROCESS_INFO_SIZE,
    UUID_SIZE,
    VERSION_FIELDS,
    Field,
)

if TYPE_CHECKING:
    from uuid import UUID

#: One cell of a model's memory grid: (total_size in bytes, chunk_count).
MemCell = tuple[int, int]
#: The grid: [location: host, device][slot 0-11].
MemGrid = tuple[tuple[MemCell, ...], ...]


class Version(NamedTuple):
    """A version as process info holds it; ``packed`` is the one word that ND counters 0-2 hold."""

    major: int
    minor: int
    build: int

    def packed(self, reserved: int = 0) -> int:
        """Build in bits 0-31, minor 32-39, major 40-47, ``reserved`` (e.g. the framework type) 48-63."""
        for name, value, limit in (
            ("major", self.major, 0xFF),
            ("minor", self.minor, 0xFF),
            ("build", self.build, 0xFFFF_FFFF),
            ("reserved", reserved, 0xFFFF),
        ):
            if not 0 <= value <= limit:
                raise BadValue(f"version field {name} is {value}; it holds 0 to {limit}")
        return self.build | self.minor << 32 | self.major << 40 | reserved << 48

    @classmethod
    def unpack(cls, word: int) -> Version:
        """The version in a packed word; its reserved bits are left out."""
        return cls(word >> 40 & 0xFF, word >> 32 & 0xFF, word & 0xFFFF_FFFF)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.build}"


def printable(text: str) -> str:
    """Text fit for JSON, a label, a terminal or a page: bytes that were no UTF-8 and control characters escaped."""
    if text.isprintable() and "\\" not in text:
        return text
    out = []
    for c in text:
        code = ord(c)
        if 0xDC80 <= code <= 0xDCFF:
            out.append(f"\\x{code - 0xDC00:02x}")
        elif c == "\\":
            out.append("\\\\")
        elif c.isprintable():
            out.append(c)
        else:
            out.append(c.encode("unicode_escape", "surrogatepass").decode("ascii"))
    return "".join(out)


# --- Fields to struct formats -----------------------------------------------------------------------------------

_FORMATS = {"u8": "B", "i8": "b", "u32": "I", "u64": "Q"}
_VERSION_FORMAT = "".join("2x" if f.name == "pad" else _FORMATS[f.type] for f in VERSION_FIELDS)
_MEM_FORMAT = "".join("4x" if f.name == "pad" else _FORMATS[f.type] for f in MEM_USAGE_FIELDS)


def _format(f: Field) -> str:
    if f.name == "pad":
        return f"{f.size}x"
    if f.type == "char" or (f.type == "u8" and f.count > 1):
        return f"{f.size}s"
    if f.type == "version":
        return _VERSION_FORMAT
    if f.type == "mem_usage":
        return _MEM_FORMAT * f.count
    return _FORMATS[f.type]


def _struct(fields: Iterable[Field]) -> struct.Struct:
    return struct.Struct("<" + "".join(_format(f) for f in fields))


_GRID = next(f for f in MODEL_FIELDS if f.type == "mem_usage")
_CELL = struct.Struct("<" + _MEM_FORMAT)
_MODEL = _struct(f for f in MODEL_FIELDS if f is not _GRID)
assert _MODEL.size == _GRID.offset
assert _CELL.size * _GRID.count == _GRID.size
_PROCESS_INFO = _struct(PROCESS_INFO_FIELDS)
_PROCESS_INFO_EXT = _struct(PROCESS_INFO_EXT_FIELDS)


_BYTES = (bytes, bytearray, memoryview)


def _text(data: bytes) -> str:
    return data.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _encode_text(value: str | bytes, f: Field) -> bytes:
    if isinstance(value, str):
        try:
            data = value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as e:
            raise BadValue(f"{f.name} has half a character at {e.start}: {value[e.start]!r}; it holds UTF-8") from None
    elif isinstance(value, _BYTES):
        data = bytes(value)
    else:
        raise BadValue(f"{f.name} is {value!r}; it is text or bytes")
    if len(data) > f.size:
        raise BadValue(f"{f.name} is {len(data)} bytes long; the field holds {f.size}")
    if b"\0" in data:
        raise BadValue(f"{f.name} has a NUL inside, which ends the text in the slab")
    return data.ljust(f.size, b"\0")


def _encode_int(value: int, f: Field) -> bytes:
    try:
        return struct.pack("<" + _FORMATS[f.type], value)
    except struct.error as e:
        raise BadValue(f"{f.name} is {value!r}; the field is {f.type}") from e


def _encode_version(value: Sequence[int], f: Field) -> bytes:
    try:
        return struct.pack("<" + _VERSION_FORMAT, *value)
    except struct.error as e:
        raise BadValue(f"{f.name} is {value!r}; it is major 0-255, minor 0-255, build 0-4294967295") from e


def _encode_uuid(value: bytes | str | UUID, f: Field) -> bytes:
    data = value if isinstance(value, (str, *_BYTES)) else getattr(value, "bytes", None)  # a uuid.UUID has them
    try:
        if isinstance(data, str):
            data = bytes.fromhex(data.replace("-", ""))
    except ValueError:
        data = None
    if not isinstance(data, _BYTES):
        raise BadValue(f"{f.name} is {value!r}; it is {UUID_SIZE} bytes, their hexadecimal text or a uuid.UUID")
    data = bytes(data)
    if len(data) != UUID_SIZE:
        raise BadValue(f"{f.name} is {len(data)} bytes long; the field holds exactly {UUID_SIZE}")
    return data


def _encode_grid(value: Sequence[Sequence[Sequence[int]]], f: Field) -> bytes:
    if len(value) != len(MEM_LOCATIONS) or any(len(row) != MEM_SLOTS for row in value):
        raise BadValue(f"{f.name} is {len(MEM_LOCATIONS)} rows (host, device) of {MEM_SLOTS} (bytes, chunks)")
    flat = [n for row in value for cell in row for n in cell]
    try:
        return struct.pack("<" + _MEM_FORMAT * f.count, *flat)
    except struct.error as e:
        raise BadValue(f"{f.name} holds sizes of u64 and chunk counts of u32: {e}") from e


_ENCODERS: dict[str, Callable[[Any, Field], bytes]] = {
    "char": _encode_text,
    "version": _encode_version,
    "mem_usage": _encode_grid,
}


def _encode(value: object, f: Field) -> bytes:
    encoder: Callable[[Any, Field], bytes] = _encode_uuid if f.name == "uuid" else _ENCODERS.get(f.type, _encode_int)
    return encoder(value, f)


# --- The records --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """Base of the three kinds: the raw bytes as they stand in a slab, hash word first."""

    raw: bytes

    KIND: ClassVar[int]
    SIZE: ClassVar[int]
    FIELDS: ClassVar[tuple[Field, ...]]

    def __post_init__(self) -> None:
        if len(self.raw) != self.SIZE:
            raise TooShort(f"a {type(self).__name__} record has {self.SIZE} bytes, not {len(self.raw)}")

    @classmethod
    def _of(cls, raw: bytes) -> Self:
        """The record in bytes that are known to have its size: a snapshot makes 64 at a time."""
        record = object.__new__(cls)
        object.__setattr__(record, "raw", raw)
        return record

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """The record in these bytes, hash unchecked. Raises TooShort (EINVAL) for another length."""
        return cls(bytes(data))

    def encode(self) -> bytes:
        """The bytes as they were decoded, or as ``build`` stamped them."""
        return self.raw

    @classmethod
    def _with(cls, raw: bytes, values: dict[str, object]) -> Self:
        data = bytearray(raw)
        known = {f.name: f for f in cls.FIELDS if f.name not in ("hash", "pad")}
        for name, value in values.items():
            if name not in known:
                raise BadValue(f"a {cls.__name__} has no field {name}; it has {', '.join(known)}")
            f = known[name]
            data[f.offset : f.offset + f.size] = _encode(value, f)
        return cls(_core.stamp(cls.KIND, data))

    def replace(self, **values: object) -> Self:
        """The same record with some fields changed and stamped anew; all other bytes stay as they are."""
        return self._with(self.raw, values)

    @property
    def hash(self) -> int:
        """The stored hash."""
        return int.from_bytes(self.raw[:4], "little")

    @property
    def is_intact(self) -> bool:
        """Whether the stored hash is that of the bytes."""
        return self.hash == _core.record_hash(self.raw)

    def __repr__(self) -> str:
        names = [f.name for f in self.FIELDS if f.name not in ("hash", "pad", "mem_usage")]
        return f"{type(self).__name__}({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"

    def padding(self) -> list[tuple[int, bytes]]:
        """(offset, bytes) of every stretch of named padding that is not zero."""
        return [(at, data) for at, n in _PADDING[type(self)] if any(data := self.raw[at : at + n])]


@dataclass(frozen=True, slots=True, repr=False)
class ModelNode(Record):
    """A loaded model's node: 672 bytes (docs/reference/layout.md, "Model node")."""

    KIND: ClassVar[int] = OBJECT_MODEL_NODE
    SIZE: ClassVar[int] = MODEL_SIZE
    FIELDS: ClassVar[tuple[Field, ...]] = MODEL_FIELDS

    @classmethod
    def build(
        cls,
        *,
        model_id: int,
        model_node_id: int = 0,
        name: str | bytes = "",
        uuid: bytes | str | UUID = bytes(UUID_SIZE),
        nc_index: int = 0,
        sg_index: int = 0,
        mem_usage: Sequence[Sequence[Sequence[int]]] | None = None,
    ) -> ModelNode:
        """A stamped record. ``mem_usage[location][slot]`` is (bytes, chunks), 2 rows of 12.

        Raises BadValue (EINVAL), naming field and limit, for what a field cannot hold.
        """
        values: dict[str, object] = {
            "model_id": model_id,
            "model_node_id": model_node_id,
            "name": name,
            "uuid": uuid,
            "nc_index": nc_index,
            "sg_index": sg_index,
        }
        if mem_usage is not None:
            values["mem_usage"] = mem_usage
        return cls._with(bytes(cls.SIZE), values)

    @property
    def model_id(self) -> int:
        return int(_MODEL.unpack_from(self.raw)[1])

    @property
    def model_node_id(self) -> int:
        return int(_MODEL.unpack_from(self.raw)[2])

    @property
    def name(self) -> str:
        """Text up to the NUL; bytes that are no UTF-8 stand as surrogates (``printable`` shows them)."""
        return _text(_MODEL.unpack_from(self.raw)[3])

    @property
    def uuid(self) -> bytes:
        return bytes(_MODEL.unpack_from(self.raw)[4])

    @property
    def nc_index(self) -> int:
        """Physical NeuronCore within the device."""
        return int(_MODEL.unpack_from(self.raw)[5])

    @property
    def sg_index(self) -> int:
        return int(_MODEL.unpack_from(self.raw)[6])

    @property
    def mem_usage(self) -> MemGrid:
        """[location: host, device][slot 0-11] = (bytes, chunks)."""
        cells = tuple(_CELL.iter_unpack(self.raw[_GRID.offset :]))
        return cells[:MEM_SLOTS], cells[MEM_SLOTS:]

    def to_dict(self) -> dict[str, object]:
        """All fields as plain values, text made printable, in one decoding."""
        h, model_id, node_id, name, uuid, nc, sg = _MODEL.unpack_from(self.raw)
        cells = list(_CELL.iter_unpack(self.raw[_GRID.offset :]))
        return {
            "hash": h,
            "model_id": model_id,
            "model_node_id": node_id,
            "name": printable(_text(name)),
            "uuid": uuid.hex(),
            "nc_index": nc,
            "sg_index": sg,
            "mem_usage": [cells[:MEM_SLOTS], cells[MEM_SLOTS:]],
        }


@dataclass(frozen=True, slots=True, repr=False)
class ProcessInfo(Record):
    """Who publishes: 64 bytes (docs/reference/layout.md, "Process info"). The tag stands at 5, unaligned."""

    KIND: ClassVar[int] = OBJECT_PROCESS_INFO
    SIZE: ClassVar[int] = PROCESS_INFO_SIZE
    FIELDS: ClassVar[tuple[Field, ...]] = PROCESS_INFO_FIELDS

    @classmethod
    def build(
        cls,
        *,
        tag: str | bytes = "",
        framework_type: int = 0,
        framework_version: Sequence[int] = (0, 0, 0),
        fal_version: Sequence[int] = (0, 0, 0),
        runtime_version: Sequence[int] = (0, 0, 0),
    ) -> ProcessInfo:
        """A stamped record. Raises BadValue (EINVAL), naming field and limit, for what a field cannot hold."""
        return cls._with(
            bytes(cls.SIZE),
            {
                "framework_type": framework_type,
                "tag": tag,
                "framework_version": framework_version,
                "fal_version": fal_version,
                "runtime_version": runtime_version,
            },
        )

    @property
    def framework_type(self) -> int:
        return int(_PROCESS_INFO.unpack(self.raw)[1])

    @property
    def tag(self) -> str:
        return _text(_PROCESS_INFO.unpack(self.raw)[2])

    @property
    def framework_version(self) -> Version:
        return Version(*_PROCESS_INFO.unpack(self.raw)[3:6])

    @property
    def fal_version(self) -> Version:
        return Version(*_PROCESS_INFO.unpack(self.raw)[6:9])

    @property
    def runtime_version(self) -> Version:
        return Version(*_PROCESS_INFO.unpack(self.raw)[9:12])

    def to_dict(self) -> dict[str, object]:
        """All fields as plain values, text made printable; versions as [major, minor, build]."""
        return {
            "hash": self.hash,
            "framework_type": self.framework_type,
            "tag": printable(self.tag),
            "framework_version": list(self.framework_version),
            "fal_version": list(self.fal_version),
            "runtime_version": list(self.runtime_version),
        }


@dataclass(frozen=True, slots=True, repr=False)
class ProcessInfoExt(Record):
    """The long tag: 260 bytes (docs/reference/layout.md, "Process info ext")."""

    KIND: ClassVar[int] = OBJECT_PROCESS_INFO_EXT
    SIZE: ClassVar[int] = PROCESS_INFO_EXT_SIZE
    FIELDS: ClassVar[tuple[Field, ...]] = PROCESS_INFO_EXT_FIELDS

    @classmethod
    def build(cls, *, tag: str | bytes = "") -> ProcessInfoExt:
        """A stamped record. Raises BadValue (EINVAL) for a tag of more than 256 bytes."""
        return cls._with(bytes(cls.SIZE), {"tag": tag})

    @property
    def tag(self) -> str:
        return _text(_PROCESS_INFO_EXT.unpack(self.raw)[1])

    def to_dict(self) -> dict[str, object]:
        return {"hash": self.hash, "tag": printable(self.tag)}


def _padding_of(fields: Iterable[Field], base: int = 0) -> list[tuple[int, int]]:
    """(offset, size) of all named padding, that of nested cells and versions included."""
    nested = {"version": VERSION_FIELDS, "mem_usage": MEM_USAGE_FIELDS}
    out: list[tuple[int, int]] = []
    for f in fields:
        if f.name == "pad":
            out.append((base + f.offset, f.size))
        elif f.type in nested:
            for i in range(f.count):
                out += _padding_of(nested[f.type], base + f.offset + i * (f.size // f.count))
    return out


_PADDING: dict[type[Record], list[tuple[int, int]]] = {
    kind: _padding_of(kind.FIELDS) for kind in (ModelNode, ProcessInfo, ProcessInfoExt)
}
