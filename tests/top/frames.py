"""Frames made by hand for the tests of the terminal's picture, and what gives them to it one after the other."""

from dataclasses import replace

from neuron_ds.collect import Sample
from neuron_ds.diagnose.finding import Finding, Severity
from neuron_ds.diagnose.looks import Look
from neuron_ds.live.frame import Cell, DeviceFrame, Event, Frame, HostFrame, ProcessFrame, SlabFrame

MIB = 1 << 20
#: 14:03:22 in UTC.
WALL_S = 1_800_000_202.0
NO_DEVICE, NO_HOST = (0,) * 5, (0,) * 4


def cell(device, core, state="busy", utilization=0.5, flops_s=2e12, executions_s=10.0, errors_s=0.0, memory=None):
    memory = tuple(n * MIB for n in memory or (64, 32, 8, 4, 2))
    physical = (2 * core, 2 * core + 1)
    return Cell(device, core, physical, state, utilization, flops_s, executions_s, errors_s, memory)


def idle(device, core):
    return Cell(device, core, (2 * core, 2 * core + 1), "idle", 0.0, 0.0, 0.0, 0.0)


def slab(pid, device, slot, cells, error="", host=(100, 20, 8, 0), models=2):
    key = (device, slot, 3, pid, None)
    return SlabFrame(key, device, slot, error, tuple(cells), tuple(n * MIB for n in host), models)


def process(pid, tag, slabs, **fields):
    cells = [c for s in slabs for c in s.cells]
    values = {
        "id": f"{pid}",
        "pid": pid,
        "foreign": False,
        "tag": tag,
        "state": "running",
        "error": "",
        "slabs": tuple(slabs),
        "executions_s": sum(c.executions_s for c in cells),
        "errors_s": 0.0,
        "errors": 0,
        "utilization": sum(c.utilization for c in cells) / len(cells) if cells else None,
        "flops_s": sum(c.flops_s for c in cells),
        "latency_p50_us": 4100,
        "latency_p99_us": 16_700,
        "device_memory": tuple(map(sum, zip(*(c.memory for c in cells), strict=True))) or NO_DEVICE,
        "host_memory": tuple(map(sum, zip(*(s.host_memory for s in slabs), strict=True))) or NO_HOST,
        "vcpu_user": 0.05,
        "vcpu_system": 0.01,
        "runtime_version": "2.24.53",
        "executions_history": (None, 5.0, 10.0, 20.0),
        "latency_history": (None, 4000.0, 4100.0, 4100.0),
    }
    return ProcessFrame(**{**values, **fields})


def device(number, cells, error="", history=True, **fields):
    histories = tuple((None, 0.0, (c.utilization or 0.0) / 2, c.utilization) for c in cells) if history else ()
    memory = tuple(map(sum, zip(*(c.memory for c in cells), strict=True))) or NO_DEVICE
    return DeviceFrame(
        number, "trn2", tuple(cells), 96 << 30, memory, fields.pop("host_memory", NO_HOST), 2, error, histories
    )


def event(number, kind, text, pid, tag, **fields):
    process = "" if pid is None else str(pid)
    return Event(number, WALL_S + number, kind, text, pid, tag, **{"process": process, **fields})


def frame(devices, processes, events=(), findings=(), period_s=1.0, time_ns=10**12, **fields):
    values = {"empty": "", "error": "", **fields}
    host = HostFrame(16, 0.123, 0.021, 64 << 30, 8 << 30)
    return Frame(
        time_ns,
        WALL_S,
        period_s,
        tuple(devices),
        tuple(processes),
        host,
        tuple(events),
        tuple(findings),
        values["empty"],
        values["error"],
        Sample(time_ns, (), values["error"]),
        Look(time_ns, {}, {}),
    )


HUNG = Finding(
    "hung-core", Severity.CRITICAL, "NC2 is in use and completes nothing", "see its stack", 0, 0, 1, 202, "vit", 5
)


def fleet():
    """Two devices, five processes: one healthy, one hung, one with a slow core, one dead, one half unreadable."""
    bert = [cell(0, 0, utilization=0.25, executions_s=120.5), cell(0, 1, utilization=0.75, executions_s=80.0)]
    vit = [cell(0, 2, "hung", 1.0, 0.0, 0.0)]
    gpt = [cell(1, c, "slow" if c == 3 else "busy", 0.9, 40e12, 2.5, memory=(8000, 400, 100, 50, 50)) for c in range(4)]
    used = process(404, "embedder", [slab(404, 0, 3, []), slab(404, 1, 2, [], "another version: 9")], utilization=None)
    dead = process(505, "gone", [slab(505, 1, 3, [], "its producer died")], state="dead", error="its producer died")
    return frame(
        [
            device(0, [*bert, *vit, idle(0, 3)], host_memory=tuple(n * MIB for n in (300, 60, 24, 0))),
            device(1, gpt, "2 slabs can't be read", host_memory=tuple(n * MIB for n in (300, 60, 24, 0))),
        ],
        [
            process(101, "bert-serving", [slab(101, 0, 0, bert)], errors=7),
            process(202, "vit-hung", [slab(202, 0, 1, vit)], latency_p50_us=None, latency_p99_us=None),
            process(303, "gpt2-training", [slab(303, 1, 0, gpt)], latency_p99_us=1_200_000),
            used,
            dead,
        ],
        [
            event(1, "came", "began to publish", 101, "bert-serving", device=0),
            event(2, "error", "infer_timed_out +3: executions that did not finish in time", 101, "bert-serving",
                  device=0, core=1, counter="infer_timed_out", count=3),
            event(3, "began", "hung-core: NC2 is in use", 202, "vit-hung", device=0, core=2, severity="critical"),
            event(4, "died", "died without giving its slot back", 505, "gone", device=1),
        ],
        [HUNG],
    )  # fmt: skip


def many(devices=16, cores=4, processes=16):
    """A full machine."""
    per_core = {d: [cell(d, c, utilization=(d + c) / 20) for c in range(cores)] for d in range(devices)}
    return frame(
        [device(d, cells) for d, cells in per_core.items()],
        [
            process(1000 + i, f"worker-{i:03}", [slab(1000 + i, i % devices, i // devices, per_core[i % devices])])
            for i in range(processes)
        ],
    )


def later(before, seconds=1.0, **fields):
    """The same some time after, and with something new."""
    return replace(before, time_ns=before.time_ns + int(seconds * 1e9), wall_s=before.wall_s + seconds, **fields)


class Still:
    """Gives these Frames, the last one again and again."""

    title = "hand-made"

    def __init__(self, *frames):
        self.frames = list(frames)
        self.looks = 0

    def frame(self):
        self.looks += 1
        return self.frames.pop(0) if len(self.frames) > 1 else self.frames[0]
