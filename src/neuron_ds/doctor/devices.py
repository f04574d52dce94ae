"""What the doctor looks at in devices of any driver: whether they can be read, their slots, and each producer's slab.

It attaches for a moment. How a driver keeps its devices, and why it refuses them, is told in the modules beside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuron_ds.datastore import attach
from neuron_ds.doctor import nodes
from neuron_ds.doctor.finding import Finding, name_owners, split
from neuron_ds.driver import Driver, Owner
from neuron_ds.driver.kernel import KernelDriver
from neuron_ds.errors import (
    AccessDenied,
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


def devices(driver: Driver, numbers: Sequence[int], proc: str, module: str) -> Iterator[Finding]:
    """The devices, their slots and the slabs of their owners. ``proc`` and ``module`` as ``examine`` has them."""
    real = isinstance(driver, KernelDriver)
    if not numbers:
        nothing = Finding("problem", "device", "there is no device", "start a producer; neuron-ds simulate is one")
        yield nodes.missing(module) if real else nothing
        return
    everybody: list[Owner] = []
    producers = 0
    unreadable = False
    for number in numbers:
        try:
            properties = driver.properties(number)
            owners = driver.owners(number)
        except OSError as e:
            unreadable = True
            if real and isinstance(e, NeuronDSError):
                yield nodes.refused(number, e, proc, module)
            else:
                yield _unreadable(number, e)
            continue
        everybody += owners
        used = sum(o.state != "attached" for o in owners)
        what = f"device {number}, {properties.type or 'unknown type'}, {used} of {SLOTS_PER_DEVICE} slots used"
        if real:
            what += f", {len(owners)} of {SLOTS_PER_DEVICE} places taken (one by this command)"
        yield Finding("ok", "device", f"{what}, {properties.path}")
        yield from slots(number, owners)
        for owner in owners:
            if owner.alive is not False and owner.state == "owned":
                producers += 1
                yield from producer(driver, owner)
    if isinstance(driver, KernelDriver):
        yield from nodes.sysfs(sorted({o.device for o in everybody}))
        yield from nodes.attached(driver, everybody, proc)
    if not producers and not unreadable:
        yield Finding("problem", "producer", "no process publishes on any device", _NO_PRODUCER[real])


_NO_PRODUCER = {
    False: "start one (neuron-ds simulate is one); if yours runs, see that it looks in the same directory",
    True: "run a program on the Neuron runtime; a simulated one shows with NEURON_DS_DRIVER=software",
}


def _unreadable(number: int, e: OSError) -> Finding:
    """Why a device could not be looked at."""
    match e:
        case LayoutMismatch():
            return Finding("problem", "version", *split(e))
        case UnsafeDirectory():
            return Finding("problem", "directory", *split(e))
        case AccessDenied():
            return Finding("problem", "permission", *split(e))
        case NeuronDSError():
            return Finding("problem", "device", *split(e))
        case _:
            return Finding("problem", "device", f"device {number}: {e.strerror}", "look at what its path leads to")


def slots(number: int, owners: Sequence[Owner]) -> Iterator[Finding]:
    """What the slots of a device say by themselves."""
    dead = [o for o in owners if o.alive is False]
    closing = [o for o in owners if o.state == "closing" and o not in dead]
    foreign = [o for o in owners if o.foreign and o.slot is not None and o not in dead]
    taken = [o for o in owners if o.state != "attached"]
    if len(taken) >= SLOTS_PER_DEVICE and not dead:
        yield Finding(
            "problem",
            "slots",
            f"device {number}: all {SLOTS_PER_DEVICE} slots are taken; another process can't publish",
            f"end one of {name_owners(taken)}, or publish on another device",
        )
    if dead:
        yield Finding(
            "warn",
            "slots",
            f"device {number}: {name_owners(dead)} died without release",
            "nothing is lost: the next process that publishes or releases on this device recovers the slot",
        )
    if closing:
        yield Finding(
            "warn",
            "slots",
            f"device {number}: {name_owners(closing)} is releasing its slab",
            "if it stays so the process is stopped in the middle: continue or kill it",
        )
    if foreign:
        yield Finding(
            "warn",
            "namespace",
            f"device {number}: {name_owners(foreign)} publishes in another pid namespace; its pid means nothing here",
            "attach by slot (--slot), or share the pid namespace (hostPID in Kubernetes)",
        )


def producer(driver: Driver, owner: Owner) -> Iterator[Finding]:
    """Whether one owner's slab can be read, and how well."""
    who = f"device {owner.device}, {name_owners([owner])}"
    try:
        with attach(owner.pid, owner.device, slot=owner.slot, path=owner.path, driver=driver) as reader:
            snapshot = reader.snapshot()
    except ProducerGone:
        return  # it ended while we looked
    except WrongVersion as e:
        yield Finding("problem", "version", *split(e))
        return
    except NotReady as e:
        yield Finding("warn", "producer", str(e), "it is just starting; if it stays so, end it")
        return
    except NeuronDSError as e:
        yield Finding("problem", "producer", *split(e))
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
