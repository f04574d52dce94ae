"""A Mapping as a run of words: what it loads, stores and copies, and that it never leaves its bytes."""

import errno
import os

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import words
from tests.processes import resident_kib

HUGE = [2**31, 2**32, 2**60, 2**61, 2**63, 2**64 - 1]
END = layout.REQUIRED_WORDS


@pytest.fixture
def mapping(slab):
    return slab.producer()


def test_words(mapping, slab):
    for i in (0, 1, END // 2, END - 1):
        mapping.store(i, 2**64 - 1 - i)
        assert mapping.load(i) == 2**64 - 1 - i
        assert slab.read(i * 8, 8) == words(2**64 - 1 - i)


def test_many_words(mapping, slab):
    slab.write(0, words(*range(100)))
    assert mapping.load_many(3, 5) == (3, 4, 5, 6, 7)
    assert mapping.load_many(3, 5, 10) == (3, 13, 23, 33, 43)
    assert mapping.load_many(3, 0) == ()
    assert mapping.load_many(END - 1, 1, 7) == (0,)
    assert len(mapping.load_many(0, END)) == END


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, 1), (5, 7), (0, END), (END, 0), (END - 1, 1)])
def test_copy_and_zero(mapping, slab, first, count):
    before = words(*range(1, END + 1))
    slab.write(0, before)
    assert mapping.copy(first, count) == before[first * 8 : (first + count) * 8]
    mapping.zero(first, count)
    assert slab.read() == before[: first * 8] + bytes(count * 8) + before[(first + count) * 8 :]


@pytest.mark.parametrize("count", [1, 7, 8, 24, 27])
def test_zero_finds_a_single_word_wherever_it_lies(mapping, slab, count):
    for index in range(count):
        mapping.store(index, 1 << 63)
        mapping.zero(0, count)
        assert slab.read(0, count * 8) == bytes(count * 8)


