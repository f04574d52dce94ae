"""``system_data`` and the processor use of runtimes: groups made of two looks at the host.

Pure functions of HostSamples; where one holds a text in the place of a value, that is the group's ``error``. No clock,
no /proc and no slab here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from neuron_ds.host import CPU_FIELDS, ECC, HostSample, Memory, ProcessUse
from neuron_ds.monitor.sums import MAX_INTEGER
from neuron_ds.rates import grown

Group = dict[str, object]


def _group(before: HostSample, after: HostSample, value: object) -> Group:
    error = value if isinstance(value, str) else ""
    return {"period": max(0.0, (after.time_ns - before.time_ns) / 1e9), "error": error}


def memory_info(before: HostSample, after: HostSample) -> Group:
    group = _group(before, after, after.memory)
    memory = Memory(0, 0, 0, 0) if isinstance(after.memory, str) else after.memory
    return group | {
        "memory_total_bytes": memory.total_bytes,
        "memory_used_bytes": memory.used_bytes,
        "swap_total_bytes": memory.swap_total_bytes,
        "swap_used_bytes": memory.swap_used_bytes,
    }


def vcpu_usage(before: HostSample, after: HostSample) -> Group:
    """Shares of the period in percent: of each CPU, and of all. What a hypervisor stole is in none of them."""
    group = _group(before, after, after.processors)
    if isinstance(after.processors, str):
        return group | {"average_usage": _percents(()), "usage_data": {}, "context_switch_count": 0}
    old = after.processors if isinstance(before.processors, str) else before.processors
    spent = [
        tuple(max(0.0, b - a) for a, b in zip(earlier, now, strict=True))
        for earlier, now in zip(old.seconds, after.processors.seconds, strict=False)
    ]
    switches = min(grown(old.context_switches, after.processors.context_switches), MAX_INTEGER)
    return group | {
        "average_usage": _percents(tuple(map(sum, zip(*spent, strict=True)))),
        "usage_data": {str(cpu): _percents(each) for cpu, each in enumerate(spent)},
        "context_switch_count": switches,
    }


def _percents(spent: tuple[float, ...]) -> dict[str, float]:
    total = sum(spent)
    if not total:
        return dict.fromkeys(CPU_FIELDS, 0.0)
    return {name: 100.0 * s / total for name, s in zip(CPU_FIELDS, spent, strict=False)}


def neuron_hw_counters(before: HostSample, after: HostSample) -> Group:
    """ECC events of the period, of the devices whose counts can be read; ``error`` says why the others are left out.

    Null where the devices are simulated, and where no device's counts can be read.
    """
    if after.ecc is None or isinstance(after.ecc, str):
        return _group(before, after, after.ecc) | {"neuron_devices": None}
    old = before.ecc if isinstance(before.ecc, Mapping) else {}
    reasons, devices = [], []
    for device, counts in after.ecc.items():
        if isinstance(counts, str):
            reasons.append(counts)
            continue
        earlier = old.get(device, counts)
        pairs = zip(ECC, counts if isinstance(earlier, str) else earlier, counts, strict=True)
        events = {name: min(grown(a, b), MAX_INTEGER) for name, a, b in pairs}
        devices.append({"neuron_device_index": device} | events)
    return _group(before, after, "; ".join(reasons)) | {"neuron_devices": None if reasons and not devices else devices}


def use_of(host: HostSample, pid: int, *, foreign: bool = False) -> ProcessUse | str:
    """What a process uses, or why that is not known. A pid of another namespace (foreign) is somebody else's here."""
    if foreign:
        return f"process {pid} is in another pid namespace"
    return host.processes.get(pid, f"process {pid} is not in /proc")


def process_vcpu_usage(before: HostSample, after: HostSample, pid: int, *, foreign: bool = False) -> Group:
    """Processor time of a process over the period, in percent of all CPUs of the host together."""
    use = use_of(after, pid, foreign=foreign)
    group = _group(before, after, use)
    old = before.processes.get(pid)
    user = system = 0.0
    cpus = 1 if isinstance(after.processors, str) else len(after.processors.seconds)
    elapsed_s = (after.time_ns - before.time_ns) / 1e9 * max(1, cpus)
    if isinstance(use, ProcessUse) and isinstance(old, ProcessUse) and elapsed_s > 0:
        user = max(0.0, 100 * (use.user_s - old.user_s) / elapsed_s)
        system = max(0.0, 100 * (use.system_s - old.system_s) / elapsed_s)
    return group | {"vcpu_usage": {"user": user, "system": system}}


SYSTEM: Mapping[str, Callable[[HostSample, HostSample], Group]] = {
    "memory_info": memory_info,
    "vcpu_usage": vcpu_usage,
    "neuron_hw_counters": neuron_hw_counters,
}
