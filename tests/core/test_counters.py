"""Counter and Core handles: their arithmetic, their addresses, and what they refuse."""

import random
import struct

import pytest

from neuron_ds import errors, layout
from tests.core.helpers import words

MODULUS = 1 << 64
CORES = range(layout.MAX_CORES)
COUNTERS = range(layout.NC_COUNTERS)


@pytest.fixture
def mapping(slab):
    return slab.producer()


# --- Arithmetic


def test_arithmetic_is_modulo_two_to_the_64(mapping):
    counter = mapping.nc(0, 0)
    rng = random.Random(7)
    expected = 0
    for _ in range(3000):
        n = rng.choice([0, 1, 2**31, 2**63, MODULUS - 1, rng.randrange(MODULUS)])
        operation = rng.choice(["add", "sub", "or_", "set", "inc"])
        if operation == "inc":
            counter.inc()
        else:
            getattr(counter, operation)(n)
        expected = {
            "add": expected + n,
            "sub": expected - n,
            "or_": expected | n,
            "set": n,
            "inc": expected + 1,
        }[operation] % MODULUS
        assert counter.get() == expected


def test_operations_return_nothing(mapping):
    counter = mapping.nd(0)
    assert [counter.add(1), counter.sub(1), counter.or_(1), counter.set(1), counter.inc()] == [None] * 5


@pytest.mark.parametrize("operation", ["add", "sub", "or_", "set"])
@pytest.mark.parametrize("value", [-1, MODULUS, -(2**80), 2**80])
def test_values_outside_a_word_are_refused(mapping, operation, value):
    counter = mapping.nc(1, 1)
    counter.set(5)
    with pytest.raises(OverflowError):
        getattr(counter, operation)(value)
    assert counter.get() == 5


@pytest.mark.parametrize("operation", ["add", "sub", "or_", "set"])
@pytest.mark.parametrize("value", [1.0, "1", None, b"1"])
def test_values_that_are_no_integers_are_refused(mapping, operation, value):
    counter = mapping.nc(1, 1)
    with pytest.raises(TypeError):
        getattr(counter, operation)(value)
    assert counter.get() == 0


# --- Addresses


def test_every_counter_has_its_own_word_where_the_layout_says(mapping, slab):
    expected = bytearray(layout.REQUIRED_SIZE)
    for i in range(layout.ND_COUNTERS):
        mapping.nd(i).set(1000 + i)
        struct.pack_into("<Q", expected, layout.nd_index(i) * 8, 1000 + i)
    for core in CORES:
        for i in COUNTERS:
            mapping.nc(core, i).set(core << 32 | i + 1)
            struct.pack_into("<Q", expected, layout.nc_index(core, i) * 8, core << 32 | i + 1)
    assert slab.read() == bytes(expected)
    assert [[mapping.nc(core, i).get() for i in COUNTERS] for core in CORES] == [
        [core << 32 | i + 1 for i in COUNTERS] for core in CORES
    ]


@pytest.mark.parametrize("index", [layout.ND_COUNTERS, -1, 2**31, 2**32, 2**32 + 1, 2**64, -(2**64)])
def test_bad_device_counters(mapping, index):
    with pytest.raises(errors.BadIndex) as caught:
        mapping.nd(index)
    assert (caught.value.device, caught.value.pid, caught.value.slot) == (3, 4242, 7)


@pytest.mark.parametrize(
    ("core", "counter"),
    [
        (0, layout.NC_COUNTERS),
        (3, layout.NC_COUNTERS),
        (4, layout.NC_COUNTERS),
        (15, layout.NC_COUNTERS),
        (layout.MAX_CORES, 0),
        (-1, 0),
        (0, -1),
        (2**32, 0),
        (0, 2**32),
        (2**64, 2**64),
    ],
)
def test_bad_core_counters(mapping, core, counter):
    with pytest.raises(errors.BadIndex):
        mapping.nc(core, counter)


@pytest.mark.parametrize("core", [layout.MAX_CORES, -1, 2**32])
def test_bad_cores(mapping, core):
    with pytest.raises(errors.BadIndex):
        mapping.core(core)


def test_indices_that_are_no_integers(mapping):
    for call in (lambda: mapping.nd("0"), lambda: mapping.nc(0, 1.0), lambda: mapping.core(None)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        mapping.nc(0)


def test_handles_show_what_they_are(mapping):
    assert repr(mapping.nd(3)) == "<Counter 3 of the device: 0>"
    assert repr(mapping.nc(2, 90)) == "<Counter 90 of core 2: 0>"


# --- Readers


def test_readers_see_and_may_not_write(slab):
    producer, reader = slab.producer(), slab.reader()
    mine, theirs = producer.nc(12, 34), reader.nc(12, 34)
    mine.set(99)
    assert theirs.get() == 99
    for write in (
        lambda: theirs.add(1),
        lambda: theirs.sub(1),
        lambda: theirs.or_(1),
        lambda: theirs.set(1),
        lambda: theirs.inc(),
        lambda: reader.core(1).add_many(words(1)),
        lambda: reader.core(1).execution_ended(1),
    ):
        with pytest.raises(errors.ReadOnly) as caught:
            write()
        assert isinstance(caught.value, PermissionError)
        assert "device 3, pid 4242, slot 7" in str(caught.value)
    assert slab.read() == producer.copy(0, layout.REQUIRED_WORDS)
    assert mine.get() == 99


def test_a_reader_finds_the_counters_of_an_older_layout(golden, make_slab):
    reader = make_slab(golden.bytes("older")).reader()
    assert [[reader.nc(core, i).get() for i in COUNTERS] for core in CORES] == golden.json("older")["nc"]


def test_bytes_behind_the_older_extension_are_a_fault_and_no_older_layout(golden, make_slab):
    slab = make_slab(golden.bytes("older"))
    slab.write(layout.OLDER_EXT_NC_DATA.end, b"\1")
    reader, nc = slab.reader(), golden.json("older")["nc"]
    assert reader.nc(0, 30).get() == nc[0][30]
    assert any(nc[9])
    assert [reader.nc(9, i).get() for i in COUNTERS] == [0] * layout.NC_COUNTERS


def test_a_reader_finds_the_counters_of_a_full_slab(golden, make_slab):
    reader, expected = make_slab(golden.bytes("full")).reader(), golden.json("full")
    assert [[reader.nc(core, i).get() for i in COUNTERS] for core in CORES] == expected["nc"]
    assert [reader.nd(i).get() for i in range(layout.ND_COUNTERS)] == expected["nd"]
