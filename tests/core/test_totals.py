"""What one slab adds to its device's totals: counters are summed, bitmaps OR-ed, versions tallied, gauges only live."""

import random

import pytest

from neuron_ds import _core, errors, layout

WORDS, ND, TALLIES, PAIRS = _core.totals_layout()
ND_KINDS = {c.name: c.index for c in layout.ND}
BITMAPS = [c.index for c in layout.ND if c.kind == layout.BITMAP]


def expected_of(nc, nd, gauges):
    """{word: value} of what isn't zero, from the kinds in the layout."""
    words = {}
    for counters, values, first in [(layout.NC, nc[core], core * layout.EXT_NC_STRIDE) for core in nc] + [
        (layout.ND, nd, ND)
    ]:
        for c in counters:
            value = values.get(c.index, 0)
            if (
                c.kind == layout.COUNTER
                or c.kind == layout.BITMAP
                or (c.kind == layout.GAUGE and gauges and value < 2**63)
            ):
                words[first + c.index] = value
    for kind, name in enumerate(("runtime_version", "framework_version", "fal_version")):
        if version := nd.get(ND_KINDS[name], 0):
            at = TALLIES + kind * (2 * PAIRS + 1)
            words |= {at: version, at + 1: 1}
    return {word: value for word, value in words.items() if value}


def nonzero(buffer):
    return {i: v for i, v in enumerate(memoryview(buffer).cast("Q")) if v}


@pytest.fixture
def values(slab):
    """What every counter of the slab holds, some gauges below zero: ({core: {counter: value}}, {counter: value})."""
    rng, mapping = random.Random(5), slab.producer()
    nc = {core: {} for core in range(layout.MAX_CORES)}
    nd = {}
    for core in nc:
        for c in layout.NC:
            nc[core][c.index] = rng.choice([0, rng.randrange(2**40), 2**64 - rng.randrange(1, 99)])
            mapping.nc(core, c.index).set(nc[core][c.index])
    for c in layout.ND:
        nd[c.index] = rng.choice([rng.randrange(1, 2**40), 2**64 - rng.randrange(1, 99)])
        mapping.nd(c.index).set(nd[c.index])
    return nc, nd


@pytest.mark.parametrize("gauges", [False, True])
def test_a_slab_adds_what_its_counters_are(slab, values, gauges):
    totals = bytearray(8 * WORDS)
    slab.reader().add_to(totals, 0, gauges)
    assert nonzero(totals) == expected_of(*values, gauges)


def test_two_slabs_add_up(slab, values):
    nc, nd = values
    totals = bytearray(8 * WORDS)
    slab.reader().add_to(totals, 0, False)
    slab.reader().add_to(totals, 0, False)
    once = expected_of(nc, nd, False)
    twice = {}
    for word, value in once.items():
        is_bitmap = word - ND in BITMAPS
        is_version = word >= TALLIES and value > 2
        twice[word] = value if is_bitmap or is_version else 2 * value % 2**64
    assert nonzero(totals) == {word: value for word, value in twice.items() if value}


def test_versions_are_tallied_and_the_rest_counted(slab):
    mapping, totals = slab.producer(), bytearray(8 * WORDS)
    version = mapping.nd(ND_KINDS["fal_version"])
    for i in [*range(PAIRS + 5), 3, 3, 0, PAIRS + 1]:
        version.set(1000 + i)
        mapping.add_to(totals, 0, True)
    view = memoryview(totals).cast("Q")
    at = TALLIES + 2 * (2 * PAIRS + 1)
    pairs = {view[at + 2 * i]: view[at + 2 * i + 1] for i in range(PAIRS)}
    assert pairs == {1000 + i: 1 for i in range(PAIRS)} | {1003: 3, 1000: 2}
    assert view[at + 2 * PAIRS] == 5 + 1
    assert at + 2 * PAIRS < WORDS


def test_an_older_slab_is_read_where_it_keeps_its_counters(golden, make_slab):
    totals = bytearray(8 * WORDS)
    make_slab(golden.bytes("older")).reader().add_to(totals, 0, False)
    view, nc = memoryview(totals).cast("Q"), golden.json("older")["nc"]
    for core in range(layout.MAX_CORES):
        for c in layout.NC:
            expected = nc[core][c.index] if c.kind == layout.COUNTER else 0
            assert view[core * layout.EXT_NC_STRIDE + c.index] == expected


def test_a_roll_up_is_the_other_copy_plus_the_slab(slab, values):
    totals = _core.map(-1, 0, 2 * 8 * WORDS, True, None)
    expected = bytearray(8 * WORDS)
    for i in range(4):
        totals.roll_up(i % 2, 1 - i % 2, slab.reader())
        slab.reader().add_to(expected, 0, False)
        assert totals.copy((1 - i % 2) * WORDS, WORDS) == bytes(expected)


def test_a_blob_inside_a_larger_mapping(make_slab):
    slab = make_slab(size=3 * layout.SLAB_SIZE)
    slab.write(layout.SLAB_SIZE + 0x100, (7).to_bytes(8, "little"))
    totals = bytearray(8 * WORDS)
    mapping = slab.reader()
    for i in range(3):
        mapping.add_to(totals, i * layout.SLAB_SIZE // 8, False)
    assert nonzero(totals) == {0: 7}
    for first in (3 * layout.SLAB_SIZE // 8, 3 * layout.SLAB_SIZE // 8 - layout.REQUIRED_WORDS + 1, 2**64 - 1):
        with pytest.raises(errors.BadIndex):
            mapping.add_to(totals, first, False)


def test_totals_that_are_none(slab):
    mapping = slab.producer()
    for wrong in (bytearray(8), bytearray(8 * WORDS + 8), memoryview(bytearray(8 * WORDS + 8))[4:-4]):
        with pytest.raises(errors.BadIndex):
            mapping.add_to(wrong, 0, False)
    with pytest.raises(TypeError):
        mapping.add_to(bytes(8 * WORDS), 0, False)
    totals = _core.map(-1, 0, 2 * 8 * WORDS, True, None)
    for source, target in ((0, 0), (1, 1), (2, 0), (0, 2)):
        with pytest.raises(errors.BadIndex):
            totals.roll_up(source, target, mapping)
    with pytest.raises(errors.BadIndex):
        _core.map(-1, 0, 8 * WORDS, True, None).roll_up(0, 1, mapping)
    with pytest.raises(errors.BadIndex):
        totals.roll_up(0, 1, _core.map(-1, 0, 4096, True, None))
    with pytest.raises(errors.ReadOnly):
        _core.map(-1, 0, 2 * 8 * WORDS, False, None).roll_up(0, 1, mapping)
