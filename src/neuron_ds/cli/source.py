"""Where the slab comes from that ``show`` and ``check`` look at: a process, a slot, or a file with its bytes.

It turns what was written on the command line into one Snapshot and the bytes behind the blob. It knows how to find and
read; what the bytes mean is not its business.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from neuron_ds import layout
from neuron_ds.cli.base import Failure, tell
from neuron_ds.datastore import Reader, attach
from neuron_ds.driver import DeviceProperties, Owner, get_driver
from neuron_ds.errors import FormatError, NeuronDSError, NoSlab, ProducerGone, TooShort
from neuron_ds.snapshot import RecordState, Snapshot

#: How often a live slab is looked at until no record is caught in the middle of being rewritten.
LOOKS = 3
#: Far more than any pid has, and fewer than Python refuses to read.
PID_DIGITS = 40


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
    if what is not None and len(what) > PID_DIGITS:
        raise Failure(f"{what[:PID_DIGITS]}...: no pid has {len(what)} digits; write ./ before the name of a file")
    return from_process(None if what is None else int(what), device, slot)


def from_file(path: str) -> Slab:
    """The slab in a file, - for standard input: its blob and, if the file goes on, the rest of the slab."""
    data, more = _read(path)
    if path == "-":
        path = "standard input"
    try:
        snapshot = Snapshot.from_bytes(data)
    except TooShort:
        raise TooShort(
            f"holds only {len(data)} bytes of the {layout.REQUIRED_SIZE} of a slab: it was cut off, or is something "
            "else; take it anew with neuron-ds show PID --raw FILE",
            path=path,
        ) from None
    except FormatError as e:
        raise type(e)(e.message, path=path) from None
    if more:
        tell(f"{path}: goes on behind the slab; only its first {layout.SLAB_SIZE} bytes were looked at")
    return Slab(snapshot, data[layout.REQUIRED_SIZE :], path)


def _read(path: str) -> tuple[bytes, bool]:
    """As many bytes as a slab has, and whether the file goes on."""
    if path == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise Failure("-: standard input is a terminal; redirect it, or name a file or a pid")
        return sys.stdin.buffer.read(layout.SLAB_SIZE), bool(sys.stdin.buffer.read(1))
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        raise Failure(f"{path}: a directory or a device; name a file with the bytes of a slab, or a pid")
    with open(path, "rb") as f:
        return f.read(layout.SLAB_SIZE), bool(f.read(1))


def from_process(pid: int | None, device: int | None, slot: int | None) -> Slab:
    """The slab of a living process, or of a slot."""
    if device is None:
        device = 0 if pid is None else _device_of(pid)
    elif pid is not None and slot is None:
        _see_the_living(pid, device)
    with attach(pid, device, slot=slot) as reader:
        snapshot = _settled(reader)
        return Slab(snapshot, reader.read_tail(), _name(reader), reader.properties)


def _name(reader: Reader) -> str:
    slot = "" if reader.slot is None else f", slot {reader.slot}"
    return f"device {reader.device}{slot}, pid {reader.pid}"


def _device_of(pid: int) -> int:
    driver = get_driver()
    found, died = [], None
    for device in driver.devices():
        try:
            mine = [o for o in driver.owners(device) if o.pid == pid and o.state != "attached"]
        except NeuronDSError as e:
            tell(str(e))
            continue
        if any(o.alive is not False for o in mine):
            found.append(device)
        elif mine:
            died = died or _died(mine)
    if died and not found:
        raise died
    if not found:
        raise NoSlab("owns no slab on any device; neuron-ds ls shows who does, neuron-ds doctor why not", pid=pid)
    if others := found[1:]:
        tell(f"pid {pid} also publishes on device {', '.join(map(str, others))}; --device chooses")
    return found[0]


def _see_the_living(pid: int, device: int) -> None:
    """Raise ProducerGone if all that is left of a process on a device are slots to be recovered."""
    driver = get_driver()
    if device in driver.devices():
        mine = [o for o in driver.owners(device) if o.pid == pid and o.state != "attached"]
        if mine and all(o.alive is False for o in mine):
            raise _died(mine)


def _died(owners: Iterable[Owner]) -> ProducerGone:
    owner = next(iter(owners))
    return ProducerGone(
        f"died; its slot {owner.slot} awaits recovery by the next publish", device=owner.device, pid=owner.pid
    )


def _settled(reader: Reader) -> Snapshot:
    """A snapshot without a torn record if a few looks give one: a record being rewritten is no fault."""
    for _ in range(LOOKS):
        snapshot = reader.snapshot()
        if not {RecordState.TORN, RecordState.STALE} & set(snapshot.states().values()):
            break
    return snapshot
