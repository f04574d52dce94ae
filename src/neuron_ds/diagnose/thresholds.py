"""The Thresholds of all rules: every number that decides whether something is said, by name and with its unit.

They are chosen so that a healthy load is quiet for hours; whoever knows the load better sets them. This module knows
no rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from neuron_ds.errors import BadValue


def _t(default: float, least: float, most: float, sentence: str) -> float:
    value: float = field(default=default, metadata={"least": least, "most": most, "sentence": sentence})
    return value


_WEEK_S = 7 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Units stand last in a name: ``_s`` seconds, ``_share`` 0 to 1, ``_factor`` how many times, ``_bytes``.

    Raises BadValue (EINVAL) for a number that can't be.
    """

    hung_after_s: float = _t(5.0, 0.1, 600, "a core that is in use completes nothing for so long: hung")
    hung_busy_share: float = _t(0.5, 0.01, 1, "so much of that time it must have been executing")
    hung_timeouts: float = _t(2, 1, 1e6, "or so many executions timed out, and none completed")
    hung_factor: float = _t(5.0, 1, 1e6, "and never before so many times the latency of its last execution")
    hung_first_s: float = _t(30.0, 0.1, _WEEK_S, "a core that has never completed anything gets so long")
    silent_after_s: float = _t(15.0, 0.1, 600, "a loaded core that worked steadily stands still for so long: hung")
    silent_factor: float = _t(4.0, 1, 1e6, "and for so many times its longest pause before")
    steady_s: float = _t(20.0, 1, 600, "working steadily: for so long at least ...")
    steady_per_s: float = _t(1.0, 0.001, 1e6, "... so many executions per second")

    straggler_over_s: float = _t(10.0, 1, 600, "the cores of a process are compared over so long")
    straggler_factor: float = _t(1.3, 1.01, 1000, "so many times as long per execution as the others: a straggler")
    straggler_executions: float = _t(20, 1, 1e9, "cores that completed fewer in that time aren't compared")
    same_work_share: float = _t(0.1, 0, 1, "work per execution that differs by no more than this is the same work")

    error_burst_s: float = _t(10.0, 0.1, 600, "errors are counted over so long")
    error_burst_errors: float = _t(5, 1, 1e9, "so many errors are a burst ...")
    error_burst_share: float = _t(0.01, 0, 1, "... if they are so much of the executions that ended")
    error_critical_share: float = _t(0.5, 0, 1, "a burst of this share is critical")

    recent_s: float = _t(20.0, 1, 600, "pace and latency now are those over so long")
    usual_s: float = _t(30.0, 1, 800, "and what is usual takes so long before it to be known")
    collapse_share: float = _t(0.5, 0.01, 0.99, "this much or less of the usual throughput: a collapse")
    collapse_executions: float = _t(100, 1, 1e9, "so many executions are expected in the time, or nothing is said")
    slower_factor: float = _t(1.5, 1.01, 1000, "an execution of the same work takes so many times as long as usual")
    queueing_factor: float = _t(4.0, 1.01, 1000, "the total latency, queueing included, is so many times the usual")
    latency_samples: float = _t(20, 1, 1e9, "fewer latencies than this, now or usually, say nothing")

    leak_over_s: float = _t(240.0, 8, 900, "memory is watched for so long, in eight equal parts")
    leak_bytes: float = _t(64 * 2**20, 1, 2**60, "the least use of each part is above the last, and in all by so much")
    memory_full_share: float = _t(0.9, 0.01, 1, "so much of a device's memory in use is nearly full")
    memory_critical_share: float = _t(0.97, 0.01, 1, "and so much is critical")

    idle_after_s: float = _t(300.0, 1, 900, "a process that holds memory or models and did nothing for so long is idle")
    died_busy_s: float = _t(10.0, 0.1, 600, "a process that completed something in so long before it died was working")
    died_kept_s: float = _t(300.0, 1, 900, "its death is told for so long")
    slots_left: float = _t(2, 0, 15, "so few free slots of a device, or fewer, are nearly none")
    torn_looks: float = _t(2, 2, 600, "the same record torn in so many looks one after the other is damaged")

    clear_after_s: float = _t(5.0, 0, 600, "a finding is over once it was not found for so long")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least, most = getattr(self, f.name), f.metadata["least"], f.metadata["most"]
            if not least <= value <= most:
                raise BadValue(f"{f.name} is {value:g}; it is {least:g} to {most:g}: {f.metadata['sentence']}")

    @classmethod
    def sentences(cls) -> dict[str, str]:
        """What each is for, by name."""
        return {f.name: f.metadata["sentence"] for f in fields(cls)}

    @classmethod
    def read(cls, items: Iterable[str]) -> Thresholds:
        """From ``NAME=NUMBER`` each, the others at their defaults. Raises BadValue (EINVAL), naming what is wrong."""
        known = cls.sentences()
        values: dict[str, float] = {}
        for item in items:
            name, equals, text = item.partition("=")
            if not equals:
                raise BadValue(f"{item!r} sets no threshold; write NAME=NUMBER, as in hung_after_s=10")
            if name not in known:
                raise BadValue(f"no threshold is called {name!r}; there are {', '.join(known)}")
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = math.nan
            if not math.isfinite(values[name]):
                raise BadValue(f"{name} is a number, not {text!r}: {known[name]}")
        return cls(**values)
