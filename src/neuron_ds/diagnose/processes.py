"""Rules about processes, their slots and their slabs: idle, died at work, places running out, slabs that can't be read.

A slot whose producer died stays listed as dead until the next publish on the device recovers it. A driver that frees
the slots of the dead itself (the kernel's) shows only that a process left, and then nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from neuron_ds.collect import Key
from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import Look, ProcessLook
from neuron_ds.diagnose.measures import (
    BUSY,
    ZERO,
    completed,
    device_bytes,
    ended,
    found,
    growth,
    looks_at,
    oldest,
    stretches,
)
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window
from neuron_ds.layout import SLOTS_PER_DEVICE

# --- Processes --------------------------------------------------------------------------------------------------------


def idle_allocated(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A process holds models or memory on a device and has executed nothing for long."""
    looks = list(window)
    for s in stretches(window, t.idle_after_s):
        if _worked(s.then, s.now) or (start := oldest(looks, s.now)) is None or _worked(start, s.now):
            continue
        models, memory = sum(s.now.models.values()), sum(map(device_bytes, s.now.rows.values()))
        if not models and not memory:
            continue
        idle_s = (s.now.time_ns - start.time_ns) / 1e9
        yield found(
            "idle-allocated",
            Severity.INFO,
            s.now,
            start.time_ns,
            f"it has executed nothing for {idle_s / 60:.0f} min or more, and holds {memory / 2**30:.1f} GiB",
            "if nobody waits for it, end it: its memory and its cores are free for others then",
            {
                "completed_nothing_s": round(idle_s, 1),
                "models": models,
                "used_bytes": memory,
                "cores": len(s.now.rows),
            },
        )


def _worked(then: ProcessLook, now: ProcessLook) -> bool:
    if now.rows is then.rows:
        return False
    pairs = ((then.rows.get(core, ZERO), row) for core, row in now.rows.items())
    return any(row is not old and (growth(old, row, BUSY) or ended(old, row)) for old, row in pairs)


def died_working(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A process died without giving its slab back while it was completing work."""
    told: set[Key] = set()
    looks = list(window)
    for at, look in enumerate(looks):
        for key in look.dead:
            if key not in told and window.now.time_ns - look.time_ns <= t.died_kept_s * 1e9:
                told.add(key)
                if finding := _death(looks[:at], look, look.processes[key], t):
                    yield finding
            told.add(key)


def _death(before: Sequence[Look], look: Look, dead: ProcessLook, t: Thresholds) -> Finding | None:
    alive = [p for p in looks_at(before, dead) if not p.error]
    if len(alive) < 2:
        return None
    last = alive[-1]
    begin = next((p for p in reversed(alive) if last.time_ns - p.time_ns >= t.died_busy_s * 1e9), alive[0])
    done = sum(completed(begin.rows.get(core, ZERO), row) for core, row in last.rows.items())
    if not done:
        return None
    over_s = (last.time_ns - begin.time_ns) / 1e9
    return found(
        "died-working",
        Severity.CRITICAL,
        last,
        look.time_ns,
        f"it died without giving its slab back; in the {over_s:.0f} s before it had completed {done} executions",
        "look at its log, at dmesg (out of memory?) and at what ended it; the next publish there recovers its slot",
        {
            "completed_before": done,
            "over_s": round(over_s, 1),
            "models": sum(last.models.values()),
            "used_bytes": sum(map(device_bytes, last.rows.values())),
        },
    )


# --- Slots ------------------------------------------------------------------------------------------------------------


def slots_nearly_exhausted(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A device has hardly a slot left for another process."""
    for number, device in window.now.devices.items():
        free = SLOTS_PER_DEVICE - device.slots_used
        if device.error or free > t.slots_left:
            continue
        dead = sum(key[0] == number for key in window.now.dead)
        began = next(
            (
                look
                for look in window
                if (d := look.devices.get(number)) and SLOTS_PER_DEVICE - d.slots_used <= t.slots_left
            ),
            window.now,
        )
        yield Finding(
            "slots-nearly-exhausted",
            Severity.CRITICAL if free <= 0 and not dead else Severity.WARNING,
            f"device {number}: {device.slots_used} of {SLOTS_PER_DEVICE} slots are taken"
            + (f", {dead} of them by dead processes" if dead else ""),
            "the next publish recovers the slots of the dead; " * bool(dead)
            + "end processes that are idle, or publish on another device: one more than the slots fails with ENOMEM",
            began.time_ns,
            number,
            evidence={"slots_used": device.slots_used, "slots": SLOTS_PER_DEVICE, "dead": dead},
        )


# --- Slabs ------------------------------------------------------------------------------------------------------------

_NO_SLAB = frozenset(("FormatError", "NotReady", "TooShort"))


def damaged_slab(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A slab is torn or corrupt: the same record torn look after look, or no slab's header."""
    for p in window.now.processes.values():
        runs: dict[str, list[Look]] = {}
        if p.error_kind in _NO_SLAB:
            runs[p.error_kind] = _run(window, p, _has_no_header)
        elif not p.error and p.odd:
            runs = {name: _run(window, p, _odd_in(name)) for name in p.odd}
        runs = {name: run for name, run in runs.items() if len(run) >= t.torn_looks}
        if not runs:
            continue
        longest = max(runs.values(), key=len)
        what = f"the slab can't be read: {p.error}" if p.error else f"torn look after look: {', '.join(sorted(runs))}"
        yield found(
            "damaged-slab",
            Severity.WARNING,
            p,
            longest[0].time_ns,
            what,
            "neuron-ds check PID names every fault of the slab; restart a producer that stopped in the middle of a "
            "publish, and update one that is not of this format",
            {name.replace(" ", "_"): p.odd.get(name, p.error) for name in runs} | {"looks": len(longest)},
        )


def unknown_version(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A producer publishes a version of the format that this reader does not know, so nothing of it can be shown."""
    for p in window.now.processes.values():
        if p.error_kind == "WrongVersion":
            begun = _run(window, p, lambda q: q.error_kind == "WrongVersion")
            yield found(
                "unknown-version",
                Severity.WARNING,
                p,
                begun[0].time_ns,
                f"it can't be read: {p.error}",
                "update neuron-datastore here, or the runtime there, so that both know the version",
                {"error": p.error_kind, "looks": len(begun)},
            )


def _run(window: Window, p: ProcessLook, holds: Callable[[ProcessLook], bool]) -> list[Look]:
    """The looks in a row, up to now, in which something held of a process."""
    key, run, looks = p.key, 0, list(window)
    for look in reversed(looks):
        q = look.processes.get(key)
        if q is None or not holds(q):
            break
        run += 1
    return looks[len(looks) - run :]


def _has_no_header(p: ProcessLook) -> bool:
    return p.error_kind in _NO_SLAB


def _odd_in(name: str) -> Callable[[ProcessLook], bool]:
    return lambda p: not p.error and name in p.odd
