"""The stand-in for the device nodes keeps the rules of the driver, with real processes and real descriptors.

Knows the calls of the driver and what they must answer; knows nothing of the package above them.
"""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuron_ds import layout
from tests.standin import build as standin
from tests.standin.replay import ACQUIRE, PRIVATE, READ, SHARED, Process, Root, replay

HERE = Path(__file__).parent
DEVICES, CORES = 2, 4
FIRST = layout.nd_index(0)
BAD_ADDRESS = 8


def counter(core: int, name: str) -> int:
    return layout.nc_index(core, layout.NC_BY_NAME[name].index)


class World:
    """Fresh devices, and the process all agents of a test are forked from; it never opens a node itself."""

    def __init__(self, folder: Path, root: Process) -> None:
        library = standin.build()
        standin.make_folder(folder, DEVICES, CORES, library=library)
        self.folder, self.environment = folder, standin.environment(library, folder)
        self.root = root.fork()
        self.witness = self.process()
        self.watching = [self.witness.open(self.node(n), os.O_WRONLY | os.O_CLOEXEC) for n in range(DEVICES)]

    def node(self, device: int = 0) -> str:
        return str(self.folder / "dev" / f"neuron{device}")

    def process(self) -> Process:
        return self.root.fork()

    def producer(self) -> tuple[Process, int, int]:
        """A process, its descriptor, and where it has its slab."""
        process = self.process()
        fd = process.open(self.node())
        return process, fd, process.map(fd, *process.acquire(fd))

    def owners(self, device: int = 0) -> list[int]:
        return [slot[0] for slot in self.table(device)["slots"] if slot[0]]

    def table(self, device: int = 0) -> dict:
        """As seen by a process that isn't attached."""
        return self.witness.table(self.watching[device])

    def roll_ups(self) -> int:
        return self.table()["roll_ups"]

    def ticks(self, device: int = 0) -> list[int]:
        return [slot[1] for slot in self.table(device)["slots"]]

    def sysfs(self, name: str, device: int = 0) -> int:
        return int(self.witness.read_file(str(self.folder / "sysfs" / f"neuron{device}" / name)))

    def script(self, *arguments: str) -> dict:
        command = [sys.executable, str(HERE / "storm.py"), *arguments]
        environment = os.environ | self.environment
        run = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
        return json.loads(run.stdout)


@pytest.fixture(scope="module")
def preloaded() -> Iterator[tuple[Path, Root]]:
    """Where the folder will be, and a process that the library is loaded in."""
    # In memory: hundreds of small files are slow on a disk, and nothing is to outlive the tests.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="nds-standin-") as place:
        folder = Path(place) / "standin"
        with Root(standin.environment(standin.build(), folder)) as root:
            yield folder, root


@pytest.fixture
def world(preloaded: tuple[Path, Root]) -> Iterator[World]:
    """The folder made anew, as a driver that is loaded anew, and processes that end with the test."""
    folder, root = preloaded
    made = World(folder, root)
    yield made
    made.root.dismiss()
    shutil.rmtree(folder)


def refused(call, *arguments, **named) -> str:
    """The name of the error number a call fails with."""
    with pytest.raises(OSError) as failure:
        call(*arguments, **named)
    return errno.errorcode[failure.value.errno or 0]


# --- what it looks like


def test_a_node_is_a_character_device(world):
    p = world.process()
    for mode, size in (p.stat(world.node()), p.fstat(p.open(world.node()))):
        assert stat.S_ISCHR(mode)
        assert size == 0


def test_other_files_are_left_alone(world):
    p = world.process()
    fd = p.open(str(HERE / "standin.h"), os.O_RDONLY)
    mode, size = p.fstat(fd)
    assert stat.S_ISREG(mode)
    assert size == (HERE / "standin.h").stat().st_size
    assert refused(p.acquire, fd) == "ENOTTY"
    assert p.load(p.map(fd, 0, 4096, READ, PRIVATE), 0)
    p.close(fd)
    assert refused(p.close, fd) == "EBADF"
    assert refused(p.open, str(HERE / "nothing")) == "ENOENT"


