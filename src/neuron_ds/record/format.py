"""What a recording says: the messages, their names and versions, and the world they are about.

Four kinds of messages, each with a schema of its own (docs/recording.md): the *world* is JSON, who and what is there;
*ticks* are what changed, *keyframes* and *totals* what is. The changes themselves are the core's to write and to play.
This module knows no file, no clock and no driver.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from neuron_ds import layout
from neuron_ds.driver import DeviceProperties, Owner, Who
from neuron_ds.errors import FormatError

PROFILE = "neuron-ds"
#: Raised with every change that a reader of an older one would misunderstand; it is in the schemas' names.
VERSION = 1

WORLD, TICKS, KEYFRAME, TOTALS = "world", "ticks", "keyframe", "totals"
JSON_ENCODING, BINARY_ENCODING = "json", "x-neuron-ds"

#: No number of the world is as large, and no time in microseconds: both fit where they are written on to.
MOST, MOST_US = 1 << 62, 1 << 52

#: The schemas say in the file itself what docs/recording.md says.
_NUMBERS = """number: 7 bits a byte, lowest first, top bit: more follow (LEB128). signed: zigzag (0 -1 1 -2 = 0 1 2 3).
changes: {gap number >= 1, change signed}, a gap of 0 ends them. A gap of 1 is the word behind the one before (word 0
at first); a word is 8 bytes little-endian of the slab's layout 100000; it changes by `change` modulo 2^64.
block: head number = gap * 2 + has_states; gap: track - track of the block before (-1 at first). has_states: count byte,
{record byte, state byte}: 0 absent 1 unpublished 2 exact 4 stale (what is shown is what the record was before this
block, or before it became stale) 5 torn. Records 0-63 are models, 64 process info, 65 its extension. Then changes.
"""
SCHEMAS = {
    WORLD: '{"type": "object", "description": "who and what is there from this moment on"}',
    TICKS: _NUMBERS
    + """message: time_us number (monotonic, of the tick before the first), period_us number, then ticks.
tick: head number = zigzag(deviation_us) * 2 + late; time = time before + period_us + deviation_us. late: late_us
number, missed number (ticks that were not made before it). Then blocks; a head of 0 ends them. A track that wasn't
there starts as zeros with records 64 and 65 unpublished.
""",
    KEYFRAME: _NUMBERS
    + """message: time_us number (monotonic, of the tick that it repeats), then a block for each track that isn't zero,
its changes from zero; a head of 0 ends them. It is no tick.
""",
    TOTALS: _NUMBERS
    + """message: time_us number (monotonic), then {head number = (device + 1) * 2 + whole, changes}; a head of 0 ends
them. The words are a device's totals as csrc/nds_core.h lays them out. whole: changes from zero, else from before.
""",
}


def schema_name(kind: str) -> str:
    """As in ``neuron_ds.ticks.v1``."""
    return f"neuron_ds.{kind}.v{VERSION}"


def topic(kind: str) -> str:
    return f"/neuron_ds/{kind}"


def kind_of(schema: str) -> str:
    """The kind of message that has this schema. Raises FormatError where it is none, or of another version."""
    for kind in SCHEMAS:
        if schema == schema_name(kind):
            return kind
    if schema.startswith("neuron_ds."):
        raise FormatError(f"holds messages of {schema}; this reader knows version {VERSION}: use a newer one")
    raise FormatError(f"holds messages of {schema or 'no schema'}: this is no recording of neuron-ds record")


# --- Numbers ----------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """A number as bytes, 7 bits each."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """(number, offset behind it). Raises ValueError where there is none."""
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while shift < 70:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at + 1
            shift += 7
    except IndexError:
        pass
    raise ValueError("a number is cut short or too long")


def zigzag(value: int) -> int:
    """A signed number as one without a sign."""
    return value << 1 if value >= 0 else (-value << 1) - 1


def unzigzag(value: int) -> int:
    return value >> 1 if not value & 1 else -(value + 1 >> 1)


_HALF, _WRAP = 1 << 63, 1 << 64


def changes(before: list[int] | tuple[int, ...], now: list[int] | tuple[int, ...]) -> bytes:
    """Changed words as bytes: what the core does for slabs, for the few that aren't in one."""
    out, next_word = bytearray(), 0
    for word, (old, new) in enumerate(zip(before, now, strict=True)):
        if old != new:
            change = (new - old) % _WRAP
            out += number(word - next_word + 1)
            out += number(zigzag(change - _WRAP if change >= _HALF else change))
            next_word = word + 1
    return bytes(out + b"\0")


