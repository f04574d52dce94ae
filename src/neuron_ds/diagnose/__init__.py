"""Reading counters as an experienced operator would: from Looks, kept in a Window, to Findings.

``look_at`` takes what is worth keeping of a Sample, a Window keeps Looks for some minutes, each rule is a small pure
function of it, and a Watcher says what begins and what is over. Nothing here knows where Samples come from.
"""

from __future__ import annotations

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import DeviceLook, Look, ProcessLook, look_at
from neuron_ds.diagnose.rules import RULES, Rule, diagnose
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.watcher import Watcher, looks_of
from neuron_ds.diagnose.window import Window

__all__ = [
    "diagnose",
    "look_at",
    "looks_of",
    "DeviceLook",
    "Finding",
    "Look",
    "ProcessLook",
    "Rule",
    "RULES",
    "Severity",
    "Thresholds",
    "Watcher",
    "Window",
]
