"""Why there is nothing to see: every reason that can be found out from here, each with what to do about it.

Each function looks at one thing and gives what it found; ``examine`` asks them all, in the order in which one would
look by hand. It reads, attaches for a moment, and repairs nothing. It knows the drivers; how findings are printed and
what they mean for an exit code is not its business.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from neuron_ds.datastore import attach
from neuron_ds.driver import Driver, Owner, get_driver, kernel
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    AccessDenied,
    BadValue,
    LayoutMismatch,
    NeuronDSError,
    NotReady,
    ProducerGone,
    UnsafeDirectory,
    WrongVersion,
)
from neuron_ds.layout import SLOTS_PER_DEVICE
from neuron_ds.listing import shorten
from neuron_ds.snapshot import RecordState

#: Variables that decide where is looked, besides all that begin with NEURON_DS_.
VARIABLES = ("NEURON_PROCESS_TAG", "NEURON_LOGICAL_NC_CONFIG")

_READER_ADVICE = "run as its owner, or have its producers give your group access with NEURON_DS_GROUP"
#: A producer's mapping of its slab in /proc/PID/maps: shared and writable, readers' are not.
_SLAB_MAPPING = re.compile(rb"^\S+ rw-s \S+ \S+ \S+ +(/.*)/neuron\d+/slabs( \(deleted\))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. level: "problem" means that something is not to be seen. advice: what to do, "" for ok."""

    level: Literal["ok", "warn", "problem"]
    subject: str
    message: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "message": self.message, "advice": self.advice}


def examine(*, proc: str = "/proc") -> list[Finding]:
    """Everything there is to say, in the order of looking. ``proc`` is where the kernel shows processes."""
    found = list(environment())
    try:
        driver = get_driver()
    except NeuronDSError as e:
        return [*found, Finding("problem", "driver", *_split(e, "unset NEURON_DS_DRIVER"))]
    found.append(Finding("ok", "driver", driver.name))
    found += hardware(driver)
    numbers: list[int] = []
    if isinstance(driver, SoftwareDriver):
        found += directories(driver.roots())
    try:
        numbers = driver.devices()
    except NeuronDSError as e:
        if not any(f.level == "problem" for f in found):
            found.append(Finding("problem", "device", *_split(e)))
    else:
        found += devices(driver, numbers)
    if isinstance(driver, SoftwareDriver):
        roots = [root for root, _ in driver.roots()]
        found += space(roots[0], needed=not numbers)
        found += elsewhere(roots, proc)
    return found


def _split(e: NeuronDSError, advice: str = "") -> tuple[str, str]:
    """What is wrong and what to do: our messages end in the latter, behind a semicolon."""
    text, mark, rest = str(e).rpartition("; ")
    return (text, advice or rest) if mark else (rest, advice)


def environment() -> Iterator[Finding]:
    """The variables that change where we look."""
    told = {n: v for n, v in sorted(os.environ.items()) if n.startswith("NEURON_DS_") or n in VARIABLES}
    if not told:
        yield Finding("ok", "environment", "no NEURON_DS_ variable is set: the defaults hold")
    for name, value in told.items():
        yield Finding("ok", "environment", f"{name}={value}")
    try:
        d.reader_group()
    except BadValue as e:
        yield Finding("problem", "environment", e.message, "name an existing group, or unset NEURON_DS_GROUP")


def hardware(driver: Driver) -> Iterator[Finding]:
    """Real accelerators that are not looked at."""
    nodes = kernel.node_numbers()
    if nodes and driver.name != "kernel":
        yield Finding(
            "warn",
            "hardware",
            f"{len(nodes)} accelerator nodes in {kernel.dev_root()}, but the driver chosen is {driver.name}",
            "to look at them, unset NEURON_DS_DRIVER or set it to kernel",
        )


# --- Directories ----------------------------------------------------------------------------------------------------


def directories(roots: Sequence[tuple[str, bool]]) -> Iterator[Finding]:
    """The directories where devices should be: missing, not ours to read, or not to be trusted."""
    missing = []
    there = False
    for path, told in roots:
        try:
            os.close(d.open_root(path, produce=False, told=told))
        except FileNotFoundError:
            missing.append(path)
        except NeuronDSError as e:
            there = True
            yield Finding("problem", "directory", *_split(e))
        except OSError as e:
            there = True
            yield Finding("problem", "directory", f"{path}: {e.strerror}", "name another in NEURON_DS_DIR")
        else:
            there = True
            yield Finding("ok", "directory", path)
    if missing and not there:
        yield Finding(
            "problem",
            "directory",
            f"{' and '.join(missing)} {'does' if len(missing) == 1 else 'do'} not exist: nobody has published there, "
            "or it was deleted",
            "start a producer (neuron-ds simulate is one), or name the producer's directory in NEURON_DS_DIR",
        )


def space(root: str, *, needed: bool) -> Iterator[Finding]:
    """Whether another device would fit. ``needed``: there is none yet, so it has to."""
    path = root
    while True:
        try:
            st = os.statvfs(path)
            break
        except OSError:
            if path == (parent := os.path.dirname(path)):
                return
            path = parent or "."
    free, total = st.f_bavail * st.f_frsize, st.f_blocks * st.f_frsize
    if free >= d.DEVICE_BYTES:
        yield Finding("ok", "space", f"{free:,} of {total:,} bytes are free below {path}")
    else:
        yield Finding(
            "problem" if needed else "warn",
            "space",
            f"{path} is full: a device needs {d.DEVICE_BYTES:,} bytes, {free:,} of {total:,} are free",
            "make room, give the container a larger /dev/shm, or set NEURON_DS_DIR to a larger file system",
        )


