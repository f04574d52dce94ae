"""The runtime facade: every event makes exactly the updates of its row of the table, and no others.

The numbers are those of the published counters, written down a second time. A slab's counters are compared whole,
all cores and the device, before and behind each event.
"""

import os

import pytest

from neuron_ds import errors, layout
from neuron_ds.datastore import attach, publish
from neuron_ds.records import ModelNode
from neuron_ds.runtime import ApiFailure, DeviceMemory, ErrorClass, HostMemory, Runtime, SoftwareError, Status

CORE = 3
TIME_IN_USE, INFERENCE_COUNT, MAC_COUNT, MODEL_LOAD_COUNT = 0, 28, 29, 27
LATENCIES = {"device_us": 13, "total_us": 14, "nc_us": 15, "cc_us": 21}

STATUS = {
    Status.SUCCESS: 1,
    Status.COMPLETED_WITH_ERR: 2,
    Status.COMPLETED_WITH_NUM_ERR: 3,
    Status.TIMEOUT: 4,
    Status.BAD_INPUT: 5,
    Status.QUEUE_FULL: 6,
    Status.HW_ERROR: 11,
    Status.OOB: 30,
    Status.COLLECTIVES: 31,
    Status.HBM_UE: 32,
    Status.NC_UE: 33,
    Status.DMA_ABORT: 34,
    Status.NQ_OVERFLOW: 35,
    Status.REPAIRABLE_HBM_UE: 40,
}
COMPLETED_WITH_ERRORS = {Status.COMPLETED_WITH_ERR, Status.COMPLETED_WITH_NUM_ERR}
NEVER_RAN = {Status.BAD_INPUT, Status.QUEUE_FULL}
ERROR_CLASS = {
    ErrorClass.GENERIC: 7,
    ErrorClass.NUMERICAL: 8,
    ErrorClass.MODEL: 9,
    ErrorClass.TRANSIENT: 10,
    ErrorClass.HARDWARE: 11,
    ErrorClass.RUNTIME: 12,
}
SOFTWARE_ERROR = {
    SoftwareError.SEMAPHORE: 36,
    SoftwareError.EVENT: 37,
    SoftwareError.PSUM_COLLISION: 38,
    SoftwareError.SEQUENCER: 39,
}
API_FAILURE = {
    ApiFailure.FAILURE: 16,
    ApiFailure.RESOURCE: 17,
    ApiFailure.LOAD_NOT_ENOUGH_NC: 18,
    ApiFailure.INVALID: 19,
    ApiFailure.UNSUPPORTED_NEFF_VERSION: 20,
}
DEVICE_MEMORY = {
    DeviceMemory.CODE: 22,
    DeviceMemory.TENSORS: 23,
    DeviceMemory.CONSTANTS: 24,
    DeviceMemory.SCRATCHPAD: 25,
    DeviceMemory.MISC: 26,
}
HOST_MEMORY = {
    HostMemory.CODE: 6,
    HostMemory.TENSORS: 7,
    HostMemory.CONSTANTS: 8,
    HostMemory.SCRATCHPAD: 9,
    HostMemory.MISC: 10,
}


@pytest.fixture
def producer(driver):
    with publish(0, driver=driver) as producer:
        for core in range(producer.properties.cores):
            for index in range(layout.NC_COUNTERS):
                producer.core(core).counter(index).set(1000 * (core + 1) + index)
        yield producer


@pytest.fixture
def runtime(producer):
    return Runtime(producer)


class Counters:
    """All counters of a slab: {(core, or None for the device, index): value}."""

    def __init__(self, producer):
        self._producer = producer
        self.before = self._read()

    def _read(self):
        snapshot = self._producer.snapshot()
        values = {(None, index): value for index, value in enumerate(snapshot.nd_counters)}
        for core in range(layout.MAX_CORES):
            values |= {(core, index): value for index, value in enumerate(snapshot.nc_counters(core))}
        return values

    def changes(self):
        """{(core, index): (before, behind)} of those that changed since they were looked at last."""
        before, self.before = self.before, self._read()
        return {at: (value, self.before[at]) for at, value in before.items() if self.before[at] != value}

    def added(self, core=CORE):
        """{index: difference} of a core's counters; everything else must be as it was."""
        changes = self.changes()
        assert {at for at, _ in changes} <= {core}
        return {index: behind - before for (_, index), (before, behind) in changes.items()}


