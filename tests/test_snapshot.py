"""Snapshots: the golden slabs in both directions, any bytes at all, and nothing decoded before it is asked for.

Knows bytes, the core and records; no driver.
"""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import _core, errors, layout
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Version
from neuron_ds.snapshot import (
    RECORD_PROCESS_INFO,
    RECORD_PROCESS_INFO_EXT,
    RECORDS,
    Origin,
    RecordState,
    Snapshot,
)
from tests.record_values import fields_of_golden, is_fit_to_print, texts_in, u64, unhurried

HEADER = layout.HEADER_WORD.to_bytes(8, "little")
EMPTY = HEADER.ljust(layout.REQUIRED_SIZE, b"\0")
MODEL = ModelNode.build(model_id=7, name="bert", nc_index=3)
REFUSED = {
    "uncommitted": (errors.NotReady, ["offset 0", "not stamped"]),
    "truncated": (errors.TooShort, ["67199", "67200"]),
    "future-version": (errors.WrongVersion, ["100001", "100000"]),
}


def blob(*parts):
    """A stamped blob with these bytes at these offsets."""
    data = bytearray(EMPTY)
    for offset, part in parts:
        data[offset : offset + len(part)] = part
    return bytes(data)


def counters(snapshot):
    """(device counters, [core][counter])"""
    return list(snapshot.nd_counters), [list(snapshot.nc_counters(core)) for core in range(layout.MAX_CORES)]


def golden_counters(values):
    """The same from a golden JSON, which lists all or only those that are not zero."""
    nd = values.get("nd") or [0] * layout.ND_COUNTERS
    nc = values.get("nc") or [[0] * layout.NC_COUNTERS for _ in range(layout.MAX_CORES)]
    for index, value in values.get("nd_nonzero", ()):
        nd[index] = value
    for core, index, value in values.get("nc_nonzero", ()):
        nc[core][index] = value
    return nd, nc