def elsewhere(roots: Iterable[str], proc: str) -> Iterator[Finding]:
    """Producers that we don't see because their directory is another one than ours, or gone."""
    ours = {os.path.realpath(root) for root in roots}
    try:
        pids = sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return
    for pid in pids:
        if pid == os.getpid():
            continue
        try:
            with open(f"{proc}/{pid}/maps", "rb") as f:
                mappings = set(_SLAB_MAPPING.findall(f.read()))
        except OSError:
            continue  # ended, or another user's
        for path, deleted in sorted(mappings):
            root = os.fsdecode(path)
            mine = os.path.realpath(root) in ours
            if deleted and mine:
                yield Finding(
                    "problem",
                    "gone",
                    f"process {pid} publishes in {root}, but its device there was deleted or replaced: nobody sees it",
                    "restart the process; systemd-logind's RemoveIPC deletes a user's shared memory at logout",
                )
            elif not deleted and not mine:
                yield Finding(
                    "warn",
                    "elsewhere",
                    f"process {pid} publishes in {root} (as it sees it), where we don't look",
                    f"set NEURON_DS_DIR={root} to see it",
                )


# --- Devices --------------------------------------------------------------------------------------------------------


def devices(driver: Driver, numbers: Sequence[int]) -> Iterator[Finding]:
    """The devices, their slots and the slabs of their owners."""
    if not numbers:
        yield Finding("problem", "device", "there is no device", "start a producer; neuron-ds simulate is one")
        return
    producers = 0
    unreadable = False
    for number in numbers:
        try:
            properties = driver.properties(number)
            owners = driver.owners(number)
        except OSError as e:
            unreadable = True
            yield _unreadable(number, e, driver)
        else:
            used = sum(o.state != "attached" for o in owners)
            what = f"device {number}, {properties.type}, {used} of {SLOTS_PER_DEVICE} slots used"
            yield Finding("ok", "device", f"{what}, {properties.path}")
            yield from slots(number, owners)
            for owner in owners:
                if owner.alive is not False and owner.state == "owned":
                    producers += 1
                    yield from producer(driver, owner)
    if not producers and not unreadable:
        yield Finding(
            "problem",
            "producer",
            "no process publishes on any device",
            "start one (neuron-ds simulate is one); if yours runs, see that it looks in the same directory",
        )


def _unreadable(number: int, e: OSError, driver: Driver) -> Finding:
    """Why a device could not be looked at."""
    match e:
        case LayoutMismatch():
            return Finding("problem", "version", *_split(e))
        case UnsafeDirectory():
            return Finding("problem", "directory", *_split(e))
        case AccessDenied():
            return Finding("problem", "permission", *_split(e, _READER_ADVICE if driver.name == "software" else ""))
        case NeuronDSError():
            return Finding("problem", "device", *_split(e))
        case _:
            return Finding("problem", "device", f"device {number}: {e.strerror}", "look at what its path leads to")


def slots(number: int, owners: Sequence[Owner]) -> Iterator[Finding]:
    """What the slots of a device say by themselves."""
    dead = [o for o in owners if o.alive is False]
    closing = [o for o in owners if o.state == "closing" and o not in dead]
    foreign = [o for o in owners if o.foreign and o not in dead]
    taken = [o for o in owners if o.state != "attached"]
    if len(taken) >= SLOTS_PER_DEVICE and not dead:
        yield Finding(
            "problem",
            "slots",
            f"device {number}: all {SLOTS_PER_DEVICE} slots are taken; another process can't publish",
            f"end one of {_names(taken)}, or publish on another device",
        )
    if dead:
        yield Finding(
            "warn",
            "slots",
            f"device {number}: {_names(dead)} died without release",
            "nothing is lost: the next process that publishes or releases on this device recovers the slot",
        )
    if closing:
        yield Finding(
            "warn",
            "slots",
            f"device {number}: {_names(closing)} is releasing its slab",
            "if it stays so the process is stopped in the middle: continue or kill it",
        )
    if foreign:
        yield Finding(
            "warn",
            "namespace",
            f"device {number}: {_names(foreign)} publishes in another pid namespace; its pid means nothing here",
            "attach by slot (--slot), or share the pid namespace (hostPID in Kubernetes)",
        )


def producer(driver: Driver, owner: Owner) -> Iterator[Finding]:
    """Whether one owner's slab can be read, and how well."""
    who = f"device {owner.device}, {_names([owner])}"
    try:
        with attach(owner.pid, owner.device, slot=owner.slot, driver=driver) as reader:
            snapshot = reader.snapshot()
    except ProducerGone:
        return  # it ended while we looked
    except WrongVersion as e:
        yield Finding("problem", "version", *_split(e))
        return
    except NotReady as e:
        yield Finding("warn", "producer", str(e), "it is just starting; if it stays so, end it")
        return
    except NeuronDSError as e:
        yield Finding("problem", "producer", *_split(e))
        return
    tag = "" if snapshot.tag is None else f", {shorten(snapshot.tag, 32)}"
    yield Finding("ok", "producer", who + tag)
    if snapshot.layout != "current":
        yield Finding(
            "warn",
            "layout",
            f"{who}: {'an older runtime' if snapshot.layout == 'older' else 'two layouts'} in one slab",
            "neuron-ds check tells more; counters of the extension may be off",
        )
    if any(s in (RecordState.TORN, RecordState.STALE) for s in snapshot.states().values()):
        yield Finding("warn", "records", f"{who}: some record is torn", "look again; if it stays so, neuron-ds check")


def _names(owners: Sequence[Owner]) -> str:
    return ", ".join(f"pid {o.pid}" + ("" if o.slot is None else f" (slot {o.slot})") for o in owners)
