"""Records: exact in both directions, whatever their bytes; and what no field can hold is refused.

Knows records and the layout; no slab and no file but the golden ones.
"""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import layout
from neuron_ds.errors import BadValue, TooShort
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Version, printable
from neuron_ds.snapshot import Snapshot
from tests.record_values import (
    FIELDS,
    RECORD_CLASSES,
    any_bytes,
    any_fields,
    fields_of_golden,
    golden_text,
    is_fit_to_print,
    size_of,
    texts_in,
    u8,
    u32,
    unhurried,
)

MODEL = ModelNode.build(model_id=7, model_node_id=8, name="bert", uuid=bytes(range(16)), nc_index=3, sg_index=1)
INFO = ProcessInfo.build(tag="serving", framework_type=-3, runtime_version=(2, 31, 99))
EXT = ProcessInfoExt.build(tag="a long tag")


def fnv1a(data):
    """FNV-1a-32, written down a second time."""
    state = 0x811C9DC5
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFF_FFFF
    return state


def raw_text(text):
    """The bytes that a text of a record stands for."""
    return text.encode("utf-8", "surrogateescape")


# --- The golden records


def golden_records(golden, name):
    """(record as it stands in the slab, its values in the JSON)"""
    data, values = golden.bytes(name), golden.json(name)
    for model in values["models"]:
        at = layout.model_offset(model["slot"])
        yield ModelNode.decode(data[at : at + ModelNode.SIZE]), model
    for kind, region, key in (
        (ProcessInfo, layout.PROCESS_INFO, "process_info"),
        (ProcessInfoExt, layout.PROCESS_INFO_EXT, "process_info_ext"),
    ):
        if values[key] is not None:
            yield kind.decode(data[region.offset : region.end]), values[key]


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_golden_records_decode_to_their_json(golden, name):
    pairs = list(golden_records(golden, name))
    assert len(pairs) == {"full": layout.MAX_MODELS + 2, "sparse": 4}[name]
    for record, values in pairs:
        assert record.is_intact
        assert record.padding() == []
        assert record.hash == values["hash"]
        shown = json.loads(json.dumps(record.to_dict()))
        assert shown == {key: value for key, value in values.items() if key != "slot"}


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_golden_records_are_built_from_their_json(golden, name):
    for record, values in golden_records(golden, name):
        assert type(record).build(**fields_of_golden(values)).raw == record.raw


def test_odd_records_keep_every_byte(golden):
    data = golden.bytes("odd")
    seen = 0
    for at, kind in [
        *((layout.model_offset(slot), ModelNode) for slot in range(layout.MAX_MODELS)),
        (layout.PROCESS_INFO.offset, ProcessInfo),
        (layout.PROCESS_INFO_EXT.offset, ProcessInfoExt),
    ]:
        raw = data[at : at + kind.SIZE]
        record = kind.decode(raw)
        assert record.encode() == raw
        if any(raw):
            seen += 1
            assert record.is_intact
            assert record.replace().raw == raw
            assert all(map(is_fit_to_print, texts_in(record.to_dict())))
    assert seen > 4


def test_an_odd_record_changes_only_where_it_is_told_to(golden):
    """Slot 17 has padding that is not zero, slot 18 bytes behind the NUL of its name."""
    for slot in (17, 18):
        at = layout.model_offset(slot)
        record = ModelNode.decode(golden.bytes("odd")[at : at + ModelNode.SIZE])
        other = record.replace(sg_index=record.sg_index ^ 1)
        changed = [i for i in range(4, ModelNode.SIZE) if record.raw[i] != other.raw[i]]
        assert changed == [next(f.offset for f in layout.MODEL_FIELDS if f.name == "sg_index")]
        assert other.is_intact
    assert ModelNode.decode(golden.bytes("odd")[layout.model_offset(17) :][: ModelNode.SIZE]).padding()


# --- Any record


@unhurried
@given(any_fields)
def test_what_is_built_is_read_back(kind_and_fields):
    kind, fields = kind_and_fields
    record = kind.decode(kind.build(**fields).encode())
    assert {name: getattr(record, name) for name in fields} == fields
    assert record.is_intact
    assert record.hash == fnv1a(bytes(4) + record.raw[4:])
    assert record.padding() == []


@unhurried
@given(any_bytes)
def test_any_bytes_survive(kind_and_bytes):
    kind, raw = kind_and_bytes
    record = kind.decode(raw)
    assert record.encode() == raw
    assert record.is_intact == (record.hash == fnv1a(bytes(4) + raw[4:]))
    assert all(map(is_fit_to_print, texts_in(record.to_dict())))
    json.dumps(record.to_dict())
    repr(record)


