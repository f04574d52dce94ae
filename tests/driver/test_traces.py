"""The golden slot traces on the real software driver, one process per caller: what the kernel's table answered, step by
step. A last close is the kernel's alone; in its place the owners release in the order of their slots, and it is counted
as a step that was not compared."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from neuron_ds import layout
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NoSlab, SlotsFull
from tests.devices import table_of
from tests.processes import Child, Talk

DEVICE = 0


def caller(talk: Talk, root: str, name: int) -> None:
    """A process that does what it is told: (op, pid argument as a real pid, 0 for itself)."""
    driver, lease = SoftwareDriver(root), None
    talk.say(os.getpid())
    while True:
        op, pid = talk.hear()
        code, slot = 0, -1
        try:
            if op == "release":
                if lease is not None and pid in (0, os.getpid()):
                    driver.release(lease)
                    lease = None
            elif pid == 0:
                lease = driver.acquire(DEVICE)
                lease.mapping.nd(0).set(name)
                slot = lease.slot
            else:
                found = driver.attach(DEVICE, pid)
                slot = found.slot
                driver.release(found)
        except (NoSlab, SlotsFull) as e:
            code = e.errno
        talk.say([code, slot])


class Replay:
    """A trace on a device: callers are started when they first act, and keep their process throughout."""

    def __init__(self, root: str, trace: dict[str, Any]) -> None:
        self.root, self.steps = root, trace["steps"]
        self.driver = SoftwareDriver(root)
        self.driver.probe(DEVICE)
        self.table = table_of(root)
        self.children: dict[int, tuple[Child, int]] = {}
        self.last_closes = 0

    def pid_of(self, name: int) -> int:
        if name not in self.children:
            child = Child(caller, self.root, name)
            self.children[name] = child, child.expect()
        return self.children[name][1]

    def tell(self, name: int, op: str, pid: int) -> list[int]:
        self.pid_of(name)
        return self.children[name][0].ask([op, pid])

    def run(self) -> int:
        """Every step compared; how many."""
        compared, rolled_up = 0, 0
        for number, step in enumerate(self.steps):
            if step["op"] == "last_close":
                self.last_closes += 1
                owned = [v for v in t.read_slots(self.table) if v.state == t.OWNED]
                names = {pid: name for name, (_, pid) in self.children.items()}
                for view in owned:
                    self.tell(names[view.owner.pid], "release", 0)
                rolled_up += len(owned)
            else:
                pid = step["pid"] and self.pid_of(step["pid"])
                code, slot = self.tell(step["caller"], step["op"], pid)
                rolled_up += step["rolled_up"]
                assert (code, slot) == (step["errno"], step["slot"] if step["op"] == "acquire" else -1), (number, step)
                compared += 1
            self.compare(number, step["table"], rolled_up)
        return compared

    def compare(self, number: int, expected: list[list[int]], rolled_up: int) -> None:
        views = t.read_slots(self.table)
        names = {pid: name for name, (_, pid) in self.children.items()}
        owners = [names[v.owner.pid] if v.state == t.OWNED else 0 for v in views]
        assert owners == [pid for pid, _, _ in expected], number
        by_tick = sorted(range(len(views)), key=lambda s: (views[s].tick, s))
        assert by_tick == sorted(range(len(views)), key=lambda s: (expected[s][1], s)), number
        with open(f"{self.root}/neuron0/slabs", "rb") as f:
            for slot, (_, _, first) in enumerate(expected):
                f.seek(slot * layout.SLAB_SIZE + layout.ND_REGION.offset)
                assert int.from_bytes(f.read(8), "little") == first, (number, slot)
        found, other = self.driver.totals(DEVICE).versions("runtime_version")
        assert sum(found.values()) + other - sum(owner != 0 for owner in owners) == rolled_up, number

    def close(self) -> None:
        for child, _ in self.children.values():
            child.close()


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("name", "last_closes"), [("slots-a", 1), ("slots-b", 2)])
def test_a_golden_trace_on_the_software_driver(
    root: str, golden: Any, name: str, last_closes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = Replay(root, golden.json(name))
    try:
        compared = replay.run()
    finally:
        replay.close()
    with capsys.disabled():
        print(
            f"\n{name} on the software driver: {compared} steps compared, {replay.last_closes} last closes stood in for"
        )
    assert compared == len(replay.steps) - last_closes
    assert replay.last_closes == last_closes
    assert {step["errno"] for step in replay.steps} == {0, errno.ENOENT, errno.ENOMEM}
