"""Rules about memory: use that grows and grows, on the host or on the device, and a device that is nearly full.

Use goes up and down with batches, checkpoints and models; a leak is what raises the least use of each part of the
time, part after part. Gauges that went below zero count as nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import HOST_MEMORY, ProcessLook
from neuron_ds.diagnose.measures import (
    Stretch,
    device_bytes,
    found,
    growth,
    host_bytes,
    known,
    looks_at,
    stretches,
    who,
)
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window
from neuron_ds.layout import GAUGE, NC, ND

PARTS = 8
_DEVICE_MEMORY = tuple(c for c in NC if c.kind == GAUGE)


def host_leak(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A process's host memory grows without a break, and no model was loaded that would explain it."""
    for s in stretches(window, t.leak_over_s):
        grew = host_bytes(s.now) - host_bytes(s.then)
        if grew >= t.leak_bytes and (rise := _rise(window, s.now, host_bytes, t)):
            by_category = {
                ND[i].name: now - then
                for i, then, now in zip(HOST_MEMORY, s.then.host_bytes, s.now.host_bytes, strict=False)
                if now > then
            }
            yield _leak("host-memory-leak", s, rise, host_bytes(s.now), by_category, None)


def device_leak(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A process's device memory grows without a break, and no model was loaded that would explain it."""
    for s in stretches(window, t.leak_over_s):
        if s.idle:
            continue
        grew = sum(device_bytes(new) - device_bytes(old) for _, old, new in s.rows() if new is not old)
        if grew >= t.leak_bytes and (rise := _rise(window, s.now, _on_device, t)):
            by_category = {c.name: sum(growth(old, new, c.index) for _, old, new in s.rows()) for c in _DEVICE_MEMORY}
            device = window.now.devices.get(s.now.owner.device)
            yield _leak(
                "device-memory-leak",
                s,
                rise,
                _on_device(s.now),
                {name: n for name, n in by_category.items() if n},
                device.memory_bytes if device else None,
            )


def _on_device(p: ProcessLook) -> int:
    return sum(map(device_bytes, p.rows.values()))


def _rise(window: Window, now: ProcessLook, use: Callable[[ProcessLook], int], t: Thresholds) -> int:
    """By how much the least use rose from the first part of the time to the last; 0 unless it rose in every part, not
    by a jump, and above all that was before."""
    part_ns = int(t.leak_over_s * 1e9 / PARTS)
    parts: dict[int, list[ProcessLook]] = {}
    for p in looks_at(list(window), now):
        if known(p):
            parts.setdefault((now.time_ns - p.time_ns) // part_ns, []).append(p)  # from now back
    if not all(n in parts for n in range(PARTS)):
        return 0
    first = parts[PARTS - 1][0]
    if sum(now.models.values()) > sum(first.models.values()):
        return 0
    least = [min(map(use, parts[0]))]
    for n in range(1, PARTS):
        least.append(min(map(use, parts[n])))
        if least[n] >= least[n - 1]:
            return 0
    rise, jump = least[0] - least[-1], max(after - before for after, before in pairwise(least))
    if rise < t.leak_bytes or 2 * jump > rise:
        return 0
    return rise if all(min(map(use, part)) < least[0] for n, part in parts.items() if n >= PARTS) else 0


def _leak(
    kind: str, s: Stretch, rise: int, used: int, by_category: dict[str, int], capacity_bytes: int | None
) -> Finding:
    per_s = rise / (s.elapsed_s * (PARTS - 1) / PARTS)
    worst = max(by_category, key=lambda name: by_category[name], default="")
    evidence: dict[str, int | float | str] = {f"{name}_grown_bytes": n for name, n in by_category.items()}
    evidence |= {"used_bytes": used, "grown_bytes_per_s": round(per_s), "over_s": round(s.elapsed_s, 1)}
    full = ""
    if capacity_bytes is not None and capacity_bytes > used:
        evidence |= {"memory_bytes": capacity_bytes, "full_in_s": round((capacity_bytes - used) / per_s)}
        full = f"; alone it fills the device in {(capacity_bytes - used) / per_s / 60:,.0f} min"
    return found(
        kind,
        Severity.WARNING,
        s.now,
        s.then.time_ns,
        f"{kind.partition('-')[0]} memory grows by {per_s * 60 / 2**20:,.0f} MiB a minute and never shrinks, "
        f"most of it {worst}{full}",
        "look at what the process keeps of each request or step: outputs, buffers and tensors that are never freed",
        evidence,
    )


def memory_near_full(window: Window, t: Thresholds) -> Iterator[Finding]:
    """The processes of a device together use nearly all of its memory."""
    devices = window.now.devices
    totals: dict[int, int] = {}
    for p in window.now.processes.values():
        if not p.dead:
            totals[p.owner.device] = totals.get(p.owner.device, 0) + _on_device(p)
    for number, total in totals.items():
        device = devices.get(number)
        if device is None or not device.memory_bytes or total < t.memory_full_share * device.memory_bytes:
            continue
        mine = [p for p in window.now.processes.values() if p.owner.device == number and not p.dead]
        largest = max(mine, key=_on_device)
        share = total / device.memory_bytes
        yield Finding(
            "memory-near-full",
            Severity.CRITICAL if share >= t.memory_critical_share else Severity.WARNING,
            f"device {number} memory: {total / 2**30:.1f} of {device.memory_bytes / 2**30:.1f} GiB in use "
            f"({share:.0%}), {_on_device(largest) / 2**30:.1f} GiB of it by {who(largest)}",
            "the next load or allocation may fail: move a process to another device, or unload models",
            window.now.time_ns,
            number,
            evidence={
                "used_bytes": total,
                "memory_bytes": device.memory_bytes,
                "used_share": round(share, 4),
                "processes": len(mine),
                "largest_pid": largest.owner.pid,
                "largest_bytes": _on_device(largest),
            },
        )
