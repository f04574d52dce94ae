"""A plan: which processes on which devices and cores, made from a compact description.

``plan(["inference*2", "training@1"], devices=2)`` shares the cores out so that no two processes are on the same one,
unless the description says so. It is all arithmetic: nothing is started here and no device is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from re import compile

from neuron_ds.errors import BadValue
from neuron_ds.layout import MAX_CORES, MAX_DEVICES, SLOTS_PER_DEVICE
from neuron_ds.simulate.devices import DEFAULT_TYPE, preset
from neuron_ds.simulate.models import CoreId
from neuron_ds.simulate.patterns import Pattern, read_pattern
from neuron_ds.simulate.workload import Workload

GRAMMAR = "PATTERN[*COUNT][@DEVICE[-DEVICE][/CORE[-CORE]]][,KEY=VALUE...]"
#: A lively picture on two devices.
DEMO = ("inference*2@0", "training@1", "erring@0", "idle@1", "hung@0,after_s=6")

_ITEM = compile(r"([a-z]+)(?:\*(\d+))?(?:@(\d+)(?:-(\d+))?(?:/(\d+)(?:-(\d+))?)?)?((?:,[^,]*)*)")


@dataclass(frozen=True, slots=True)
class Plan:
    """The devices (number, type) and the processes on them."""

    devices: tuple[tuple[int, str], ...]
    workloads: tuple[Workload, ...]

    def __post_init__(self) -> None:
        for device, _ in self.devices:
            users = sum(device in w.devices for w in self.workloads)
            if users > SLOTS_PER_DEVICE:
                raise _too_many(users, device, "use more devices")


def _too_many(users: int, device: int, advice: str) -> BadValue:
    return BadValue(
        f"{users} processes on one device, which has {SLOTS_PER_DEVICE} slots, one for each; {advice}", device=device
    )


@dataclass(slots=True)
class _Wish:
    """One process as described: its devices, and its cores there if they were named."""

    pattern: Pattern
    devices: tuple[int, ...]  # empty: wherever there is room
    cores: tuple[int, ...]  # empty: a fair share
    seed: int | None
    model: str
    tag: str
    anywhere: bool  # no device was named


def plan(items: Iterable[str], *, devices: int = 1, type: str = DEFAULT_TYPE, seed: int = 0) -> Plan:
    """The plan of a description, an item for each kind of process (GRAMMAR).

    Without ``@`` processes are spread over the devices. One item on several devices is one process with a slab on each.
    Keys are the pattern's parameters, and ``tag``, ``model`` and ``seed``. Raises BadValue (EINVAL), naming the item.
    """
    if not 1 <= devices <= MAX_DEVICES:
        raise BadValue(f"{devices} devices; there can be 1 to {MAX_DEVICES}")
    cores, logical = preset(type)
    wishes = [wish for item in items for wish in _read(item, devices, cores)]
    if not wishes:
        raise BadValue(f"no process to simulate; name one: {GRAMMAR}")
    _spread(wishes, range(devices))
    for device in range(devices):
        users = sum(device in wish.devices for wish in wishes)
        if users > SLOTS_PER_DEVICE:
            raise _too_many(users, device, _more_devices(wishes, cores, devices))
    shares = [_shares(wishes, device, cores, logical, devices) for device in range(devices)]
    workloads = []
    for number, wish in enumerate(wishes):
        placed: list[CoreId] = [(d, core) for d in wish.devices for core in wish.cores or shares[d][number]]
        workloads.append(
            Workload(
                pattern=wish.pattern,
                seed=seed * 1000 + number if wish.seed is None else wish.seed,
                cores=tuple(placed),
                model=wish.model,
                tag=wish.tag,
                number=number,
            )
        )
    return Plan(tuple((device, type) for device in range(devices)), tuple(workloads))


def _read(item: str, devices: int, cores: int) -> list[_Wish]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise BadValue(f"{item!r} does not read as {GRAMMAR}")
    name, how_many, first, last, first_core, last_core, rest = match.groups()
    values = [part for part in rest.split(",") if part]
    own = dict.fromkeys(("tag", "model", "seed"), "")
    parameters = []
    for part in values:
        key, equals, value = part.partition("=")
        if key in own and equals:
            own[key] = value
        else:
            parameters.append(part)
    try:
        pattern = read_pattern(",".join([name, *parameters]))
    except BadValue as e:
        raise BadValue(f"{item!r}: {e.message}") from None
    if own["seed"] and not own["seed"].isdecimal():
        raise BadValue(f"{item!r}: seed is a number, not {own['seed']!r}")
    on = _range(item, "device", first, last, devices)
    its_cores = _range(item, "core", first_core, last_core, min(cores, MAX_CORES))
    count = int(how_many or 1)
    if not 1 <= count <= MAX_DEVICES * SLOTS_PER_DEVICE:
        raise BadValue(f"{item!r}: {count} processes; there can be 1 to {MAX_DEVICES * SLOTS_PER_DEVICE}")
    seed = int(own["seed"]) if own["seed"] else None
    tags = [own["tag"] + (f"-{i}" if own["tag"] and count > 1 else "") for i in range(count)]
    return [
        _Wish(pattern, on, its_cores, None if seed is None else seed + i, own["model"], tags[i], not on)
        for i in range(count)
    ]


def _range(item: str, what: str, first: str | None, last: str | None, end: int) -> tuple[int, ...]:
    if first is None:
        return ()
    low, high = int(first), int(last or first)
    if low <= high and high >= end and what == "device":
        there = "there is only device 0" if end == 1 else f"there are only devices 0 to {end - 1}"
        more = f"--devices {high + 1} makes more" if high < MAX_DEVICES else f"there can be up to {MAX_DEVICES}"
        raise BadValue(f"{item!r}: {there}; {more}")
    if not low <= high < end:
        raise BadValue(f"{item!r}: there are {what}s 0 to {end - 1}, the lower of a range first")
    return tuple(range(low, high + 1))


def _spread(wishes: Sequence[_Wish], devices: Iterable[int]) -> None:
    """Give each process that may be anywhere the device with the fewest processes."""
    load = {device: sum(device in wish.devices for wish in wishes) for device in devices}
    for wish in wishes:
        if not wish.devices:
            device = min(load, key=lambda d: (load[d], d))
            wish.devices = (device,)
            load[device] += 1


def _more_devices(wishes: Sequence[_Wish], cores: int, devices: int) -> str:
    """How to have room: every process that may be anywhere needs a slot and a core of its own."""
    needed = -(-len(wishes) // min(cores, SLOTS_PER_DEVICE))
    if all(wish.anywhere for wish in wishes) and devices < needed <= MAX_DEVICES:
        return f"use more devices (--devices {needed})"
    return "use fewer processes, or more devices, and name another where one is named"


def _shares(wishes: Sequence[_Wish], device: int, cores: int, logical: int, devices: int) -> dict[int, tuple[int, ...]]:
    """The cores of a device that nobody named, for those who named none; whole logical cores where possible."""
    named = {core for wish in wishes if device in wish.devices for core in wish.cores}
    free = [core for core in range(cores) if core not in named]
    takers = [n for n, wish in enumerate(wishes) if device in wish.devices and not wish.cores]
    if len(takers) > len(free):
        raise BadValue(
            f"{len(takers)} processes for {len(free)} free cores; {_more_devices(wishes, cores, devices)}, or name "
            f"cores that they share, as in {wishes[takers[0]].pattern.name}*{len(takers)}@{device}/0-{cores - 1}",
            device=device,
        )
    units = [[core for core in free if core // logical == n] for n in sorted({core // logical for core in free})]
    if len(units) < len(takers):
        units = [[core] for core in free]
    shares, at = {}, 0
    for i, number in enumerate(takers):
        end = at + len(units) // len(takers) + (i < len(units) % len(takers))
        shares[number] = tuple(core for unit in units[at:end] for core in unit)
        at = end
    return shares
