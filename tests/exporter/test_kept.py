"""What a driver forgets of its totals is kept: counters don't go back, and what the driver keeps is not doubled."""

from neuron_ds import layout
from neuron_ds.driver.totals import ND_AT, WORDS, DeviceTotals
from neuron_ds.exporter.kept import Kept

FORGOTTEN, REMEMBERED, GAUGE = (
    layout.NC_BY_NAME[name].index for name in ("err_numerical", "infer_completed", "mem_usage_tensors_device")
)
BITMAP = next(c.index for c in layout.ND if c.kind == layout.BITMAP)


def totals(forgotten: int, remembered: int = 0, *, core: int = 0, gauge: int = 0, bits: int = 0) -> DeviceTotals:
    words = [0] * WORDS
    at = core * layout.EXT_NC_STRIDE
    words[at + FORGOTTEN], words[at + REMEMBERED], words[at + GAUGE] = forgotten, remembered, gauge
    words[ND_AT + BITMAP] = bits
    return DeviceTotals(0, words)


def seen(*steps: DeviceTotals, core: int = 0) -> list[tuple[int, int]]:
    kept, found = Kept(), []
    for step in steps:
        kept.look(step)
        told = kept.with_kept(step)
        found.append((told.nc(core, FORGOTTEN), told.nc(core, REMEMBERED)))
    return found


def test_what_a_process_counted_stays_when_it_ends():
    assert seen(totals(5, 7), totals(0, 7), totals(3, 9), totals(0, 9)) == [(5, 7), (5, 7), (8, 9), (8, 9)]


def test_every_core_has_its_own():
    kept = Kept()
    for step in (totals(5, core=15), totals(0, core=15), totals(4, core=2)):
        kept.look(step)
    told = kept.with_kept(step)
    assert [told.nc(core, FORGOTTEN) for core in (2, 15)] == [4, 5]


def test_gauges_fall_and_bits_stay():
    kept = Kept()
    for step in (totals(0, gauge=9, bits=0b101), totals(0, gauge=2, bits=0b010)):
        kept.look(step)
    told = kept.with_kept(step)
    assert (told.nc(0, GAUGE), told.nd(BITMAP)) == (2, 0b111)


def test_what_the_driver_keeps_is_its_own_matter():
    assert seen(totals(0, 7), totals(0, 2)) == [(0, 7), (0, 2)]
