"""Drivers: who gets which slab. ``get_driver`` finds one by name; each lives in a module of its own."""

from __future__ import annotations

import os

from neuron_ds.driver.base import DeviceProperties, Driver, Lease, Owner
from neuron_ds.errors import NoDriver

__all__ = ["DeviceProperties", "Driver", "Lease", "Owner", "get_driver"]

_cache: dict[str, Driver] = {}


def get_driver(name: str | None = None) -> Driver:
    """The driver of this name, else of NEURON_DS_DRIVER, else the software driver.

    Other names are looked up in the entry-point group ``neuron_ds.drivers``. Raises NoDriver (ENODEV).
    """
    name = name or os.environ.get("NEURON_DS_DRIVER") or "auto"
    if name in ("auto", "software"):
        name = "software"
    if name not in _cache:
        _cache[name] = _load(name)
    return _cache[name]


def _load(name: str) -> Driver:
    if name == "software":
        from neuron_ds.driver.software import SoftwareDriver

        return SoftwareDriver()
    from importlib.metadata import entry_points

    found = {e.name: e for e in entry_points(group="neuron_ds.drivers")}
    if name not in found:
        raise NoDriver(f"no driver is called {name!r}; there are {', '.join(sorted(found)) or 'none'}")
    driver: Driver = found[name].load()()
    return driver
