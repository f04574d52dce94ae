"""What the slabs of a process must show after some events: the table of docs/protocol.md, written a second time.

It folds events into counter values and models without the C core, the producer or the runtime's facade, so that a
comparison with a real slab compares two implementations. From ``layout`` it takes the numbers of the counters by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, takewhile

from neuron_ds.layout import MAX_CORES, NC, NC_BY_NAME, ND, ND_BY_NAME
from neuron_ds.simulate.events import (
    ApiFailed,
    DeviceMemoryChanged,
    Event,
    Executed,
    FeaturesUsed,
    HostMemoryChanged,
    ModelLoaded,
    ModelUnloaded,
    StillBusy,
)
from neuron_ds.simulate.models import Model
from neuron_ds.simulate.workload import (
    FAL_VERSION,
    FRAMEWORK_TYPE,
    FRAMEWORK_VERSION,
    RUNTIME_VERSION,
    Workload,
    script,
)
from neuron_ds.snapshot import RecordState, Snapshot

#: ("nc", core, counter) or ("nd", counter).
CounterKey = tuple[str, int, int] | tuple[str, int]

# Executions that ran to an end: latencies are told.
_COMPLETED = {
    "SUCCESS": "infer_completed",
    "COMPLETED_WITH_ERR": "infer_completed_with_err",
    "COMPLETED_WITH_NUM_ERR": "infer_completed_with_num_err",
}
# Executions that used the core and did not complete.
_BROKEN = {
    "TIMEOUT": "infer_timed_out",
    "HW_ERROR": "err_hw",
    "OOB": "oob",
    "COLLECTIVES": "hw_err_collectives",
    "HBM_UE": "hw_err_hbm_ue",
    "NC_UE": "hw_err_nc_ue",
    "DMA_ABORT": "hw_err_dma_abort",
    "NQ_OVERFLOW": "err_sw_nq_overflow",
    "REPAIRABLE_HBM_UE": "hw_err_repairable_hbm_ue",
}
_NEVER_RAN = {"BAD_INPUT": "infer_incorrect_input", "QUEUE_FULL": "infer_failed_to_queue"}
_CLASSES = ("GENERIC", "NUMERICAL", "MODEL", "TRANSIENT", "HARDWARE", "RUNTIME")
_SOFTWARE = {
    "SEMAPHORE": "err_sw_semaphore_error",
    "EVENT": "err_sw_event_error",
    "PSUM_COLLISION": "err_sw_psum_collision",
    "SEQUENCER": "err_sw_sequencer_fatal",
}
_API = {
    "FAILURE": "generic_fail",
    "RESOURCE": "err_resource",
    "LOAD_NOT_ENOUGH_NC": "err_resource_nc",
    "INVALID": "err_invalid",
    "UNSUPPORTED_NEFF_VERSION": "err_unsupported_neff_version",
}
_LATENCIES = {
    "device_us": "latency_device",
    "total_us": "latency_total",
    "nc_us": "nc_time",
    "cc_us": "cc_time",
}
_SHORT_TAG_BYTES = 32


@dataclass(slots=True)
class ExpectedSlab:
    """One slab as it must be. ``counters`` has what is not zero, ``models`` what is loaded, by model slot."""

    device: int
    tag: str
    counters: dict[CounterKey, int] = field(default_factory=dict)
    models: dict[int, Model] = field(default_factory=dict)

    def nc(self, core: int, name: str) -> int:
        """A counter of a core, by name."""
        return self.counters.get(("nc", core, NC_BY_NAME[name].index), 0)

    def nd(self, name: str) -> int:
        """A counter of the device, by name."""
        return self.counters.get(("nd", ND_BY_NAME[name].index), 0)

    def copy(self) -> ExpectedSlab:
        """One that stays as it is now."""
        return ExpectedSlab(self.device, self.tag, dict(self.counters), dict(self.models))

    # --- folding

    def _add(self, key: CounterKey, delta: int) -> None:
        value = self.counters.get(key, 0) + delta
        self.counters[key] = value
        if not value:
            del self.counters[key]

    def _set(self, key: CounterKey, value: int) -> None:
        self.counters.pop(key, None)
        if value:
            self.counters[key] = value

    def apply(self, event: Event) -> None:
        """One more event of this device."""
        match event:
            case Executed():
                self._executed(event)
            case StillBusy():
                self._add(_nc(event.core, "time_in_use"), event.busy_us)
            case ApiFailed():
                self._add(_nc(event.core, _API[event.kind.name]), 1)
            case DeviceMemoryChanged():
                self._add(_nc(event.core, f"mem_usage_{event.category.name.lower()}_device"), event.delta_bytes)
            case HostMemoryChanged():
                self._add(_nd(f"mem_usage_{event.category.name.lower()}_host"), event.delta_bytes)
            case ModelLoaded():
                slot = next(s for s in range(len(self.models) + 1) if s not in self.models)
                self.models[slot] = event.model
                self._add(_nc(event.model.core, "model_load_count"), 1)
            case ModelUnloaded():
                del self.models[next(s for s, model in self.models.items() if model == event.model)]
            case FeaturesUsed():
                bitmap = _nd("feature_bitmap")
                self.counters[bitmap] = self.counters.get(bitmap, 0) | event.bits

    def _executed(self, event: Executed) -> None:
        core, status = event.core, event.status.name
        self._add(_nc(core, {**_COMPLETED, **_BROKEN, **_NEVER_RAN}[status]), 1)
        if event.software_error is not None:
            self._add(_nc(core, _SOFTWARE[event.software_error.name]), 1)
        if status in _NEVER_RAN:
            return
        self._add(_nc(core, "time_in_use"), event.busy_us)
        if status not in _COMPLETED:
            return
        for name, counter in _LATENCIES.items():
            if (latency_us := getattr(event, name)) is not None:
                self._set(_nc(core, counter), latency_us)
        if status == "SUCCESS":
            self._add(_nc(core, "inference_count"), 1)
            self._add(_nc(core, "mac_count"), event.macs)
        elif event.error_class is not None:
            first = NC_BY_NAME["err_generic"].index
            self._add(("nc", core, first + _CLASSES.index(event.error_class.name)), 1)

    def publish(self) -> None:
        """What the process says of itself before its first event."""
        self._set(_nd("runtime_version"), _packed(*RUNTIME_VERSION))
        self._set(_nd("framework_version"), _packed(*FRAMEWORK_VERSION) | FRAMEWORK_TYPE << 48)
        self._set(_nd("fal_version"), _packed(*FAL_VERSION))

    # --- comparing

    def differences(self, snapshot: Snapshot) -> list[str]:
        """Where a snapshot departs from this, in words; empty if it is exactly so, with all that is not named zero."""
        return [*self._counter_differences(snapshot), *self._model_differences(snapshot), *self._info(snapshot)]

    def _counter_differences(self, snapshot: Snapshot) -> Iterator[str]:
        for definition, value in zip(ND, snapshot.nd_counters, strict=True):
            wanted = self.counters.get(("nd", definition.index), 0)
            if value != wanted:
                yield f"device {self.device} {definition.name}: {value}, expected {wanted}"
        for core in range(MAX_CORES):
            for definition, value in zip(NC, snapshot.nc_counters(core), strict=True):
                wanted = self.counters.get(("nc", core, definition.index), 0)
                if value != wanted:
                    yield f"device {self.device} core {core} {definition.name}: {value}, expected {wanted}"

    def _model_differences(self, snapshot: Snapshot) -> Iterator[str]:
        shown = {
            slot: Model(
                node.model_id, node.model_node_id, node.name, node.uuid, node.nc_index, node.sg_index, *node.mem_usage
            )
            for slot, node in snapshot.models.items()
        }
        for slot in sorted(shown.keys() | self.models.keys()):
            if shown.get(slot) != self.models.get(slot):
                yield f"device {self.device} model {slot}: {shown.get(slot)}, expected {self.models.get(slot)}"
        for record, state in snapshot.states().items():
            if state != RecordState.EXACT:
                yield f"device {self.device} record {record}: read {state.name.lower()}, expected exact"

    def _info(self, snapshot: Snapshot) -> Iterator[str]:
        info, ext = snapshot.process_info, snapshot.process_info_ext
        short = self.tag.encode()[:_SHORT_TAG_BYTES].decode(errors="ignore")
        wanted = (short, FRAMEWORK_TYPE, FRAMEWORK_VERSION, FAL_VERSION, RUNTIME_VERSION)
        shown = info and (
            info.tag,
            info.framework_type,
            info.framework_version,
            info.fal_version,
            info.runtime_version,
        )
        if shown != wanted:
            yield f"device {self.device} process info: {shown}, expected {wanted}"
        if (ext and ext.tag) != self.tag:
            yield f"device {self.device} long tag: {ext and ext.tag!r}, expected {self.tag!r}"


def _nc(core: int, name: str) -> CounterKey:
    return "nc", core, NC_BY_NAME[name].index


def _nd(name: str) -> CounterKey:
    return "nd", ND_BY_NAME[name].index


def _packed(major: int, minor: int, build: int) -> int:
    return build | minor << 32 | major << 40


def published(workload: Workload) -> dict[int, ExpectedSlab]:
    """The slabs of a process before its first event, by device."""
    slabs = {device: ExpectedSlab(device, workload.tag) for device in workload.devices}
    for slab in slabs.values():
        slab.publish()
    return slabs


def fold(slabs: dict[int, ExpectedSlab], events: Iterable[Event]) -> None:
    """Go on from slabs as they were with further events."""
    for event in events:
        slabs[event.device].apply(event)


def expected(workload: Workload, events: int | None = None, *, until_us: int | None = None) -> dict[int, ExpectedSlab]:
    """The slabs of the process by device: after its first so many events, or after all up to a time of the script.

    An endless script needs one of the two.
    """
    slabs = published(workload)
    first: Iterator[Event] = islice(script(workload), events)
    if until_us is not None:
        end_us = until_us
        first = takewhile(lambda event: event.at_us <= end_us, first)
    fold(slabs, first)
    return slabs
