"""Thresholds as they are written on the command line."""

from __future__ import annotations

from dataclasses import fields

import pytest

from neuron_ds.diagnose import Thresholds
from neuron_ds.errors import BadValue


def test_each_has_a_unit_and_a_sentence_and_fits_its_own_limits() -> None:
    units = ("_s", "_share", "_factor", "_bytes", "_per_s", "_errors", "_executions", "_samples", "_looks", "_left")
    for f in fields(Thresholds):
        assert f.name.endswith((*units, "_timeouts")), f.name
        assert len(f.metadata["sentence"]) > 20
        assert f.metadata["least"] <= f.default <= f.metadata["most"]
    assert list(Thresholds.sentences()) == [f.name for f in fields(Thresholds)]


def test_some_are_set_and_the_others_stay() -> None:
    t = Thresholds.read(["hung_after_s=12.5", "slots_left=4", "leak_bytes=1e9"])
    assert (t.hung_after_s, t.slots_left, t.leak_bytes) == (12.5, 4, 1e9)
    assert Thresholds.read([]) == Thresholds()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hung_after_s", "write NAME=NUMBER"),
        ("nonsense=3", "no threshold is called 'nonsense'"),
        ("hung_after_s=soon", "hung_after_s is a number, not 'soon'"),
        ("hung_after_s=nan", "is a number"),
        ("hung_after_s=inf", "is a number"),
        ("hung_after_s=-1", "it is 0.1 to 600"),
        ("collapse_share=3", "it is 0.01 to 0.99"),
        ("torn_looks=1", "it is 2 to 600"),
    ],
)
def test_what_cannot_be_is_told(text: str, says: str) -> None:
    with pytest.raises(BadValue, match=says):
        Thresholds.read([text])
