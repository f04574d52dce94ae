"""Records in the C core: stamp, publish, and reads that say how they came about and never show a torn one."""

import resource
import threading

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import (
    ABSENT,
    EXACT,
    KIND_NAMES,
    KINDS,
    PROCESS_INFO,
    PROCESS_INFO_EXT,
    RECORDS,
    RETRIED,
    STALE,
    TORN,
    UNPUBLISHED,
    fnv1a,
    is_uniform,
    offset_of,
    size_of,
    uniform_record,
    with_zero_hash,
    words,
)

each_kind = pytest.mark.parametrize(("record", "kind", "size"), KINDS, ids=KIND_NAMES)


def states_of(mapping):
    return mapping.snapshot()[2]


# --- Hash and stamp


def test_the_hash_is_fnv1a():
    assert [_core.fnv1a(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
    for data in (b"abcdefgh" * 20, bytes(range(256))):
        assert _core.fnv1a(data) == fnv1a(data)
        assert _core.record_hash(data) == fnv1a(bytes(4) + data[4:])


def test_a_record_has_a_hash_word():
    for size in range(4):
        with pytest.raises(ValueError, match="hash word"):
            _core.record_hash(bytes(size))
    assert _core.record_hash(b"abcd") == fnv1a(bytes(4))


@each_kind
def test_a_stamp_changes_the_hash_word_only(record, kind, size):
    data = bytes([7]) * size
    stamped = _core.stamp(kind, data)
    assert stamped[4:] == data[4:]
    assert int.from_bytes(stamped[:4], "little") == fnv1a(bytes(4) + data[4:])
    assert _core.stamp(kind, stamped) == stamped


def test_stamps_of_no_record():
    for kind, size in ((0, layout.MODEL_SIZE - 1), (1, layout.MODEL_SIZE), (2, 0), (3, 64), (-1, 64)):
        with pytest.raises(ValueError, match=r"kinds of records|size"):
            _core.stamp(kind, bytes(size))
    with pytest.raises(TypeError):
        _core.stamp(0, "text")


# A record of each kind whose hash is 0: to an old reader it would look unpublished.
ZERO_HASHES = {
    "model": (layout.OBJECT_MODEL_NODE, with_zero_hash(bytes(4) + b"\1" * 668, 268), 5, 1),
    "process_info": (layout.OBJECT_PROCESS_INFO, with_zero_hash(bytes(4) + b"\2" * 60, 40), PROCESS_INFO, 1),
    "ext": (
        layout.OBJECT_PROCESS_INFO_EXT,
        with_zero_hash(bytes(4) + b"tag" + bytes(253), 4, range(1, 256)),
        PROCESS_INFO_EXT,
        1,
    ),
    "ext whose NUL is its last byte": (
        layout.OBJECT_PROCESS_INFO_EXT,
        with_zero_hash(bytes(4) + b"t" * 255 + bytes(1), 100, range(1, 256)),
        PROCESS_INFO_EXT,
        0,
    ),
    "ext without a NUL": (
        layout.OBJECT_PROCESS_INFO_EXT,
        with_zero_hash(bytes(4) + b"t" * 256, 100, range(1, 256)),
        PROCESS_INFO_EXT,
        0,
    ),
}


@pytest.mark.parametrize("name", ZERO_HASHES)
def test_a_hash_of_zero_is_avoided_where_a_byte_is_free(slab, name):
    kind, record, number, free = ZERO_HASHES[name]
    assert _core.record_hash(record) == 0
    stamped = _core.stamp(kind, record)
    changed = [i for i in range(4, len(record)) if stamped[i] != record[i]]
    assert len(changed) == free
    assert (int.from_bytes(stamped[:4], "little") != 0) == bool(free)
    assert int.from_bytes(stamped[:4], "little") == _core.record_hash(stamped)
    if name == "ext":
        assert changed[0] > record.index(b"\0", 4)  # behind the NUL: the text is the same
    elif free:
        fields = layout.MODEL_FIELDS if name == "model" else layout.PROCESS_INFO_FIELDS
        pads = [range(f.offset, f.offset + f.size) for f in fields if f.name == "pad"]
        assert any(changed[0] in pad for pad in pads)
    mapping = slab.producer()
    mapping.bitmap_set(5)
    assert mapping.publish(number, record) == stamped
    assert mapping.read_record(number) == (EXACT, stamped)
    assert states_of(mapping)[number] == EXACT


@pytest.mark.parametrize("name", ZERO_HASHES)
def test_a_matching_hash_of_zero_is_accepted(slab, name):
    _, record, number, _ = ZERO_HASHES[name]
    slab.write(offset_of(number), record)
    slab.write(layout.MODEL_BITMAP.offset, words(1 << 5))
    reader = slab.reader()
    assert reader.read_record(number) == (EXACT, record)
    assert states_of(reader)[number] == EXACT
    assert _core.verify(slab.read())[number] == EXACT
    slab.tear(number)
    assert reader.read_record(number) == (STALE, record)
    assert slab.reader().read_record(number) == (TORN, None)


# --- Publish


@each_kind
def test_publish_writes_the_record_and_no_other_byte(make_slab, record, kind, size):
    slab = make_slab(b"\xaa" * layout.REQUIRED_SIZE)
    mapping = slab.producer()
    expected = bytearray(slab.read())
    data = bytes(range(256)) * 3
    published = mapping.publish(record, data[:size])
    assert published == _core.stamp(kind, data[:size])
    expected[offset_of(record) : offset_of(record) + size] = published
    assert slab.read() == bytes(expected)
    mapping.zero_record(record)
    expected[offset_of(record) : offset_of(record) + size] = bytes(size)
    assert slab.read() == bytes(expected)


def test_every_record_is_where_the_layout_says(slab):
    mapping = slab.producer()
    expected = bytearray(layout.REQUIRED_SIZE)
    for record in range(RECORDS):
        at, size = offset_of(record), size_of(record)
        expected[at : at + size] = mapping.publish(record, uniform_record(record, record + 1))
    assert slab.read() == bytes(expected)
    assert [mapping.read_record(r)[0] for r in range(RECORDS)] == [EXACT] * RECORDS


@pytest.mark.parametrize("record", [RECORDS, -1, 2**32, 2**32 + 5, 2**64 + 5])
def test_no_such_record(slab, record):
    mapping = slab.producer()
    for call in (
        lambda: mapping.publish(record, bytes(layout.MODEL_SIZE)),
        lambda: mapping.zero_record(record),
        lambda: mapping.read_record(record),
    ):
        with pytest.raises(errors.BadIndex):
            call()
    assert not any(slab.read())


@each_kind
def test_a_record_of_a_wrong_size(slab, record, kind, size):
    mapping = slab.producer()
    for wrong in (0, 3, size - 1, size + 1, 4096):
        with pytest.raises(errors.BadIndex):
            mapping.publish(record, bytes(wrong))
    assert not any(slab.read())


def test_the_steps_of_publish(slab):
    mapping, seen = slab.producer(), []
    _core.set_step_hook(lambda name: seen.append((name, mapping.read_record(5)[0])))
    try:
        mapping.publish(5, uniform_record(5, 1))
        mapping.publish(5, uniform_record(5, 2))
    finally:
        _core.set_step_hook(None)
    mapping.publish(5, uniform_record(5, 3))
    assert seen == [
        ("publish.begin", UNPUBLISHED),
        ("publish.half", TORN),
        ("publish.written", EXACT),
        ("publish.begin", EXACT),
        ("publish.half", TORN),
        ("publish.written", EXACT),
    ]


# --- States


@each_kind
def test_the_states_of_a_read_by_name(slab, record, kind, size):
    producer, reader = slab.producer(), slab.reader()
    producer.bitmap_set(5)
    assert reader.read_record(record) == (UNPUBLISHED, None)
    published = producer.publish(record, uniform_record(record, 3))
    assert reader.read_record(record) == (EXACT, published)
    slab.tear(record)
    assert reader.read_record(record) == (STALE, published)  # the reader's earlier copy
    assert slab.reader().read_record(record) == (TORN, None)  # a reader without one
    slab.tear(record)
    assert reader.read_record(record) == (EXACT, published)
    producer.zero_record(record)
    assert reader.read_record(record) == (UNPUBLISHED, None)
    producer.publish(record, uniform_record(record, 4))
    slab.tear(record)
    assert reader.read_record(record) == (TORN, None)  # zeroed in between: the earlier copy was of another use


def test_the_states_of_a_snapshot(slab):
    producer, reader = slab.producer(), slab.reader()
    assert states_of(reader) == bytes([ABSENT] * layout.MAX_MODELS + [UNPUBLISHED] * 2)
    for slot in (0, 1, 9):
        producer.publish(slot, uniform_record(slot, slot + 1))
        producer.bitmap_set(slot)
    producer.bitmap_set(2)
    producer.publish(30, uniform_record(30, 3))  # under a clear bit
    info = producer.publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 3))
    expected = {0: EXACT, 1: EXACT, 2: UNPUBLISHED, 9: EXACT, PROCESS_INFO: EXACT, PROCESS_INFO_EXT: UNPUBLISHED}
    assert {r: s for r, s in enumerate(states_of(reader)) if s} == expected
    slab.tear(9)
    slab.tear(PROCESS_INFO)
    model = bytes(slab.read(offset_of(9), layout.MODEL_SIZE))
    raw, time_ns, states, stale = reader.snapshot()
    assert {r: s for r, s in enumerate(states) if s} == expected | {9: STALE, PROCESS_INFO: STALE}
    assert stale[PROCESS_INFO] == info
    assert is_uniform(stale[9])
    assert raw[offset_of(9) :][: layout.MODEL_SIZE] == model  # the bytes are shown as they were read
    assert time_ns > 0
    # A new reader has no earlier copy, and neither has a look at bytes.
    for fresh in (states_of(slab.reader()), _core.verify(raw)):
        assert {r: s for r, s in enumerate(fresh) if s} == expected | {9: TORN, PROCESS_INFO: TORN}


