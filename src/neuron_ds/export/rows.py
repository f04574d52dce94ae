"""The long form: a row for each counter of each slab at each moment, in blocks of one slab at one moment.

All named counters of the device and of every core that was ever in use have rows, so that a zero is a zero and not
missing; reserved counters and other cores have them once something is in them. Values are those of the slab. How
blocks are written is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from neuron_ds import layout
from neuron_ds.collect import Key, Sample
from neuron_ds.driver import Owner
from neuron_ds.layout import CounterDef
from neuron_ds.records import printable
from neuron_ds.snapshot import Snapshot

#: The columns of every form, in their order.
COLUMNS = (
    "time",
    "monotonic_ns",
    "device",
    "slot",
    "generation",
    "pid",
    "tag",
    "core",
    "counter",
    "unit",
    "kind",
    "value",
)


class Place(NamedTuple):
    """One counter of a slab; ``core`` is the physical one, None for a counter of the device."""

    core: int | None
    counter: CounterDef


#: Every counter that a slab has; a block names them by their number here.
PLACES: tuple[Place, ...] = (
    *(Place(None, c) for c in layout.ND),
    *(Place(core, c) for core in range(layout.MAX_CORES) for c in layout.NC),
)
_FIRST_CORE = len(layout.ND)
_NAMED_ND = tuple(c.index for c in layout.ND if c.kind != layout.RESERVED)
_NAMED_NC = tuple(c.index for c in layout.NC if c.kind != layout.RESERVED)
_RESERVED = frozenset(i for i, p in enumerate(PLACES) if p.counter.kind == layout.RESERVED)


@dataclass(frozen=True, slots=True)
class Block:
    """Counters of one slab at one moment: ``values`` of the PLACES that ``places`` names. tag: made printable."""

    time_ns: int
    owner: Owner
    tag: str
    places: tuple[int, ...]
    values: tuple[int, ...]


def picked(table: tuple[int, ...], places: tuple[int, ...]) -> tuple[int, ...]:
    """What stands in a table at these places."""
    found: tuple[int, ...] = itemgetter(*places)(table) if len(places) > 1 else (table[places[0]],)
    return found


def words_of(snapshot: Snapshot) -> tuple[int, ...]:
    """The value of each of PLACES."""
    words = snapshot.nd_counters
    for core in range(layout.MAX_CORES):
        words += snapshot.nc_counters(core)
    return words


class _Slab:
    """What has been seen of one producer's use of a slab."""

    def __init__(self) -> None:
        self.words: tuple[int, ...] = ()
        self.places: tuple[int, ...] = ()
        self._cores: set[int] = set()
        self._reserved: set[int] = set()

    def see(self, words: tuple[int, ...]) -> tuple[int, ...]:
        """Take these words; which places have changed, or are new."""
        before, places = self.words, self.places
        if words == before:
            return ()
        self.words = words
        if self._grow(words):
            known = set(places)
            self.places = self._wanted()
            return tuple(i for i in self.places if i not in known or words[i] != before[i])
        return tuple(i for i in places if words[i] != before[i])

    def _grow(self, words: tuple[int, ...]) -> bool:
        found = not self.places
        for core in range(layout.MAX_CORES):
            at = _FIRST_CORE + core * layout.NC_COUNTERS
            if core not in self._cores and any(words[at : at + layout.NC_COUNTERS]):
                self._cores.add(core)
                found = True
        reserved = {i for i in _RESERVED if words[i]}
        if not reserved <= self._reserved:
            self._reserved |= reserved
            found = True
        return found

    def _wanted(self) -> tuple[int, ...]:
        wanted = set(_NAMED_ND) | self._reserved
        for core in self._cores:
            at = _FIRST_CORE + core * layout.NC_COUNTERS
            wanted.update(at + i for i in _NAMED_NC)
        return tuple(sorted(wanted))


def blocks_of(samples: Iterable[Sample], *, changes: bool = False) -> Iterator[Block]:
    """The blocks of Samples. With ``changes`` only what is new or another value than at the Sample before."""
    slabs: dict[Key, _Slab] = {}
    tags: dict[Key, tuple[tuple[bytes, ...], str]] = {}
    for sample in samples:
        slabs = {p.key: slabs.get(p.key) or _Slab() for p in sample.processes}
        tags = {key: tags[key] for key in slabs if key in tags}
        for process in sample.processes:
            snapshot = process.snapshot
            if snapshot is None:
                continue
            said = snapshot.said
            if process.key not in tags or tags[process.key][0] != said:
                tags[process.key] = said, printable(snapshot.tag or "")
            slab = slabs[process.key]
            changed = slab.see(words_of(snapshot))
            places = changed if changes else slab.places
            if places:
                time_ns = snapshot.time_ns or sample.time_ns
                yield Block(time_ns, process.owner, tags[process.key][1], places, picked(slab.words, places))