@pytest.fixture
def counters(producer):
    return Counters(producer)


def latencies(values):
    """What changed of the last values, as they are now."""
    return {index: behind for (_, index), (_, behind) in values.items() if index in LATENCIES.values()}


# --- The tables themselves


@pytest.mark.parametrize("table", [STATUS, ERROR_CLASS, SOFTWARE_ERROR, API_FAILURE, DEVICE_MEMORY, HOST_MEMORY])
def test_every_kind_of_event_is_a_published_counter(table):
    kinds = type(next(iter(table)))
    assert {kind: int(kind) for kind in kinds} == table


# --- An execution has ended


@pytest.mark.parametrize("status", Status)
def test_an_execution_with_all_that_is_known_of_it(runtime, counters, status):
    runtime.execution_ended(CORE, status, busy_us=250, macs=10**12, device_us=201, total_us=261, nc_us=191, cc_us=16)
    changes = counters.changes()
    expected = {STATUS[status]: 1}
    if status not in NEVER_RAN:
        expected[TIME_IN_USE] = 250
    if status is Status.SUCCESS:
        expected |= {INFERENCE_COUNT: 1, MAC_COUNT: 10**12}
    ran_to_its_end = status is Status.SUCCESS or status in COMPLETED_WITH_ERRORS
    last = latencies(changes)
    assert last == ({13: 201, 14: 261, 15: 191, 21: 16} if ran_to_its_end else {})
    assert {at for at, _ in changes} == {CORE}
    assert {index: behind - before for (_, index), (before, behind) in changes.items() if index not in last} == expected


@pytest.mark.parametrize("status", Status)
def test_an_execution_of_which_nothing_else_is_known(runtime, counters, status):
    runtime.execution_ended(CORE, status)
    assert counters.added() == {STATUS[status]: 1} | ({INFERENCE_COUNT: 1} if status is Status.SUCCESS else {})


def test_an_execution_is_a_success_unless_told_otherwise(runtime, counters):
    runtime.execution_ended(CORE, busy_us=5)
    assert counters.added() == {1: 1, INFERENCE_COUNT: 1, TIME_IN_USE: 5}


@pytest.mark.parametrize("name", LATENCIES)
def test_a_latency_is_set_and_the_others_stay(runtime, counters, name):
    for value in (700, 300, 0):
        runtime.execution_ended(CORE, **{name: value})
        assert latencies(counters.changes()) == {LATENCIES[name]: value}


@pytest.mark.parametrize("kind", ErrorClass)
@pytest.mark.parametrize("status", sorted(COMPLETED_WITH_ERRORS))
def test_an_error_class_of_a_completed_execution(runtime, counters, status, kind):
    runtime.execution_ended(CORE, status, busy_us=9, error_class=kind)
    assert counters.added() == {STATUS[status]: 1, TIME_IN_USE: 9, ERROR_CLASS[kind]: 1}


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"status": 99}, r"99 is no Status; it is one of SUCCESS \(1\)"),
        ({"status": Status.COMPLETED_WITH_ERR, "error_class": 6}, r"6 is no ErrorClass; it is one of GENERIC \(7\)"),
        ({"software_error": 1}, "1 is no SoftwareError; it is one of SEMAPHORE"),
        ({"status": Status.TIMEOUT, "error_class": ErrorClass.MODEL}, "the error class MODEL beside TIMEOUT: only"),
    ],
)
def test_what_is_none_is_named_with_what_there_is(runtime, counters, event, said):
    with pytest.raises(errors.BadIndex, match=said):
        runtime.execution_ended(CORE, busy_us=9, **event)
    assert counters.added() == {}


