"""Rules about pace: a process that completes far less than it did, or takes far longer for the same work.

What is usual is what the same process did in the window before; a change that lasts becomes the usual with time, and
the finding fades. Only cores that still complete something are compared: those that don't are hung, or idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import SOME_LATENCIES, Look, ProcessLook, Row
from neuron_ds.diagnose.measures import (
    BUSY,
    COMPLETED,
    JUST_BEFORE_S,
    MACS,
    ZERO,
    Stretch,
    completed,
    found,
    growth,
    index,
    looks_at,
    oldest,
    stretches,
    total,
)
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window

_SUCCESS = COMPLETED[0]
_TOTAL, _DEVICE, _LOADS = index("latency_total"), index("latency_device"), index("model_load_count")
#: Looks that latencies are taken from, now and before.
_LOOKS = 20


class _Before:
    """A process's recent stretch and what lies before it, for the cores that work in the recent one."""

    def __init__(self, s: Stretch, base: ProcessLook, lately: Look | None, just_before: Look | None) -> None:
        """``lately``, ``just_before``: a core that completed nothing since then does not work (any more)."""
        self.s, self.base = s, base
        self.lately = lately.processes.get(s.now.key) if lately else None
        self.just_before = just_before.processes.get(s.now.key) if just_before else None
        self.usual_s = (s.then.time_ns - base.time_ns) / 1e9
        #: Executions by the counter of successes, recently and before, over all cores: for a first look.
        self.roughly_done = self.roughly(_SUCCESS)

    def cores(self, since: ProcessLook | None) -> list[_Core]:
        """Those that completed something since then."""
        cores = []
        for core, old, new in self.s.rows():
            last = since.rows.get(core, ZERO) if since else old
            if new is not last and completed(last, new) and (now := completed(old, new)):
                first = self.base.rows.get(core, ZERO)
                cores.append(_Core(first, completed(first, old), old, now, new))
        return cores

    def pace_just_now(self) -> float:
        """Executions per second since just before."""
        then = self.just_before
        if then is None or then.time_ns >= self.s.now.time_ns:
            return 0.0
        done = sum(completed(then.rows.get(core, ZERO), row) for core, row in self.s.now.rows.items())
        return done / ((self.s.now.time_ns - then.time_ns) / 1e9)

    def roughly(self, counter: int) -> tuple[int, int]:
        """What a counter grew by recently and before, over all cores; for a first look that costs little."""
        now, then, base = (total(p, counter) for p in (self.s.now, self.s.then, self.base))
        return now - then, then - base


class _Core(NamedTuple):
    """One core: its row at the beginning, executions before, row when the stretch began, executions in it, row now."""

    first: Row
    before: int
    old: Row
    now: int
    new: Row


def _working(window: Window, t: Thresholds) -> list[_Before]:
    """Every process that works and whose usual pace is known."""
    looks = list(window)
    lately, just_before = window.at(t.hung_after_s), window.at(JUST_BEFORE_S)
    found = []
    for s in stretches(window, t.recent_s):
        if not s.idle:
            base = oldest(looks, s.now)
            if base is not None and s.then.time_ns - base.time_ns >= t.usual_s * 1e9:
                found.append(_Before(s, base, lately, just_before))
    return found


