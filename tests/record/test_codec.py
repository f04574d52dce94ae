"""Changed words as bytes: what the core writes, a decoder in plain Python reads, and the other way round."""

import os
import struct
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neuron_ds import _core, layout
from neuron_ds.record import format as f
from tests.core.helpers import PROCESS_INFO, PROCESS_INFO_EXT, Slab, uniform_record

WORDS = layout.REQUIRED_WORDS
MOST = 2**64 - 1
BITMAP = layout.MODEL_BITMAP.offset // 8
#: Words of no record: what is stored in them changes no state.
PLAIN = [
    layout.nd_index(7),
    layout.nc_index(0, 1),
    layout.nc_index(3, 30),
    layout.nc_index(15, 94),
    layout.nc_index(4, 0),
]

words = st.sampled_from(PLAIN) | st.integers(layout.EXT_NC_REGION.offset // 8, WORDS - 1)
values = st.sampled_from([0, 1, 127, 128, 2**63 - 1, 2**63, MOST]) | st.integers(0, MOST)
stores = st.lists(st.lists(st.tuples(words, values), max_size=12), min_size=1, max_size=6)


def decode(data: bytes, slab: list[int], at: int, *, whole: bool = False) -> int:
    """Changes as docs/recording.md describes them, written down a second time."""
    if whole:
        slab[:] = [0] * len(slab)
    word = -1
    while True:
        gap, at = f.read_number(data, at)
        if not gap:
            return at
        change, at = f.read_number(data, at)
        word += gap
        slab[word] = (slab[word] + f.unzigzag(change)) % 2**64


def decode_blocks(data: bytes, slabs: dict[int, list[int]], at: int, *, whole: bool = False):
    """({track: {record: state}}, offset behind the blocks)."""
    states, track = {}, -1
    while True:
        head, at = f.read_number(data, at)
        if not head:
            return states, at
        track += head >> 1
        if head & 1:
            count = data[at]
            pairs = data[at + 1 : at + 1 + 2 * count]
            states[track] = dict(zip(pairs[::2], pairs[1::2], strict=True))
            at += 1 + 2 * count
        at = decode(data, slabs.setdefault(track, [0] * WORDS), at, whole=whole)


def as_words(raw: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(raw) // 8}Q", raw))


@pytest.fixture
def slab():
    made = Slab(size=layout.SLAB_SIZE)
    yield made
    made.close()


@settings(max_examples=60, deadline=None)
@given(stores)
@example([[(PLAIN[1], MOST)], [(PLAIN[1], 0)], [(PLAIN[1], 2**63)], [(PLAIN[1], 2**63 - 1)], []])
def test_what_is_written_is_read_whatever_counters_do(rounds):
    """They wrap around, fall, and stay as they are."""
    made = Slab(size=layout.SLAB_SIZE)
    try:
        producer, tape = made.producer(), _core.tape()
        producer.stamp_header()
        tape.add(5, made.reader())
        slabs, played = {}, _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)
        for round_ in rounds:
            for word, value in round_:
                producer.store(word, value)
            assert tape.look(-7, 0, 0) is None
            data = tape.take()
            head, at = f.read_number(data, 0)
            assert (f.unzigzag(head >> 1), head & 1) == (-7, 0)
            _, end = decode_blocks(data, slabs, at)
            assert end == len(data)
            assert slabs[5] == as_words(made.read(size=layout.REQUIRED_SIZE))
            if data[at]:
                _core.apply_changes(played, data, at + 1, False)
            assert as_words(played.copy(0, WORDS)) == slabs[5]
        whole = {}
        states, end = decode_blocks(tape.whole(), whole, 0, whole=True)
        assert whole == slabs
        assert end == len(tape.whole())
        assert states == {5: {PROCESS_INFO: 1, PROCESS_INFO_EXT: 1}}
    finally:
        made.close()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(values, values), min_size=1, max_size=40), st.booleans())
def test_the_changes_of_python_are_those_of_the_core(pairs, whole):
    before, now = [a for a, _ in pairs], [b for _, b in pairs]
    memory = _core.map(-1, 0, 8 * len(pairs), True, None)
    for word, value in enumerate(before):
        memory.store(word, value)
    data = f.changes([0] * len(now) if whole else before, now)
    assert _core.apply_changes(memory, data, 0, whole) == len(data)
    assert list(memory.load_many(0, len(now))) == now


