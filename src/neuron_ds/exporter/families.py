"""The one table of all families: name, type, labels and a sentence for the operator.

The vendor's families keep the vendor's names; everything of ours begins with ``neuron_ds_`` and is in base units. What
can be made from the table of counters is made from it. This module knows no value of any family.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neuron_ds import categories, layout
from neuron_ds.layout import CounterDef

GAUGE, COUNTER, INFO = "gauge", "counter", "info"
_SUFFIX = {GAUGE: "", COUNTER: "_total", INFO: "_info"}

#: What every series carries, whatever its family.
INSTANCE_LABELS = ("instance_name", "instance_id", "instance_type", "availability_zone", "region", "subnet_id")
#: What may be told of a process beside its tag: the name of the choice, the labels it adds. The names of pods stand
#: under the labels that kube-state-metrics and cAdvisor have for them.
CHOICES: dict[str, tuple[str, ...]] = {
    "pod": ("pod_uid", "namespace", "pod", "container"),
    "container": ("container_id",),
    "user": ("user",),
    "command": ("command",),
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family. ``many``: its series are so many that we write them ourselves (text.py)."""

    name: str  #: without _total and _info
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    many: bool = False

    @property
    def sample(self) -> str:
        """The name of its series."""
        return self.name + _SUFFIX[self.kind]


@dataclass(frozen=True, slots=True)
class CounterFamily:
    """The family of one counter of the format. ``divisor``: what turns the counter's unit into the base unit."""

    counter: CounterDef
    family: Family
    divisor: int = 1


# --- The vendor's ---------------------------------------------------------------------------------------------------

_TAG = ("runtime_tag",)

UTILIZATION = Family(
    "neuroncore_utilization_ratio",
    GAUGE,
    "share of the exporter's window that the NeuronCore spent executing for the runtime, 0 to 1",
    (*_TAG, "neuroncore"),
    many=True,
)
CORE_MEMORY_FAMILIES = {
    what: Family(
        f"neuroncore_memory_usage_{what}",
        GAUGE,
        f"device memory of the runtime on the NeuronCore used for {what.replace('_', ' ')}, bytes",
        (*_TAG, "neuroncore", "memory_location"),
        many=True,
    )
    for what in categories.DEVICE_MEMORY
}
MEMORY_USED = Family(
    "neuron_runtime_memory_used_bytes",
    GAUGE,
    "memory of the runtime on the host and on the devices",
    (*_TAG, "memory_location"),
)
RUNTIME_VCPU = Family(
    "neuron_runtime_vcpu_usage_ratio",
    GAUGE,
    "vCPU time of the runtime's processes over the exporter's window, 1 is all vCPUs of the instance",
    (*_TAG, "usage_type"),
)
EXECUTION_STATUS = Family(
    "execution_status",
    COUNTER,
    "executions by how they ended, since the exporter's or the runtime's start",
    (*_TAG, "status_type"),
)
EXECUTION_ERRORS = Family(
    "execution_errors",
    COUNTER,
    "execution errors by their kind, since the exporter's or the runtime's start",
    (*_TAG, "error_type"),
)
LATENCY = Family(
    "execution_latency_seconds",
    GAUGE,
    "total latency of the executions in the exporter's window, by percentile; none without executions",
    (*_TAG, "percentile"),
)
#: Those that are labelled by runtime, and so may carry more labels by choice.
RUNTIME = (
    UTILIZATION,
    *CORE_MEMORY_FAMILIES.values(),
    MEMORY_USED,
    RUNTIME_VCPU,
    EXECUTION_STATUS,
    EXECUTION_ERRORS,
    LATENCY,
)

