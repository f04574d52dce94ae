"""Record locks: one descriptor per file, locks that survive the close of a LockFile, and who is seen to hold them."""

import errno
import os
import signal

import pytest

from neuron_ds import _core, errors
from tests.core.helpers import Child, error_of, in_child

BYTES = 64


@pytest.fixture
def directory(tmp_path):
    """A directory's descriptor, with an empty file `lock` in it."""
    (tmp_path / "lock").touch()
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.fixture
def lock(directory):
    """Ends with no byte held: a held byte keeps the descriptor open beyond the test."""
    file = _core.open_lock_file(directory, "lock")
    yield file
    again = _core.open_lock_file(directory, "lock")
    for byte in range(BYTES):
        again.drop(byte)
    again.close()
    file.close()


def descriptors_of(path_end):
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").endswith(path_end):
                found.append(int(name))
        except FileNotFoundError:
            pass
    return found


def holder_elsewhere(directory, byte):
    """Who another process, with a descriptor of its own, sees."""
    return in_child(lambda: _core.open_lock_file(directory, "lock").holder(byte))


def test_take_and_drop(lock, directory):
    me = os.getpid()
    assert lock.writable
    assert lock.holder(3) is None
    assert lock.take(3)
    assert lock.take(3)  # what one has one may take
    assert (lock.holder(3), lock.holder(2)) == (me, None)
    assert (holder_elsewhere(directory, 3), holder_elsewhere(directory, 2)) == (me, None)
    lock.drop(3)
    lock.drop(3)
    assert (lock.holder(3), holder_elsewhere(directory, 3)) == (None, None)


def test_one_descriptor_serves_all(directory, tmp_path):
    path = f"{tmp_path.name}/lock"
    files = [_core.open_lock_file(directory, "lock") for _ in range(5)]
    os.link(tmp_path / "lock", tmp_path / "same")
    files.append(_core.open_lock_file(directory, "same"))  # another name, the same file
    assert len(descriptors_of(path) + descriptors_of("/same")) == 1
    for file in files:
        file.close()
    assert descriptors_of(path) == []


def test_closing_one_lock_file_keeps_the_locks(lock, directory):
    other = _core.open_lock_file(directory, "lock")
    assert other.take(1)
    other.close()
    assert holder_elsewhere(directory, 1) == os.getpid()
    assert lock.holder(1) == os.getpid()
    del other
    assert lock.take(2)
    lock.close()  # the last one; the descriptor stays for the sake of the locks
    assert holder_elsewhere(directory, 1) == os.getpid()
    assert holder_elsewhere(directory, 2) == os.getpid()
    again = _core.open_lock_file(directory, "lock")
    assert again.holder(2) == os.getpid()
    again.drop(2)
    assert (holder_elsewhere(directory, 1), holder_elsewhere(directory, 2)) == (os.getpid(), None)
    again.close()


def test_the_descriptor_goes_with_the_last_lock(directory, tmp_path):
    file = _core.open_lock_file(directory, "lock")
    file.take(9)
    file.close()
    assert len(descriptors_of(f"{tmp_path.name}/lock")) == 1
    file = _core.open_lock_file(directory, "lock")
    assert len(descriptors_of(f"{tmp_path.name}/lock")) == 1
    file.drop(9)
    del file
    assert descriptors_of(f"{tmp_path.name}/lock") == []


def test_another_process_is_kept_out(lock, directory):
    assert lock.take(7)

    def work():
        mine = _core.open_lock_file(directory, "lock")
        return mine.take(7), mine.take(8), mine.holder(7), mine.holder(8) == os.getpid()

    assert in_child(work) == (False, True, os.getpid(), True)
    assert lock.holder(8) is None  # it ended, and its lock with it


def test_a_forked_child_inherits_no_lock(lock, directory):
    assert lock.take(4)

    def work():
        seen = lock.holder(4), lock.take(4)
        mine = lock.take(5), lock.holder(5) == os.getpid()
        lock.drop(4)  # isn't the child's to drop
        lock.close()
        return seen, mine

    assert in_child(work) == ((os.getpid(), False), (True, True))
    assert lock.holder(4) == os.getpid()
    assert holder_elsewhere(directory, 4) == os.getpid()