@settings(deadline=None)
@given(st.integers(0, MOST), st.integers(-(2**63), 2**63 - 1))
def test_numbers(number, signed):
    data = f.number(number)
    assert f.read_number(data, 0) == (number, len(data))
    assert f.unzigzag(f.zigzag(signed)) == signed
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="cut short"):
            f.read_number(data[:cut], 0)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), st.integers(0, 100), st.booleans())
def test_nonsense_is_refused_and_nothing_outside_is_touched(data, offset, whole):
    memory = _core.map(-1, 0, 4096, True, None)
    small = _core.map(-1, 0, 64, True, None)
    for mapping in (memory, small):
        with suppress(ValueError):
            assert _core.apply_changes(mapping, data, offset, whole) <= len(data)


def test_late_ticks_say_so(slab):
    tape = _core.tape()
    tape.look(3, 1500, 2)
    tape.look(0, 0, 1)
    assert tape.pending == 9
    data = tape.take()
    head, at = f.read_number(data, 0)
    late_us, at = f.read_number(data, at)
    missed, at = f.read_number(data, at)
    assert (f.unzigzag(head >> 1), head & 1, late_us, missed, data[at]) == (3, 1, 1500, 2, 0)
    assert data[at + 1 :] == bytes([1, 0, 1, 0])


def test_tracks_are_numbered_upwards(slab):
    producer, tape = slab.producer(), _core.tape()
    producer.stamp_header()
    for track in (2, 3, 1000):
        tape.add(track, slab.reader())
    tape.look(0, 0, 0)
    slabs: dict = {}
    decode_blocks(tape.take(), slabs, 1)
    assert list(slabs) == [2, 3, 1000]
    assert tape.remove(3)
    assert not tape.remove(3)
    producer.nd(7).add(1)
    tape.look(0, 0, 0)
    seen: dict = {}
    decode_blocks(tape.take(), seen, 1)
    assert list(seen) == [2, 1000]


def test_a_slab_that_was_given_away_leaves_nothing(slab):
    table = _core.map(-1, 0, 8, True, None)
    producer, tape = slab.producer(), _core.tape()
    producer.stamp_header()
    reader = slab.reader()
    reader.guard(table, 0, 0, None, 0)
    tape.add(0, reader)
    tape.look(0, 0, 0)
    tape.take()
    producer.nd(7).add(1)
    table.store(0, 1)
    assert tape.look(0, 0, 0) == [0]
    assert tape.take() == bytes([0, 0])
    tape.add(1, slab.reader())
    producer.zero(0, 1)  # as where there are no generations
    assert tape.look(0, 0, 0) == [1]
    assert tape.look(0, 0, 0) is None


def test_states_are_told_as_they_change(slab):
    producer, tape = slab.producer(), _core.tape()
    producer.stamp_header()
    tape.add(0, slab.reader())

    def look() -> dict[int, int]:
        tape.look(0, 0, 0)
        return decode_blocks(tape.take(), {}, 1)[0].get(0, {})

    assert look() == {}
    producer.publish(5, uniform_record(5, 3))
    assert look() == {}, "its bit is clear"
    producer.bitmap_set(5)
    assert look() == {5: 2}
    producer.publish(PROCESS_INFO_EXT, uniform_record(PROCESS_INFO_EXT, 4))
    assert look() == {PROCESS_INFO_EXT: 2}
    slab.tear(5)
    assert look() == {5: 4}
    assert tape.torn == 1
    slab.tear(5)
    assert look() == {5: 2}
    assert tape.torn == 0
    producer.zero_record(5)
    assert look() == {5: 1}
    slab.tear(5)
    assert look() == {5: 5}, "there was nothing before that could be shown"
    producer.bitmap_clear(5)
    assert look() == {5: 0}


def test_the_states_of_the_tape_are_those_of_a_snapshot(slab):
    """For whatever bytes; a tape only knows more of what was there before."""
    tape = _core.tape()
    slab.write(0, os.urandom(layout.REQUIRED_SIZE))
    slab.write(0, layout.HEADER_WORD.to_bytes(8, "little"))
    tape.add(0, slab.reader())
    tape.look(0, 0, 0)
    states = decode_blocks(tape.take(), {}, 1)[0][0]
    assert states == {r: s for r, s in enumerate(_core.verify(slab.read(size=layout.REQUIRED_SIZE))) if s}
