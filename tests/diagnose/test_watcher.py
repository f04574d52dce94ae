"""What begins, what goes on and what is over; and a rule that fails takes no other down."""

from __future__ import annotations

import json

import pytest

from neuron_ds.diagnose import RULES, Finding, Rule, Severity, Thresholds, Watcher, Window, diagnose
from tests.diagnose.stage import START_NS, look, process, row, series


def full(n: int, on: bool):
    return process(n, {0: row(mem_usage_code_device=(90 if on else 10) << 30)})


def test_a_finding_keeps_its_beginning_and_is_not_over_at_once() -> None:
    watcher = Watcher(Thresholds(clear_after_s=5))
    on = [False, True, True, False, True, False, False, False, False, False, False, False, True]
    told = []
    for n, is_on in enumerate(on):
        findings, began, over = watcher.add(look(n, full(n, is_on)))
        told.append((len(findings), len(began), len(over)))
        if findings and n < 11:
            assert findings[0].since_ns == START_NS + 10**9
    assert told[0] == (0, 0, 0)
    assert told[1] == (1, 1, 0)
    assert told[2:10] == [(1, 0, 0)] * 8
    assert told[10] == (0, 0, 1), "over once it was not found for more than five seconds"
    assert told[11:] == [(0, 0, 0), (1, 1, 0)]


def test_a_recording_that_is_rewound_begins_anew() -> None:
    watcher = Watcher()
    assert watcher.add(look(10, full(10, True)))[1]
    findings, began, over = watcher.add(look(3, full(3, False)))
    assert (findings, began, len(over)) == ([], [], 1)
    assert watcher.add(look(4, full(4, True)))[1]


def test_a_look_that_is_not_judged_is_kept_and_what_was_found_stands() -> None:
    watcher = Watcher(Thresholds(clear_after_s=5))
    (found,), _, _ = watcher.add(look(0, full(0, True)))
    assert watcher.add(look(7, full(7, False)), judge=False) == ([found], [], [])
    assert [each.time_ns for each in watcher.window] == [START_NS, START_NS + 7 * 10**9]
    assert watcher.add(look(8, full(8, False))) == ([], [], [found])
    findings, began, over = watcher.add(look(3, full(3, True)), judge=False)
    assert (len(findings), len(began), over) == (1, 1, []), "a rewound recording is judged"


def test_the_worst_comes_first() -> None:
    rows = {0: row(hw_err_hbm_ue=1, mem_usage_code_device=90 << 30, infer_completed=3)}
    window = Window(series(lambda n: process(n, rows, models={0: 1}), 400))
    assert [(f.kind, f.severity) for f in diagnose(window)] == [
        ("hardware-error", Severity.CRITICAL),
        ("memory-near-full", Severity.WARNING),
        ("idle-allocated", Severity.INFO),
    ]


def test_an_empty_window_has_nothing_to_say() -> None:
    assert diagnose(Window()) == []


def test_a_rule_that_fails_says_so_and_takes_no_other_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(window: Window, t: Thresholds):
        """Broken."""
        raise ZeroDivisionError("division by zero")
        yield

    monkeypatch.setitem(RULES, "straggler", Rule(broken))
    found = diagnose(Window([look(0, full(0, True))]))
    assert [f.kind for f in found] == ["memory-near-full", "rule-failed"] or [f.kind for f in found] == [
        "rule-failed",
        "memory-near-full",
    ]
    assert "straggler" in next(f for f in found if f.kind == "rule-failed").message


def test_a_finding_as_plain_values() -> None:
    finding = Finding("k", Severity.WARNING, "m", "a", 5 * 10**9, device=1, pid=7, tag="t", evidence={"x_us": 3})
    value = finding.to_dict(now_ns=8 * 10**9)
    assert json.loads(json.dumps(value)) == value
    assert (value["for_s"], value["severity"], value["core"], value["evidence"]) == (3.0, "warning", None, {"x_us": 3})


def test_every_rule_has_a_sentence_and_gives_its_own_kind_only() -> None:
    for kind, rule in RULES.items():
        assert rule.sentence.endswith("."), kind
        assert 20 < len(rule.sentence) <= 120, kind