def test_a_child_takes_over_when_its_parent_dies(directory):
    """A lock dies with its owner, however it ends, and a forked child doesn't hold it up."""
    ready, write = os.pipe()
    end, hold = os.pipe()

    def parent():
        file = _core.open_lock_file(directory, "lock")
        taken = file.take(0)
        if os.fork() == 0:
            os.close(hold)
            os.write(write, b"1" if taken else b"0")
            os.read(end, 1)  # ends with the test
            os._exit(0)
        signal.pause()

    child = Child(parent)
    assert os.read(ready, 1) == b"1"
    mine = _core.open_lock_file(directory, "lock")
    assert mine.holder(0) == child.pid
    assert not mine.take(0)
    assert child.kill() == -signal.SIGKILL
    assert mine.holder(0) is None
    assert mine.take(0)
    mine.drop(0)
    mine.close()
    for fd in (ready, write, end, hold):
        os.close(fd)


def test_the_descriptor_is_not_handed_to_programs(directory):
    file = _core.open_lock_file(directory, "lock")
    descriptors = descriptors_of("/lock")
    assert descriptors
    assert not any(os.get_inheritable(fd) for fd in descriptors)
    file.close()


def test_bytes_that_are_none(lock):
    for call in (lock.take, lock.drop, lock.holder):
        for byte in (BYTES, 2**32, 2**64 - 1):
            with pytest.raises(errors.SystemFailure) as caught:
                call(byte)
            assert caught.value.errno == errno.EINVAL
        for byte, error in ((-1, OverflowError), (2**64, OverflowError), ("1", TypeError)):
            with pytest.raises(error):
                call(byte)
    assert lock.take(BYTES - 1)
    assert lock.holder(BYTES - 1) == os.getpid()


def test_a_closed_lock_file(lock):
    lock.close()
    lock.close()
    assert not lock.writable
    for call in (lock.take, lock.drop, lock.holder):
        with pytest.raises(errors.Closed):
            call(0)


def test_files_that_are_none(directory, tmp_path):
    os.symlink("lock", tmp_path / "link")
    os.symlink("nowhere", tmp_path / "dangling")
    os.mkdir(tmp_path / "folder")
    for name, code in (
        ("absent", errno.ENOENT),
        ("link", errno.ELOOP),
        ("dangling", errno.ELOOP),
        ("folder", errno.EISDIR),
    ):
        with pytest.raises(errors.SystemFailure) as caught:
            _core.open_lock_file(directory, name)
        assert caught.value.errno == code
        assert name in str(caught.value)
    with pytest.raises(errors.SystemFailure) as caught:
        _core.open_lock_file(9999, "lock")
    assert caught.value.errno == errno.EBADF
    with pytest.raises(ValueError, match="null byte"):
        _core.open_lock_file(directory, "lo\0ck")
    assert descriptors_of("/link") == descriptors_of("/lock") == []


def test_a_file_that_took_the_name_of_another(lock, directory, tmp_path):
    assert lock.take(1)
    (tmp_path / "newer").touch()
    os.rename(tmp_path / "newer", tmp_path / "lock")
    newer = _core.open_lock_file(directory, "lock")
    assert newer.holder(1) is None
    assert newer.take(1)
    newer.drop(1)
    newer.close()
    assert lock.holder(1) == os.getpid()
    lock.drop(1)


def test_read_only_at_first_and_writable_later(directory, tmp_path):
    """An observer may look at locks; once the file can be written, the same LockFile can take them."""
    os.chmod(tmp_path / "lock", 0o444)
    os.fchmod(directory, 0o755)

    def work():
        root = os.geteuid() == 0
        if root:
            os.seteuid(65534)
        observer = _core.open_lock_file(directory, "lock")
        at_first = observer.writable, observer.holder(0), error_of(lambda: observer.take(0))
        if root:
            os.seteuid(0)
        os.chmod("lock", 0o644, dir_fd=directory)
        producer = _core.open_lock_file(directory, "lock")
        later = producer.writable, observer.writable, producer.take(0), observer.holder(0) == os.getpid()
        producer.close()
        observer.close()
        return at_first, later, len(descriptors_of("/lock"))

    assert in_child(work) == ((False, None, "SystemFailure"), (True, True, True, True), 2)
    assert holder_elsewhere(directory, 0) is None
