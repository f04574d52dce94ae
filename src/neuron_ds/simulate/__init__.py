"""A workload simulator: real producer processes whose every counter can be said beforehand.

A *pattern* and a seed give a *script* of events; ``expected`` says what the events add up to, ``start`` and ``Fleet``
play them in processes of their own. See docs/simulate.md.
"""

from neuron_ds.simulate.expect import ExpectedSlab, expected
from neuron_ds.simulate.fleet import Fleet
from neuron_ds.simulate.models import MODELS, Model
from neuron_ds.simulate.patterns import PATTERNS, Pattern
from neuron_ds.simulate.plans import DEMO, GRAMMAR, Plan, plan
from neuron_ds.simulate.playing import Playback, Player, RealTime, play
from neuron_ds.simulate.process import Report, SimulatedProcess, start
from neuron_ds.simulate.workload import Workload, script

__all__ = [
    "DEMO",
    "GRAMMAR",
    "MODELS",
    "PATTERNS",
    "ExpectedSlab",
    "Fleet",
    "Model",
    "Pattern",
    "Plan",
    "Playback",
    "Player",
    "RealTime",
    "Report",
    "SimulatedProcess",
    "Workload",
    "expected",
    "plan",
    "play",
    "script",
    "start",
]