ECC = Family(
    "hardware_ecc_events",
    COUNTER,
    "ECC events of the device since the exporter's start",
    ("event_type", "neuron_device_index"),
)
VCPU_COUNT = Family("system_vcpu_count", GAUGE, "vCPUs of the instance")
VCPU_USAGE = Family(
    "system_vcpu_usage_ratio",
    GAUGE,
    "share of the vCPU time over the exporter's window; user with nice, system with io_wait, irq and soft_irq",
    ("usage_type",),
)
MEMORY_TOTAL = Family("system_memory_total_bytes", GAUGE, "memory of the instance")
MEMORY_OF_SYSTEM = Family("system_memory_used_bytes", GAUGE, "memory of the instance in use")
SWAP_TOTAL = Family("system_swap_total_bytes", GAUGE, "swap space of the instance")
SWAP_USED = Family("system_swap_used_bytes", GAUGE, "swap space of the instance in use")
INSTANCE = Family("instance", INFO, "the instance, as far as it is known")
HARDWARE = Family(
    "neuron_hardware",
    INFO,
    "the Neuron devices of the instance; NeuronCores as users count them, memory in bytes",
    ("neuron_device_count", "neuroncore_per_device_count", "neuron_device_memory_size"),
)
SYSTEM = (
    ECC,
    VCPU_COUNT,
    VCPU_USAGE,
    MEMORY_TOTAL,
    MEMORY_OF_SYSTEM,
    SWAP_TOTAL,
    SWAP_USED,
    INSTANCE,
    HARDWARE,
)

# --- Ours: devices, slots and the exporter itself -------------------------------------------------------------------

_DEVICE = ("neuron_device",)

RUNTIME_PROCESSES = Family("neuron_ds_runtime_processes", GAUGE, "processes that share the runtime tag", _TAG)
LISTED = Family("neuron_ds_devices_listed", GAUGE, "1 if the last look for devices worked, 0 if none can be found out")
DEVICES = Family("neuron_ds_devices", GAUGE, "devices that were found; none where the look for them did not work")
DEVICE_READABLE = Family("neuron_ds_device_readable", GAUGE, "1 if the device and its totals could be read", _DEVICE)
DEVICE_INFO = Family(
    "neuron_ds_device",
    INFO,
    "what the device is; physical cores, and how many of them make one logical core",
    (*_DEVICE, "device_type", "device_name", "cores", "logical_config"),
)
DEVICE_MEMORY = Family("neuron_ds_device_memory_bytes", GAUGE, "memory of the device", _DEVICE)
SLOTS = Family("neuron_ds_slots", GAUGE, "places for processes on the device", _DEVICE)
SLOTS_USED = Family("neuron_ds_slots_used", GAUGE, "places taken, those of dead processes included", _DEVICE)
PROCESSES = Family(
    "neuron_ds_processes",
    GAUGE,
    "processes in the device's slots: readable, dead (their place is recovered by the next publish), or unreadable",
    (*_DEVICE, "state"),
)
RECORD_READS = Family(
    "neuron_ds_record_reads",
    COUNTER,
    "records read by how it went; torn ones had nothing to show, stale ones an earlier copy",
    (*_DEVICE, "state"),
)
SLAB_ERRORS = Family(
    "neuron_ds_slab_read_errors",
    COUNTER,
    "reads of a living process's slab, or of the device, that failed as a whole",
    _DEVICE,
)
UNDERFLOWS = Family(
    "neuron_ds_memory_underflows",
    GAUGE,
    "memory gauges below zero in the slabs of living processes; they count as 0 in every sum",
    _DEVICE,
)
VERSIONS = Family(
    "neuron_ds_published_versions",
    COUNTER,
    "processes that published the version",
    (*_DEVICE, "component", "version"),
)
SAMPLE_AGE = Family("neuron_ds_sample_age_seconds", GAUGE, "age of the look at the slabs that is shown")
WINDOW = Family("neuron_ds_window_seconds", GAUGE, "length of the window that utilization and percentiles are over")
WINDOW_AGE = Family("neuron_ds_window_age_seconds", GAUGE, "time since the last window ended")
LOOK_DURATION = Family("neuron_ds_look_duration_seconds", GAUGE, "what the look at the slabs took")
LOOKS = Family("neuron_ds_looks", COUNTER, "looks at the slabs")
LATENCIES_DROPPED = Family("neuron_ds_latency_samples_dropped", COUNTER, "latencies that were seen and not kept")
FINDINGS = Family(
    "neuron_ds_findings",
    GAUGE,
    "what neuron-ds diagnose finds, as of the last window's end, by kind and severity; 0 where there is none",
    ("kind", "severity"),
)
EXPORTER = Family("neuron_ds_exporter", INFO, "the exporter's version", ("version",))

