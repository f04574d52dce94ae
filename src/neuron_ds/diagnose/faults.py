"""Rules about errors: those of the hardware, of which each is one too many, and bursts of all others by their class.

A counter of a slab begins at zero with its process, so a hardware error that stands there happened to this process,
whether or not somebody was watching then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import Look, ProcessLook, Row
from neuron_ds.diagnose.measures import (
    COMPLETED,
    ENDED,
    TIMED_OUT,
    ZERO,
    Stretch,
    completed,
    first,
    found,
    growth,
    index,
    stretches,
)
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window
from neuron_ds.layout import NC

# --- Hardware ---------------------------------------------------------------------------------------------------------

_HARDWARE = {
    "hw_err_hbm_ue": "stop using the device and have it replaced: HBM has lost data beyond correction",
    "hw_err_dma_abort": "look at the driver's log (dmesg) for the DMA queue; if it comes again, stop using the device",
    "hw_err_nc_ue": "stop using the core, and have the device replaced if it comes again",
    "hw_err_collectives": "look whether a peer of the job died, and at the links between devices",
    "err_hw": "look at the driver's log (dmesg) for the device at that time",
}
_REPAIRABLE = {"hw_err_repairable_hbm_ue": "drain the device and reset it: the repair is made at the reset"}


def hardware_error(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A core has had an HBM, DMA, core, collectives or other hardware error: one is enough."""
    yield from _errors("hardware-error", Severity.CRITICAL, _HARDWARE, window)


def repairable_hbm_error(window: Window, t: Thresholds) -> Iterator[Finding]:
    """A core has had an uncorrectable HBM error that a repair can cure."""
    yield from _errors("repairable-hbm-error", Severity.CRITICAL, _REPAIRABLE, window)


def _errors(kind: str, severity: Severity, advice: dict[str, str], window: Window) -> Iterator[Finding]:
    """By core, of all processes that are listed, also the dead: their slab stays until it is recovered."""
    names = tuple(advice)
    counters = tuple(index(name) for name in names)
    counts_of = itemgetter(counters[0], *counters)  # with one more, so that it gives a tuple for one counter too
    none = counts_of(ZERO)
    looks = list(window)
    for p in window.now.processes.values():
        for core, row in p.rows.items():
            if (counts := counts_of(row)) != none:
                told = {name: row[i] for name, i in zip(names, counters, strict=True) if row[i]}
                began = first(looks, p, _stand_at(counts_of, core, counts)) or p
                text = " and ".join(f"{n} of {name} ({NC[index(name)].help})" for name, n in told.items())
                message = f"hardware errors: {text}"
                yield found(kind, severity, p, began.time_ns, message, advice[next(iter(told))], told, core)


def _stand_at(
    counts_of: Callable[[Row], tuple[int, ...]], core: int, counts: tuple[int, ...]
) -> Callable[[ProcessLook], bool]:
    return lambda p: counts_of(p.rows.get(core, ZERO)) == counts


# --- Bursts -----------------------------------------------------------------------------------------------------------

# What can go wrong beside the hardware, the finest class first, with what to look at.
_CLASSES = {
    "err_sw_semaphore_error": "look for a fault in the compiled model: update the compiler, or report it",
    "err_sw_event_error": "look for a fault in the compiled model: update the compiler, or report it",
    "err_sw_psum_collision": "look for a fault in the compiled model: update the compiler, or report it",
    "err_sw_sequencer_fatal": "look for a fault in the compiled model: update the compiler, or report it",
    "err_numerical": "look for NaN or overflow in inputs and weights, and whether the model was changed",
    "err_model": "compile and load the model again; compare with a version of it that worked",
    "err_transient": "retry; if they go on, look at the process's log and at the device's hardware errors",
    "err_rt": "look at the runtime's log, and whether its version fits the driver's",
    "err_generic": "look at the process's log: the counters know no more",
    "oob": "look for an index beyond its tensor in the model's inputs",
    "err_sw_nq_overflow": "fewer executions at a time, or a deeper notification queue",
    "infer_timed_out": "look whether the model became slower or a peer of the job stopped; then at the time limit",
    "infer_incorrect_input": "look at shape and type of what the clients send",
    "infer_failed_to_queue": "send fewer requests at a time, or serve with more cores",
    "infer_completed_with_num_err": "look for NaN or overflow in inputs and weights, and whether the model was changed",
    "infer_completed_with_err": "look at the process's log: the counters know no more",
    "err_resource": "look at the memory in use: an allocation or another resource failed",
    "err_resource_nc": "give the process more cores, or load models that need fewer",
    "err_unsupported_neff_version": "compile the model for this runtime, or update the runtime",
    "err_invalid": "look at how the program calls the runtime",
    "generic_fail": "look at the process's log for the call that failed",
}
_INDICES = tuple(index(name) for name in _CLASSES)