def rebuilt(nd, nc, records, bitmap):
    """A slab as a producer makes it: through the core's atomics and its publish, every step of them."""
    slab = _core.map(-1, 0, layout.SLAB_SIZE, True, None)
    slab.stamp_header()
    for index, value in enumerate(nd):
        slab.nd(index).set(value)
    for core, values in enumerate(nc):
        for index, value in enumerate(values):
            slab.nc(core, index).set(value)
    for record, raw in records.items():
        assert slab.publish(record, raw) == raw
    for slot in range(layout.MAX_MODELS):
        if bitmap >> slot & 1:
            slab.bitmap_set(slot)
    tail = slab.copy(layout.REQUIRED_WORDS, layout.SLAB_SIZE // 8 - layout.REQUIRED_WORDS)
    assert not any(tail)
    return slab.copy(0, layout.REQUIRED_WORDS)


# --- The golden slabs


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_golden_slabs_decode_to_their_json(golden, name):
    values = golden.json(name)
    snapshot = Snapshot.from_bytes(golden.bytes(name))
    assert counters(snapshot) == golden_counters(values)
    shown = json.loads(json.dumps(snapshot.to_dict()))
    assert {key: shown[key] for key in ("process_info", "process_info_ext", "models", "model_bitmap")} == {
        key: values[key] for key in ("process_info", "process_info_ext", "models", "model_bitmap")
    }
    assert set(snapshot.states().values()) <= {RecordState.EXACT, RecordState.UNPUBLISHED}
    assert snapshot.layout == "current"


def test_the_json_has_at_least_the_keys_of_the_golden_one(golden):
    values = golden.json("full")
    shown = json.loads(json.dumps(Snapshot.from_bytes(golden.bytes("full")).to_dict()))
    assert {key: shown[key] for key in values} == values


@pytest.mark.parametrize("name", ["full", "sparse"])
def test_golden_slabs_are_made_from_their_json(golden, name):
    values = golden.json(name)
    records = {model["slot"]: ModelNode.build(**fields_of_golden(model)).raw for model in values["models"]}
    records[RECORD_PROCESS_INFO] = ProcessInfo.build(**fields_of_golden(values["process_info"])).raw
    if values["process_info_ext"]:
        records[RECORD_PROCESS_INFO_EXT] = ProcessInfoExt.build(**fields_of_golden(values["process_info_ext"])).raw
    assert rebuilt(*golden_counters(values), records, values["model_bitmap"]) == golden.bytes(name)


def test_the_odd_slab_survives_decode_and_encode(golden):
    data = golden.bytes("odd")
    snapshot = Snapshot.from_bytes(data)
    records = {slot: model.encode() for slot, model in snapshot.models.items()}
    at = layout.model_offset(40)  # a good record under a clear bit: no model of the snapshot, but in its bytes
    assert snapshot.state(40) == RecordState.ABSENT
    records[40] = ModelNode.decode(data[at : at + layout.MODEL_SIZE]).encode()
    records[RECORD_PROCESS_INFO] = snapshot.process_info.encode()
    if snapshot.process_info_ext:
        records[RECORD_PROCESS_INFO_EXT] = snapshot.process_info_ext.encode()
    assert rebuilt(*counters(snapshot), records, snapshot.model_bitmap) == data
    assert snapshot.raw == data
    assert all(map(is_fit_to_print, texts_in(snapshot.to_dict())))
    json.dumps(snapshot.to_dict())


def test_the_older_slab_gives_its_counters(golden):
    snapshot = Snapshot.from_bytes(golden.bytes("older"))
    expected = golden.json("older")["nc"]
    assert snapshot.layout == "older"
    assert counters(snapshot)[1] == expected
    for core, values in enumerate(expected):
        assert [snapshot.nc(core, index) for index in range(layout.NC_COUNTERS)] == values
        assert [value for _, value in snapshot.core(core).items()] == values
    assert snapshot.to_dict()["layout"] == "older"


def test_the_torn_slab_shows_neither_the_torn_nor_the_unpublished_model(golden):
    snapshot = Snapshot.from_bytes(golden.bytes("torn"))
    assert sorted(snapshot.models) == [0, 63]
    assert (snapshot.model(5), snapshot.model(6)) == (None, None)
    assert snapshot.state(5) == RecordState.TORN
    assert snapshot.state(6) == RecordState.UNPUBLISHED
    shown = snapshot.to_dict()
    assert shown["records"] == {
        "model_0": "exact",
        "model_5": "torn",
        "model_6": "unpublished",
        "model_63": "exact",
        "process_info": "exact",
        "process_info_ext": "unpublished",
    }
    assert shown["process_info_ext"] is None
    assert snapshot.raw == golden.bytes("torn")


@pytest.mark.parametrize("name", REFUSED)
def test_slabs_that_are_refused(golden, name):
    kind, said = REFUSED[name]
    for make, where in (
        (lambda: Snapshot.from_bytes(golden.bytes(name)), ""),
        (lambda: Snapshot.from_bytes(golden.bytes(name), device=3, pid=4242, slot=9), "device 3, pid 4242, slot 9"),
        (lambda: Snapshot.from_file(golden.path(name)), str(golden.path(name))),
    ):
        with pytest.raises(kind) as caught:
            make()
        assert [word for word in (*said, where) if word not in str(caught.value)] == []


# --- Where the older extension was


def test_bytes_in_both_extensions_are_mixed_and_the_current_one_is_read():
    older = layout.older_nc_offset(2, 40), b"\x05"
    current = layout.nc_index(2, 40) * 8, b"\x07"
    behind = layout.OLDER_EXT_NC_DATA.end, b"\x01"
    assert (Snapshot(blob(older)).layout, Snapshot(blob(older)).nc(2, 40)) == ("older", 5)
    assert (Snapshot(blob(current)).layout, Snapshot(blob(current)).nc(2, 40)) == ("current", 7)
    for parts, value in (((older, current), 7), ((older, behind), 0), ((behind,), 0)):
        snapshot = Snapshot(blob(*parts))
        assert (snapshot.layout, snapshot.nc(2, 40)) == ("mixed", value)


def test_the_first_counters_of_an_older_slab_are_where_they_always_were():
    snapshot = Snapshot(
        blob((layout.older_nc_offset(2, 31), b"\x05"), (layout.nc_index(2, 30) * 8, b"\x09"), (8, b"\x03"))
    )
    assert (snapshot.nc(2, 30), snapshot.nc(2, 31), snapshot.nd(0)) == (9, 5, 3)
    assert snapshot.nc_counters(2)[30:32] == (9, 5)


# --- Any bytes


@st.composite
def blobs(draw):
    """A stamped blob with anything in it: random throughout, or mostly zero, often with bits set over it."""
    seed = draw(st.none() | st.integers(0, 2**32))
    data = bytearray(EMPTY if seed is None else HEADER + random.Random(seed).randbytes(layout.REQUIRED_SIZE - 8))
    for offset, part in draw(
        st.lists(st.tuples(st.integers(8, layout.REQUIRED_SIZE - 1), st.binary(min_size=1, max_size=300)), max_size=5)
    ):
        data[offset : offset + len(part)] = part
    at = layout.MODEL_BITMAP.offset
    data[at : at + 8] = draw(u64).to_bytes(8, "little")
    for slot in draw(st.lists(st.integers(0, layout.MAX_MODELS - 1), max_size=3)):
        at = layout.model_offset(slot)
        data[at : at + layout.MODEL_SIZE] = ModelNode.decode(data[at : at + layout.MODEL_SIZE]).replace().raw
    return bytes(data[: layout.REQUIRED_SIZE])


@unhurried
@given(blobs())
def test_any_bytes_behind_a_valid_header_decode(data):
    snapshot = Snapshot.from_bytes(data + b"what follows")
    assert snapshot.raw == data
    shown = snapshot.to_dict()
    json.dumps(shown, allow_nan=False)
    assert all(map(is_fit_to_print, texts_in(shown)))
    for slot, model in snapshot.models.items():
        assert model.is_intact
        assert snapshot.model_bitmap >> slot & 1
        assert snapshot.state(slot) == RecordState.EXACT
    assert snapshot.nd_counters == tuple(map(snapshot.nd, range(layout.ND_COUNTERS)))
    for core in (0, 3, 4, 15):
        assert snapshot.nc_counters(core) == tuple(snapshot.nc(core, i) for i in range(layout.NC_COUNTERS))


@unhurried
@given(st.binary(min_size=8, max_size=8).filter(lambda header: header != HEADER), st.booleans())
def test_any_other_header_is_refused(header, ours):
    if ours:
        header = layout.SIGNATURE + header[4:]
        if header == HEADER:
            return
    kind = errors.WrongVersion if header[:4] == layout.SIGNATURE else errors.NotReady
    with pytest.raises(kind) as caught:
        Snapshot.from_bytes(header + EMPTY[8:])
    if kind is errors.WrongVersion:
        assert str(int.from_bytes(header[4:], "little")) in str(caught.value)
        assert str(layout.VERSION) in str(caught.value)


@unhurried
@given(st.integers(0, layout.REQUIRED_SIZE - 1), st.binary(max_size=16))
def test_anything_shorter_is_refused(length, start):
    with pytest.raises(errors.TooShort, match=rf"^holds {length} bytes, and a slab has {layout.REQUIRED_SIZE}"):
        Snapshot.from_bytes(start.ljust(length, b"\0")[:length])


def test_a_file_that_is_not_there_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Snapshot.from_file(tmp_path / "nothing")


def test_a_whole_slab_may_be_in_the_file(tmp_path, golden):
    path = tmp_path / "slab"
    path.write_bytes(golden.bytes("full").ljust(layout.SLAB_SIZE, b"\0"))
    assert Snapshot.from_file(path).raw == golden.bytes("full")
    assert Snapshot.from_file(str(path)).raw == golden.bytes("full")


# --- Looking things up


def test_counters_by_name_are_those_by_index(golden):
    snapshot = Snapshot.from_bytes(golden.bytes("full"))
    for core in range(layout.MAX_CORES):
        view = snapshot.core(core)
        assert view.core == core
        for counter in layout.NC:
            assert getattr(view, counter.name) == view.counter(counter.index) == snapshot.nc(core, counter.index)
        assert dict(view.items())["inference_count"] == view.inference_count


@pytest.mark.parametrize(
    "look",
    [
        lambda s: s.nd(-1),
        lambda s: s.nd(layout.ND_COUNTERS),
        lambda s: s.nc(0, layout.NC_COUNTERS),
        lambda s: s.nc(0, -1),
        lambda s: s.nc(layout.MAX_CORES, 0),
        lambda s: s.nc_counters(-1),
        lambda s: s.nc_counters(layout.MAX_CORES),
        lambda s: s.core(layout.MAX_CORES),
        lambda s: s.core(0).counter(layout.NC_COUNTERS),
        lambda s: s.word(-1),
        lambda s: s.word(layout.REQUIRED_WORDS),
        lambda s: s.state(RECORDS),
        lambda s: s.state(-1),
        lambda s: s.model(layout.MAX_MODELS),
        lambda s: s.model(-1),
    ],
)
def test_what_is_outside_the_format_is_an_error_of_its_own(look):
    with pytest.raises(errors.BadIndex):
        look(Snapshot(EMPTY))


def test_a_counter_nobody_knows_is_no_attribute():
    with pytest.raises(AttributeError, match="no counter 'colour'"):
        _ = Snapshot(EMPTY).core(0).colour


@pytest.mark.parametrize(
    ("ext", "info", "pid", "tag"),
    [
        ("long", "short", 7, "long"),
        (None, "short", 7, "short"),
        ("", "short", 7, "short"),
        (None, "", 7, "7"),
        (None, None, 7, "7"),
        (None, None, None, None),
    ],
)
def test_the_tag_a_process_goes_by(ext, info, pid, tag):
    parts = []
    if ext is not None:
        parts.append((layout.PROCESS_INFO_EXT.offset, ProcessInfoExt.build(tag=ext).raw))
    if info is not None:
        parts.append((layout.PROCESS_INFO.offset, ProcessInfo.build(tag=info).raw))
    assert Snapshot.from_bytes(blob(*parts), pid=pid).tag == tag


def test_the_runtime_version_is_in_two_places():
    version = Version(2, 31, 99)
    packed = layout.nd_index(0) * 8, version.packed().to_bytes(8, "little")
    info = layout.PROCESS_INFO.offset, ProcessInfo.build(runtime_version=(2, 32, 1)).raw
    assert Snapshot(blob()).runtime_version is None
    assert Snapshot(blob(packed)).runtime_version == version
    assert Snapshot(blob(packed, info)).runtime_version == Version(2, 32, 1)
    without = layout.PROCESS_INFO.offset, ProcessInfo.build(tag="x").raw
    assert Snapshot(blob(packed, without)).runtime_version == version


# --- How it was read


def with_model(slot=5):
    bit = layout.MODEL_BITMAP.offset, (1 << slot).to_bytes(8, "little")
    return blob(bit, (layout.model_offset(slot), MODEL.raw))


def test_nothing_is_verified_before_somebody_asks(monkeypatch):
    asked = []
    verify = _core.verify
    monkeypatch.setattr(_core, "verify", lambda data: asked.append(1) or verify(data))
    snapshot = Snapshot.from_bytes(with_model())
    assert (snapshot.nd(0), snapshot.core(3).inference_count, snapshot.model_bitmap) == (0, 0, 1 << 5)
    assert asked == []
    assert snapshot.model(5) == MODEL
    assert snapshot.states() == {
        5: RecordState.EXACT,
        RECORD_PROCESS_INFO: RecordState.UNPUBLISHED,
        RECORD_PROCESS_INFO_EXT: RecordState.UNPUBLISHED,
    }
    assert (snapshot.process_info, snapshot.process_info_ext, list(snapshot.models)) == (None, None, [5])
    assert asked == [1]


def test_states_that_came_with_the_copy_are_believed(monkeypatch):
    monkeypatch.setattr(_core, "verify", None)
    states = bytearray(RECORDS)
    states[5] = RecordState.RETRIED
    snapshot = Snapshot(with_model(), states=bytes(states))
    assert snapshot.state(5) == RecordState.RETRIED
    assert snapshot.model(5) == MODEL


def test_a_stale_record_is_shown_and_the_bytes_stay_as_read():
    torn = bytearray(with_model())
    torn[layout.model_offset(5) + 20] ^= 0xFF
    states = bytearray(RECORDS)
    states[5] = RecordState.STALE
    snapshot = Snapshot(bytes(torn), states=bytes(states), stale={5: MODEL.raw})
    assert snapshot.state(5) == RecordState.STALE
    assert snapshot.model(5) == MODEL
    assert snapshot.models == {5: MODEL}
    assert snapshot.raw == torn
    assert snapshot.to_dict()["records"] == {"model_5": "stale"}


@pytest.mark.parametrize("state", [RecordState.ABSENT, RecordState.UNPUBLISHED, RecordState.TORN])
def test_a_record_that_cannot_be_shown_is_none(state):
    states = bytes([state]) * RECORDS
    snapshot = Snapshot(with_model(), states=states)
    assert not state.has_value
    assert (snapshot.model(5), snapshot.models) == (None, {})
    assert (snapshot.process_info, snapshot.process_info_ext, snapshot.tag) == (None, None, None)


def test_whose_it_is_and_when_it_was_taken():
    snapshot = Snapshot(EMPTY, Origin(3, 4242, 9, 17), 123)
    assert (snapshot.device, snapshot.pid, snapshot.slot, snapshot.generation) == (3, 4242, 9, 17)
    assert snapshot.time_ns == 123
    shown = snapshot.to_dict()
    assert {key: shown[key] for key in ("device", "pid", "slot", "generation", "time_ns", "tag")} == {
        "device": 3,
        "pid": 4242,
        "slot": 9,
        "generation": 17,
        "time_ns": 123,
        "tag": "4242",
    }
    unknown = Snapshot(EMPTY)
    assert {unknown.device, unknown.pid, unknown.slot, unknown.generation, unknown.time_ns} == {None}


# --- It never changes


@pytest.mark.parametrize(
    "name",
    ["raw", "device", "pid", "slot", "generation", "time_ns", "layout", "models", "model_bitmap", "tag", "anything"],
)
def test_nothing_can_be_set(name):
    with pytest.raises(AttributeError):
        setattr(Snapshot(EMPTY), name, 1)


def test_it_does_not_follow_the_bytes_it_was_made_of():
    data = bytearray(with_model())
    for given_as in (data, memoryview(data)):
        snapshot = Snapshot.from_bytes(given_as)
        data[layout.nd_index(0) * 8] = 1
        data[layout.model_offset(5) + 20] ^= 0xFF
        assert snapshot.nd(0) == 0
        assert snapshot.model(5) == MODEL
        data[:] = with_model()


def test_its_bytes_cannot_be_written():
    with pytest.raises(TypeError):
        Snapshot.from_bytes(bytearray(EMPTY)).raw[8] = 1


def test_what_it_hands_out_is_the_callers_own():
    snapshot = Snapshot(with_model())
    snapshot.models.clear()
    snapshot.states().clear()
    snapshot.to_dict().clear()
    assert list(snapshot.models) == [5]
    assert len(snapshot.states()) == 3