OURS = (
    RUNTIME_PROCESSES,
    LISTED,
    DEVICES,
    DEVICE_READABLE,
    DEVICE_INFO,
    DEVICE_MEMORY,
    SLOTS,
    SLOTS_USED,
    PROCESSES,
    RECORD_READS,
    SLAB_ERRORS,
    UNDERFLOWS,
    VERSIONS,
    SAMPLE_AGE,
    WINDOW,
    WINDOW_AGE,
    LOOK_DURATION,
    LOOKS,
    LATENCIES_DROPPED,
    FINDINGS,
    EXPORTER,
)

# --- Ours: every counter of the format ------------------------------------------------------------------------------


def _of_counters(
    prefix: str, counters: Iterable[CounterDef], labels: tuple[str, ...], whose: str, kinds: tuple[str, ...], many: bool
) -> tuple[CounterFamily, ...]:
    found = []
    for c in counters:
        if c.kind not in kinds:
            continue
        unit = {"us": "_seconds", "bytes": "_bytes"}.get(c.unit, "")
        kind = COUNTER if c.kind == layout.COUNTER else GAUGE
        family = Family(f"{prefix}_{c.name}{unit}", kind, f"{c.help}{whose}", labels, many)
        found.append(CounterFamily(c, family, 1_000_000 if c.unit == "us" else 1))
    return tuple(found)


PROCESS_LABELS = (*_DEVICE, "slot", "pid", *_TAG)
_OF_DEVICE = "; all processes of the device, also those that ended"
_OF_LIVING = "; the living processes of the device"

#: By physical core, from the device's totals.
CORE_COUNTERS = (
    *_of_counters("neuron_ds_core", layout.NC, (*_DEVICE, "core"), _OF_DEVICE, (layout.COUNTER,), True),
    *_of_counters("neuron_ds_core", layout.NC, (*_DEVICE, "core"), _OF_LIVING, (layout.GAUGE,), True),
)
DEVICE_COUNTERS = (
    *_of_counters("neuron_ds_device", layout.ND, _DEVICE, _OF_LIVING, (layout.GAUGE,), False),
    *_of_counters("neuron_ds_device", layout.ND, _DEVICE, _OF_DEVICE, (layout.BITMAP,), False),
)
#: By process and physical core, and by process: only when asked for.
PROCESS_CORE_COUNTERS = _of_counters(
    "neuron_ds_process_core",
    layout.NC,
    (*PROCESS_LABELS, "core"),
    "; one process",
    (layout.COUNTER, layout.GAUGE, layout.LAST_VALUE),
    True,
)
PROCESS_COUNTERS = _of_counters(
    "neuron_ds_process", layout.ND, PROCESS_LABELS, "; one process", (layout.GAUGE, layout.BITMAP), True
)
PROCESS_INFO = Family(
    "neuron_ds_process",
    INFO,
    "a process that publishes, and the versions it runs",
    (*PROCESS_LABELS, "runtime_version", "framework_version", "fal_version"),
    many=True,
)

PER_PROCESS = (PROCESS_INFO, *(c.family for c in PROCESS_COUNTERS + PROCESS_CORE_COUNTERS))
FAMILIES = (
    *RUNTIME,
    *SYSTEM,
    *OURS,
    *(c.family for c in DEVICE_COUNTERS + CORE_COUNTERS),
    *PER_PROCESS,
)
