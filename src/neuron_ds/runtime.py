"""What a runtime calls: one method per event, which makes every counter update that belongs to it.

Which counters an event touches is said here and in the core's ``nds_execution_ended``, nowhere else; see the table in
docs/protocol.md. This module knows a Producer and no driver.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

from neuron_ds._core import Counter
from neuron_ds.datastore import ModelHandle, Producer
from neuron_ds.errors import BadIndex, BadValue
from neuron_ds.layout import NC_BY_NAME, ND_BY_NAME
from neuron_ds.records import ModelNode


def _nc(name: str) -> int:
    return NC_BY_NAME[name].index


def _nd(name: str) -> int:
    return ND_BY_NAME[name].index


class Status(IntEnum):
    """How an execution ended. The number is the core counter that gets 1."""

    SUCCESS = _nc("infer_completed")
    COMPLETED_WITH_ERR = _nc("infer_completed_with_err")
    COMPLETED_WITH_NUM_ERR = _nc("infer_completed_with_num_err")
    TIMEOUT = _nc("infer_timed_out")
    BAD_INPUT = _nc("infer_incorrect_input")  #: never ran
    QUEUE_FULL = _nc("infer_failed_to_queue")  #: never ran
    HW_ERROR = _nc("err_hw")
    OOB = _nc("oob")
    COLLECTIVES = _nc("hw_err_collectives")
    HBM_UE = _nc("hw_err_hbm_ue")
    NC_UE = _nc("hw_err_nc_ue")
    DMA_ABORT = _nc("hw_err_dma_abort")
    NQ_OVERFLOW = _nc("err_sw_nq_overflow")
    REPAIRABLE_HBM_UE = _nc("hw_err_repairable_hbm_ue")


class ErrorClass(IntEnum):
    """The class of an execution that completed with an error; runtimes count 7 + class, so the order is fixed."""

    GENERIC = _nc("err_generic")
    NUMERICAL = _nc("err_numerical")
    MODEL = _nc("err_model")
    TRANSIENT = _nc("err_transient")
    HARDWARE = _nc("err_hw")
    RUNTIME = _nc("err_rt")


class SoftwareError(IntEnum):
    """A software error subtype, counted beside the status."""

    SEMAPHORE = _nc("err_sw_semaphore_error")
    EVENT = _nc("err_sw_event_error")
    PSUM_COLLISION = _nc("err_sw_psum_collision")
    SEQUENCER = _nc("err_sw_sequencer_fatal")


class ApiFailure(IntEnum):
    """Why a call of the runtime's API failed."""

    FAILURE = _nc("generic_fail")
    RESOURCE = _nc("err_resource")
    LOAD_NOT_ENOUGH_NC = _nc("err_resource_nc")
    INVALID = _nc("err_invalid")
    UNSUPPORTED_NEFF_VERSION = _nc("err_unsupported_neff_version")


class DeviceMemory(IntEnum):
    """Categories of device memory; each is a gauge of a core."""

    CODE = _nc("mem_usage_code_device")
    TENSORS = _nc("mem_usage_tensors_device")
    CONSTANTS = _nc("mem_usage_constants_device")
    SCRATCHPAD = _nc("mem_usage_scratchpad_device")
    MISC = _nc("mem_usage_misc_device")


class HostMemory(IntEnum):
    """Categories of host memory; each is a gauge of the device."""

    CODE = _nd("mem_usage_code_host")
    TENSORS = _nd("mem_usage_tensors_host")
    CONSTANTS = _nd("mem_usage_constants_host")
    SCRATCHPAD = _nd("mem_usage_scratchpad_host")
    MISC = _nd("mem_usage_misc_host")


_Kind = TypeVar("_Kind", bound=IntEnum)


class Runtime:
    """The events of a runtime on one device. A hot loop keeps ``producer.core(n).execution_ended`` itself."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def execution_ended(
        self,
        core: int,
        status: Status = Status.SUCCESS,
        *,
        busy_us: int = 0,
        macs: int = 0,
        device_us: int | None = None,
        total_us: int | None = None,
        nc_us: int | None = None,
        cc_us: int | None = None,
        error_class: ErrorClass | None = None,
        software_error: SoftwareError | None = None,
    ) -> None:
        """An execution on a physical core has ended. Times in microseconds; a latency of None is left as it was.

        Raises BadIndex (EINVAL) for a core, status, class or software error that is none, and for a class beside a
        status that has none; nothing is counted then. A software error may stand beside any status.
        """
        ended = self.producer.core(core).execution_ended
        try:
            ended(status, busy_us, macs, device_us, total_us, nc_us, cc_us, error_class, software_error)
        except BadIndex:
            self._known(Status, status)
            if software_error is not None:
                self._known(SoftwareError, software_error)
            if error_class is not None:
                self._known(ErrorClass, error_class)
                raise self._bad(
                    f"the error class {ErrorClass(error_class).name} beside {Status(status).name}: "
                    "only executions that completed with an error have one"
                ) from None
            raise

    def api_failed(self, core: int, kind: ApiFailure = ApiFailure.FAILURE) -> None:
        """A call of the runtime's API has failed. Raises BadIndex (EINVAL) for a kind that is none."""
        self.producer.core(core).counter(self._known(ApiFailure, kind)).inc()

    def device_memory(self, core: int, category: DeviceMemory, delta_bytes: int) -> None:
        """Device memory was allocated (positive) or freed (negative) for a core. Raises as ``api_failed`` does."""
        _change(self.producer.core(core).counter(self._known(DeviceMemory, category)), delta_bytes)

    def host_memory(self, category: HostMemory, delta_bytes: int) -> None:
        """Host memory was allocated (positive) or freed (negative). Raises as ``api_failed`` does."""
        _change(self.producer.nd.counter(self._known(HostMemory, category)), delta_bytes)

    def model_loaded(self, node: ModelNode) -> ModelHandle:
        """A model was loaded onto the core it names: its record is added and the core's load count goes up.

        Raises ModelsFull (ENOSPC); nothing is counted then.
        """
        core = self.producer.core(node.nc_index)
        handle = self.producer.add_model(node)
        core.model_load_count.inc()
        return handle

    def model_unloaded(self, handle: ModelHandle) -> None:
        """A model was unloaded: its record is deleted."""
        handle.delete()

    def _known(self, kinds: type[_Kind], number: int) -> _Kind:
        """The member of that number: any other is a counter too, but of something else."""
        try:
            return kinds(number)
        except ValueError:
            names = ", ".join(f"{k.name} ({k.value})" for k in kinds)
            raise self._bad(f"{number!r} is no {kinds.__name__}; it is one of {names}") from None

    def _bad(self, message: str) -> BadIndex:
        return BadIndex(message, device=self.producer.device, pid=self.producer.pid, slot=self.producer.slot)


def _change(gauge: Counter, delta_bytes: int) -> None:
    if not -(1 << 63) < delta_bytes < 1 << 63:
        raise BadValue(f"a change of memory is less than 2**63 bytes, not {delta_bytes}")
    if delta_bytes >= 0:
        gauge.add(delta_bytes)
    else:
        gauge.sub(-delta_bytes)
