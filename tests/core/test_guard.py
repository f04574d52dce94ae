"""A reader's guard: values count only while the slab is still its producer's."""

import os
import threading

import pytest

from neuron_ds import _core, errors, layout
from tests.core.helpers import PROCESS_INFO, Child, error_of, in_child, uniform_record

WORD, VALUE, BYTE = 5, 77, 3


@pytest.fixture
def table(make_slab):
    """The table's file; word WORD names the owner of the slab."""
    table = make_slab(size=4096)
    table.producer().store(WORD, VALUE)
    return table


@pytest.fixture
def lock(tmp_path):
    (tmp_path / "lock").touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    file = _core.open_lock_file(fd, "lock")
    file.take(BYTE)
    os.close(fd)
    yield file
    if error_of(lambda: file.drop(BYTE)) == "":
        file.close()


@pytest.fixture
def guarded(slab, table, lock):
    """(reader, the table it is guarded by), the producer alive."""
    slab.producer().stamp_header()
    reader, rows = slab.reader(), table.reader()
    reader.guard(rows, WORD, VALUE, lock, BYTE)
    return reader, rows


def reads(reader):
    return {
        "check": reader.check,
        "snapshot": reader.snapshot,
        "snapshot unverified": lambda: reader.snapshot(False),
        "read_record": lambda: reader.read_record(PROCESS_INFO),
        "nd.get": lambda: reader.nd(0).get(),
        "nc.get": lambda: reader.nc(7, 7).get(),
    }


def outcomes(reader):
    found = {name: error_of(call) for name, call in reads(reader).items()}
    (many,) = _core.snapshot_many([reader], _core.arena(1), True)
    found["snapshot_many"] = type(many).__name__ if isinstance(many, Exception) else ""
    return found


def test_all_is_well_while_the_producer_lives(guarded):
    assert set(outcomes(guarded[0]).values()) == {""}


def test_another_owner_in_the_table(guarded, table):
    table.producer().store(WORD, VALUE + 1)
    assert set(outcomes(guarded[0]).values()) == {"ProducerGone"}
    table.producer().store(WORD, 0)
    assert set(outcomes(guarded[0]).values()) == {"ProducerGone"}
    table.producer().store(WORD, VALUE)  # the rules of the table make this another owner; the guard can't know
    assert set(outcomes(guarded[0]).values()) == {""}


def test_the_error_names_the_producer(guarded, table):
    table.producer().store(WORD, 0)
    with pytest.raises(errors.ProducerGone, match="device 3, pid 4242, slot 7: .*list the owners") as caught:
        guarded[0].snapshot()
    assert isinstance(caught.value, ProcessLookupError)


def test_a_lock_that_nobody_holds(guarded, lock):
    """Reads without a system call can't see this: a counter's, and a mere copy. All that verify records do."""
    lock.drop(BYTE)
    found = outcomes(guarded[0])
    assert {name for name, error in found.items() if not error} == {"nd.get", "nc.get", "snapshot unverified"}
    assert set(found.values()) == {"", "ProducerGone"}
    lock.take(BYTE)
    assert set(outcomes(guarded[0]).values()) == {""}


def test_a_lock_of_another_process(slab, table, lock):
    """The producer is a process of its own; it dies and its lock with it."""
    slab.producer().stamp_header()
    lock.drop(BYTE)
    ready, write = os.pipe()
    end, hold = os.pipe()

    def producer():
        os.close(hold)
        os.write(write, b"1" if lock.take(BYTE) else b"0")
        os.read(end, 1)

    child = Child(producer)
    assert os.read(ready, 1) == b"1"
    reader, rows = slab.reader(), table.reader()
    reader.guard(rows, WORD, VALUE, lock, BYTE)
    assert set(outcomes(reader).values()) == {""}
    os.close(hold)
    child.result()
    assert outcomes(reader)["snapshot"] == "ProducerGone"
    assert error_of(reader.check) == "ProducerGone"
    for fd in (ready, write, end):
        os.close(fd)


