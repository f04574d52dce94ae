"""What there is to see: the devices and who publishes on them, as values for people and scripts.

It asks a driver and attaches to each owner for a moment to learn its tag. It knows nothing of how the answers are
printed, and nothing it meets makes ``survey`` fail: what cannot be read says so in its own place.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from neuron_ds.datastore import attach
from neuron_ds.driver import DeviceProperties, Driver, Owner, get_driver
from neuron_ds.errors import NeuronDSError
from neuron_ds.layout import SLOTS_PER_DEVICE
from neuron_ds.numbering import numbering
from neuron_ds.records import Version, printable

#: How much of a command is shown where not all of it is asked for.
COMMAND_LIMIT = 40


@dataclass(frozen=True, slots=True)
class Process:
    """One process on a device and what its slab says, if it has one.

    ``error`` tells why the slab could not be read; it is "" if it could, and where there is none (state "attached").
    """

    owner: Owner
    tag: str | None
    runtime_version: Version | None
    command: str | None
    error: str

    @property
    def is_self(self) -> bool:
        """Whether it is the process that asks."""
        return self.owner.pid == os.getpid() and not self.owner.foreign


@dataclass(frozen=True, slots=True)
class DeviceListing:
    """One device and its processes. ``error`` tells why the device could not be read, "" if it could; what it is may be
    known all the same."""

    device: int
    properties: DeviceProperties | None
    processes: list[Process]
    error: str

    @property
    def slots_used(self) -> int | None:
        """Taken slots, None if not known; a process that merely has the device open takes none."""
        return None if self.error else sum(p.owner.state != "attached" for p in self.processes)


def devices(driver: Driver | None = None) -> list[DeviceProperties]:
    """The devices that exist, by number. Raises AccessDenied, UnsafeDirectory or LayoutMismatch."""
    driver = driver or get_driver()
    return [driver.properties(device) for device in driver.devices()]


def owners(device: int, driver: Driver | None = None) -> list[Owner]:
    """The taken slots of a device, by slot; of a real one all processes that have it open. Raises NoDevice (ENODEV)."""
    return (driver or get_driver()).owners(device)


def processes(device: int, driver: Driver | None = None) -> list[Process]:
    """The ``owners`` of a device with tag, version and command of each. Raises NoDevice (ENODEV)."""
    driver = driver or get_driver()
    return [_process(owner, driver) for owner in driver.owners(device)]


def survey(driver: Driver | None = None) -> list[DeviceListing]:
    """All devices with their processes; one that can't be read doesn't hide the others.

    Raises only where the devices can't even be counted: AccessDenied, UnsafeDirectory, NoDriver.
    """
    driver = driver or get_driver()
    return [_device(device, driver) for device in driver.devices()]


def command_line(pid: int) -> str | None:
    """The command of a process of our pid namespace, None where /proc does not tell."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "surrogateescape") or None
    except OSError:
        return None


def shorten(text: str, limit: int = COMMAND_LIMIT) -> str:
    """At most ``limit`` characters, the last three of them dots where something was left out."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shorten_middle(text: str, limit: int = COMMAND_LIMIT) -> str:
    """At most ``limit`` characters; what was left out is from the middle: how a command ends tells it from others."""
    if len(text) <= limit:
        return text
    head = (limit - 3) // 2
    return text[:head] + "..." + text[len(text) - (limit - 3 - head) :]


def brief(command: str) -> str:
    """A command without the directories of its program, which would be all that is left of it where it is cut."""
    program, space, arguments = command.partition(" ")
    return (os.path.basename(program) or program) + space + arguments


def _device(device: int, driver: Driver) -> DeviceListing:
    properties = None
    try:
        properties = driver.properties(device)
        return DeviceListing(device, properties, processes(device, driver), "")
    except NeuronDSError as e:
        return DeviceListing(device, properties, [], str(e))
    except OSError as e:
        return DeviceListing(device, properties, [], f"device {device}: {e.strerror}")


def _command(owner: Owner) -> str | None:
    """As the driver tells it, else as /proc does."""
    if owner.who is not None:
        return owner.who.command or None
    return None if owner.foreign else command_line(owner.pid)


def _process(owner: Owner, driver: Driver) -> Process:
    if owner.alive is False:
        return Process(owner, None, None, None, "its producer died; the next publish recovers the slot")
    command = _command(owner)
    if owner.state == "attached":
        return Process(owner, None, None, command, "")
    try:
        with attach(owner.pid, owner.device, slot=owner.slot, path=owner.path, driver=driver) as reader:
            snapshot = reader.snapshot()
            return Process(owner, snapshot.tag, snapshot.runtime_version, command, "")
    except NeuronDSError as e:
        return Process(owner, None, None, command, e.message)


# --- For scripts: the shape of neuron-ls -j -----------------------------------------------------------------------


def to_neuron_ls(listing: list[DeviceListing], *, wide: bool = False) -> list[dict[str, object]]:
    """The listing as ``neuron-ls -j`` gives it, with some keys of our own behind; commands brief unless ``wide``.

    NeuronCores are counted as users count them, logical ones, numbered as ``numbering`` does. What a driver can't
    know is "" or null.
    """
    entries: list[dict[str, object]] = []
    numbers = numbering({item.device: item.properties for item in listing})
    for item in listing:
        properties = item.properties
        cores = properties.logical_cores if properties else None
        first_core = numbers.of(item.device).first
        ids = None if cores is None else list(range(first_core, first_core + cores))
        entry: dict[str, object] = {
            "neuron_device": item.device,
            "bdf": "",
            "cpu_affinity": "",
            "numa_node": "",
            "connected_to": None,
            "nc_count": cores,
            "memory_size": properties.memory_bytes if properties else None,
            "neuroncore_ids": ids,
            "neuron_processes": None if item.error else [_process_entry(p, wide) for p in item.processes],
            "slots": SLOTS_PER_DEVICE,
            "slots_used": item.slots_used,
        }
        if properties:
            entry |= {
                "type": properties.type,
                "name": None if properties.name is None else printable(properties.name),
                "physical_nc_count": properties.cores,
                "logical_neuroncore_config": properties.logical_config,
                "path": printable(properties.path),
            }
        if item.error:
            entry["error"] = printable(item.error)
        entries.append(entry)
    return entries


def _process_entry(process: Process, wide: bool) -> dict[str, object]:
    owner = process.owner
    command = printable(process.command or "")
    entry: dict[str, object] = {
        "pid": owner.pid,
        "command": command if wide else shorten(brief(command)),
        "neuron_runtime_version": str(process.runtime_version or ""),
        "slot": owner.slot,
        "tag": None if process.tag is None else printable(process.tag),
        "age_s": owner.age_s,
        "alive": owner.alive,
        "state": owner.state,
        "other_pid_namespace": owner.foreign,
    }
    if process.error:
        entry["error"] = printable(process.error)
    return entry
