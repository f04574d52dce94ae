"""Rules about single cores: one that hangs, and one that is slower than the others of its process.

A rule is a pure function of a window and thresholds. Most cores are well, so each rule first asks what costs little,
the difference of two looks, and goes through the window only for a core that looks ill.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from neuron_ds.collect import Process, process_of
from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import Look, ProcessLook, Row
from neuron_ds.diagnose.measures import (
    BUSY,
    COMPLETED,
    JUST_BEFORE_S,
    MACS,
    TIMED_OUT,
    ZERO,
    Stretch,
    bisect,
    completed,
    ended,
    found,
    growth,
    index,
    known,
    looks_at,
    stretches,
)
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window

_LATENCY, _NC_TIME, _CC_TIME = index("latency_total"), index("nc_time"), index("cc_time")

# --- Hung -------------------------------------------------------------------------------------------------------------


def hung_core(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A core is in use, or loaded and until now at work, and nothing completes any more."""
    looks = list(window)
    for s in stretches(window, t.hung_after_s):
        seen: list[ProcessLook] = []
        for core, old, new in s.rows():
            if new is not old and completed(old, new):
                continue
            seen = seen or [p for p in looks_at(looks, s.now) if known(p)]
            finding = None if new is old else _executing(seen, s, core, old, new, t)
            if finding is None and s.now.models.get(core):
                finding = _silent(seen, s, core, old, new, t)
            if finding:
                yield finding


def _executing(seen: Sequence[ProcessLook], s: Stretch, core: int, old: Row, new: Row, t: Thresholds) -> Finding | None:
    """In use all the time, or only timing out."""
    busy_us, timed_out = growth(old, new, BUSY), growth(old, new, TIMED_OUT)
    others = ended(old, new) - timed_out
    if others or (not timed_out and busy_us < t.hung_busy_share * s.elapsed_s * 1e6) or 0 < timed_out < t.hung_timeouts:
        return None
    ever = any(new[c] for c in COMPLETED)
    needed_s = t.hung_after_s if timed_out else max(t.hung_after_s, t.hung_factor * new[_LATENCY] / 1e6)
    at, silence_s = _since(seen, core, new)
    if silence_s < (needed_s if ever or timed_out else t.hung_first_s):
        return None
    what = f"{timed_out} executions timed out" if timed_out else "it is executing"
    evidence = {
        "completed_nothing_s": round(silence_s, 1),
        "time_in_use_us": busy_us,
        "infer_timed_out": timed_out,
        "infer_completed_total": new[COMPLETED[0]],
        "latency_total_us": new[_LATENCY],
        "over_s": round(s.elapsed_s, 1),
    }
    return found(
        "hung-core",
        Severity.CRITICAL,
        s.now,
        seen[at].time_ns,
        f"{what}, and nothing has completed for {silence_s:.0f} s",
        "look at the process's log and its stacks, and whether its peers in the collectives still run; "
        "if it does not come back, restart it",
        evidence,
        core,
    )


def _silent(seen: Sequence[ProcessLook], s: Stretch, core: int, old: Row, new: Row, t: Thresholds) -> Finding | None:
    """Loaded, and worked steadily until it stood still: a runtime may count time only when an execution ends."""
    if new is not old and (growth(old, new, BUSY) or ended(old, new)):
        return None
    at, silence_s = _since(seen, core, new)
    if silence_s < t.silent_after_s:
        return None
    began, before = seen[at], seen[: at + 1]
    start = next((p for p in reversed(before) if p.time_ns <= began.time_ns - t.steady_s * 1e9), None)
    if start is None:
        return None
    done, steady_s = completed(start.rows.get(core, ZERO), new), (began.time_ns - start.time_ns) / 1e9
    if done < t.steady_per_s * steady_s:
        return None
    pause_s = _longest_pause_s(before, core)
    if silence_s < t.silent_factor * pause_s:
        return None
    evidence = {
        "completed_nothing_s": round(silence_s, 1),
        "completed_before_per_s": round(done / steady_s, 2),
        "longest_pause_before_s": round(pause_s, 1),
        "time_in_use_us": 0,
        "models": s.now.models.get(core, 0),
    }
    return found(
        "hung-core",
        Severity.WARNING,
        s.now,
        began.time_ns,
        f"it completed {done / steady_s:.1f} executions/s, and all its counters have stood still for {silence_s:.0f} s",
        "see whether requests still reach the process; if they do, it hangs: look at its log and its stacks",
        evidence,
        core,
    )


def _since(seen: Sequence[ProcessLook], core: int, row: Row) -> tuple[int, float]:
    """From which look on nothing has completed on a core, and how long ago that was."""
    at = bisect(seen, lambda p: not completed(p.rows.get(core, ZERO), row))
    return at, (seen[-1].time_ns - seen[at].time_ns) / 1e9


def _longest_pause_s(seen: Sequence[ProcessLook], core: int) -> float:
    """The longest time in which nothing completed on a core that had."""
    longest_ns, since_ns, done = 0, 0, -1
    for p in seen:
        row = p.rows.get(core, ZERO)
        count = row[COMPLETED[0]] + row[COMPLETED[1]] + row[COMPLETED[2]]
        if count != done or not count:
            done, since_ns = count, p.time_ns
        elif p.time_ns - since_ns > longest_ns:
            longest_ns = p.time_ns - since_ns
    return longest_ns / 1e9