@pytest.mark.parametrize("index", [END, END + 1, *HUGE])
def test_no_word_outside(mapping, slab, index):
    for call in (
        lambda: mapping.load(index),
        lambda: mapping.store(index, 1),
        lambda: mapping.load_many(index, 1),
        lambda: mapping.load_many(0, index + 1 if index < 2**64 - 1 else index),
        lambda: mapping.load_many(0, 2, index),
        lambda: mapping.load_many(1, END, 1),
        lambda: mapping.load_many(0, 3, END // 2),
        lambda: mapping.copy(index, 1),
        lambda: mapping.copy(1, index),
        lambda: mapping.zero(index, 1),
        lambda: mapping.zero(1, index),
    ):
        with pytest.raises(errors.BadIndex):
            call()
    assert not any(slab.read())


def test_a_stride_of_zero_is_none(mapping):
    with pytest.raises(errors.BadIndex):
        mapping.load_many(0, 2, 0)


def test_readers_may_not_store(slab):
    slab.write(8, b"\5")
    reader = slab.reader()
    for call in (
        lambda: reader.store(1, 1),
        lambda: reader.zero(0, 2),
        lambda: reader.stamp_header(),
        lambda: reader.publish(5, bytes(layout.MODEL_SIZE)),
        lambda: reader.zero_record(5),
        lambda: reader.bitmap_set(1),
        lambda: reader.bitmap_clear(1),
    ):
        with pytest.raises(errors.ReadOnly):
            call()
    assert reader.load(1) == 5
    assert slab.read(8, 8) == words(5)


def test_the_header(mapping, slab):
    assert mapping.header() == 0
    mapping.stamp_header()
    assert mapping.header() == layout.HEADER_WORD
    assert slab.read(0, 8) == layout.SIGNATURE + layout.VERSION.to_bytes(4, "little")


def test_the_bitmap(mapping, slab):
    for slot in (0, 63, 5, 5):
        mapping.bitmap_set(slot)
    assert mapping.bitmap() == 1 | 1 << 63 | 1 << 5
    mapping.bitmap_clear(63)
    mapping.bitmap_clear(7)
    assert mapping.bitmap() == 1 | 1 << 5
    assert slab.read(layout.MODEL_BITMAP.offset, 8) == words(1 | 1 << 5)
    for slot in (64, -1, 2**32, 2**64):
        for call in (mapping.bitmap_set, mapping.bitmap_clear):
            with pytest.raises(errors.BadIndex):
                call(slot)


def test_state_and_size(slab):
    producer, reader = slab.producer(), slab.reader()
    assert (producer.state, reader.state, producer.size) == ("producer", "reader", layout.REQUIRED_SIZE)
    producer.kill()
    assert producer.state == "closed"
    assert reader.state == "reader"


def test_a_mapping_of_nobodys(slab):
    private = _core.map(-1, 0, layout.REQUIRED_SIZE, True, None)
    private.nd(0).add(3)
    assert private.nd(0).get() == 3
    with pytest.raises(errors.BadIndex) as caught:
        private.nd(31)
    assert (caught.value.device, caught.value.pid, caught.value.slot) == (None, None, None)


def test_a_part_of_a_file(make_slab):
    slab = make_slab(size=4 * layout.SLAB_SIZE)
    parts = [_core.map(slab.fd, i * layout.SLAB_SIZE, layout.SLAB_SIZE, True, None) for i in range(4)]
    for i, part in enumerate(parts):
        part.nd(0).set(i + 1)
    assert [slab.read(i * layout.SLAB_SIZE + 8, 8) for i in range(4)] == [words(i + 1) for i in range(4)]


# --- Mappings that can't be


@pytest.mark.parametrize("size", [0, 1, 7, 9, layout.REQUIRED_SIZE - 1])
def test_a_size_that_is_no_number_of_words(slab, size):
    with pytest.raises(errors.BadIndex):
        _core.map(slab.fd, 0, size, True, (1, 2, 3))


def test_system_failures_say_which(slab):
    read_only = os.open(f"/proc/self/fd/{slab.fd}", os.O_RDONLY)
    for fd, offset, writable, name in ((9999, 0, True, "EBADF"), (slab.fd, 8, True, "EINVAL")):
        with pytest.raises(errors.SystemFailure) as caught:
            _core.map(fd, offset, 8, writable, (1, 2, 3))
        assert caught.value.errno == getattr(errno, name)
        assert (caught.value.device, caught.value.pid, caught.value.slot) == (1, 2, 3)
    with pytest.raises(errors.SystemFailure) as caught:
        _core.map(read_only, 0, 8, True, None)
    assert caught.value.errno == errno.EACCES
    os.close(read_only)


def test_no_handle_is_made_but_by_its_mapping():
    for kind in (_core.Mapping, _core.Counter, _core.Core, _core.LockFile, _core.Arena):
        with pytest.raises(TypeError):
            kind()


@pytest.mark.parametrize("size", [8, 4096, layout.REQUIRED_SIZE - 8])
def test_a_short_mapping_has_words_but_is_no_slab(make_slab, size):
    slab = make_slab(size=size)
    mapping = slab.producer()
    mapping.store(size // 8 - 1, 5)
    assert mapping.load(size // 8 - 1) == 5
    arena = _core.arena(1)
    for call in (
        mapping.header,
        mapping.stamp_header,
        mapping.bitmap,
        lambda: mapping.nd(0),
        lambda: mapping.nc(0, 0),
        lambda: mapping.core(0),
        lambda: mapping.publish(5, bytes(layout.MODEL_SIZE)),
        lambda: mapping.zero_record(0),
        lambda: mapping.bitmap_set(0),
        lambda: mapping.snapshot(),
        lambda: mapping.snapshot(False),
        lambda: mapping.read_record(0),
    ):
        with pytest.raises(errors.TooShort):
            call()
    (result,) = _core.snapshot_many([mapping], arena, True)
    assert isinstance(result, errors.TooShort)
    with pytest.raises(errors.BadIndex):
        mapping.load(size // 8)


def test_pages_dropped_are_not_ours_but_keep_what_they_hold(mapping, slab):
    slab.write(0, words(*range(1, END + 1)))
    reader = slab.reader()
    everything = reader.copy(0, END)
    assert resident_kib("memfd:slab") >= layout.REQUIRED_SIZE // 1024
    reader.drop_pages()
    assert resident_kib("memfd:slab") == 0
    assert reader.copy(0, END) == everything == words(*range(1, END + 1))
    mapping.store(5, 99)
    mapping.drop_pages()  # a producer's too: they are shared
    assert (mapping.load(5), reader.load(5)) == (99, 99)


def test_a_closed_mapping_has_no_pages_to_drop(mapping):
    mapping.close()
    mapping.drop_pages()
