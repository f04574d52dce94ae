"""The NeuronCores of the whole instance, numbered as users count them: logical ones, device by device.

A core's number is device x cores per device + core. Where two physical cores make a logical one, both have a number of
their own below it. This module knows device properties only: no slab, no counter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuron_ds.driver import DeviceProperties


@dataclass(frozen=True, slots=True)
class DeviceCores:
    """The cores of one device. first: number of its first logical core. config: physical cores per logical one."""

    device: int
    first: int
    physical: int
    config: int

    @property
    def keys(self) -> list[str]:
        """The numbers of its logical cores, as text."""
        return [str(self.first + core) for core in range(-(-self.physical // self.config))]

    def halves(self, core: int) -> range:
        """The physical cores, within the device, of a logical one."""
        return range(core * self.config, min((core + 1) * self.config, self.physical))

    def half_key(self, physical: int) -> str:
        """The key of a physical core among the halves of logical cores."""
        return f"nc_v3.{self.first * self.config + physical}"


@dataclass(frozen=True, slots=True)
class Numbering:
    """All cores of an instance. cores_per_device: logical ones; of devices of several kinds the largest counts."""

    devices: dict[int, DeviceCores]
    cores_per_device: int
    logical_config: int
    errors: tuple[str, ...]

    def of(self, device: int) -> DeviceCores:
        """The cores of a device, also of one that could not be listed."""
        found = self.devices.get(device)
        config = self.logical_config
        return found or DeviceCores(device, device * self.cores_per_device, self.cores_per_device * config, config)


def numbering(properties: Mapping[int, DeviceProperties | None]) -> Numbering:
    """The numbers of the cores of these devices; None: what it is isn't known, and its error says why."""
    shapes, errors = {}, []
    for device, p in properties.items():
        if p is None:
            continue
        if p.cores is None:
            errors.append(f"device {device}: how many cores it has is not known; {p.slab_cores} are taken for it")
        shapes[device] = p.slab_cores, p.logical_config or 1
    per_device = max((-(-physical // config) for physical, config in shapes.values()), default=0)
    devices = {
        device: DeviceCores(device, device * per_device, physical, config)
        for device, (physical, config) in shapes.items()
    }
    return Numbering(devices, per_device, max((config for _, config in shapes.values()), default=1), tuple(errors))
