"""Device totals: what all processes of a device ever counted, the living and those that are gone.

A DeviceTotals is a value over one copy of the words that csrc/nds_core.h lays out; a DifferentialReport gives what was
added since it was asked last. This module knows the meaning of the words; how a driver comes by them is its own matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from neuron_ds import _core, layout
from neuron_ds.errors import BadIndex
from neuron_ds.records import Version

#: Words of the totals, and the first of the device counters among them.
(WORDS, ND_AT, _TALLIES, TALLY_PAIRS) = _core.totals_layout()
_TALLY_WORDS = 2 * TALLY_PAIRS + 1
VERSION_KINDS = ("runtime_version", "framework_version", "fal_version")
#: The core counters that are totalled, by index: those that only grow.
TOTALLED = tuple(c.index for c in layout.NC if c.kind == layout.COUNTER)


class DeviceTotals:
    """Totals of one device at one moment; for gauges the sum of the living. Immutable."""

    __slots__ = ("_words", "device")

    def __init__(self, device: int, words: Iterable[int]) -> None:
        self.device = device
        self._words = tuple(words)

    @classmethod
    def from_words(cls, device: int, data: bytes | bytearray) -> DeviceTotals:
        """From the words as the core keeps them (docs/driver.md, "Totals")."""
        return cls(device, memoryview(data).cast("Q"))

    @property
    def words(self) -> tuple[int, ...]:
        """As the core keeps them; see csrc/nds_core.h."""
        return self._words

    def nc(self, core: int, counter: int) -> int:
        """A counter of a physical core: total for a counter, sum of the living for a gauge, else 0."""
        layout.nc_index(core, counter)
        return self._words[core * layout.EXT_NC_STRIDE + counter]

    def nd(self, counter: int) -> int:
        """A device counter: sum of the living for a gauge, all bits ever set for a bitmap, else 0."""
        layout.nd_index(counter)
        return self._words[ND_AT + counter]

    def core(self, core: int) -> dict[str, int]:
        """All totalled counters and gauges of a physical core by name."""
        return {c.name: self.nc(core, c.index) for c in layout.NC if c.kind in (layout.COUNTER, layout.GAUGE)}

    def versions(self, kind: str) -> tuple[dict[Version, int], int]:
        """({version: processes that published it}, processes beyond 16 versions); kind is one of VERSION_KINDS."""
        if kind not in VERSION_KINDS:
            raise BadIndex(f"versions are tallied for {', '.join(VERSION_KINDS)}, not {kind!r}", device=self.device)
        at = _TALLIES + VERSION_KINDS.index(kind) * _TALLY_WORDS
        found: dict[Version, int] = {}
        for word, count in zip(*(self._words[at + i : at + 2 * TALLY_PAIRS : 2] for i in (0, 1)), strict=True):
            if count:
                version = Version.unpack(word)
                found[version] = found.get(version, 0) + count
        return found, self._words[at + 2 * TALLY_PAIRS]

    def totalled(self) -> dict[tuple[int, int], int]:
        """{(core, counter): total} of every counter that only grows."""
        stride = layout.EXT_NC_STRIDE
        return {(core, i): self._words[core * stride + i] for core in range(layout.MAX_CORES) for i in TOTALLED}


class DifferentialReport:
    """What was added to a device's totals since the last report; a difference that is not positive is left out."""

    def __init__(self, first: DeviceTotals) -> None:
        self._last = first.totalled()

    def report(self, now: DeviceTotals) -> dict[tuple[int, int], int]:
        """{(core, counter): added} since the last report."""
        current = now.totalled()
        added = {key: value - self._last[key] for key, value in current.items() if value > self._last[key]}
        self._last = current
        return added
