"""The small interface every driver keeps, and the values that cross it.

A driver decides who gets which slab and writes nothing but zeros into one; header and contents are the
datastore's. This module knows no way to reach a device: the drivers do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from neuron_ds._core import Mapping
from neuron_ds.driver.totals import DeviceTotals
from neuron_ds.layout import MAX_CORES


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """What a device is.

    cores: physical NeuronCores. memory_bytes: device memory (HBM). logical_config: physical cores per logical
    core, 1 or 2. Any of these is None where the driver cannot tell.
    """

    device: int
    type: str | None
    name: str | None
    cores: int | None
    memory_bytes: int | None
    logical_config: int | None
    path: str

    @property
    def logical_cores(self) -> int | None:
        """NeuronCores as users count them; one that is short of a physical core counts too."""
        if self.cores is None or self.logical_config is None:
            return None
        return -(-self.cores // self.logical_config)

    @property
    def slab_cores(self) -> int:
        """Physical cores to look for in a slab: all that it has room for where there are more, or it isn't known."""
        return min(self.cores or MAX_CORES, MAX_CORES)


@dataclass(frozen=True, slots=True)
class Who:
    """Who a process is, beside its pid; "" where it is not known."""

    command: str = ""
    user: str = ""
    container_id: str = ""
    pod_uid: str = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """A taken slot of a device.

    slot: None where the driver does not tell. alive: whether its producer still lives; None where the driver cannot
    tell. pid: in its owner's pid namespace. foreign: that namespace is not ours, so the pid means nothing here.
    age_s: seconds since it was acquired. state: "owned", "closing" (a release in progress, or cut short), or
    "attached" (has the device open, owns no slab). who: where the driver knows what /proc of this host can't tell.
    namespace: its pid namespace where the driver knows it; None otherwise.
    """

    device: int
    slot: int | None
    pid: int
    alive: bool | None
    foreign: bool = False
    state: str = "owned"
    generation: int | None = None
    age_s: float | None = None
    path: str | None = None
    who: Who | None = None
    namespace: int | None = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class Lease:
    """A slab that this process may write (producer) or read (reader), until it is released."""

    device: int
    pid: int
    mapping: Mapping
    properties: DeviceProperties
    slot: int | None = None
    generation: int | None = None
    writable: bool = False
    fresh: bool = True  #: until ``publish`` has stamped it; only the first ``publish`` of a process does
    private: object = field(default=None, repr=False)  #: the driver's own


class Driver(Protocol):
    """Who gets which slab. Every method raises errors of ``neuron_ds.errors`` that name device and pid."""

    name: str
    can_reset: bool  #: whether ``reset`` can start totals from zero

    def devices(self) -> list[int]:
        """Numbers of the devices that exist, ascending."""

    def properties(self, device: int) -> DeviceProperties:
        """What the device is. Raises NoDevice."""

    def acquire(self, device: int) -> Lease:
        """The calling process's own slab, writable; the same again on a second call. Raises SlotsFull (ENOMEM)."""

    def release(self, lease: Lease) -> None:
        """Kill every handle on the lease; give the slab back if it is a producer's and still ours."""

    def attach(self, device: int, pid: int | None = None, *, slot: int | None = None, path: str | None = None) -> Lease:
        """Another process's slab, read-only; ``path`` is an Owner's, where several devices have the number.

        Raises NoSlab (ENOENT), AmbiguousPid, ProducerGone.
        """

    def owners(self, device: int) -> list[Owner]:
        """The taken slots of a device, by slot."""

    def totals(self, device: int) -> DeviceTotals:
        """What all processes of the device ever counted, the living included. Raises TableBusy."""

    def reset(self, device: int) -> None:
        """Start the totals from zero. Raises StillOwned (EBUSY) while an owner lives."""
