"""What a driver forgets of its devices' totals, so that what is told as a counter never goes back.

The kernel's driver keeps what ended processes counted of those counters that have a name in its sysfs; of the others
only the living are summed. What was seen of them before a process ended is kept here, and so are the bits of bitmaps.
This module knows the words of totals and no driver.
"""

from __future__ import annotations

from neuron_ds import layout
from neuron_ds.driver.totals import ND_AT, DeviceTotals

_COUNTERS = tuple(
    core * layout.EXT_NC_STRIDE + c.index
    for core in range(layout.MAX_CORES)
    for c in layout.NC
    if c.kind == layout.COUNTER and not c.sysfs
)
_BITMAPS = tuple(ND_AT + c.index for c in layout.ND if c.kind == layout.BITMAP)


class Kept:
    """Of one device."""

    def __init__(self) -> None:
        self._last: tuple[int, ...] = ()
        self._gone: dict[int, int] = {}  # by word: what was seen and is in the totals no more
        self._bits = dict.fromkeys(_BITMAPS, 0)

    def look(self, totals: DeviceTotals) -> None:
        """Take the newest totals in."""
        words = totals.words
        if self._last:
            for i in _COUNTERS:
                if words[i] < self._last[i]:
                    self._gone[i] = self._gone.get(i, 0) + self._last[i] - words[i]
        for i in _BITMAPS:
            self._bits[i] |= words[i]
        self._last = words

    def with_kept(self, totals: DeviceTotals) -> DeviceTotals:
        """The totals with what is in them no more."""
        words = list(totals.words)
        for i, gone in self._gone.items():
            words[i] += gone
        for i, bits in self._bits.items():
            words[i] |= bits
        return DeviceTotals(totals.device, words)