@pytest.mark.parametrize("status", [status for status in Status if status not in COMPLETED_WITH_ERRORS])
def test_an_error_class_beside_any_other_status_is_refused(runtime, counters, status):
    with pytest.raises(errors.BadIndex, match="error class"):
        runtime.execution_ended(CORE, status, busy_us=9, device_us=1, error_class=ErrorClass.MODEL)
    assert counters.changes() == {}


@pytest.mark.parametrize("kind", SoftwareError)
@pytest.mark.parametrize("status", Status)
def test_a_software_error_is_counted_beside_the_status(runtime, counters, status, kind):
    runtime.execution_ended(CORE, status, software_error=kind)
    success = {INFERENCE_COUNT: 1} if status is Status.SUCCESS else {}
    assert counters.added() == {STATUS[status]: 1, SOFTWARE_ERROR[kind]: 1} | success


@pytest.mark.parametrize(
    "arguments",
    [
        {"status": 0},
        {"status": 7},
        {"status": 12},
        {"status": INFERENCE_COUNT},
        {"status": 36},
        {"status": layout.NC_COUNTERS},
        {"status": (1 << 32) + 1},
        {"status": Status.COMPLETED_WITH_ERR, "error_class": 6},
        {"status": Status.COMPLETED_WITH_ERR, "error_class": 13},
        {"status": Status.COMPLETED_WITH_ERR, "error_class": (1 << 32) + 7},
        {"software_error": 35},
        {"software_error": 40},
        {"software_error": 1},
    ],
    ids=str,
)
def test_numbers_that_are_no_such_thing_are_refused(runtime, counters, arguments):
    with pytest.raises(errors.BadIndex):
        runtime.execution_ended(CORE, busy_us=9, device_us=1, **arguments)
    assert counters.changes() == {}


@pytest.mark.parametrize("name", ["busy_us", "macs", *LATENCIES])
@pytest.mark.parametrize(("value", "kind"), [(-1, OverflowError), (1 << 64, OverflowError), ("9", TypeError)])
def test_what_no_counter_can_hold_is_refused(runtime, counters, name, value, kind):
    with pytest.raises(kind):
        runtime.execution_ended(CORE, **{name: value})
    assert counters.changes() == {}


# --- What else happens


@pytest.mark.parametrize("kind", ApiFailure)
def test_a_failed_call(runtime, counters, kind):
    runtime.api_failed(CORE, kind)
    assert counters.added() == {API_FAILURE[kind]: 1}


def test_a_failed_call_of_no_finer_kind(runtime, counters):
    runtime.api_failed(CORE)
    assert counters.added() == {16: 1}


@pytest.mark.parametrize("kind", DeviceMemory)
def test_device_memory(runtime, counters, kind):
    runtime.device_memory(CORE, kind, 1 << 40)
    assert counters.added() == {DEVICE_MEMORY[kind]: 1 << 40}
    runtime.device_memory(CORE, kind, -(1 << 40) + 5)
    assert counters.added() == {DEVICE_MEMORY[kind]: -(1 << 40) + 5}
    runtime.device_memory(CORE, kind, 0)
    assert counters.added() == {}


@pytest.mark.parametrize("kind", HostMemory)
def test_host_memory(runtime, counters, kind):
    runtime.host_memory(kind, 4096)
    assert counters.added(None) == {HOST_MEMORY[kind]: 4096}
    runtime.host_memory(kind, -4096)
    assert counters.added(None) == {HOST_MEMORY[kind]: -4096}


@pytest.mark.parametrize("delta_bytes", [1 << 63, -(1 << 63), 1 << 80])
def test_a_change_of_memory_that_no_gauge_can_show(runtime, counters, delta_bytes):
    with pytest.raises(errors.BadValue, match=str(delta_bytes)):
        runtime.device_memory(CORE, DeviceMemory.CODE, delta_bytes)
    with pytest.raises(errors.BadValue):
        runtime.host_memory(HostMemory.CODE, delta_bytes)
    assert counters.changes() == {}