# --- Straggler --------------------------------------------------------------------------------------------------------

#: A core of a job: device, physical core.
_Core = tuple[int, int]


def straggler(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A core takes longer for the same work than the other cores of its process."""
    just_before = window.at(JUST_BEFORE_S)
    jobs: dict[Process, list[Stretch]] = {}
    for s in stretches(window, t.straggler_over_s):
        if not s.idle:
            jobs.setdefault(process_of(s.now.owner, s.now.tag), []).append(s)
    for job in jobs.values():
        told: set[_Core] = set()
        for finding in (*_slow(job, just_before, t), *_waited_for(window, job, t)):
            assert finding.device is not None
            assert finding.core is not None
            if (finding.device, finding.core) not in told:
                told.add((finding.device, finding.core))
                yield finding


def _slow(job: Sequence[Stretch], just_before: Look | None, t: Thresholds) -> Iterator[Finding]:
    """By the time on the core per execution."""
    each_us: dict[_Core, float] = {}
    rows: dict[_Core, tuple[Row, Row, int]] = {}
    for s in job:
        device = s.now.owner.device
        last = just_before.processes.get(s.now.key) if just_before else None
        for core, old, new in s.rows():
            executions = 0 if new is old else completed(old, new)
            if executions >= t.straggler_executions and (not last or completed(last.rows.get(core, ZERO), new)):
                at = device, core
                each_us[at] = growth(old, new, BUSY) / executions
                rows[at] = old, new, executions
    if not _spread_out(each_us, t):
        return
    done = {at: n for at, (_, _, n) in rows.items()}
    work = {at: growth(old, new, MACS) / n for at, (old, new, n) in rows.items()}
    for at, (usual_us, share) in _outliers(each_us, work, t).items():
        s = next(s for s in job if s.now.owner.device == at[0])
        evidence = {
            "time_in_use_us_per_execution": round(each_us[at]),
            "others_us_per_execution": round(usual_us),
            "executions": done[at],
            "others_executions": round(median(n for other, n in done.items() if other != at)),
            "over_s": round(s.elapsed_s, 1),
        }
        yield _straggler(s, at[1], share, f"{each_us[at]:,.0f} us per execution", evidence)


def _waited_for(window: Window, job: Sequence[Stretch], t: Thresholds) -> Iterator[Finding]:
    """In lockstep all take equally long, and the straggler is who computes longest while the others wait."""
    now = {(s.now.owner.device, c): row[_NC_TIME] for s in job for c, row in s.now.rows.items() if row[_CC_TIME]}
    if not _spread_out(now, t):
        return
    looks = window.since(t.straggler_over_s)
    values: dict[_Core, list[int]] = {at: [] for at in now}
    waits: dict[_Core, list[int]] = {at: [] for at in now}
    for s in job:
        for p in looks_at(looks, s.now):
            for core, row in p.rows.items():
                at = s.now.owner.device, core
                if at in values and row[_CC_TIME]:
                    values[at].append(row[_NC_TIME])
                    waits[at].append(row[_CC_TIME])
    each_us: dict[_Core, float] = {at: median(v) for at, v in values.items() if len(v) >= 3}
    rows = {(s.now.owner.device, core): (old, new) for s in job for core, old, new in s.rows()}
    steps = {at: completed(*rows[at]) for at in each_us}
    each_us = {at: us for at, us in each_us.items() if steps[at] >= t.straggler_executions}
    work = {at: growth(*rows[at], MACS) / steps[at] for at in each_us}
    for at, (usual_us, share) in _outliers(each_us, work, t).items():
        s = next(s for s in job if s.now.owner.device == at[0])
        evidence = {
            "nc_time_us": round(each_us[at]),
            "others_nc_time_us": round(usual_us),
            "cc_time_us": round(median(waits[at])),
            "others_cc_time_us": round(median(median(v) for other, v in waits.items() if other != at and v)),
            "executions": steps[at],
            "over_s": round(s.elapsed_s, 1),
        }
        yield _straggler(s, at[1], share, f"{each_us[at]:,.0f} us on the core per step", evidence)


def _spread_out(values: Mapping[_Core, float], t: Thresholds) -> bool:
    """Whether any can be an outlier at all."""
    return len(values) > 1 and max(values.values()) >= t.straggler_factor * min(values.values())


def _outliers(
    values: Mapping[_Core, float], work: Mapping[_Core, float], t: Thresholds
) -> dict[_Core, tuple[float, float]]:
    """Who is that much above the median of the others that do the same work: that median, and how many times."""
    result = {}
    for at, value in values.items():
        slack = t.same_work_share * work[at]
        others = [v for other, v in values.items() if other != at and abs(work[other] - work[at]) <= slack]
        if others and (usual := median(others)) > 0 and value >= t.straggler_factor * usual:
            result[at] = usual, value / usual
    return result


def _straggler(s: Stretch, core: int, share: float, took: str, evidence: Mapping[str, int | float | str]) -> Finding:
    return found(
        "straggler",
        Severity.WARNING,
        s.now,
        s.then.time_ns,
        f"it takes {took}, {share:.1f} times as long as the other cores of the process",
        "compare the cores' counters (neuron-ds show): if it is the same core with other jobs too, take the device out "
        "of use; if not, look at how the work is shared out",
        evidence,
        core,
    )
