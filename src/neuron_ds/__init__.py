"""neuron_ds: publish and observe the Neuron DataStore.

The whole public surface stands in ``__all__``. Importing this package loads the C core, compares its layout
with ``neuron_ds.layout``, and nothing else: the rest comes with its first use, so that a runtime which only
wants one counter pays for one counter.
"""

from __future__ import annotations

import sys

if sys.platform != "linux" or sys.byteorder != "little":
    raise ImportError("neuron_ds needs Linux on a little-endian machine: the datastore is defined for no other")
if "t" in getattr(sys, "abiflags", ""):
    raise ImportError("neuron_ds needs a Python with the GIL: its counters rely on it; use the ordinary build")

from neuron_ds import _core, layout

__version__ = "0.1.0"

TYPE_CHECKING = False  # checkers take it for typing's own, which is not worth an import
if TYPE_CHECKING:
    from neuron_ds import errors
    from neuron_ds.datastore import ModelHandle, Producer, Reader, attach, publish
    from neuron_ds.errors import NeuronDSError
    from neuron_ds.listing import devices, owners
    from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Version
    from neuron_ds.runtime import Runtime, Status
    from neuron_ds.snapshot import RecordState, Snapshot

# Where each public name lives; loaded on first use.
_HOME = {
    "publish": "datastore",
    "attach": "datastore",
    "Producer": "datastore",
    "Reader": "datastore",
    "ModelHandle": "datastore",
    "devices": "listing",
    "owners": "listing",
    "Snapshot": "snapshot",
    "ModelNode": "records",
    "ProcessInfo": "records",
    "ProcessInfoExt": "records",
    "Version": "records",
    "RecordState": "snapshot",
    "Runtime": "runtime",
    "Status": "runtime",
    "NeuronDSError": "errors",
}

__all__ = [
    "ModelHandle",
    "ModelNode",
    "NeuronDSError",
    "ProcessInfo",
    "ProcessInfoExt",
    "Producer",
    "Reader",
    "RecordState",
    "Runtime",
    "Snapshot",
    "Status",
    "Version",
    "attach",
    "devices",
    "errors",
    "layout",
    "owners",
    "publish",
]


def _compare_layouts() -> None:
    """The C core was compiled from the generated header; refuse to run if that was another table's."""
    ours = (
        layout.REQUIRED_SIZE,
        layout.HEADER_WORD,
        layout.nd_index(0),
        layout.PROCESS_INFO.offset,
        layout.MODEL_BITMAP.offset,
        layout.MODELS.offset,
        layout.PROCESS_INFO_EXT.offset,
        layout.MODEL_SIZE,
        layout.PROCESS_INFO_SIZE,
        layout.PROCESS_INFO_EXT_SIZE,
        [layout.nc_index(core, i) for core in range(layout.MAX_CORES) for i in range(layout.NC_COUNTERS)],
    )
    if _core.layout_report() != ours:
        raise ImportError("neuron_ds._core was built for another layout table; rebuild the package")


_compare_layouts()


if not TYPE_CHECKING:  # a checker reads the names above

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name == "errors":
            return import_module("neuron_ds.errors")
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