@unhurried
@given(any_bytes.flatmap(lambda pair: st.tuples(st.just(pair), FIELDS[pair[0]])), st.data())
def test_replacing_a_field_changes_it_and_the_hash_only(pair_and_fields, data):
    (kind, raw), fields = pair_and_fields
    record = kind.decode(raw)
    name = data.draw(st.sampled_from(sorted(fields)))
    changed = record.replace(**{name: fields[name]})
    field = next(f for f in kind.FIELDS if f.name == name)
    assert getattr(changed, name) == fields[name]
    assert changed.is_intact
    kept = bytearray(changed.raw)
    kept[:4] = raw[:4]
    kept[field.offset : field.offset + field.size] = raw[field.offset : field.offset + field.size]
    assert bytes(kept) == raw
    assert record.raw == raw


@unhurried
@given(st.sampled_from(RECORD_CLASSES), st.binary(max_size=700))
def test_bytes_of_another_size_are_no_record(kind, raw):
    if len(raw) == kind.SIZE:
        assert kind.decode(raw).raw == raw
    else:
        with pytest.raises(TooShort, match=f"{kind.__name__} record has {kind.SIZE} bytes, not {len(raw)}"):
            kind.decode(raw)


def test_a_record_ends_its_text_at_the_first_nul():
    raw = bytearray(MODEL.raw)
    at = next(f.offset for f in layout.MODEL_FIELDS if f.name == "name")
    raw[at : at + 9] = b"ab\0cd\0\xff\xfe"[:9].ljust(9, b"x")
    assert ModelNode.decode(raw).name == "ab"


def test_a_text_may_fill_its_field_without_a_nul():
    for kind, field in ((ModelNode, "name"), (ProcessInfo, "tag"), (ProcessInfoExt, "tag")):
        text = "x" * size_of(kind, field)
        extra = {"model_id": 1} if kind is ModelNode else {}
        assert getattr(kind.build(**{field: text}, **extra), field) == text


def test_the_short_tag_stands_right_behind_the_framework_type():
    """Unaligned, as the compiler lays it out: a published note puts it three bytes further."""
    assert INFO.raw[4:13] == b"\xfdserving\0"


def test_a_uuid_is_also_taken_as_text():
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert ModelNode.build(model_id=1, uuid=text).uuid == bytes(range(16))
    assert ModelNode.build(model_id=1, uuid=text.replace("-", "")).uuid == bytes(range(16))


def test_records_are_values():
    assert ModelNode.decode(MODEL.raw) == MODEL
    assert hash(ModelNode.decode(MODEL.raw)) == hash(MODEL)
    assert MODEL.replace(sg_index=2) != MODEL
    for record in (MODEL, INFO, EXT):
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.raw = b""
        with pytest.raises((AttributeError, TypeError)):
            record.anything = 1
        assert not hasattr(record, "__dict__")


def test_a_record_does_not_follow_the_bytes_it_was_made_of():
    data = bytearray(MODEL.raw)
    record = ModelNode.decode(data)
    data[100] ^= 0xFF
    assert record.raw == MODEL.raw


def test_padding_is_named_byte_by_byte():
    raw = bytearray(MODEL.raw)
    pads = {}
    cell = next(f.offset for f in layout.MODEL_FIELDS if f.name == "mem_usage")
    for offset in (next(f.offset for f in layout.MODEL_FIELDS if f.name == "pad") + 1, cell + 12, ModelNode.SIZE - 1):
        raw[offset] = 0xAB
        pads[offset] = 0xAB
    found = {at + i: byte for at, data in ModelNode.decode(raw).padding() for i, byte in enumerate(data) if byte}
    assert found == pads


# --- What is refused