def test_stale_ends_when_the_slot_goes_out_of_use(slab):
    producer, reader = slab.producer(), slab.reader()
    producer.publish(4, uniform_record(4, 1))
    producer.bitmap_set(4)
    assert states_of(reader)[4] == EXACT
    slab.tear(4)
    assert states_of(reader)[4] == STALE
    producer.bitmap_clear(4)
    assert states_of(reader)[4] == ABSENT
    producer.bitmap_set(4)
    assert states_of(reader)[4] == TORN
    slab.tear(4)
    assert states_of(reader)[4] == EXACT
    producer.zero_record(4)
    assert states_of(reader)[4] == UNPUBLISHED
    producer.publish(4, uniform_record(4, 2))
    slab.tear(4)
    assert states_of(reader)[4] == TORN


def test_a_snapshot_without_verifying_says_nothing_of_records(slab):
    slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 3))
    slab.tear(PROCESS_INFO)
    raw, _, states, stale = slab.reader().snapshot(False)
    assert (raw, states, stale) == (slab.read(), None, None)
    with pytest.raises(TypeError):
        slab.reader().snapshot(True, True)


def retried(attempt, slab, record):
    """Calls `attempt` on a torn record that another thread mends meanwhile, until the second read finds it whole."""
    for _ in range(300):
        slab.tear(record)
        started = threading.Event()
        result = []
        thread = threading.Thread(target=lambda s=started, out=result: (s.set(), out.append(attempt())))
        thread.start()
        started.wait()
        slab.tear(record)
        thread.join()
        if result[0][0] == RETRIED:
            return result[0][1]
        assert result[0][0] in (EXACT, STALE, TORN)
    raise AssertionError("never hit the pause")