@pytest.mark.parametrize(
    "event",
    [
        lambda runtime: runtime.api_failed(CORE, 4),
        lambda runtime: runtime.api_failed(CORE, MODEL_LOAD_COUNT),
        lambda runtime: runtime.device_memory(CORE, 21, 8),
        lambda runtime: runtime.device_memory(CORE, HostMemory.CODE, 8),
        lambda runtime: runtime.host_memory(DeviceMemory.CODE, 8),
    ],
)
def test_a_kind_of_another_event_is_refused(runtime, counters, event):
    with pytest.raises(errors.BadIndex, match="is no (ApiFailure|DeviceMemory|HostMemory); it is one of"):
        event(runtime)
    assert counters.changes() == {}


@pytest.mark.parametrize(
    "event",
    [
        lambda runtime, core: runtime.execution_ended(core),
        lambda runtime, core: runtime.api_failed(core),
        lambda runtime, core: runtime.device_memory(core, DeviceMemory.CODE, 8),
        lambda runtime, core: runtime.model_loaded(ModelNode.build(model_id=1, nc_index=core % 256)),
    ],
)
@pytest.mark.parametrize("core", [8, -1])
def test_a_core_that_the_device_does_not_have(runtime, counters, event, core):
    with pytest.raises(errors.BadIndex, match="8 physical cores"):
        event(runtime, core)
    assert counters.changes() == {}
    assert runtime.producer.snapshot().model_bitmap == 0


# --- Models


def test_a_model_comes_and_goes(runtime, counters):
    node = ModelNode.build(model_id=7, name="bert", nc_index=CORE)
    handle = runtime.model_loaded(node)
    assert counters.added() == {MODEL_LOAD_COUNT: 1}
    assert runtime.producer.snapshot().models == {handle.slot: node}
    runtime.model_unloaded(handle)
    assert counters.changes() == {}
    snapshot = runtime.producer.snapshot()
    assert (snapshot.models, snapshot.model_bitmap) == ({}, 0)
    at = layout.model_offset(handle.slot)
    assert not any(snapshot.raw[at : at + layout.MODEL_SIZE])


def test_a_model_that_found_no_room_is_not_counted(runtime, counters):
    for number in range(layout.MAX_MODELS):
        runtime.model_loaded(ModelNode.build(model_id=number, nc_index=CORE))
    assert counters.added() == {MODEL_LOAD_COUNT: layout.MAX_MODELS}
    with pytest.raises(errors.ModelsFull, match="delete a model first"):
        runtime.model_loaded(ModelNode.build(model_id=99, nc_index=CORE))
    assert counters.changes() == {}


# --- Whose slab it is


def test_after_close_every_event_raises(runtime):
    handle = runtime.model_loaded(ModelNode.build(model_id=1))
    runtime.producer.close()
    for event in (
        lambda: runtime.execution_ended(CORE),
        lambda: runtime.api_failed(CORE),
        lambda: runtime.device_memory(CORE, DeviceMemory.CODE, 8),
        lambda: runtime.host_memory(HostMemory.CODE, 8),
        lambda: runtime.model_loaded(ModelNode.build(model_id=2)),
        lambda: runtime.model_unloaded(handle),
    ):
        with pytest.raises(errors.Closed):
            event()


def test_a_reader_has_no_events(producer, driver, counters):
    with attach(os.getpid(), 0, driver=driver) as reader:
        runtime = Runtime(reader)
        for event in (
            lambda: runtime.execution_ended(CORE),
            lambda: runtime.api_failed(CORE),
            lambda: runtime.device_memory(CORE, DeviceMemory.CODE, 8),
            lambda: runtime.host_memory(HostMemory.CODE, -8),
        ):
            with pytest.raises(errors.ReadOnly):
                event()
    assert counters.changes() == {}
