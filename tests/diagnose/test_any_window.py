"""No rule fails, whatever the counters say: wrapped, reset, absurd, of processes that come, go and can't be read."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuron_ds.collect import Latencies
from neuron_ds.diagnose import RULES, Look, Thresholds, Watcher
from neuron_ds.diagnose.looks import HOST_MEMORY, NAMED
from neuron_ds.diagnose.rules import RULE_FAILED
from tests.diagnose.stage import device, look, process

WORDS = st.one_of(st.integers(0, 50), st.integers(0, 2**64 - 1), st.sampled_from([0, 2**63, 2**64 - 1, 10**6]))
ROWS = st.dictionaries(st.integers(0, NAMED - 1), WORDS, max_size=8).map(
    lambda some: tuple(some.get(i, 0) for i in range(NAMED))
)
ERRORS = st.sampled_from(["", "", "", "NotReady", "WrongVersion", "ProducerGone", "TooShort"])


@st.composite
def processes(draw: st.DrawFn, n: float):
    slot = draw(st.integers(0, 2))
    kind = draw(ERRORS)
    return process(
        n,
        draw(st.dictionaries(st.integers(0, 15), ROWS, max_size=3)),
        device=draw(st.integers(0, 1)),
        slot=slot,
        pid=100 + draw(st.integers(0, 1)),
        alive=draw(st.sampled_from([True, True, None, False])),
        error=f"{kind} happened" if kind else "",
        error_kind=kind,
        host_bytes=draw(st.one_of(st.just(()), st.tuples(*[WORDS] * len(HOST_MEMORY)))),
        models=draw(st.dictionaries(st.integers(0, 15), st.integers(0, 3), max_size=3)),
        odd=draw(st.dictionaries(st.sampled_from(["model slot 1", "process info"]), st.just("torn"), max_size=2)),
        latencies=draw(st.lists(WORDS, max_size=4).map(lambda v: Latencies(tuple(v), tuple(v)))),
    )


@st.composite
def windows(draw: st.DrawFn) -> list[Look]:
    now, found = 0.0, []
    for _ in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from([0.001, 0.5, 1.0, 5.0, 10.0, 60.0]))
        there = draw(st.lists(processes(now), max_size=3, unique_by=lambda p: p.key))
        devices = [
            device(n, memory_bytes=draw(st.sampled_from([None, 0, 1, 96 << 30])), slots_used=draw(st.integers(0, 40)))
            for n in draw(st.sets(st.integers(0, 2)))
        ]
        found.append(look(now, *there, devices=devices))
    return found


LOOSE = Thresholds(
    hung_after_s=0.1,
    silent_after_s=0.1,
    steady_s=1,
    straggler_over_s=1,
    straggler_executions=1,
    error_burst_s=0.1,
    recent_s=1,
    usual_s=1,
    collapse_executions=1,
    latency_samples=1,
    leak_over_s=8,
    leak_bytes=1,
    idle_after_s=1,
    torn_looks=2,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(windows(), st.sampled_from([Thresholds(), LOOSE]))
def test_no_rule_fails_and_each_gives_its_own_kind(looks: list[Look], t: Thresholds) -> None:
    watcher = Watcher(t)
    for each in looks:
        findings, _, _ = watcher.add(each)
        assert not [f.message for f in findings if f.kind == RULE_FAILED]
        for f in findings:
            assert f.since_ns <= each.time_ns
            json.dumps(f.to_dict(each.time_ns), allow_nan=False)
    for kind, rule in RULES.items():
        assert {f.kind for f in rule.check(watcher.window, t)} <= {kind}