def test_opening_to_truncate_keeps_the_slabs(world):
    p, _, address = world.producer()
    p.store(address, FIRST, 7)
    world.process().open(world.node(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    assert p.load(address, FIRST) == 7
    assert world.witness.stat(world.node())[1] == 0


def test_a_folder_made_anew_is_another_device(world):
    p, _, _ = world.producer()
    p.kill()
    shutil.rmtree(world.folder)
    standin.make_folder(world.folder, DEVICES, CORES, library=standin.build())
    p = world.process()
    fd = p.open(world.node())
    assert p.table(fd)["roll_ups"] == 0
    p.acquire(fd)
    assert p.apps(fd) == [p.pid]


# --- acquire, attach, release


def test_acquire_gives_a_zeroed_slab_and_again_the_same(world):
    p = world.process()
    fd = p.open(world.node())
    place = p.acquire(fd)
    assert place[1] == layout.SLAB_SIZE
    assert p.acquire(fd) == place
    assert p.is_zero(p.map(fd, *place))
    assert world.owners() == [p.pid]


def test_attach_finds_the_slab_of_another_process(world):
    p, _, address = world.producer()
    p.store(address, FIRST, 42)
    reader = world.process()
    fd = reader.open(world.node())
    assert reader.load(reader.map(fd, *reader.acquire(fd, p.pid), READ), FIRST) == 42
    assert refused(reader.acquire, fd, reader.pid) == "ENOENT"
    assert refused(reader.acquire, fd, -1) == "ENOENT"
    assert world.owners() == [p.pid]


def test_release_rolls_up_and_zeroes(world):
    p, fd, address = world.producer()
    p.store(address, FIRST, 42)
    p.release(fd)
    assert p.is_zero(address)
    assert world.owners() == []
    assert world.roll_ups() == 1
    assert world.ticks()[:2] == [1, 0]
    p.release(fd)
    assert world.roll_ups() == 1


def test_only_the_owner_releases(world):
    p, fd, _ = world.producer()
    other = world.process()
    other_fd = other.open(world.node())
    other.release(other_fd, p.pid)
    other.release(other_fd)
    assert world.owners() == [p.pid]
    p.release(fd, other.pid)
    assert world.owners() == [p.pid]
    p.release(fd, p.pid)
    assert world.owners() == []


def test_ticks_are_one_counter_for_all_devices(world):
    p = world.process()
    for device in (0, 1, 0):
        fd = p.open(world.node(device))
        p.acquire(fd)
        p.release(fd)
    # Slot 1 was never used, so it comes before slot 0.
    assert world.ticks(0)[:3] == [1, 3, 0]
    assert world.ticks(1)[:2] == [2, 0]


def test_no_slot_is_left_for_the_seventeenth_owner(world):
    opener = world.process()
    fd = opener.open(world.node())
    callers = [opener.fork() for _ in range(layout.SLOTS_PER_DEVICE + 1)]
    for caller in callers[:-1]:
        caller.acquire(fd)
    assert refused(callers[-1].acquire, fd) == "ENOMEM"
    callers[5].release(fd)
    callers[-1].acquire(fd)
    assert world.table()["slots"][5][0] == callers[-1].pid


@pytest.mark.parametrize("trace", ["a", "b"])
def test_golden_slot_traces(world, golden, trace):
    steps = golden.json(f"slots-{trace}")
    assert replay(world.root, world.node(), steps) == len(steps["steps"]) == 300


def test_a_trace_that_differs_is_told_by_its_step(world, golden):
    steps = golden.json("slots-a")
    step = next(i for i, s in enumerate(steps["steps"]) if s["rolled_up"])
    steps["steps"][step]["rolled_up"] = False
    with pytest.raises(AssertionError, match=f"^step {step} "):
        replay(world.root, world.node(), steps)


# --- mmap


def test_only_a_whole_slab_is_mapped(world):
    p, fd, _ = world.producer()
    offset, size = p.acquire(fd)
    for place in [(offset, size - 4096), (offset, 2 * size), (offset + 4096, size), (0, size), (offset - size, size)]:
        assert refused(p.map, fd, *place) == "EINVAL"
    assert refused(p.map, fd, offset, size, READ, PRIVATE) == "EINVAL"
    p.map(fd, offset + (layout.SLOTS_PER_DEVICE - 1) * size, size)
    assert refused(p.map, fd, offset + layout.SLOTS_PER_DEVICE * size, size) == "EINVAL"


def test_a_mapping_may_be_read_only(world):
    p, fd, address = world.producer()
    read_only = p.map(fd, *p.acquire(fd), READ, SHARED)
    p.store(address, FIRST, 3)
    assert p.load(read_only, FIRST) == 3
    with pytest.raises(EOFError):
        p.store(read_only, FIRST, 4)


def test_a_forked_child_has_no_mapping(world):
    p, _, address = world.producer()
    child = p.fork()
    with pytest.raises(EOFError):
        child.load(address, FIRST)
    assert p.load(address, FIRST) == 0


# --- attached processes


def test_the_seventeenth_process_is_refused(world):
    processes = [world.process() for _ in range(17)]
    fds = [p.open(world.node()) for p in processes[:-1]]
    assert refused(processes[-1].open, world.node()) == "EBUSY"
    processes[-1].open(world.node(1))
    assert processes[0].apps(fds[0]) == [p.pid for p in processes[:-1]]
    assert processes[0].apps(fds[0], 3) == [p.pid for p in processes[:3]]
    processes[0].open(world.node())  # one that is attached takes no second place
    processes[3].close(fds[3])
    processes[-1].open(world.node())


def test_a_monitor_is_listed_and_owns_nothing(world):
    p, fd, _ = world.producer()
    monitor = world.process()
    monitor.open(world.node())
    assert p.apps(fd) == [p.pid, monitor.pid]
    assert world.owners() == [p.pid]


def test_write_only_is_restricted(world):
    p = world.process()
    fd = p.open(world.node(), os.O_WRONLY)
    assert refused(p.acquire, fd) == "EPERM"
    assert refused(p.release, fd) == "EPERM"
    assert refused(p.apps, fd) == "EPERM"
    assert refused(p.ioctl, fd, 0x4E99, 0) == "ENOTTY"
    assert refused(p.map, fd, 0x10000000) == "EACCES"
    other, other_fd, _ = world.producer()
    assert other.apps(other_fd) == [other.pid]


# --- bad calls


def test_unknown_numbers_and_bad_addresses(world):
    p = world.process()
    fd = p.open(world.node())
    assert refused(p.ioctl, fd, ACQUIRE + 2, 0) == "ENOTTY"
    assert refused(p.ioctl, fd, 0x5401, 0) == "ENOTTY"  # is it a terminal?
    for address in (0, BAD_ADDRESS):
        assert refused(p.ioctl, fd, ACQUIRE, address) == "EFAULT"
    assert world.owners() == []
    assert refused(p.ioctl, -1, ACQUIRE, 0) == "EBADF"
    assert refused(p.ioctl, 999, ACQUIRE, 0) == "EBADF"


def test_an_answer_to_a_read_only_page_is_a_fault(world):
    p, fd, _ = world.producer()
    read_only = p.map(fd, *p.acquire(fd), READ)
    assert refused(p.ioctl, fd, ACQUIRE, read_only) == "EFAULT"


# --- close


def test_close_releases_and_detaches(world):
    p, fd, _ = world.producer()
    p.close(fd)
    assert world.owners() == []
    assert world.roll_ups() == 1
    assert refused(p.acquire, fd) == "EBADF"


def test_opens_are_counted(world):
    p, fd, _ = world.producer()
    second = p.open(world.node())
    p.close(second)
    assert world.owners() == [p.pid]
    p.close(fd)
    assert world.owners() == []


@pytest.mark.parametrize("way", ["dup", "dup_from", "dup2", "dup3"])
def test_closing_a_duplicate_releases(world, way):
    """The trap: the process has it open once, so any close is the last."""
    p, fd, address = world.producer()
    p.unmap(address)
    match way:
        case "dup":
            copy = p.dup(fd)
        case "dup_from":
            copy = p.dup_from(fd, 50)
        case _:
            p.dup2(fd, copy := 60, way == "dup2")
    assert world.owners() == [p.pid]
    p.close(copy)
    assert world.owners() == []
    assert world.roll_ups() == 1
    p.acquire(fd)  # the descriptor works still, but the process is attached no more
    assert p.apps(fd) == []
    p.close(fd)
    assert world.owners() == []  # ... by the last close
    assert world.roll_ups() == 1


@pytest.mark.parametrize("inheritable", [True, False], ids=["dup2", "dup3"])
def test_what_a_duplicate_replaces_is_closed(world, inheritable):
    p, fd, _ = world.producer()
    other = p.open(os.devnull)
    assert refused(p.dup2, 999, fd, inheritable) == "EBADF"
    assert world.owners() == [p.pid]
    p.dup2(other, fd, inheritable)
    assert world.owners() == []


def test_close_range_closes_nodes(world):
    p, fd, _ = world.producer()
    p.close_range(fd + 40, 1 << 20)
    assert world.owners() == [p.pid]
    p.close_range(fd, fd)
    assert world.owners() == []
    assert world.roll_ups() == 1


def test_an_inherited_descriptor_is_no_attachment(world):
    p, fd, _ = world.producer()
    child = p.fork()
    child.close(fd)
    assert world.owners() == [p.pid]
    child = p.fork()
    child.acquire(fd)  # it may own a slab
    assert world.owners() == [p.pid, child.pid]
    assert p.apps(fd) == [p.pid]
    child.leave()  # ... which its end doesn't give back
    assert world.owners() == [p.pid, child.pid]
    assert world.roll_ups() == 0


def test_programs_started_by_a_producer_take_nothing_from_it(world):
    p, fd, _ = world.producer()
    assert p.run("/bin/true") == 0
    assert world.owners() == [p.pid]
    assert p.apps(fd) == [p.pid]


def test_the_last_close_clears_without_rolling_up(world):
    opener = world.process()
    fd = opener.open(world.node())
    child = opener.fork()
    child.acquire(fd)
    opener.close(fd)
    assert world.owners() == [child.pid]  # the child still has it open
    child.close(fd)
    assert world.owners() == []
    assert world.roll_ups() == 0
    other = world.process()
    other_fd = other.open(world.node(1))
    other.acquire(other_fd)
    other.release(other_fd)
    assert world.ticks() == [*range(1, layout.SLOTS_PER_DEVICE + 1)]
    assert world.ticks(1)[:2] == [layout.SLOTS_PER_DEVICE + 1, 0]


def test_a_mapping_holds_the_device_open(world):
    opener = world.process()
    fd = opener.open(world.node())
    child = opener.fork()
    address = child.map(fd, *child.acquire(fd))
    child.store(address, FIRST, 5)
    opener.close(fd)
    child.close(fd)
    assert world.owners() == [child.pid]
    child.unmap(address)
    assert world.owners() == []


# --- death


@pytest.mark.parametrize("way", ["kill", "leave"])
def test_death_releases_and_rolls_up(world, way):
    p, _, address = world.producer()
    p.open(world.node())  # whatever the count
    p.store(address, counter(1, "infer_completed"), 9)
    getattr(p, way)()  # a zombie: nobody has waited for it
    assert world.sysfs("neuron_core1/stats/status/success/total") == 9
    assert world.owners() == []
    assert world.roll_ups() == 1


def test_a_stopped_process_lives(world):
    p, _, _ = world.producer()
    os.kill(p.pid, signal.SIGSTOP)
    assert world.owners() == [p.pid]
    os.kill(p.pid, signal.SIGCONT)


def test_the_last_death_is_a_last_close(world):
    opener = world.process()
    fd = opener.open(world.node())
    child = opener.fork()
    child.acquire(fd)
    opener.kill()
    assert world.owners() == [child.pid]
    child.kill()
    assert world.owners() == []
    assert world.roll_ups() == 0


def test_the_dead_make_room(world):
    processes = [world.process() for _ in range(16)]
    for p in processes:
        p.open(world.node())
    processes[7].kill()
    world.process().open(world.node())


def test_exec_closes_what_is_marked(world):
    p, _, _ = world.producer()
    kept = p.open(world.node(1))
    p.keep_over_exec(kept)
    p.acquire(kept)
    assert refused(p.exec, "/nothing") == "ENOENT"
    assert world.owners() == [p.pid]
    p.exec()
    assert world.owners() == []
    assert world.roll_ups() == 1
    assert world.owners(1) == p.apps(kept) == [p.pid]
    p.close(kept)
    assert world.owners(1) == []
    fd = p.open(world.node())
    p.acquire(fd)
    assert world.owners() == [p.pid]


def test_a_storm_of_kills_counts_everything_once(world):
    ledger = world.script(world.node(), "60")
    total = world.sysfs("neuron_core1/stats/status/success/total")
    assert ledger["done"] > 60
    assert ledger["done"] <= total <= ledger["intent"]
    assert world.owners() == []
    p, fd, address = world.producer()
    assert p.is_zero(address)
    assert p.apps(fd) == [p.pid]


def test_threads_of_a_process_count_as_one(world):
    assert world.script(world.node()) == {"failed": 0, "attached": 1, "slots": 1, "left": 0}
    assert world.owners() == []


# --- sysfs


def test_the_tree_says_what_the_device_is(world):
    assert world.sysfs("core_count") == CORES
    architecture = world.folder / "sysfs" / "neuron1" / "info" / "architecture"
    assert {f.name: f.read_text() for f in architecture.iterdir()} == {
        "arch_type": "NCv3\n",
        "device_name": "Trainium2\n",
        "instance_type": "Trn2\n",
    }
    assert len(list((world.folder / "sysfs" / "neuron1").glob("neuron_core*"))) == CORES


def test_totals_are_those_of_released_slabs(world):
    expected: dict[str, int] = {}
    for n in (1, 2):
        p, fd, address = world.producer()
        for core in range(CORES):
            for index in range(layout.NC_COUNTERS):
                p.store(address, layout.nc_index(core, index), n * (1000 * core + index + 1))
            for index, name, factor in standin.shown_counters():
                place = f"neuron_core{core}/stats/{name}"
                value = factor * n * (1000 * core + index + 1)
                expected[f"{place}/total"] = expected.get(f"{place}/total", 0) + value
                expected[f"{place}/present"] = value
        assert all(world.sysfs(name) == (0 if n == 1 else expected[name] // 3) for name in expected if "total" in name)
        p.release(fd)
        p.leave()
    assert len(expected) == 2 * CORES * 28
    assert {name: world.sysfs(name) for name in expected} == expected
    assert world.sysfs("neuron_core0/stats/other_info/flop_count/total", 1) == 0
