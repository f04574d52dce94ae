"""Drivers: who gets which slab. ``get_driver`` finds one by name; each lives in a module of its own."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from neuron_ds.driver.base import DeviceProperties, Driver, Lease, Owner, Who
from neuron_ds.errors import NoDriver

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["DeviceProperties", "Driver", "Lease", "Owner", "Who", "driver_names", "get_driver", "use_driver"]

_cache: dict[str, Driver] = {}
_in_use: Driver | None = None


def get_driver(name: str | None = None) -> Driver:
    """The driver of this name, else of NEURON_DS_DRIVER: software, kernel, or auto, which is the default.

    auto takes the kernel driver where a device node exists, else the software driver; a node that can't be opened is
    an error then, never a reason to look elsewhere. Other names are looked up in the entry-point group
    ``neuron_ds.drivers``. Raises NoDriver (ENODEV).
    """
    if name is None and _in_use is not None:
        return _in_use
    name = name or os.environ.get("NEURON_DS_DRIVER") or "auto"
    key = name if name != "auto" else f"auto:{os.environ.get('NEURON_DS_DEV', '')}"
    if key not in _cache:
        _cache[key] = _load(name)
    return _cache[key]


def driver_names() -> list[str]:
    """The drivers that ``get_driver`` finds by name, usable or not."""
    return sorted({"kernel", "software", *_others()})


def _others() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points

    return {e.name: e for e in entry_points(group="neuron_ds.drivers")}


def use_driver(driver: Driver | None) -> None:
    """Let ``get_driver`` give this one where none is named, whatever the environment says; None ends that."""
    global _in_use
    _in_use = driver


def _load(name: str) -> Driver:
    if name in ("auto", "kernel"):
        from neuron_ds.driver import kernel

        if name == "kernel" or kernel.node_numbers():
            return _cache.setdefault("kernel", kernel.KernelDriver())
        name = "software"
    if name == "software":
        from neuron_ds.driver.software import SoftwareDriver

        return _cache.setdefault("software", SoftwareDriver())
    found = _others()
    if name not in found:
        raise NoDriver(f"no driver is called {name!r}; there are {', '.join(sorted(found)) or 'none'}")
    driver: Driver = found[name].load()()
    return driver
