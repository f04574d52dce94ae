#!/usr/bin/env python3
"""The stand-in's own test, run inside the guest: every rule it keeps, by real processes and system calls alone.

Knows the rules of docs/driver.md and where the layout puts a counter. Uses nothing else of the package, so that a
fault found here is the module's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from neuron_ds.layout import NC, SLAB_SIZE, SLOTS_PER_DEVICE, nc_index
from tests.kernel.processes import ACQUIRE, APPS, FIRST, RELEASE, RW, TABLE, TABLE_HEAD, TABLE_SLOT, Process

SYSFS = Path("/sys/devices/virtual/neuron_device")
GOLDEN = Path(__file__).resolve().parent.parent / "golden"


# --- Looking ----------------------------------------------------------------------------------------------------------


class Slot(NamedTuple):
    pid: int
    tick: int
    first: int


class Table(NamedTuple):
    roll_ups: int
    slots: list[Slot]

    def owners(self) -> list[int]:
        return [slot.pid for slot in self.slots if slot.pid]

    def slot_of(self, pid: int) -> int:
        return [slot.pid for slot in self.slots].index(pid)


def look(device: int = 0) -> Table:
    """The table, without attaching or keeping the device open."""
    fd = os.open(f"/dev/neuron{device}", os.O_WRONLY)
    try:
        arg = bytearray(TABLE_HEAD.size + SLOTS_PER_DEVICE * TABLE_SLOT.size)
        fcntl.ioctl(fd, TABLE, arg)
    finally:
        os.close(fd)
    entries = [TABLE_SLOT.unpack_from(arg, TABLE_HEAD.size + i * TABLE_SLOT.size) for i in range(SLOTS_PER_DEVICE)]
    return Table(TABLE_HEAD.unpack_from(arg)[0], [Slot(pid, tick, first) for pid, _, tick, first in entries])


def number(path: str, device: int = 0) -> int:
    return int((SYSFS / f"neuron{device}" / path).read_text())


def success(core: int, device: int = 0) -> int:
    return number(f"neuron_core{core}/stats/status/success/total", device)


def refused(expected: int, call: Callable[..., Any], *args: Any) -> None:
    code = 0
    try:
        call(*args)
    except OSError as error:
        code = error.errno or -1
    assert code == expected, f"{errno.errorcode[expected]} expected, not {errno.errorcode.get(code, code)}"


def reload_module() -> None:
    subprocess.run(["/bin/nds-reload"], check=True)


# --- The rules --------------------------------------------------------------------------------------------------------


def test_an_owner_writes_and_another_process_reads() -> None:
    a, b = Process(), Process()
    fd = a.do("open", 0)
    offset, size = a.do("acquire", fd)
    assert size == SLAB_SIZE
    assert offset % mmap.PAGESIZE == 0
    assert a.do("acquire", fd) == (offset, size), "the same slab again"
    assert a.do("acquire", fd, a.pid) == (offset, size)
    mine = a.do("map", fd, offset)
    assert a.do("is_zero", mine)
    a.do("write", mine, FIRST, 7)
    theirs = b.do("open", 0)
    refused(errno.ENOENT, b.do, "acquire", theirs, b.pid)
    refused(errno.ENOENT, b.do, "acquire", theirs, 1)
    refused(errno.ENOENT, b.do, "acquire", theirs, -1)
    seen = b.do("map", theirs, b.do("acquire", theirs, a.pid)[0], SLAB_SIZE, mmap.PROT_READ)
    assert b.do("read", seen, FIRST) == 7
    assert look().owners() == [a.pid]
    assert look().slots[look().slot_of(a.pid)].first == 7
    assert look(1).owners() == [], "devices are apart"


def test_numbers_and_pointers() -> None:
    a = Process()
    fd = a.do("open", 0)
    for unknown in (0x80084E46, 0x80184E47, 0xC0084E47, 0):
        refused(errno.ENOTTY, a.do, "ioctl", fd, unknown, 0)
    for known in (ACQUIRE, RELEASE, APPS, TABLE):
        refused(errno.EFAULT, a.do, "ioctl", fd, known, 8)


def test_only_the_exact_mapping_is_granted() -> None:
    a = Process()
    fd = a.do("open", 0)
    offset, size = a.do("acquire", fd)
    for wrong in (size // 2, size * 2, size - mmap.PAGESIZE, size + mmap.PAGESIZE):
        refused(errno.EINVAL, a.do, "map", fd, offset, wrong)
    for wrong in (0, offset + mmap.PAGESIZE, offset - mmap.PAGESIZE, offset + size * SLOTS_PER_DEVICE):
        refused(errno.EINVAL, a.do, "map", fd, wrong)
    refused(errno.EINVAL, a.do, "map", fd, offset, size, RW, mmap.MAP_PRIVATE)
    a.do("map", fd, offset, size)


def test_a_reader_is_granted_writing_if_it_asks() -> None:
    a, b = Process(), Process()
    a.do("claim", a.do("open", 0))
    fd = b.do("open", 0)
    b.do("write", b.do("map", fd, b.do("acquire", fd, a.pid)[0]), FIRST, 5)
    assert look().slots[look().slot_of(a.pid)].first == 5


def test_a_read_only_mapping_is_protected() -> None:
    a, b = Process(), Process()
    mine = a.do("claim", a.do("open", 0))
    fd = b.do("open", 0)
    seen = b.do("map", fd, b.do("acquire", fd, a.pid)[0], SLAB_SIZE, mmap.PROT_READ)
    with contextlib.suppress(EOFError, ConnectionError):
        b.do("write", seen, FIRST, 9)
    b.wait()
    assert b.signal == -signal.SIGSEGV
    assert a.do("read", mine, FIRST) == 0


def test_a_forked_child_has_no_mapping() -> None:
    a = Process()
    mine = a.do("claim", a.do("open", 0))
    assert a.do("read_in_child", mine) == signal.SIGSEGV
    assert a.do("read", mine, 0) == 0
    assert look().owners() == [a.pid]


def test_release_is_the_owners_and_rolls_up() -> None:
    a, b = Process(), Process()
    fd, theirs = a.do("open", 0), b.do("open", 0)
    mine = a.do("claim", fd)
    seen = b.do("map", theirs, b.do("acquire", theirs, a.pid)[0])
    a.do("fill", mine)
    a.do("write", mine, nc_index(3, 1), 11)
    before, counted = look(), success(3)
    slot = before.slot_of(a.pid)
    b.do("release", theirs, a.pid)
    b.do("release", theirs)
    assert look() == before, "not theirs to release"
    a.do("release", fd, b.pid)
    assert look() == before, "not what was asked"
    a.do("release", fd)
    after = look()
    assert after.slots[slot].pid == 0
    assert after.slots[slot].tick > max(s.tick for s in before.slots)
    assert after.roll_ups == before.roll_ups + 1
    assert success(3) == counted + 11
    assert b.do("is_zero", seen), "all of it, seen by who still has it mapped"
    a.do("release", fd)
    assert look() == after, "nothing left to release"
    a.do("acquire", fd)
    a.do("release", fd, a.pid)
    assert look().roll_ups == after.roll_ups + 1, "one's own pid does too"


def test_every_totalled_counter_is_in_sysfs() -> None:
    a = Process()
    fd = a.do("open", 1)
    mine = a.do("claim", fd)
    cores = number("core_count", 1)
    assert cores == len(list((SYSFS / "neuron1").glob("neuron_core*")))
    named = {path.parent.name: path for path in (SYSFS / "neuron1/neuron_core0/stats").glob("*/*/total")}
    assert set(named) == {counter.sysfs for counter in NC if counter.sysfs}
    where = {name: str(path.relative_to(SYSFS / "neuron1/neuron_core0")) for name, path in named.items()}
    for name in ("flop_count", "inference_count", "model_load_count", "nc_time_in_use"):
        assert where[name].startswith("stats/other_info/")

    def totals() -> dict[tuple[int, str], int]:
        return {(m, n): number(f"neuron_core{m}/{path}", 1) for m in range(cores) for n, path in where.items()}

    before = totals()
    a.do("write_all", mine, {nc_index(core, c.index): 1000 * core + c.index for core in range(cores) for c in NC})
    assert totals() == before, "the living are not in it"
    a.do("close", fd)
    added = {key: value - before[key] for key, value in totals().items()}
    for counter in NC:
        for core in range(cores):
            if counter.sysfs:
                factor = 2 if counter.sysfs == "flop_count" else 1
                assert added[core, counter.sysfs] == factor * (1000 * core + counter.index), (core, counter.sysfs)
    assert number(f"neuron_core0/{where['success']}".replace("total", "present"), 1) == 1
    architecture = SYSFS / "neuron0/info/architecture"
    assert all((architecture / name).read_text().strip() for name in ("arch_type", "device_name", "instance_type"))
    assert number("stats/hardware/mem_ecc_uncorrected/total") == 0


def test_death_of_any_kind_releases_and_rolls_up() -> None:
    for end in ("kill", "exit"):
        a, keeper = Process(), Process()
        keeper.do("open", 0)
        mine = a.do("claim", a.do("open", 0))
        a.do("write", mine, nc_index(0, 1), 3)
        before, counted = look(), success(0)
        getattr(a, end)()
        after = look()
        assert after.owners() == []
        assert after.roll_ups == before.roll_ups + 1
        assert success(0) == counted + 3
        assert after.slots[before.slot_of(a.pid)].first == 0
        keeper.exit()


def test_many_deaths_at_once_are_counted_to_the_unit() -> None:
    keeper = Process()
    keeper.do("open", 0)
    for rounds in range(5):
        crowd = [Process() for _ in range(15)]
        before, counted = look(), success(2)
        for process in crowd:
            mine = process.do("claim", process.do("open", 0))
            process.do("write", mine, nc_index(2, 1), 1 + rounds)
        for process in crowd:
            os.kill(process.pid, signal.SIGKILL)
        for process in crowd:
            process.wait()
        assert look().owners() == []
        assert look().roll_ups == before.roll_ups + len(crowd)
        assert success(2) == counted + len(crowd) * (1 + rounds)


def test_the_last_close_of_a_process_is_not_an_early_one() -> None:
    a, keeper = Process(), Process()
    keeper.do("open", 0)
    first, second = a.do("open", 0), a.do("open", 0)
    a.do("acquire", first)
    before = look()
    a.do("close", first)
    assert look() == before, "a larger count only drops"
    a.do("close", second)
    assert look().owners() == []
    assert look().roll_ups == before.roll_ups + 1


def test_closing_a_dup_releases_too() -> None:
    a, keeper = Process(), Process()
    theirs = keeper.do("open", 0)
    fd = a.do("open", 0)
    a.do("acquire", fd)
    copy = a.do("dup", fd)
    assert keeper.do("apps", theirs) == [a.pid, keeper.pid] or keeper.do("apps", theirs) == [keeper.pid, a.pid]
    a.do("close", copy)
    assert look().owners() == []
    assert keeper.do("apps", theirs) == [keeper.pid], "detached, though a descriptor is left"
    a.do("acquire", fd)
    assert look().owners() == [a.pid], "the calls still answer"
    a.do("close", fd)
    assert look().owners() == [a.pid], "but nothing counts down any more"


def test_another_program_gets_no_descriptor() -> None:
    a, keeper = Process(), Process()
    keeper.do("open", 0)
    a.do("acquire", a.do("open", 0))
    with contextlib.suppress(EOFError, ConnectionError):
        a.do("run_other_program")  # the link ends: it is close-on-exec as well
    deadline = time.monotonic() + 20  # the descriptors are closed one after the other
    while look().owners() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert look().owners() == []
    a.kill()


def test_an_inherited_descriptor_is_not_attached() -> None:
    a = Process()
    fd = a.do("open", 0)
    mine = a.do("claim", fd)
    a.do("write", mine, nc_index(0, 1), 2)
    child = Process(parent=a)
    before = look()
    child.do("close", fd)
    assert look() == before, "its close releases nothing"
    child.exit()
    child = Process(parent=a)
    child.do("claim", fd)
    assert sorted(look().owners()) == sorted([a.pid, child.pid]), "but it may own a slot"
    assert a.do("apps", fd) == [a.pid]
    child.kill()
    assert len(look().owners()) == 2, "which nobody gives back"
    assert look().roll_ups == before.roll_ups


def test_the_last_close_clears_without_roll_up() -> None:
    a = Process()
    fd = a.do("open", 0)
    a.do("acquire", fd)
    child = Process(parent=a)
    mine = child.do("claim", fd)
    child.do("fill", mine)
    a.kill()
    between, counted = look(), success(0)
    assert between.owners() == [child.pid], "its process has died, the open file lives on in the child"
    slot = between.slot_of(child.pid)
    child.do("close", fd)
    assert look() == between, "a mapping is a reference too"
    child.do("unmap", mine)
    after = look()
    assert after.owners() == []
    assert after.roll_ups == between.roll_ups
    assert success(0) == counted
    assert after.slots[slot].first == 0
    ticks = [s.tick for s in after.slots]
    assert ticks == sorted(ticks)
    assert ticks[0] > max(s.tick for s in between.slots)


def test_sixteen_processes_attach() -> None:
    crowd = [Process() for _ in range(16)]
    for process in crowd:
        process.do("open", 0)
    late = Process()
    refused(errno.EBUSY, late.do, "open", 0)
    assert late.do("open", 1), "the other device has room"
    crowd[3].do("open", 0)  # once more is no matter
    fd = crowd[0].do("open", 0)
    assert sorted(crowd[0].do("apps", fd)) == sorted(process.pid for process in crowd)
    assert len(crowd[0].do("apps", fd, 5)) == 5
    assert crowd[0].do("apps", fd, 0) == []
    crowd[9].kill()
    late.do("open", 0)
    assert late.pid in crowd[0].do("apps", fd)


def test_sixteen_slots_are_all() -> None:
    a = Process()
    fd = a.do("open", 0)
    crowd = [Process(parent=a) for _ in range(16)]
    for process in crowd:
        process.do("acquire", fd)
    assert len(look().owners()) == 16
    refused(errno.ENOMEM, a.do, "acquire", fd)
    assert crowd[4].do("acquire", fd)
    assert a.do("acquire", fd, crowd[4].pid)
    slot = look().slot_of(crowd[4].pid)
    crowd[4].do("release", fd)
    a.do("acquire", fd)
    assert look().slot_of(a.pid) == slot
    refused(errno.ENOMEM, crowd[4].do, "acquire", fd)


def test_the_slot_longest_released_is_taken_next() -> None:
    reload_module()
    a, b, other = Process(), Process(), Process()
    fd, theirs, elsewhere = a.do("open", 0), b.do("open", 0), other.do("open", 1)
    taken = []
    for _ in range(SLOTS_PER_DEVICE):
        a.do("acquire", fd)
        taken.append(look().slot_of(a.pid))
        a.do("release", fd)
        other.do("acquire", elsewhere)
        other.do("release", elsewhere)
    assert taken == list(range(SLOTS_PER_DEVICE)), "never-used ones first, from the lowest"
    assert [slot.tick for slot in look().slots] == list(range(1, 2 * SLOTS_PER_DEVICE, 2)), (
        "one counter for all devices"
    )
    a.do("acquire", fd)
    b.do("acquire", theirs)
    assert [look().slot_of(a.pid), look().slot_of(b.pid)] == [0, 1]


def test_writing_only_is_another_mode() -> None:
    a, keeper = Process(), Process()
    theirs = keeper.do("open", 0)
    fd = a.do("open", 0, os.O_WRONLY)
    for call in ("acquire", "release", "apps"):
        refused(errno.EPERM, a.do, call, fd)
    refused(errno.EACCES, a.do, "map", fd, keeper.do("acquire", theirs)[0])
    assert keeper.do("apps", theirs) == [keeper.pid]
    before = look()
    a.do("close", fd)
    assert look() == before


def test_anyone_may_open() -> None:
    a = Process()
    a.do("become_nobody")
    a.do("claim", a.do("open", 0))
    assert look().owners() == [a.pid]


def replay(name: str) -> None:
    """A golden trace: one process per caller, all with one inherited descriptor, started anew at each last close."""
    reload_module()
    golden = json.loads((GOLDEN / name).read_text())
    names = sorted({step["caller"] for step in golden["steps"]})
    callers: dict[int, Process] = {}

    def start() -> int:
        first = Process()
        fd = first.do("open", 0)
        callers.clear()
        callers.update({name: Process(parent=first) for name in names})
        callers[0] = first
        return fd

    def order(ticks: list[int]) -> list[int]:
        return [sorted({0, *ticks}).index(tick) for tick in ticks]

    fd = start()
    for at, step in enumerate(golden["steps"]):
        caller, before = callers[step["caller"]], look()
        pid = callers[step["pid"]].pid if step["pid"] else 0
        code = slot = 0
        if step["op"] == "last_close":
            for process in list(callers.values()):
                process.kill()
        else:
            try:
                answer = caller.do(step["op"], fd, pid)
                if step["op"] == "acquire":
                    slot = look().slot_of(pid or caller.pid)
                    if not pid:
                        mine = caller.do("map", fd, answer[0])
                        caller.do("write", mine, FIRST, step["caller"])
                        caller.do("unmap", mine)
            except OSError as error:
                code = error.errno or -1
        after = look()
        assert code == step["errno"], f"step {at}: {step['op']} gave {code}"
        if step["op"] == "acquire" and not code:
            assert slot == step["slot"], f"step {at}: slot {slot}"
        assert (after.roll_ups > before.roll_ups) == step["rolled_up"], f"step {at}: roll-up"
        expected = [(callers[pid].pid if pid else 0, first) for pid, _, first in step["table"]]
        assert [(s.pid, s.first) for s in after.slots] == expected, f"step {at}: table"
        assert order([s.tick for s in after.slots]) == order([s[1] for s in step["table"]]), f"step {at}: ticks"
        if step["op"] == "last_close":
            fd = start()


def test_golden_trace_a() -> None:
    replay("slots-a.json")


def test_golden_trace_b() -> None:
    replay("slots-b.json")


# --- Running them -----------------------------------------------------------------------------------------------------


def main() -> int:
    Process.listener.bind("\0nds-selftest")
    Process.listener.listen(64)
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    chosen = sys.argv[1:] or list(tests)
    failed = []
    for name in chosen:
        began = time.monotonic()
        try:
            tests[name]()
            print(f"ok     {name} ({time.monotonic() - began:.1f} s)")
        except Exception:
            failed.append(name)
            print(f"FAILED {name}\n{traceback.format_exc()}")
        for process in list(Process.everyone):
            process.kill()
    print(f"{len(chosen) - len(failed)} of {len(chosen)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
