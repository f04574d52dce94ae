"""Any bytes at all as a slab: every look at them gives values or one of our errors, whatever the size of the file."""

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neuron_ds import _core, errors, layout
from tests.core.helpers import (
    ABSENT,
    EXACT,
    RECORDS,
    TORN,
    UNPUBLISHED,
    Slab,
    fnv1a,
    offset_of,
    size_of,
)

SIZE = layout.REQUIRED_SIZE


def expected_states(data):
    """How each record of these bytes is to be judged at first sight, worked out a second time."""
    bitmap = int.from_bytes(data[layout.MODEL_BITMAP.offset :][:8], "little")
    states = []
    for record in range(RECORDS):
        bytes_of = data[offset_of(record) :][: size_of(record)]
        if record < layout.MAX_MODELS and not bitmap >> record & 1:
            states.append(ABSENT)
        elif not any(bytes_of):
            states.append(UNPUBLISHED)
        else:
            good = fnv1a(bytes(4) + bytes_of[4:]) == int.from_bytes(bytes_of[:4], "little")
            states.append(EXACT if good else TORN)
    return bytes(states)


def look_at(mapping):
    """Every call that reads a slab."""
    raw, _, states, stale = mapping.snapshot()
    assert mapping.snapshot(False)[0] == raw
    assert states == expected_states(raw)
    assert stale is None
    for core in range(0, layout.MAX_CORES, 5):
        for counter in range(0, layout.NC_COUNTERS, 31):
            assert 0 <= mapping.nc(core, counter).get() < 2**64
    assert mapping.nd(30).get() == int.from_bytes(raw[31 * 8 :][:8], "little")
    assert mapping.bitmap() == int.from_bytes(raw[layout.MODEL_BITMAP.offset :][:8], "little")
    assert mapping.header() == int.from_bytes(raw[:8], "little")
    mapping.add_to(bytearray(8 * _core.totals_layout()[0]), 0, True)
    return raw


def from_seed(seed, golden_bytes):
    """Noise, or a golden slab with a few bytes changed, or a slab that is nearly empty."""
    rng = random.Random(seed)
    if seed % 3 == 0:
        return rng.randbytes(SIZE)
    data = bytearray(golden_bytes if seed % 3 == 1 else SIZE)
    for _ in range(rng.randrange(1, 200)):
        data[rng.randrange(SIZE)] = rng.choice([0, 1, 0xFF, rng.randrange(256)])
    return bytes(data)


@pytest.mark.parametrize("seed", range(24))
def test_random_slabs(make_slab, golden, seed):
    data = from_seed(seed, golden.bytes("full"))
    slab = make_slab(data)
    reader = slab.reader()
    assert look_at(reader) == data
    for record in random.Random(seed).sample(range(RECORDS), 5):
        state, shown = reader.read_record(record)
        bytes_of = data[offset_of(record) :][: size_of(record)]
        first = expected_states(data)[record]
        assert state == (first if first != ABSENT else state)
        assert shown == (bytes_of if state == EXACT else None)
    assert slab.read() == data  # nobody wrote


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    size=st.integers(0, 2 * SIZE),
    wanted=st.integers(0, 2 * SIZE),
    seed=st.integers(0, 2**32),
)
@example(size=SIZE, wanted=SIZE, seed=0)
@example(size=SIZE - 1, wanted=SIZE, seed=1)
@example(size=SIZE - 1, wanted=SIZE - 8, seed=2)
@example(size=SIZE + 1, wanted=SIZE, seed=3)
@example(size=0, wanted=8, seed=4)
@example(size=9, wanted=8, seed=5)
@example(size=4095, wanted=4096, seed=6)
def test_files_of_any_size(size, wanted, seed):
    """A length that is no number of words, that is too short for a slab or that the file doesn't have."""
    slab = Slab(random.Random(seed).randbytes(size), size=size)
    try:
        try:
            mapping = _core.map(slab.fd, 0, wanted, False, (3, 4242, 7))
        except errors.TooShort:
            assert wanted > size
            return
        except errors.BadIndex:
            assert wanted == 0 or wanted % 8
            return
        assert wanted <= size
        assert wanted % 8 == 0
        assert mapping.copy(0, wanted // 8) == slab.read(0, wanted)
        if wanted >= SIZE:
            look_at(mapping)
        else:
            for call in (mapping.snapshot, mapping.header, lambda: mapping.nc(0, 0), lambda: mapping.read_record(64)):
                with pytest.raises(errors.TooShort):
                    call()
    finally:
        slab.close()


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=4, max_size=700))
def test_a_hash_is_a_hash(data):
    assert _core.record_hash(data) == fnv1a(bytes(4) + data[4:])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2), st.data())
def test_a_stamped_record_is_exact_and_one_changed_bit_is_not(kind, data):
    size = (layout.MODEL_SIZE, layout.PROCESS_INFO_SIZE, layout.PROCESS_INFO_EXT_SIZE)[kind]
    record = (9, layout.MAX_MODELS, layout.MAX_MODELS + 1)[kind]
    payload = data.draw(st.binary(min_size=size, max_size=size))
    bit = data.draw(st.integers(32, size * 8 - 1))
    stamped = _core.stamp(kind, payload)
    blob = bytearray(SIZE)
    blob[layout.MODEL_BITMAP.offset : layout.MODEL_BITMAP.end] = (1 << 9).to_bytes(8, "little")
    blob[offset_of(record) : offset_of(record) + size] = stamped
    assert _core.verify(blob)[record] == (EXACT if any(stamped) else UNPUBLISHED)
    blob[offset_of(record) + bit // 8] ^= 1 << bit % 8
    # FNV's last step is a bijection of the last byte, but an earlier change may cancel out: then the hash says so too.
    assert _core.verify(blob) == expected_states(bytes(blob))
