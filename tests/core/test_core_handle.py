"""The calls that make many updates at once: an ended execution, and deltas from a buffer."""

import array
import itertools

import pytest

from neuron_ds import errors, layout
from tests.core.helpers import words

NC = layout.NC_BY_NAME
TIME_ONLY = (
    "infer_timed_out err_hw oob hw_err_collectives hw_err_hbm_ue hw_err_nc_ue hw_err_dma_abort "
    "err_sw_nq_overflow hw_err_repairable_hbm_ue"
).split()
FAILED = ["infer_completed_with_err", "infer_completed_with_num_err"]
NEVER_RAN = ["infer_incorrect_input", "infer_failed_to_queue"]
STATUSES = ["infer_completed", *FAILED, *NEVER_RAN, *TIME_ONLY]
LATENCIES = {"latency_device": 11, "latency_total": 12, "nc_time": 13, "cc_time": 14}


@pytest.fixture
def mapping(slab):
    return slab.producer()


def counters(mapping, core):
    """{name: value} of what isn't zero."""
    return {c.name: v for c in layout.NC if (v := mapping.nc(core, c.index).get())}


@pytest.mark.parametrize("core", [0, 3, 4, 15])
@pytest.mark.parametrize("status", STATUSES)
def test_an_execution_makes_the_updates_of_its_status(mapping, core, status):
    for _ in range(2):
        assert mapping.core(core).execution_ended(NC[status].index, 5, 7, *LATENCIES.values()) is None
    expected = {status: 2}
    if status not in NEVER_RAN:
        expected["time_in_use"] = 10
    if status in FAILED or status == "infer_completed":
        expected |= LATENCIES
    if status == "infer_completed":
        expected |= {"inference_count": 2, "mac_count": 14}
    assert counters(mapping, core) == expected
    assert sum(bool(counters(mapping, other)) for other in range(layout.MAX_CORES)) == 1


def test_what_is_not_given_is_not_touched(mapping):
    core = mapping.core(2)
    core.execution_ended(NC["infer_completed"].index, 5, 7, 1, 2, 3, 4)
    core.execution_ended(NC["infer_completed"].index, None, None, None, 20)
    core.execution_ended(NC["infer_completed"].index)
    assert counters(mapping, 2) == {
        "infer_completed": 3,
        "inference_count": 3,
        "time_in_use": 5,
        "mac_count": 7,
        "latency_device": 1,
        "latency_total": 20,
        "nc_time": 3,
        "cc_time": 4,
    }


def test_a_latency_of_zero_is_a_value(mapping):
    core = mapping.core(2)
    core.execution_ended(NC["infer_completed"].index, 0, 0, 9, 9, 9, 9)
    core.execution_ended(NC["infer_completed"].index, 0, 0, 0, 0, 0, 0)
    assert set(LATENCIES) & set(counters(mapping, 2)) == set()


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("error_class", range(7, 13))
def test_an_error_class_goes_with_a_failed_completion_only(mapping, status, error_class):
    core = mapping.core(1)
    arguments = (NC[status].index, 1, 0, None, None, None, None, error_class)
    if status in FAILED:
        core.execution_ended(*arguments)
        assert counters(mapping, 1) == {status: 1, "time_in_use": 1, layout.NC[error_class].name: 1}
    else:
        with pytest.raises(errors.BadIndex):
            core.execution_ended(*arguments)
        assert counters(mapping, 1) == {}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("subtype", range(36, 40))
def test_a_software_error_stands_beside_any_status(mapping, status, subtype):
    mapping.core(6).execution_ended(NC[status].index, 0, 0, None, None, None, None, None, subtype)
    ran = {"inference_count": 1} if status == "infer_completed" else {}
    assert counters(mapping, 6) == {status: 1, layout.NC[subtype].name: 1} | ran


@pytest.mark.parametrize(
    "arguments",
    [
        *[(s,) for s in (0, 7, 13, 16, 21, 22, 27, 28, 36, 41, 94, 95, 255, 2**32 + 1, 2**64 - 1, None)],
        *[(2, 0, 0, None, None, None, None, c) for c in (1, 6, 13, 95, 2**32 + 7)],
        *[(1, 0, 0, None, None, None, None, None, c) for c in (1, 35, 40, 95, 2**32 + 36)],
    ],
)
def test_no_such_status_class_or_subtype(mapping, slab, arguments):
    with pytest.raises(errors.BadIndex):
        mapping.core(0).execution_ended(*arguments)
    assert not any(slab.read())


@pytest.mark.parametrize("position", range(9))
def test_every_argument_is_checked_before_anything_is_written(mapping, slab, position):
    for bad, error in ((-1, OverflowError), (2**64, OverflowError), (1.5, TypeError), ("1", TypeError)):
        arguments: list[object] = [2, 1, 0, 1, 1, 1, 1, 7, 36]
        arguments[position] = bad
        with pytest.raises(error):
            mapping.core(0).execution_ended(*arguments)
    assert not any(slab.read())


def test_the_number_of_arguments(mapping):
    for n in (0, 10):
        with pytest.raises(TypeError):
            mapping.core(0).execution_ended(*[1] * n)


# --- Deltas from a buffer


@pytest.mark.parametrize("core", range(layout.MAX_CORES))
def test_deltas_go_to_the_counters_in_order(mapping, core):
    for n in (0, 1, 30, 31, 32, 94, 95):
        mapping.core(core).add_many(words(*range(1, n + 1)))
    expected = [(i + 1) * sum(i < n for n in (0, 1, 30, 31, 32, 94, 95)) for i in range(layout.NC_COUNTERS)]
    assert [mapping.nc(core, i).get() for i in range(layout.NC_COUNTERS)] == expected
    assert sum(bool(counters(mapping, other)) for other in range(layout.MAX_CORES)) == 1


def test_deltas_wrap(mapping):
    mapping.nc(4, 2).set(5)
    mapping.core(4).add_many(words(0, 0, 2**64 - 3))
    assert mapping.nc(4, 2).get() == 2


def test_any_buffer_will_do(mapping):
    core = mapping.core(0)
    deltas = array.array("Q", [1, 2, 3])
    for buffer in (deltas, deltas.tobytes(), bytearray(deltas), memoryview(deltas)):
        core.add_many(buffer)
    assert [mapping.nc(0, i).get() for i in range(4)] == [4, 8, 12, 0]


def test_deltas_of_a_wrong_size(mapping, slab):
    for size in itertools.chain(range(1, 8), [8 * layout.NC_COUNTERS + 8, 8 * layout.NC_COUNTERS + 1, 4096]):
        with pytest.raises(errors.BadIndex):
            mapping.core(0).add_many(b"\1" * size)
    with pytest.raises(TypeError):
        mapping.core(0).add_many([1, 2, 3])
    with pytest.raises(BufferError):  # not contiguous
        mapping.core(0).add_many(memoryview(bytes(32))[::2])
    assert not any(slab.read())
