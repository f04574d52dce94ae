"""Drivers: who gets which slab. ``get_driver`` finds one by name; each lives in a module of its own."""

from __future__ import annotations

import os

from neuron_ds.driver.base import DeviceProperties, Driver, Lease, Owner
from neuron_ds.errors import NoDriver

__all__ = ["DeviceProperties", "Driver", "Lease", "Owner", "get_driver"]

_cache: dict[str, Driver] = {}


def get_driver(name: str | None = None) -> Driver:
    """The driver of this name, else of NEURON_DS_DRIVER: software, kernel, or auto, which is the default.

    auto takes the kernel driver where a device node exists, else the software driver; a node that can't be opened is
    an error then, never a reason to look elsewhere. Other names are looked up in the entry-point group
    ``neuron_ds.drivers``. Raises NoDriver (ENODEV).
    """
    name = name or os.environ.get("NEURON_DS_DRIVER") or "auto"
    key = name if name != "auto" else f"auto:{os.environ.get('NEURON_DS_DEV', '')}"
    if key not in _cache:
        _cache[key] = _load(name)
    return _cache[key]


def _load(name: str) -> Driver:
    if name in ("auto", "kernel"):
        from neuron_ds.driver import kernel

        if name == "kernel" or kernel.node_numbers():
            return _cache.setdefault("kernel", kernel.KernelDriver())
        name = "software"
    if name == "software":
        from neuron_ds.driver.software import SoftwareDriver

        return _cache.setdefault("software", SoftwareDriver())
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group="neuron_ds.drivers")}
    if name not in found:
        raise NoDriver(f"no driver is called {name!r}; there are {', '.join(sorted(found)) or 'none'}")
    driver: Driver = found[name].load()()
    return driver