@each_kind
def test_a_record_that_its_producer_finishes_in_the_pause(slab, record, kind, size):
    producer, reader = slab.producer(), slab.reader()
    producer.bitmap_set(5)
    published = producer.publish(record, uniform_record(record, 3))
    assert retried(lambda: reader.read_record(record), slab, record) == published

    def by_snapshot():
        raw, _, states, _ = reader.snapshot()
        return states[record], raw[offset_of(record) :][:size]

    assert retried(by_snapshot, slab, record) == published


# --- Pauses


def pauses_of(call):
    """How often one call sleeps: a thread that sleeps gives the processor away of its own accord, which is counted."""
    rounds = 40
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(rounds):
        call()
    return round((resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before) / rounds)


def test_only_a_mismatch_makes_a_snapshot_pause_and_only_once(slab):
    producer, reader = slab.producer(), slab.reader()
    for slot in range(0, layout.MAX_MODELS, 2):  # the others stay unpublished under their bits
        producer.publish(slot, uniform_record(slot, 3))
    producer.store(layout.MODEL_BITMAP.offset // 8, 2**64 - 1)
    producer.publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 3))
    assert set(states_of(reader)) == {UNPUBLISHED, EXACT}
    assert pauses_of(reader.snapshot) == 0
    for torn in range(1, 4):
        slab.tear(2 * torn)
        if torn == 2:
            slab.tear(PROCESS_INFO)
        assert pauses_of(reader.snapshot) == 1
        assert pauses_of(slab.reader().snapshot) == 1
        assert pauses_of(lambda: reader.snapshot(False)) == 0


