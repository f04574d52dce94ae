"""What happens in a simulated process, as plain values: each event is one call of the runtime's facade at a time.

Events carry no state and know no clock: ``at_us`` counts from the start of the script. Who makes them are the
patterns, who turns them into calls is ``playing``, and who says what they must add up to is ``expect``.
"""

from __future__ import annotations

from typing import NamedTuple

from neuron_ds.runtime import ApiFailure, DeviceMemory, ErrorClass, HostMemory, SoftwareError, Status
from neuron_ds.simulate.models import Model


class Executed(NamedTuple):
    """An execution has ended, in whatever way. A latency of None is not told."""

    at_us: int
    device: int
    core: int
    status: Status = Status.SUCCESS
    busy_us: int = 0
    macs: int = 0
    device_us: int | None = None
    total_us: int | None = None
    nc_us: int | None = None
    cc_us: int | None = None
    error_class: ErrorClass | None = None
    software_error: SoftwareError | None = None


class StillBusy(NamedTuple):
    """An execution goes on, and the runtime accounts for the time so far: all there is to see of one that hangs."""

    at_us: int
    device: int
    core: int
    busy_us: int


class ApiFailed(NamedTuple):
    """A call of the runtime's API has failed."""

    at_us: int
    device: int
    core: int
    kind: ApiFailure


class DeviceMemoryChanged(NamedTuple):
    """Device memory was allocated (positive) or freed (negative) for a core."""

    at_us: int
    device: int
    core: int
    category: DeviceMemory
    delta_bytes: int


class HostMemoryChanged(NamedTuple):
    """Host memory was allocated (positive) or freed (negative)."""

    at_us: int
    device: int
    category: HostMemory
    delta_bytes: int


class ModelLoaded(NamedTuple):
    """A model's node was loaded onto its core."""

    at_us: int
    device: int
    model: Model


class ModelUnloaded(NamedTuple):
    """A model's node that was loaded before is gone."""

    at_us: int
    device: int
    model: Model


class FeaturesUsed(NamedTuple):
    """The process has begun to use features (bits of the device's feature bitmap)."""

    at_us: int
    device: int
    bits: int


Event = (
    Executed
    | StillBusy
    | ApiFailed
    | DeviceMemoryChanged
    | HostMemoryChanged
    | ModelLoaded
    | ModelUnloaded
    | FeaturesUsed
)