def _slices(indices: Iterable[int]) -> tuple[slice, ...]:
    """Where these numbers lie in a row, in few pieces that hold some others too: to see at little cost that nothing
    has moved."""
    runs: list[slice] = []
    for i in sorted(indices):
        if runs and i - runs[-1].stop < _CLOSE:
            runs[-1] = slice(runs[-1].start, i + 1)
        else:
            runs.append(slice(i, i + 1))
    return tuple(runs)


_CLOSE = 3
_RUNS = _slices(_INDICES)
#: Each execution or call that failed is in exactly one of these; the other classes say more about it.
_FAILED = frozenset(
    (
        *COMPLETED[1:],
        TIMED_OUT,
        *map(index, ("infer_incorrect_input", "infer_failed_to_queue", "oob", "err_sw_nq_overflow")),
        *map(index, ("generic_fail", "err_resource", "err_resource_nc", "err_invalid", "err_unsupported_neff_version")),
    )
)
#: The classes that an execution which completed with an error is given, by its status.
_CLASSED = {
    COMPLETED[1]: tuple(map(index, ("err_generic", "err_model", "err_transient", "err_hw", "err_rt"))),
    COMPLETED[2]: (index("err_numerical"),),
}
_REFUSED = tuple(_FAILED - frozenset(ENDED))


def error_burst(window: Window, t: Thresholds) -> Iterator[Finding]:
    """Many of a process's executions or calls fail in a short time; its class is that of most errors."""
    lately = window.at(t.hung_after_s)
    for s in stretches(window, t.error_burst_s):
        if s.idle or not (counts := _burst(s, lately)):
            continue
        failed = sum(n for i, n in counts.items() if i in _FAILED)
        tried = sum(growth(old, new, i) for _, old, new in s.rows() for i in (*ENDED, *_REFUSED))
        share = failed / max(tried, 1)
        if failed >= t.error_burst_errors and share >= t.error_burst_share:
            yield _told(s, counts, failed, share, t)


def _burst(s: Stretch, lately: Look | None) -> dict[int, int]:
    """How often each error came, over all cores; without the timeouts of cores that hang, which is told as that."""
    counts: dict[int, int] = {}
    process = lately.processes.get(s.now.key) if lately else None
    for core, old, new in s.rows():
        if new is old:
            continue
        for run in _RUNS:
            if new[run] != old[run]:
                break
        else:
            continue
        recent = process.rows.get(core, ZERO) if process else old
        hangs = not completed(recent, new)
        for i in _INDICES:
            n = growth(old, new, i)
            if n and not (hangs and i == TIMED_OUT):
                counts[i] = counts.get(i, 0) + n
    return counts


def _told(s: Stretch, counts: dict[int, int], failed: int, share: float, t: Thresholds) -> Finding:
    worst = NC[_class_of(counts)]
    evidence: dict[str, int | float | str] = {NC[i].name: counts[i] for i in sorted(counts, key=lambda i: -counts[i])}
    evidence |= {"class": worst.name, "failed_share": round(share, 4), "over_s": round(s.elapsed_s, 1)}
    return found(
        "error-burst",
        Severity.CRITICAL if share >= t.error_critical_share else Severity.WARNING,
        s.now,
        s.then.time_ns,
        f"{failed} errors in {s.elapsed_s:.0f} s, {share:.0%} of all executions and calls, most of them {worst.name} "
        f"({worst.help})",
        _CLASSES[worst.name],
        evidence,
    )


def _class_of(counts: dict[int, int]) -> int:
    """Of which most errors were; an execution that completed with an error has no class but that only if it was not
    given one."""
    left = dict(counts)
    for status, classes in _CLASSED.items():
        if status in left:
            left[status] = max(0, left[status] - sum(counts.get(i, 0) for i in classes))
    return max(left, key=lambda i: (left[i], -_INDICES.index(i)))
