"""The rules of the format: every one broken by hand, and the golden slabs judged as their README says.

Knows layout and check; no file but the golden ones, and no process.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import layout
from neuron_ds.check import RULES, UNREADABLE, Finding, check, check_snapshot
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt
from neuron_ds.snapshot import RECORDS, RecordState, Snapshot

HEADER = layout.HEADER_WORD.to_bytes(8, "little")
MODEL = ModelNode.build(model_id=7, name="bert", nc_index=3)
INFO = ProcessInfo.build(tag="serving", runtime_version=(2, 31, 99))
TAIL = bytes(layout.SLAB_SIZE - layout.REQUIRED_SIZE)


def blob(*parts: tuple[int, bytes]) -> bytes:
    """A stamped blob with these bytes at these offsets."""
    data = bytearray(HEADER.ljust(layout.REQUIRED_SIZE, b"\0"))
    for offset, part in parts:
        data[offset : offset + len(part)] = part
    return bytes(data)


def in_use(*slots: int) -> tuple[int, bytes]:
    return layout.MODEL_BITMAP.offset, sum(1 << s for s in slots).to_bytes(8, "little")


def short(findings: list[Finding]) -> list[tuple[str, str, int]]:
    return [(f.kind, f.rule, f.offset) for f in findings]


def changed(record: bytes, at: int) -> bytes:
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]


def with_padding(record: ModelNode | ProcessInfo, at: int) -> bytes:
    """The record with a byte of padding that is not zero, stamped anew."""
    return type(record).decode(changed(record.raw, at)).replace().raw


# --- What is good


@pytest.mark.parametrize(
    "data",
    [
        blob(),
        blob(in_use(5), (layout.model_offset(5), MODEL.raw)),
        blob((layout.PROCESS_INFO.offset, INFO.raw)),
        blob((layout.PROCESS_INFO_EXT.offset, ProcessInfoExt.build(tag="x" * 256).raw)),
        blob((layout.nc_index(15, 40) * 8, b"\xff" * 8), (layout.nd_index(13) * 8, b"\xff" * 8)),
    ],
    ids=["empty", "model", "process info", "ext", "counters"],
)
def test_a_good_slab_gives_nothing(data):
    assert check(data, TAIL) == []


# --- What breaks the format, and what is worth knowing


@pytest.mark.parametrize(
    ("data", "kind", "rule", "offset"),
    [
        (
            blob(in_use(5), (layout.model_offset(5), changed(MODEL.raw, 300))),
            "fault",
            "hash",
            layout.model_offset(5),
        ),
        (blob((layout.PROCESS_INFO.offset, changed(INFO.raw, 5))), "fault", "hash", layout.PROCESS_INFO.offset),
        (blob((layout.PROCESS_INFO_EXT.offset + 9, b"x")), "fault", "hash", layout.PROCESS_INFO_EXT.offset),
        (
            blob((layout.PAD.offset + 100, b"\1"), (layout.nc_index(15, 40) * 8, b"\1")),
            "fault",
            "pad",
            layout.PAD.offset + 100,
        ),
        (blob((layout.PAD.end - 1, b"\1")), "fault", "pad", layout.PAD.end - 1),
        (blob((layout.OLDER_EXT_NC_DATA.end, b"\1")), "fault", "pad", layout.OLDER_EXT_NC_DATA.end),
        (blob((layout.older_nc_offset(0, 31), b"\1")), "note", "older-layout", layout.PAD.offset),
        (blob(in_use(63)), "note", "unpublished", layout.model_offset(63)),
        (blob((layout.model_offset(40), MODEL.raw)), "note", "clear-bit", layout.model_offset(40)),
        (blob((layout.model_offset(40) + 671, b"\1")), "note", "clear-bit", layout.model_offset(40)),
        (
            blob(in_use(0), (layout.model_offset(0), with_padding(MODEL, 287))),
            "note",
            "padding",
            layout.model_offset(0) + 287,
        ),
        (
            blob((layout.PROCESS_INFO.offset, with_padding(INFO, 39))),
            "note",
            "padding",
            layout.PROCESS_INFO.offset + 39,
        ),
        (blob((layout.nd_index(30) * 8, b"\1")), "note", "reserved", layout.nd_index(30) * 8),
        (blob((layout.nc_index(0, 41) * 8, b"\1")), "note", "reserved", layout.nc_index(0, 41) * 8),
        (blob((layout.nc_index(15, 94) * 8, b"\1")), "note", "reserved", layout.nc_index(15, 94) * 8),
        (blob((layout.nc_index(4, 94) * 8 + 8, b"\1")), "note", "reserved", layout.nc_index(4, 94) * 8 + 8),
    ],
)
def test_each_rule_names_what_breaks_it(data, kind, rule, offset):
    assert short(check(data, TAIL)) == [(kind, rule, offset)]


def test_a_torn_record_shows_both_hashes():
    record = ModelNode.decode(changed(MODEL.raw, 300))
    (finding,) = check(blob(in_use(5), (layout.model_offset(5), record.raw)))
    assert f"{record.hash:#010x}" in finding.message
    assert "model slot 5" in finding.message


@pytest.mark.parametrize("at", [0, 1, len(TAIL) - 1])
def test_what_stands_behind_the_blob_is_a_fault(at):
    tail = TAIL[:at] + b"\7" + TAIL[at + 1 :]
    assert short(check(blob(), tail)) == [("fault", "tail", layout.REQUIRED_SIZE + at)]


def test_reserved_words_of_the_older_layout_are_found_where_it_keeps_them():
    at = layout.older_nc_offset(3, 94) + 8
    assert short(check(blob((at, b"\1")))) == [
        ("note", "older-layout", layout.PAD.offset),
        ("note", "reserved", at),
    ]


@pytest.mark.parametrize(
    ("data", "rule", "offset"),
    [
        (b"", "size", 0),
        (blob()[:-1], "size", layout.REQUIRED_SIZE - 1),
        (bytes(layout.REQUIRED_SIZE), "header", 0),
        (b"\xff" * layout.REQUIRED_SIZE, "header", 0),
        (blob((4, b"\1")), "header", 0),
    ],
)
def test_what_is_no_slab_gives_one_fault_and_nothing_else(data, rule, offset):
    assert short(check(data)) == [("fault", rule, offset)]
    assert rule in UNREADABLE


# --- A live slab is judged as its reader judged it


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RecordState.RETRIED, []),
        (RecordState.EXACT, []),
        (RecordState.TORN, [("fault", "hash", layout.model_offset(5))]),
        (RecordState.STALE, [("fault", "hash", layout.model_offset(5))]),
    ],
)
def test_a_record_that_was_being_rewritten_is_no_fault(state, expected):
    states = bytearray(RECORDS)
    states[5] = state
    data = blob(in_use(5), (layout.model_offset(5), MODEL.raw))
    snapshot = Snapshot(data, states=bytes(states), stale={5: MODEL.raw})
    assert short(check_snapshot(snapshot)) == expected


# --- The golden slabs


@pytest.mark.parametrize(
    ("name", "faults", "notes"),
    [
        ("full", set(), {"reserved"}),
        ("sparse", set(), {"reserved"}),
        ("torn", {"hash"}, {"unpublished", "reserved"}),
        ("odd", set(), {"padding", "clear-bit"}),
        ("older", set(), {"older-layout", "reserved"}),
        ("uncommitted", {"header"}, set()),
        ("truncated", {"size"}, set()),
        ("future-version", {"header"}, set()),
    ],
)
def test_golden_slabs(golden, name, faults, notes):
    findings = check(golden.bytes(name))
    assert {f.rule for f in findings if f.kind == "fault"} == faults
    assert {f.rule for f in findings if f.kind == "note"} == notes
    assert [f.offset for f in findings] == sorted(f.offset for f in findings)


def test_the_torn_slab_is_torn_in_slot_5_and_unpublished_in_6(golden):
    found = short(check(golden.bytes("torn")))
    assert ("fault", "hash", layout.model_offset(5)) in found
    assert ("note", "unpublished", layout.model_offset(6)) in found


def test_the_odd_slab_holds_a_good_record_under_a_clear_bit(golden):
    (finding,) = [f for f in check(golden.bytes("odd")) if f.rule == "clear-bit"]
    assert finding.offset == layout.model_offset(40)
    assert "a good record" in finding.message


def test_the_other_version_names_both(golden):
    (finding,) = check(golden.bytes("future-version"))
    assert "100001" in finding.message
    assert str(layout.VERSION) in finding.message


# --- Any bytes at all


@given(st.binary(max_size=64), st.integers(8, layout.REQUIRED_SIZE), st.binary(max_size=32))
def test_any_bytes_behind_a_header_are_judged_and_nothing_raises(part, offset, tail):
    findings = check(blob((offset, part))[: layout.REQUIRED_SIZE], tail)
    for f in findings:
        assert f.rule in RULES
        assert f.rule not in UNREADABLE
        assert 0 <= f.offset < layout.REQUIRED_SIZE + len(tail)


@given(st.binary(max_size=256))
def test_any_other_bytes_give_one_fault(data):
    assert [f.kind for f in check(data)] == ["fault"]
