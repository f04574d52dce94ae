"""What there is to see: the devices and who publishes on them, as values for people and scripts.

It asks a driver and attaches to each owner for a moment to learn its tag. It knows nothing of how the answers are
printed, and nothing it meets makes it fail: what cannot be read says so in its own place.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_ds.datastore import attach
from neuron_ds.driver import DeviceProperties, Driver, Owner, get_driver
from neuron_ds.errors import NeuronDSError
from neuron_ds.records import Version


@dataclass(frozen=True, slots=True)
class Process:
    """One taken slot and what its slab says. ``error`` tells why the slab could not be read, "" if it could."""

    owner: Owner
    tag: str | None
    runtime_version: Version | None
    command: str | None
    error: str


def devices(driver: Driver | None = None) -> list[DeviceProperties]:
    """The devices that exist, by number. Raises AccessDenied, UnsafeDirectory or LayoutMismatch."""
    driver = driver or get_driver()
    return [driver.properties(device) for device in driver.devices()]


def owners(device: int, driver: Driver | None = None) -> list[Owner]:
    """The taken slots of a device, by slot. Raises NoDevice (ENODEV)."""
    return (driver or get_driver()).owners(device)


def processes(device: int, driver: Driver | None = None) -> list[Process]:
    """The taken slots of a device with tag, version and command of each owner."""
    driver = driver or get_driver()
    return [_process(owner, driver) for owner in driver.owners(device)]


def command_line(pid: int) -> str | None:
    """The command of a process of our pid namespace, None where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "surrogateescape") or None
    except OSError:
        return None


def _process(owner: Owner, driver: Driver) -> Process:
    command = None if owner.foreign or not owner.alive else command_line(owner.pid)
    if not owner.alive:
        return Process(owner, None, None, command, "its producer died; the next publish recovers the slot")
    try:
        with attach(owner.pid, owner.device, slot=owner.slot, driver=driver) as reader:
            snapshot = reader.snapshot()
            return Process(owner, snapshot.tag, snapshot.runtime_version, command, "")
    except NeuronDSError as e:
        return Process(owner, None, None, command, e.message)