def throughput_collapse(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A process still completes executions, but far fewer than before."""
    for b in window.once("working", t, _working):
        now, usual = b.roughly_done
        if now > t.collapse_share * usual / b.usual_s * b.s.elapsed_s > 0:
            continue
        cores = b.cores(b.lately)
        now, usual = sum(core.now for core in cores), sum(core.before for core in cores)
        expected = usual / b.usual_s * b.s.elapsed_s
        if expected < t.collapse_executions or now > t.collapse_share * expected:
            continue
        if b.pace_just_now() > t.collapse_share * usual / b.usual_s:
            continue  # there was a pause, and it is over
        busy = sum(growth(core.old, core.new, BUSY) for core in cores) / len(cores)
        usual_busy = sum(growth(core.first, core.old, BUSY) for core in cores) / len(cores)
        per_s, usual_per_s = now / b.s.elapsed_s, usual / b.usual_s
        evidence = {
            "infer_completed_per_s": round(per_s, 2),
            "usual_per_s": round(usual_per_s, 2),
            "utilization": round(busy / 1e6 / b.s.elapsed_s, 4),
            "usual_utilization": round(usual_busy / 1e6 / b.usual_s, 4),
            "over_s": round(b.s.elapsed_s, 1),
            "usual_over_s": round(b.usual_s, 1),
        }
        starved = evidence["utilization"] < evidence["usual_utilization"] * (1 + t.collapse_share) / 2
        advice = (
            "the cores are less busy as well, so they lack work: look at the clients, the network and the data loader"
            if starved
            else "the cores are as busy as before, so each execution takes longer: look for a straggler, other "
            "processes on the same cores, and what was deployed last"
        )
        yield found(
            "throughput-collapse",
            Severity.WARNING,
            b.s.now,
            b.s.then.time_ns,
            f"{per_s:.1f} executions/s, {per_s / usual_per_s:.0%} of the usual {usual_per_s:.1f}",
            advice,
            evidence,
        )


def latency_regression(window: Window, t: Thresholds) -> Iterator[Finding]:
    """Executions of the same work take far longer than before, on the core or in the queue before it."""
    looks = list(window)
    for b in window.once("working", t, _working):
        finding = _slower(b, t) or _queueing(looks, b, t)
        if finding:
            yield finding


def _slower(b: _Before, t: Thresholds) -> Finding | None:
    """On the core: the middle one of the cores, so that one straggler is not all."""
    now, usual = b.roughly_done
    took, usually = b.roughly(BUSY)
    if min(now, usual, usually) > 0 and took / now < (1 + (t.slower_factor - 1) / 5) * usually / usual:
        return None  # not even half of the cores can be that much slower
    return _slower_cores(b, b.cores(b.just_before), t)


def _slower_cores(b: _Before, cores: Sequence[_Core], t: Thresholds) -> Finding | None:
    ratios, now_us, usual_us, executions = [], [], [], 0
    for first, before, old, now, new in cores:
        if min(before, now) < t.latency_samples:
            continue
        usual = growth(first, old, BUSY) / before
        took = growth(old, new, BUSY) / now
        work, usual_work = growth(old, new, MACS) / now, growth(first, old, MACS) / before
        if usual > 0 and abs(work - usual_work) <= t.same_work_share * usual_work:
            ratios.append(took / usual)
            now_us.append(took)
            usual_us.append(usual)
            executions += now
    if not ratios or (factor := median(ratios)) < t.slower_factor:
        return None
    loads = sum(growth(core.first, core.new, _LOADS) for core in cores)
    evidence = {
        "time_in_use_us_per_execution": round(median(now_us)),
        "usual_us_per_execution": round(median(usual_us)),
        "executions": executions,
        "model_load_count": loads,
        "over_s": round(b.s.elapsed_s, 1),
        "usual_over_s": round(b.usual_s, 1),
    }
    return found(
        "latency-regression",
        Severity.WARNING,
        b.s.now,
        b.s.then.time_ns,
        f"an execution takes {median(now_us):,.0f} us on the core, {factor:.1f} times the usual, for the same work",
        ("compare with the model that was loaded before: one was deployed in this time; " if loads else "")
        + "look for other processes on the same cores, a straggler in the collectives, and clocks held back by heat",
        evidence,
    )


def _queueing(looks: Sequence[Look], b: _Before, t: Thresholds) -> Finding | None:
    """Before the core: total latency, while that of the device is as it was."""
    factor = t.queueing_factor / 2
    if not _waits(b.s.now, factor) or not all(_waits(p, factor) for p in looks_at(looks[-3:-1], b.s.now)):
        return None  # nearly always by the newest alone
    rows = b.s.now.rows.values()
    seen = looks_at(looks, b.s.now)
    recent = [p for p in seen if p.time_ns > b.s.then.time_ns]
    earlier = [p for p in seen if p.time_ns <= b.s.then.time_ns]
    values_us = _latencies(recent[:: max(1, len(recent) // _LOOKS)], b.s.then)
    usual_us = _latencies(earlier[:: max(1, len(earlier) // _LOOKS)], None)
    if min(len(values_us), len(usual_us)) < t.latency_samples:
        return None
    now, usual = median(values_us), median(usual_us)
    if usual <= 0 or now < t.queueing_factor * usual:
        return None
    evidence = {
        "latency_total_p50_us": round(now),
        "usual_latency_total_p50_us": round(usual),
        "latency_device_us": round(median(row[_DEVICE] for row in rows)),
        "samples": len(values_us),
        "over_s": round(b.s.elapsed_s, 1),
        "usual_over_s": round(b.usual_s, 1),
    }
    return found(
        "latency-regression",
        Severity.WARNING,
        b.s.now,
        b.s.then.time_ns,
        f"half of the executions take {now:,.0f} us or more in all, {now / usual:.1f} times the usual, most of it in "
        "the queue",
        "more requests come than the cores can do: look at the clients, spread the load, or serve with more cores",
        evidence,
    )


def _waits(p: ProcessLook, factor: float) -> bool:
    """Whether the last executions of at least half of the cores waited that long in all."""
    waiting = [row[_TOTAL] >= factor * row[_DEVICE] > 0 for row in p.rows.values()]
    return 2 * sum(waiting) >= len(waiting)


def _latencies(seen: Sequence[ProcessLook], before: ProcessLook | None) -> list[int]:
    """Total latencies: those that were sampled, else the last of each core whenever it had completed something."""
    values: list[int] = []
    for p in seen:
        if sampled := p.latencies.total_us:
            values += sampled[:: max(1, len(sampled) // SOME_LATENCIES)]
        elif before is not None:
            for core, row in p.rows.items():
                old = before.rows.get(core, ZERO)
                if row is not old and completed(old, row):
                    values.append(row[_TOTAL])
        before = p
    return values
