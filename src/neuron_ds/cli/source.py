"""Where the slab comes from that ``show`` and ``check`` look at: a process, a slot, or a file with its bytes.

It turns what was written on the command line into one Snapshot and the bytes behind the blob. It knows how to find and
read; what the bytes mean is not its business.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from neuron_ds import layout
from neuron_ds.cli.base import Failure, tell
from neuron_ds.datastore import Reader, attach
from neuron_ds.driver import DeviceProperties, get_driver
from neuron_ds.errors import FormatError, NeuronDSError, NoSlab
from neuron_ds.snapshot import RecordState, Snapshot

#: How often a live slab is looked at until no record is caught in the middle of being rewritten.
LOOKS = 3


@dataclass(frozen=True, slots=True)
class Slab:
    """A slab as it was found. tail: what stands behind the blob, as far as it is there. name: what to call it."""

    snapshot: Snapshot
    tail: bytes
    name: str
    properties: DeviceProperties | None = None


def open_slab(what: str | None, device: int | None, slot: int | None) -> Slab:
    """The slab of a pid, a slot or a file. Raises Failure, or what attach and Snapshot raise."""
    if what is not None and not (what.isascii() and what.isdigit()):
        if device is not None or slot is not None:
            raise Failure(f"{what} is a file: --device and --slot are for a process (a pid is all digits)")
        return from_file(what)
    if what is None and slot is None:
        raise Failure("name a pid, a file or a --slot; neuron-ds ls shows what there is")
    return from_process(None if what is None else int(what), device, slot)


def from_file(path: str) -> Slab:
    """The slab in a file: its blob and, if the file goes on, the rest of the slab."""
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise Failure(f"{path}: a directory or a device; name a file with the bytes of a slab, or a pid")
    with open(path, "rb") as f:
        data = f.read(layout.SLAB_SIZE)
        more = f.read(1)
    try:
        snapshot = Snapshot.from_bytes(data)
    except FormatError as e:
        raise type(e)(e.message, path=path) from None
    if more:
        tell(f"{path}: goes on behind the slab; only its first {layout.SLAB_SIZE} bytes were looked at")
    return Slab(snapshot, data[layout.REQUIRED_SIZE :], path)


def from_process(pid: int | None, device: int | None, slot: int | None) -> Slab:
    """The slab of a living process, or of a slot."""
    if device is None:
        device = 0 if pid is None else _device_of(pid)
    with attach(pid, device, slot=slot) as reader:
        snapshot = _settled(reader)
        return Slab(snapshot, reader.read_tail(), _name(reader), reader.properties)


def _name(reader: Reader) -> str:
    slot = "" if reader.slot is None else f", slot {reader.slot}"
    return f"device {reader.device}{slot}, pid {reader.pid}"


def _device_of(pid: int) -> int:
    driver = get_driver()
    found = []
    for device in driver.devices():
        try:
            if any(o.pid == pid and o.alive is not False and o.state != "attached" for o in driver.owners(device)):
                found.append(device)
        except NeuronDSError as e:
            tell(str(e))
    if not found:
        raise NoSlab("owns no slab on any device; neuron-ds ls shows who does, neuron-ds doctor why not", pid=pid)
    if others := found[1:]:
        tell(f"pid {pid} also publishes on device {', '.join(map(str, others))}; --device chooses")
    return found[0]


def _settled(reader: Reader) -> Snapshot:
    """A snapshot without a torn record if a few looks give one: a record being rewritten is no fault."""
    for _ in range(LOOKS):
        snapshot = reader.snapshot()
        if not {RecordState.TORN, RecordState.STALE} & set(snapshot.states().values()):
            break
    return snapshot