def test_without_a_lock_the_word_alone_counts(slab, table):
    slab.producer().stamp_header()
    reader, rows = slab.reader(), table.reader()
    reader.guard(rows, WORD, VALUE, None, 0)
    assert set(outcomes(reader).values()) == {""}
    table.producer().store(WORD, 1)
    assert set(outcomes(reader).values()) == {"ProducerGone"}


def test_a_slab_whose_header_went_away(guarded, slab):
    """Zeroed under the reader: its producer releases it at this moment."""
    slab.producer().store(0, 0)
    assert error_of(guarded[0].snapshot) == "ProducerGone"


def test_a_producer_that_goes_during_the_pause(guarded, slab, table):
    """A torn record makes the snapshot pause; what it finds afterwards decides."""
    slab.producer().publish(PROCESS_INFO, uniform_record(PROCESS_INFO, 1))
    slab.tear(PROCESS_INFO)
    reader, _ = guarded
    rows = table.producer()
    seen = set()
    for _ in range(300):
        rows.store(WORD, VALUE)
        started = threading.Event()
        outcome = []
        thread = threading.Thread(target=lambda s=started, o=outcome: (s.set(), o.append(error_of(reader.snapshot))))
        thread.start()
        started.wait()
        rows.store(WORD, 0)
        thread.join()
        seen.add(outcome[0])
    assert seen <= {"", "ProducerGone"}
    assert "ProducerGone" in seen


def test_a_table_that_is_closed(guarded):
    reader, rows = guarded
    rows.close()
    assert set(outcomes(reader).values()) == {"Closed"}


def test_the_guard_keeps_its_table(slab, table, lock):
    slab.producer().stamp_header()
    reader = slab.reader()
    reader.guard(table.reader(), WORD, VALUE, lock, BYTE)
    assert set(outcomes(reader).values()) == {""}
    reader.guard(table.reader(), WORD + 1, 0, None, 0)  # another takes its place
    assert set(outcomes(reader).values()) == {""}
    table.producer().store(WORD, 0)
    assert set(outcomes(reader).values()) == {""}


def test_guards_that_can_not_be(slab, table, lock):
    reader, rows = slab.reader(), table.reader()
    for index in (rows.size // 8, 2**32, 2**64 - 1):
        with pytest.raises(errors.BadIndex):
            reader.guard(rows, index, 0, None, 0)
    for arguments, error in (
        ((None, 0, 0, None, 0), TypeError),
        ((rows, 0, 0, "lock", 0), TypeError),
        ((rows, -1, 0, None, 0), OverflowError),
        ((rows, 0, 2**64, None, 0), OverflowError),
        ((rows, 0, 0, None, -1), OverflowError),
        ((rows, 0, 0), TypeError),
    ):
        with pytest.raises(error):
            reader.guard(*arguments)
    assert error_of(reader.check) == ""
    reader.guard(rows, WORD, VALUE, lock, 64)  # no such byte
    assert outcomes(reader)["snapshot"] == "SystemFailure"


def test_a_word_of_the_table_is_compared_whole(slab, table):
    slab.producer().stamp_header()
    table.producer().store(WORD, 2**64 - 1)
    reader, rows = slab.reader(), table.reader()
    reader.guard(rows, WORD, 2**64 - 1, None, 0)
    assert error_of(reader.check) == ""
    table.producer().store(WORD, 2**63 - 1)
    assert error_of(reader.check) == "ProducerGone"


def test_a_forked_child_has_no_guarded_reader(guarded):
    assert set(in_child(lambda: outcomes(guarded[0])).values()) == {"ForkedChild"}


def test_a_producers_own_slab_needs_no_header(slab, table):
    """Without a guard nothing is asked of the header: bytes from anywhere can be looked at."""
    assert layout.HEADER.size == 8
    assert error_of(slab.reader().snapshot) == ""