# --- The world --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Session:
    """How a recording was made. wall_offset_ns: added to its monotonic times it gives time since 1970."""

    driver: str
    period_us: int
    wall_offset_ns: int
    software: str = ""
    host: str = ""
    boot_id: str = ""


@dataclass(frozen=True, slots=True)
class RecordedDevice:
    """A device of the world; ``slots_used`` counts places, as in a DeviceSample."""

    device: int
    properties: DeviceProperties | None
    slots_used: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class RecordedOwner:
    """A taken slot and who has it. track: its slab in the ticks, None where it isn't read, which ``error`` explains.

    acquired_us: when, on the monotonic clock, None where the driver can't tell; ``owner`` itself has no age. Its
    ``who`` is what /proc told when it was first seen.
    """

    owner: Owner
    track: int | None = None
    acquired_us: int | None = None
    error: str = ""
    error_kind: str = ""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a recording so far. late: ticks by a millisecond or more; missed: ticks that were not made at all."""

    ticks: int = 0
    late: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """Who and what is there from ``time_us`` on.

    error: why there is no device at all. mark: what happened at this time, where the recorder was told or found out.
    """

    time_us: int
    session: Session
    devices: tuple[RecordedDevice, ...] = ()
    owners: tuple[RecordedOwner, ...] = ()
    counts: Counts = field(default_factory=Counts)
    error: str = ""
    mark: str = ""

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> World:
        """Raises FormatError. Keys that this version doesn't know are left out."""
        try:
            value = json.loads(data)
            return cls(
                _number(value["time_us"], "time_us"),
                _session(value["session"]),
                tuple(_device(d) for d in value["devices"]),
                tuple(_owner(o) for o in value["owners"]),
                _counts(value["counts"]),
                str(value["error"]),
                str(value.get("mark", "")),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as e:
            raise FormatError(f"a description of what was there can't be read: {e!r:.200}") from None


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "None": (type(None),),
}


def _made(kind: Any, value: dict[str, Any], **more: Any) -> Any:
    """A dataclass from the keys that it knows. Raises TypeError for a value of another type than its field's."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} has no keys")
    for field_ in fields(kind):
        if field_.name in value and field_.name not in more:
            names = str(field_.type).split(" | ")
            if not isinstance(value[field_.name], tuple(t for name in names for t in _TYPES.get(name, ()))):
                raise TypeError(f"{field_.name} is {value[field_.name]!r}")
            more[field_.name] = value[field_.name]
    return kind(**more)


def _within(value: int | None, end: int, what: str, *, least: int = 0) -> None:
    if value is not None and not least <= value < end:
        raise ValueError(f"{what} {value}")


def _number(value: object, what: str) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{what} is {value!r}")
    _within(value, MOST_US, what)
    return value


def _session(value: dict[str, Any]) -> Session:
    made: Session = _made(Session, value)
    _within(made.period_us, MOST_US, "period_us", least=1)
    _within(made.wall_offset_ns, MOST, "wall_offset_ns", least=-MOST)
    return made


def _counts(value: dict[str, Any]) -> Counts:
    made: Counts = _made(Counts, value)
    for what in fields(Counts):
        _within(getattr(made, what.name), MOST, what.name)
    return made


def _device(value: dict[str, Any]) -> RecordedDevice:
    found = value["properties"]
    properties: DeviceProperties | None = None if found is None else _made(DeviceProperties, found)
    made: RecordedDevice = _made(RecordedDevice, value, properties=properties)
    _within(made.device, layout.MAX_DEVICES, "device")
    _within(made.slots_used, MOST, "slots_used")
    if properties is not None:
        _within(properties.cores, 1 << 16, "cores")
        _within(properties.memory_bytes, 1 << 64, "memory")
        _within(
            None if properties.logical_config is None else properties.logical_config - 1,
            layout.MAX_CORES,
            "configuration",
        )
    return made


def _owner(value: dict[str, Any]) -> RecordedOwner:
    who = value["owner"].get("who")
    owner = _made(Owner, value["owner"], who=None if who is None else _made(Who, who))
    made: RecordedOwner = _made(RecordedOwner, value, owner=owner)
    _within(owner.device, layout.MAX_DEVICES, "device")
    _within(owner.slot, layout.SLOTS_PER_DEVICE, "slot")
    _within(owner.pid, MOST, "pid")
    _within(owner.generation, MOST, "generation")
    _within(owner.namespace, 1 << 64, "namespace")
    _within(made.track, MOST, "track")
    _within(made.acquired_us, MOST_US, "acquired_us", least=-MOST_US)
    return made


def same(a: World | None, b: World) -> bool:
    """Whether two worlds differ in nothing but time and counts."""
    return a is not None and a == replace(b, time_us=a.time_us, counts=a.counts, mark=a.mark)