@pytest.mark.parametrize(
    ("kind", "field", "limit"), [(ModelNode, "name", 256), (ProcessInfo, "tag", 32), (ProcessInfoExt, "tag", 256)]
)
def test_too_long_a_text_is_refused_with_its_name_and_limit(kind, field, limit):
    extra = {"model_id": 1} if kind is ModelNode else {}
    for text in ("x" * (limit + 1), "é" * (limit // 2 + 1), b"x" * 1000):
        length = len(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(BadValue, match=f"{field} is {length} bytes long; the field holds {limit}"):
            kind.build(**{field: text}, **extra)
    with pytest.raises(BadValue, match=f"{field} has a NUL"):
        kind.build(**{field: "a\0b"}, **extra)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model_id": -1}, "model_id is -1; the field is u32"),
        ({"model_id": 1 << 32}, "model_id is 4294967296"),
        ({"model_id": "7"}, "model_id is '7'"),
        ({"model_node_id": 1.5}, "model_node_id is 1.5"),
        ({"nc_index": 256}, "nc_index is 256; the field is u8"),
        ({"sg_index": -1}, "sg_index is -1"),
        ({"uuid": bytes(15)}, "uuid is 15 bytes long; the field holds exactly 16"),
        ({"uuid": "no hexadecimal"}, "uuid is 'no hexadecimal'"),
        ({"mem_usage": [[(0, 0)] * 12]}, "mem_usage is 2 rows"),
        ({"mem_usage": [[(0, 0)] * 11, [(0, 0)] * 12]}, "mem_usage is 2 rows"),
        ({"mem_usage": [[(0, 0)] * 12, [(1 << 64, 0)] + [(0, 0)] * 11]}, "mem_usage holds sizes of u64"),
        ({"mem_usage": [[(0, 0)] * 12, [(0, 1 << 32)] + [(0, 0)] * 11]}, "mem_usage holds"),
        ({"mem_usage": [[(0,)] * 12, [(0, 0)] * 12]}, "mem_usage holds"),
    ],
)
def test_a_model_that_its_fields_cannot_hold(fields, said):
    with pytest.raises(BadValue) as caught:
        ModelNode.build(**{"model_id": 1, **fields})
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["framework_version", "fal_version", "runtime_version"])
@pytest.mark.parametrize("value", [(256, 0, 0), (0, -1, 0), (0, 0, 1 << 32), (1, 2), (1, 2, 3, 4), ("2", 0, 0)])
def test_a_version_that_its_field_cannot_hold(name, value):
    with pytest.raises(BadValue, match=f"{name} is"):
        ProcessInfo.build(**{name: value})


@pytest.mark.parametrize("value", [-129, 128, None])
def test_a_framework_type_is_a_signed_byte(value):
    with pytest.raises(BadValue, match="framework_type is"):
        ProcessInfo.build(framework_type=value)


@pytest.mark.parametrize("name", ["hash", "pad", "raw", "colour"])
def test_there_is_no_such_field(name):
    with pytest.raises(BadValue, match=f"no field {name}; it has model_id, "):
        MODEL.replace(**{name: 0})


# --- Versions


@unhurried
@given(u8, u8, u32, st.integers(0, 0xFFFF))
def test_versions_pack_and_unpack(major, minor, build, reserved):
    version = Version(major, minor, build)
    word = version.packed(reserved)
    assert word == build + minor * 2**32 + major * 2**40 + reserved * 2**48
    assert Version.unpack(word) == version
    assert str(version) == f"{major}.{minor}.{build}"


@unhurried
@given(st.integers(0, (1 << 64) - 1))
def test_any_word_unpacks(word):
    assert Version.unpack(word).packed(word >> 48) == word


@pytest.mark.parametrize(
    ("version", "reserved", "name"),
    [
        ((256, 0, 0), 0, "major"),
        ((0, -1, 0), 0, "minor"),
        ((0, 0, 1 << 32), 0, "build"),
        ((0, 0, 0), 0x10000, "reserved"),
    ],
)
def test_a_version_too_large_for_a_word(version, reserved, name):
    with pytest.raises(BadValue, match=f"version field {name}"):
        Version(*version).packed(reserved)


# --- Text that leaves


@unhurried
@given(st.text(st.characters()) | st.binary().map(lambda b: b.decode("utf-8", "surrogateescape")))
def test_printable_text_is_fit_to_print(text):
    shown = printable(text)
    assert is_fit_to_print(shown)
    assert shown.encode("utf-8").decode() == shown
    if is_fit_to_print(text) and "\\" not in text:
        assert shown == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢", "plain é 漢"),
        (b"\xff\xfe".decode("utf-8", "surrogateescape"), "\\xff\\xfe"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31mred\x7f", "\\x1b[31mred\\x7f"),
        ("C:\\x41", "C:\\\\x41"),
        ("\u202eright to left\u2028", "\\u202eright to left\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\U000e0001"),
        ("", ""),
    ],
)
def test_how_what_cannot_be_printed_is_shown(text, shown):
    assert printable(text) == shown


def test_golden_strings_are_bytes(golden):
    """What the JSON has as code points is what the record has as bytes."""
    snapshot = Snapshot.from_file(golden.path("sparse"))
    for model in golden.json("sparse")["models"]:
        assert raw_text(snapshot.models[model["slot"]].name) == golden_text(model["name"])
