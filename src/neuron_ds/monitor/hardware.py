"""``neuron_hardware_info``: what Neuron devices this machine has, in the words of neuron-monitor.

It knows device properties as a Sample has them, and the vendor's names for them.
"""

from __future__ import annotations

from neuron_ds.collect import Sample
from neuron_ds.numbering import Numbering
from neuron_ds.records import printable

#: Device type, device version, core version as the vendor names them, by the type that a driver tells.
_HARDWARE = {
    "inf1": ("inferentia", "v1", "v1"),
    "trn1": ("trainium1", "v2", "v2"),
    "inf2": ("inferentia2", "v3", "v2"),
    "trn2": ("trainium2", "v4", "v3"),
}


def hardware_info(sample: Sample, numbering: Numbering) -> dict[str, object]:
    """The group ``neuron_hardware_info``. Of several kinds of devices the first one's type and memory are told."""
    known = [d.properties for d in sample.devices if d.properties]
    kind = next((p.type for p in known if p.type), "")
    type_, device_version, core_version = _HARDWARE.get(kind, (kind, "", ""))
    errors = [sample.error, *(d.error for d in sample.devices), *numbering.errors]
    if not sample.devices and not sample.error:
        errors.append("no Neuron device; neuron-ds doctor tells more")
    return {
        "neuron_device_type": printable(type_),
        "neuron_device_version": device_version,
        "neuroncore_version": core_version,
        "neuron_device_count": len(sample.devices),
        "neuron_device_memory_size": next((p.memory_bytes for p in known if p.memory_bytes), 0),
        "neuroncore_per_device_count": numbering.cores_per_device,
        "logical_neuroncore_config": numbering.logical_config,
        "error": printable("; ".join(e for e in errors if e)),
    }
