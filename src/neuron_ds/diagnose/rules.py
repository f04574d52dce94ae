"""The table of rules, and ``diagnose``, which asks them all.

A rule is a pure function of a Window and Thresholds that gives Findings of its own kind; its first line is the
sentence that people read. This module knows the order of findings, and no rule's inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from neuron_ds.diagnose import cores, faults, memory, pace, processes
from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window

Check = Callable[[Window, Thresholds], Iterator[Finding]]
#: What stands in place of the findings of a rule that failed: a fault of ours, told and not hidden.
RULE_FAILED = "rule-failed"


class Rule(NamedTuple):
    """One thing that can be wrong."""

    check: Check

    @property
    def sentence(self) -> str:
        """What it means, in one line."""
        return (self.check.__doc__ or "").partition("\n")[0]


RULES: dict[str, Rule] = {
    "hung-core": Rule(cores.hung_core),
    "hardware-error": Rule(faults.hardware_error),
    "repairable-hbm-error": Rule(faults.repairable_hbm_error),
    "died-working": Rule(processes.died_working),
    "error-burst": Rule(faults.error_burst),
    "throughput-collapse": Rule(pace.throughput_collapse),
    "latency-regression": Rule(pace.latency_regression),
    "straggler": Rule(cores.straggler),
    "memory-near-full": Rule(memory.memory_near_full),
    "device-memory-leak": Rule(memory.device_leak),
    "host-memory-leak": Rule(memory.host_leak),
    "slots-nearly-exhausted": Rule(processes.slots_nearly_exhausted),
    "damaged-slab": Rule(processes.damaged_slab),
    "unknown-version": Rule(processes.unknown_version),
    "idle-allocated": Rule(processes.idle_allocated),
}


def diagnose(window: Window, thresholds: Thresholds | None = None) -> list[Finding]:
    """What every rule finds in a window at its newest look, the worst first, then by where it is.

    A rule that fails takes none of the others down: a finding of kind ``rule-failed`` says which it was.
    """
    if not len(window):
        return []
    t = thresholds or Thresholds()
    findings: list[Finding] = []
    for kind, rule in RULES.items():
        try:
            findings += rule.check(window, t)
        except Exception as e:
            findings.append(_failed(kind, e, window))
    order = {kind: n for n, kind in enumerate(RULES)}
    return sorted(findings, key=lambda f: (-f.severity, order.get(f.kind, -1), *_place(f)))


def _place(f: Finding) -> tuple[int, ...]:
    return tuple(-1 if n is None else n for n in (f.device, f.slot, f.pid, f.core))


def _failed(kind: str, e: Exception, window: Window) -> Finding:
    return Finding(
        RULE_FAILED,
        Severity.WARNING,
        f"the rule {kind} failed: {type(e).__name__}: {e}",
        "this is a fault of neuron-datastore: please report it; the other rules go on",
        window.now.time_ns,
        evidence={"rule": kind},
    )