def test_a_pass_over_many_slabs_pauses_once(make_slab):
    readers = []
    for _ in range(5):
        slab = make_slab()
        slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 3))
        slab.tear(PROCESS_INFO)
        readers.append(slab.reader())
    arena = _core.arena(5)
    assert pauses_of(lambda: _core.snapshot_many(readers, arena, True)) == 1
    assert pauses_of(lambda: _core.snapshot_many(readers, arena, False)) == 0


@each_kind
def test_a_read_by_name_waits_once_at_most(slab, record, kind, size):
    producer, reader = slab.producer(), slab.reader()
    assert pauses_of(lambda: reader.read_record(record)) == 1  # unpublished
    producer.publish(record, uniform_record(record, 3))
    assert pauses_of(lambda: reader.read_record(record)) == 0
    slab.tear(record)
    assert pauses_of(lambda: reader.read_record(record)) == 1


# --- Golden slabs


def test_the_torn_golden_slab(golden, make_slab):
    slab = make_slab(golden.bytes("torn"))
    expected = {0: EXACT, 5: TORN, 6: UNPUBLISHED, 63: EXACT, PROCESS_INFO: EXACT, PROCESS_INFO_EXT: UNPUBLISHED}
    raw, _, states, stale = slab.reader().snapshot()
    assert {r: s for r, s in enumerate(states) if s} == expected
    assert (raw, stale) == (golden.bytes("torn"), None)
    assert [slab.reader().read_record(r)[0] for r in expected] == list(expected.values())


@pytest.mark.parametrize(
    ("name", "models", "ext"),
    [("full", range(layout.MAX_MODELS), EXACT), ("sparse", [0, 5, 63], UNPUBLISHED), ("odd", None, EXACT)],
)
def test_golden_records_are_exact(golden, make_slab, name, models, ext):
    slab = make_slab(golden.bytes(name))
    states = states_of(slab.reader())
    bitmap = slab.reader().bitmap()
    if models is None:
        models = [s for s in range(layout.MAX_MODELS) if bitmap >> s & 1]
        assert {17, 18} <= set(models)
        assert 40 not in models
        assert slab.reader().read_record(40)[0] == EXACT
    assert [r for r in range(layout.MAX_MODELS) if states[r] == EXACT] == list(models)
    assert set(states[: layout.MAX_MODELS]) <= {ABSENT, EXACT}
    assert states[PROCESS_INFO] == EXACT
    assert states[PROCESS_INFO_EXT] == ext


@pytest.mark.parametrize("name", ["full", "sparse", "odd"])
def test_golden_records_are_published_as_they_are(golden, make_slab, name):
    """Their stamps, made by another program, are the ones we make."""
    data = golden.bytes(name)
    slab = make_slab(data)
    mapping = slab.producer()
    for record in range(RECORDS):
        bytes_of = data[offset_of(record) :][: size_of(record)]
        if any(bytes_of):
            assert mapping.publish(record, bytes(4) + bytes_of[4:]) == bytes_of
    assert slab.read() == data
