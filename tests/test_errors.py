"""Errors: each is its errno's own class of Python's, survives a pipe between processes, and says whose slab it was."""

import copy
import errno
import inspect
import os
import pickle
from pathlib import Path

import pytest

from neuron_ds import _core, errors, layout

KINDS = sorted(
    (
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.NeuronDSError) and kind is not errors.NeuronDSError
    ),
    key=lambda kind: kind.__name__,
)
ERRNO = {
    "BadIndex": errno.EINVAL,
    "BadValue": errno.EINVAL,
    "ReadOnly": errno.EPERM,
    "ModelsFull": errno.ENOSPC,
    "Closed": errno.EBADF,
    "ForkedChild": errno.EBADF,
    "FormatError": errno.EINVAL,
    "TooShort": errno.EINVAL,
    "NotReady": errno.EINVAL,
    "WrongVersion": errno.EINVAL,
    "NoDriver": errno.ENODEV,
    "NoDevice": errno.ENODEV,
    "NoSlab": errno.ENOENT,
    "AmbiguousPid": errno.ENOTUNIQ,
    "SlotsFull": errno.ENOMEM,
    "ProducerGone": errno.ESRCH,
    "AccessDenied": errno.EACCES,
    "UnsafeDirectory": errno.EACCES,
    "DirectoryGone": errno.ESTALE,
    "LayoutMismatch": errno.EPROTO,
    "TableBusy": errno.ETIMEDOUT,
    "NoSpace": errno.ENOSPC,
}
KNOWN = pytest.mark.parametrize("kind", [getattr(errors, name) for name in ERRNO], ids=list(ERRNO))
ALL = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@KNOWN
def test_each_has_its_errno_and_is_pythons_class_for_it(kind):
    error = kind("a message")
    assert error.errno == ERRNO[kind.__name__]
    assert isinstance(error, type(OSError(error.errno, "")))


@ALL
def test_an_error_names_what_it_knows(kind):
    error = kind("what went wrong; what to do", device=3, pid=4242, slot=9, path="/some/path")
    assert str(error) == "device 3, pid 4242, slot 9, path /some/path: what went wrong; what to do"
    assert (error.device, error.pid, error.slot, error.path) == (3, 4242, 9, "/some/path")
    assert str(kind("what went wrong", slot=0)) == "slot 0: what went wrong"
    assert str(kind("what went wrong")) == "what went wrong"


@ALL
@pytest.mark.parametrize("known", [{}, {"device": 0, "pid": 1, "slot": 2, "path": "p", "code": errno.EIO}])
def test_an_error_survives_pickling_and_copying(kind, known):
    error = kind("a message", **known)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert (other.errno, other.args) == (error.errno, error.args)


@ALL
def test_each_says_what_it_is(kind):
    assert kind.__doc__
    assert issubclass(kind, OSError)
    with pytest.raises(errors.NeuronDSError):
        raise kind("a message")


def test_a_failed_system_call_has_the_errno_of_the_call():
    error = errors.from_core(-errno.EIO, "mapping shared memory", (3, None, 9))
    assert type(error) is errors.SystemFailure
    assert error.errno == errno.EIO
    assert str(error) == f"device 3, slot 9: mapping shared memory: {os.strerror(errno.EIO)}"


@pytest.mark.parametrize(
    ("reason", "kind", "advice"),
    [
        (1, errors.Closed, "publish or attach again"),
        (2, errors.ForkedChild, "publish or attach in the child"),
        (3, errors.ReadOnly, "only the producer's own process"),
        (4, errors.BadIndex, "no such core, counter, slot or word"),
        (5, errors.TooShort, "smaller than a slab"),
        (6, errors.ProducerGone, "list the owners again"),
    ],
)
def test_the_reasons_of_the_core(reason, kind, advice):
    error = errors.from_core(reason, "", (3, 4242, 9))
    assert type(error) is kind
    assert str(error).startswith("device 3, pid 4242, slot 9: ")
    assert advice in str(error)
    assert str(errors.from_core(reason, "the detail", None)).startswith("the detail; ")


def test_an_error_of_the_core_names_the_slab():
    mapping = _core.map(-1, 0, layout.SLAB_SIZE, True, (3, 4242, 9))
    counter = mapping.nd(0)
    mapping.close()
    with pytest.raises(errors.Closed, match=r"^device 3, pid 4242, slot 9: ") as caught:
        counter.add(1)
    assert (caught.value.device, caught.value.pid, caught.value.slot) == (3, 4242, 9)
    assert pickle.loads(pickle.dumps(caught.value)).pid == 4242


@pytest.mark.parametrize("path", ["/some/path", Path("/some/path"), b"/some/path"])
def test_a_path_alone_is_named_as_the_system_does(path):
    assert str(errors.FormatError("is none", path=path)) == f"{path}: is none"
