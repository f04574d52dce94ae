"""Where simulated processes publish: the software driver unless somebody asks for another by name.

Made-up numbers on real hardware would mislead whoever watches it, so an environment that names another driver is an
error here and not an instruction. This module makes devices; it starts no process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from neuron_ds.driver import DeviceProperties, driver_names, get_driver
from neuron_ds.driver.directory import DEFAULT_TYPE, PRESETS, device_name
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import BadIndex, BadValue, NoDriver
from neuron_ds.simulate.models import CoreId

__all__ = ["DEFAULT_TYPE", "DRIVER_VARIABLE", "SOFTWARE", "driver_name", "prepare", "preset"]

SOFTWARE = "software"
DRIVER_VARIABLE = "NEURON_DS_DRIVER"


def driver_name(asked: str | None, environ: Mapping[str, str] | os._Environ[str] = os.environ) -> str:
    """The driver to publish with. Raises NoDriver (ENODEV) if the environment names another and nobody asked for it."""
    if asked is not None:
        return asked
    named = environ.get(DRIVER_VARIABLE) or "auto"
    if named not in ("auto", SOFTWARE):
        if named not in (known := driver_names()):
            missing = f"no driver is called {named!r}; there are {', '.join(known)}"
            raise NoDriver(f"{DRIVER_VARIABLE} names one that doesn't exist: {missing}; unset the variable")
        raise NoDriver(
            f"{DRIVER_VARIABLE} names the driver {named!r}, and simulated numbers belong to the software driver; "
            f"unset the variable, or ask for that driver by name if you mean it"
        )
    return SOFTWARE


def prepare(
    devices: Mapping[int, str],
    cores: Iterable[CoreId],
    driver: str,
    directory: str | None,
    *,
    same_type: bool = False,
) -> None:
    """Make the devices (number: type) where the software driver is to have them, and see that the cores exist.

    Devices that are there already stay as they are; with ``same_type`` one of another type is an error, and nothing is
    made then. Raises what ``SoftwareDriver.probe`` raises, NoDevice, BadIndex (EINVAL) for a core that the device which
    is there does not have, and BadValue (EINVAL) for another type.
    """
    software = SoftwareDriver(directory) if driver == SOFTWARE else None
    root = software.roots()[0][0] if software else ""
    found: dict[int, DeviceProperties] = {}
    for device in devices:
        if software is None:
            found[device] = get_driver(driver).properties(device)
        elif os.path.lexists(f"{root}/{device_name(device)}"):
            found[device] = software.probe(device)
    for there in found.values():
        wanted = devices[there.device]
        if same_type and there.type not in (None, wanted):
            raise BadValue(
                f"is there already, of type {there.type}, not {wanted}; leave --type out, remove it with "
                f"rm -r {there.path} once nobody uses it, or use another directory (NEURON_DS_DIR)",
                device=there.device,
            )
    for device, type in devices.items():
        if software is not None and device not in found:
            found[device] = software.probe(device, type=type)
    for device, core in cores:
        there = found[device]
        if there.cores is not None and core >= there.cores:
            raise BadIndex(
                f"core {core} does not exist; the device that is there is of type {there.type} and has {there.cores} "
                f"physical cores: plan for that (--type {there.type}), or use another directory (NEURON_DS_DIR)",
                device=device,
            )


def preset(type: str) -> tuple[int, int]:
    """Physical cores of a device of this type, and how many of them are a logical one. Raises BadValue (EINVAL)."""
    if type not in PRESETS:
        raise BadValue(f"device type {type!r} is unknown; it is one of {', '.join(PRESETS)}")
    _, cores, _, logical = PRESETS[type]
    return cores, logical
