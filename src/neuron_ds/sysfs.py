"""The driver's sysfs tree from device totals, so that scripts which read the real tree have one to read.

Unlike the real driver, which folds a process in when it ends, the totals here include the living. ``present`` and
``peak`` are as seen by this observer since it was made: a single look shows 0 and the current use. This module knows
the names in the tree and what each is computed from; it reads no slab.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from neuron_ds import layout
from neuron_ds.categories import DEVICE_MEMORY, HOST_MEMORY
from neuron_ds.driver import DeviceProperties, Driver, get_driver
from neuron_ds.driver.totals import DeviceTotals

#: Per core: where a counter with a sysfs name stands. flop_count is twice the multiply-accumulates.
OTHER_INFO = ("flop_count", "inference_count", "model_load_count", "nc_time_in_use")
STATUS = tuple(c.sysfs for c in layout.NC if c.sysfs and c.sysfs not in OTHER_INFO)
_COUNTERS = {c.sysfs: c.index for c in layout.NC if c.sysfs}

#: The architecture names of the driver for the device types we know.
ARCHITECTURES = {
    "trn1": ("NCv2", "Trainium1"),
    "inf2": ("NCv2", "Inferentia2"),
    "trn2": ("NCv3", "Trainium2"),
}


class SysfsView:
    """The tree of all devices, seen by one observer: look as often as you like, then read ``tree`` or ``write`` it."""

    def __init__(self, driver: Driver | None = None) -> None:
        self._driver = driver or get_driver()
        self._last: dict[str, int] = {}
        self._present: dict[str, int] = {}
        self._peak: dict[str, int] = {}
        self._fixed: dict[str, str] = {}

    def look(self) -> None:
        """Read the totals of every device once."""
        for device in self._driver.devices():
            properties = self._driver.properties(device)
            totals = self._driver.totals(device)
            self._fixed.update(_architecture(properties))
            for path, value in _counters(properties, totals).items():
                self._see(path, value)
            for path, value in _memory(properties, totals).items():
                self._see(path, value)
                self._peak[path] = max(value, self._peak.get(path, 0))

    def _see(self, path: str, value: int) -> None:
        self._present[path] = value - self._last.get(path, value)
        self._last[path] = value

    def tree(self) -> dict[str, str]:
        """{path of a file below the root: its text}, as of the last look."""
        files = dict(self._fixed)
        for path, value in self._last.items():
            files[f"{path}/total"] = str(value)
            files[f"{path}/present"] = str(self._present[path])
            if path in self._peak:
                files[f"{path}/peak"] = str(self._peak[path])
        return dict(sorted(files.items()))

    def write(self, root: str | os.PathLike[str]) -> int:
        """Write the tree below a folder, each file replaced as a whole; returns how many files. Raises OSError."""
        files = self.tree()
        for name, text in files.items():
            path = Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.new")
            new.write_text(text + "\n")
            new.replace(path)
        return len(files)


def _architecture(p: DeviceProperties) -> Mapping[str, str]:
    arch, name = ARCHITECTURES.get(p.type or "", ("", p.name or ""))
    base = f"neuron{p.device}"
    return {
        f"{base}/core_count": str(p.cores or 0),
        f"{base}/info/architecture/arch_type": arch,
        f"{base}/info/architecture/device_name": name,
        f"{base}/info/architecture/instance_type": p.type or "",
    }


def _counters(p: DeviceProperties, totals: DeviceTotals) -> dict[str, int]:
    files = {}
    for core in range(p.slab_cores):
        base = f"neuron{p.device}/neuron_core{core}/stats"
        for group, names in (("status", STATUS), ("other_info", OTHER_INFO)):
            for name in names:
                value = totals.nc(core, _COUNTERS[name])
                files[f"{base}/{group}/{name}"] = 2 * value if name == "flop_count" else value
    return files


def _memory(p: DeviceProperties, totals: DeviceTotals) -> dict[str, int]:
    base = f"neuron{p.device}"
    files = {
        f"{base}/stats/memory_usage/host_mem/{name}": sum(totals.nd(gauge.index) for gauge in gauges)
        for name, gauges in HOST_MEMORY.items()
    }
    for core in range(p.slab_cores):
        for name, gauge in DEVICE_MEMORY.items():
            path = f"{base}/neuron_core{core}/stats/memory_usage/device_mem/{name}"
            files[path] = totals.nc(core, gauge.index)
    return files
