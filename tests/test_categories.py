"""The categories: every memory gauge is in exactly one, and nothing but what only grows is an ending or an error."""

from neuron_ds import categories, layout


def test_every_memory_gauge_has_one_category():
    device = sorted(c.index for c in categories.DEVICE_MEMORY.values())
    host = sorted(c.index for gauges in categories.HOST_MEMORY.values() for c in gauges)
    assert device == [c.index for c in layout.NC if c.kind == layout.GAUGE]
    assert host == [c.index for c in layout.ND if c.kind == layout.GAUGE]


def test_endings_and_errors_are_counters_of_their_own():
    counters = [*categories.STATUS_TYPES.values(), *categories.ERROR_TYPES.values()]
    assert {c.kind for c in counters} == {layout.COUNTER}
    assert len({c.index for c in counters}) == len(counters)


def test_completions_ran_to_their_end():
    assert [c.name for c in categories.COMPLETIONS] == [
        "infer_completed",
        "infer_completed_with_err",
        "infer_completed_with_num_err",
    ]
