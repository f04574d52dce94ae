"""The software driver's directories: how devices are made, whom to trust, and what happens when they go."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import time

import pytest

from neuron_ds import datastore, layout
from neuron_ds.driver import directory as d
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    AccessDenied,
    AmbiguousPid,
    BadValue,
    DirectoryGone,
    LayoutMismatch,
    NeuronDSError,
    NoDevice,
    NoSlab,
    ProducerGone,
    UnsafeDirectory,
)
from tests.devices import publish_and_wait, put_word
from tests.processes import Child, Program, Talk, outcome, result_of, unshare

NOBODY, STRANGER, GROUP = 65534, 54321, 54399

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def become(uid: int, groups: tuple[int, ...] = ()) -> None:
    os.setgroups(groups)
    os.setgid(uid)
    os.setuid(uid)


def entries(root: str) -> list[str]:
    return sorted(os.listdir(root))


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def files_of(root: str) -> list[str]:
    return [f"{root}/neuron0/{name}" for name in d.FILE_SIZES]


# --- Properties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "cores", "memory", "logical_config", "logical_cores"),
    [("trn1", 2, 32 << 30, 1, 2), ("inf2", 2, 32 << 30, 1, 2), ("trn2", 8, 96 << 30, 2, 4)],
)
def test_presets(driver, root, type, cores, memory, logical_config, logical_cores):
    made = driver.probe(3, type=type)
    assert made == driver.properties(3)
    assert (made.type, made.cores, made.memory_bytes, made.logical_config) == (type, cores, memory, logical_config)
    assert (made.device, made.name, made.logical_cores) == (3, f"{type}-3", logical_cores)
    assert made.path == f"{root}/neuron3"


def test_the_first_publish_makes_device_0_a_trn2(driver):
    assert driver.devices() == []
    with datastore.publish(0, driver=driver) as producer:
        assert (producer.properties.type, producer.properties.cores) == ("trn2", 8)
    assert driver.devices() == [0]
    with pytest.raises(NoDevice, match="device 0 alone"):
        datastore.publish(1, driver=driver)


def test_departures_from_a_preset(driver):
    made = driver.probe(0, type="trn2", cores=16, memory_bytes=1 << 40, logical_config=1, name="größer")
    assert (made.cores, made.memory_bytes, made.logical_config, made.name) == (16, 1 << 40, 1, "größer")
    with datastore.publish(0, driver=driver) as producer:
        producer.core(15).counter(94).set(5)
        assert producer.snapshot().nc(15, 94) == 5
    assert driver.probe(1, type="trn2", cores=1).logical_config == 1
    assert driver.probe(2, type="trn1", logical_config=2).logical_cores == 1
    assert driver.probe(3, name="x" * 64).name == "x" * 64


def test_a_device_that_is_there_keeps_its_properties(driver):
    driver.probe(0, type="trn1")
    assert driver.probe(0, type="trn2").type == "trn1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"type": "h100"}, "'h100' is unknown; it is one of trn1, inf2, trn2"),
        ({"cores": 0}, "1 to 16 physical cores, not 0"),
        ({"cores": 17}, "1 to 16 physical cores, not 17"),
        ({"logical_config": 3}, "1 or 2 physical cores per logical core"),
        ({"logical_config": 0}, "1 or 2 physical cores per logical core"),
        ({"cores": 3, "logical_config": 2}, "divides the 3 cores"),
        ({"memory_bytes": -1}, "not -1 bytes"),
        ({"memory_bytes": 1 << 63}, "bytes"),
        ({"name": "x" * 65}, "65 bytes long; it holds 64"),
        ({"name": "é" * 33}, "66 bytes long; it holds 64"),
    ],
)
def test_bad_properties(driver, root, wrong, message):
    with pytest.raises(BadValue, match=message) as bad:
        driver.probe(0, **wrong)
    assert bad.value.errno == errno.EINVAL
    assert entries(root) == []


def test_64_devices_and_no_more(tmp_path):
    driver = SoftwareDriver(str(tmp_path / "d"))
    for device in range(layout.MAX_DEVICES):
        driver.probe(device, type="trn1")
    assert driver.devices() == list(range(layout.MAX_DEVICES))
    with datastore.publish(63, driver=driver) as producer:
        assert [o.device for o in driver.owners(63)] == [63]
        assert producer.snapshot().device == 63
    with pytest.raises(NeuronDSError, match="0 to 63"):
        driver.probe(64)


def test_what_else_lies_in_a_root_is_no_device(driver, root):
    driver.probe(7)
    for name in ("neuron", "neuron01", "neuron64", "neuron100", "neuronx", ".new-neuron1-1-aa", "xneuron1"):
        os.mkdir(f"{root}/{name}", 0o700)
    assert driver.devices() == [7]


# --- Made whole or not at all ---------------------------------------------------------------------------------------


def test_files_and_modes(driver, root):
    driver.probe(0)
    assert entries(root) == ["neuron0"]
    assert {name: os.stat(f"{root}/neuron0/{name}").st_size for name in entries(f"{root}/neuron0")} == d.FILE_SIZES
    assert [mode(p) for p in (root, f"{root}/neuron0", *files_of(root))] == [0o700, 0o700] + [0o600] * 4
    allocated = sum(os.stat(p).st_blocks * 512 for p in files_of(root))
    assert allocated >= d.DEVICE_BYTES, "memory that is not reserved now is a crash later"


def test_umask_does_not_open_or_close_anything(root):
    def work(talk: Talk) -> list[int]:
        os.umask(0o777)
        try:
            SoftwareDriver(root).probe(0)
        except AccessDenied:  # a user other than root locks itself out
            return []
        os.umask(0)
        SoftwareDriver(root + "-2").probe(0)
        return [mode(p) for p in (root + "-2", f"{root}-2/neuron0", *files_of(root + "-2"))]

    assert result_of(work) in ([0o700, 0o700] + [0o600] * 4, [])


FULL = """
import os, subprocess
from neuron_ds import datastore
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import NeuronDSError
mount = sys.argv[1]
os.mkdir(mount, 0o700)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", mount], check=True)
root = mount + "/devices"
for call in (lambda: SoftwareDriver(root).probe(0), lambda: datastore.publish(0, driver=SoftwareDriver(root))):
    try:
        call()
    except NeuronDSError as e:
        say(type(e).__name__, e.errno, str(e), os.listdir(root))
    else:
        say("nothing was raised")
subprocess.run(["mount", "-o", "remount,size=16m", mount], check=True)
with datastore.publish(0, driver=SoftwareDriver(root)) as producer:
    say(producer.slot)
"""


def test_a_full_file_system_is_an_error_with_the_size_and_leaves_nothing(root):
    with Program(FULL, root, wrapper=unshare("--mount")) as program:
        for _ in range(2):
            name, code, message, left = program.expect()
            assert (name, code, left) == ("NoSpace", errno.ENOSPC, [])
            assert f"needs {d.DEVICE_BYTES:,} bytes" in message
            assert "/dev/shm" in message
            assert f"{root}/devices/neuron0" in message
        assert program.expect() == 0  # and with room it works, in the same process


def test_many_processes_probe_one_device_at_once(root, driver):
    def work(talk: Talk) -> None:
        own = SoftwareDriver(root)
        talk.say("ready")
        talk.hear()
        producer = datastore.publish(0, driver=own)
        talk.say([producer.slot, os.stat(f"{root}/neuron0").st_ino])
        talk.hear()

    children = [Child(work) for _ in range(layout.SLOTS_PER_DEVICE)]
    try:
        for child in children:
            child.expect()
        for child in children:
            child.tell("go")
        answers = [child.expect() for child in children]
        assert sorted(slot for slot, _ in answers) == list(range(layout.SLOTS_PER_DEVICE))
        assert {inode for _, inode in answers} == {os.stat(f"{root}/neuron0").st_ino}
        assert entries(root) == ["neuron0"]
        assert sorted(o.pid for o in driver.owners(0)) == sorted(child.pid for child in children)
    finally:
        for child in children:
            child.close()


def probe_and_die(talk: Talk, root: str, call: str, number: int, end: signal.Signals) -> None:
    """Probe; at the n-th use of this system call, killed or stopped."""
    real, used = getattr(os, call), 0

    def instead(*args, **kwargs):
        nonlocal used
        used += 1
        if used == number:
            os.kill(os.getpid(), end)
        return real(*args, **kwargs)

    setattr(os, call, instead)
    talk.say(outcome(lambda: SoftwareDriver(root).probe(0)))


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("mkdir", 2),
        ("posix_fallocate", 1),
        ("posix_fallocate", 2),
        ("posix_fallocate", 3),
        ("pwrite", 1),
        ("rename", 1),
    ],
)
def test_killed_while_probing(root, driver, call, number):
    with Child(probe_and_die, root, call, number, signal.SIGKILL) as child:
        assert child.wait() == -signal.SIGKILL
    assert driver.devices() == []
    with pytest.raises(NoDevice):
        driver.properties(0)
    left = entries(root)
    assert all(name.startswith(".new-neuron0-") for name in left)
    assert len(left) == (call != "mkdir")
    driver.probe(0)
    assert entries(root) == [*left, "neuron0"], "what is fresh may still be somebody's work"
    for name in left:
        os.utime(f"{root}/{name}", (time.time() - 3600,) * 2)
    driver.probe(1)
    assert entries(root) == ["neuron0", "neuron1"]


# --- Tables of another kind -----------------------------------------------------------------------------------------


@pytest.fixture
def device0(root) -> str:
    """A device that was made by another process, so that this one knows nothing of it."""
    assert result_of(lambda talk: SoftwareDriver(root).probe(0).type) == "trn2"
    return f"{root}/neuron0"


USES = {
    "properties": lambda driver: driver.properties(0),
    "publish": lambda driver: datastore.publish(0, driver=driver),
    "attach": lambda driver: datastore.attach(1, driver=driver),
    "owners": lambda driver: driver.owners(0),
    "totals": lambda driver: driver.totals(0),
}


@pytest.mark.parametrize("use", USES)
def test_another_version_is_refused_and_both_are_named(driver, device0, use):
    put_word(f"{device0}/{d.TABLE}", t.W_VERSION, 7)
    with pytest.raises(LayoutMismatch, match=r"version 7, this driver knows version 1.*remove the directory") as other:
        USES[use](driver)
    assert (other.value.errno, other.value.path) == (errno.EPROTO, device0)


# --- Whom to trust --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("path", ["{}-link", "{}-link/", "{}-link/.", "{}-link//"])
def test_a_root_that_is_a_link_is_refused(root, device0, use, path):
    os.symlink(root, f"{root}-link")
    with pytest.raises(UnsafeDirectory, match="symbolic link") as unsafe:
        USES[use](SoftwareDriver(path.format(root)))
    assert unsafe.value.errno == errno.EACCES


def test_a_link_is_refused_also_where_its_target_is_in_use_already(root, driver):
    os.symlink(root, f"{root}-link")
    with datastore.publish(0, driver=driver):
        for use in USES.values():
            with pytest.raises(UnsafeDirectory):
                use(SoftwareDriver(f"{root}-link"))


@pytest.mark.parametrize("use", USES)
def test_a_device_that_is_a_link_is_refused(driver, device0, use):
    os.rename(device0, f"{device0}-real")
    os.symlink(f"{device0}-real", device0)
    with pytest.raises(UnsafeDirectory, match="symbolic link"):
        USES[use](driver)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", d.FILE_SIZES)
def test_a_file_that_is_a_link_is_refused(driver, device0, use, name):
    os.rename(f"{device0}/{name}", f"{device0}-real")
    os.symlink(f"{device0}-real", f"{device0}/{name}")
    with pytest.raises(UnsafeDirectory, match="symbolic link"):
        USES[use](driver)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("where", ["", "/neuron0"])
@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_what_group_or_others_can_write_is_refused(driver, root, device0, use, where, bits):
    os.chmod(root + where, bits)
    with pytest.raises(UnsafeDirectory, match="chmod go-w"):
        USES[use](driver)


def test_a_file_in_the_place_of_a_root_or_a_device(root, driver):
    open(root, "w").close()
    for use in USES.values():
        with pytest.raises(UnsafeDirectory, match="no directory"):
            use(driver)
    os.unlink(root)
    os.mkdir(root, 0o700)
    open(f"{root}/neuron0", "w").close()
    for use in USES.values():
        with pytest.raises(UnsafeDirectory, match="no directory"):
            use(driver)


@pytest.fixture
def foreign(root) -> Child:
    """A producer of another user, in a directory of that user's own that all may read."""
    parent = os.path.dirname(root)
    os.chmod(parent, 0o777)

    def work(talk: Talk) -> None:
        become(STRANGER)
        producer = datastore.publish(0, driver=SoftwareDriver(root), tag="foreign")
        os.chmod(root, 0o755)
        os.chmod(f"{root}/neuron0", 0o755)
        for path in files_of(root):
            os.chmod(path, 0o644)
        talk.say(producer.slot)
        talk.hear()

    with Child(work) as child:
        child.expect()
        yield child


@as_root
def test_a_root_of_another_user_is_for_readers_that_are_told_of_it(root, driver, foreign):
    # Told: by NEURON_DS_DIR. Root reads it as anyone else would.
    with datastore.attach(foreign.pid, driver=driver) as reader:
        assert reader.snapshot().tag == "foreign"
    with pytest.raises(UnsafeDirectory, match=f"belongs to uid {STRANGER}.*publish in a directory of your own"):
        datastore.publish(0, driver=driver)
    with pytest.raises(UnsafeDirectory, match="belongs to uid"):
        driver.probe(1)
    with pytest.raises(UnsafeDirectory, match="name it in NEURON_DS_DIR if you trust it"):
        d.open_root(root, produce=False, told=False)

    def as_nobody(talk: Talk) -> list[str]:
        become(NOBODY)
        with datastore.attach(foreign.pid, driver=driver) as reader:
            tag = reader.snapshot().tag
        return [
            tag,
            outcome(lambda: datastore.publish(0, driver=driver)),
            outcome(lambda: d.open_root(root, produce=False, told=False)),
            outcome(lambda: d.open_root(root, produce=False, told=True)),
        ]

    assert result_of(as_nobody) == ["foreign", "UnsafeDirectory", "UnsafeDirectory", "ok"]


@as_root
def test_roots_own_directory_is_read_without_being_told(root, driver):
    os.chmod(os.path.dirname(root), 0o755)
    with datastore.publish(0, driver=driver):
        os.chmod(root, 0o755)

        def as_nobody(talk: Talk) -> str:
            become(NOBODY)
            return outcome(lambda: os.close(d.open_root(root, produce=False, told=False)))

        assert result_of(as_nobody) == "ok"


@as_root
def test_a_group_may_be_allowed_to_read(root, driver, monkeypatch):
    os.chmod(os.path.dirname(root), 0o755)
    monkeypatch.setenv("NEURON_DS_GROUP", str(GROUP))
    with datastore.publish(0, driver=driver, tag="shared") as producer:
        assert [mode(p) for p in (root, f"{root}/neuron0", *files_of(root))] == [0o750, 0o750] + [0o640] * 4
        assert {os.stat(p).st_gid for p in (root, f"{root}/neuron0", *files_of(root))} == {GROUP}
        parent = os.getpid()

        def member(talk: Talk) -> list[object]:
            become(STRANGER, (GROUP,))
            with datastore.attach(parent, driver=driver) as reader:
                tag, alive = reader.snapshot().tag, reader.alive
                write = outcome(lambda: reader.core(0).inference_count.add(1))
            writes = [outcome(lambda p=p: os.close(os.open(p, os.O_RDWR))) for p in files_of(root)]
            return [
                tag,
                alive,
                write,
                sorted(set(writes)),
                outcome(lambda: os.mkdir(f"{root}/neuron1")),
                outcome(lambda: datastore.publish(0, driver=driver)),
                [o.alive for o in driver.owners(0)],
                driver.totals(0).nc(0, 1),
            ]

        assert result_of(member) == [
            "shared", True, "ReadOnly", ["PermissionError"], "PermissionError", "UnsafeDirectory", [True], 0
        ]  # fmt: skip

        def outsider(talk: Talk) -> list[str]:
            become(STRANGER)
            return [outcome(lambda use=use: use(driver)) for use in USES.values()] + [outcome(driver.devices)]

        assert set(result_of(outsider)) == {"AccessDenied"}
        assert producer.snapshot().tag == "shared"


def test_a_group_that_does_not_exist(driver, root, monkeypatch):
    monkeypatch.setenv("NEURON_DS_GROUP", "no-such-group")
    with pytest.raises(BadValue, match="NEURON_DS_GROUP names no group: 'no-such-group'"):
        datastore.publish(0, driver=driver)
    assert not os.path.exists(root)


@as_root
def test_files_that_may_not_be_read_are_named(root, driver):
    os.chmod(os.path.dirname(root), 0o755)
    driver.probe(0)
    os.chmod(root, 0o755)
    os.chmod(f"{root}/neuron0", 0o755)

    def as_nobody(talk: Talk) -> list[str]:
        become(NOBODY)
        return [
            outcome(lambda: driver.properties(0)),
            outcome(lambda: datastore.attach(1, driver=SoftwareDriver(root))),
        ]

    assert result_of(as_nobody) == ["AccessDenied", "AccessDenied"]


@as_root
def test_a_directory_that_may_not_be_made(root):
    os.chmod(os.path.dirname(root), 0o755)

    def as_nobody(talk: Talk) -> list[object]:
        become(NOBODY)
        try:
            datastore.publish(0, driver=SoftwareDriver(root))
        except AccessDenied as e:
            return [e.errno, "set NEURON_DS_DIR" in str(e), root in str(e)]
        return []

    assert result_of(as_nobody) == [errno.EACCES, True, True]


# --- Deleted and replaced -------------------------------------------------------------------------------------------


def by_deletion(root: str) -> None:
    shutil.rmtree(f"{root}/neuron0")


def of_the_root(root: str) -> None:
    shutil.rmtree(root)


def by_replacement(root: str) -> None:
    os.rename(f"{root}/neuron0", f"{root}/was")
    assert result_of(lambda talk: SoftwareDriver(root).probe(0).type) == "trn2"


LOSSES = [by_deletion, of_the_root, by_replacement]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_producer_whose_directory_goes_is_told(root, driver, lose):
    producer = datastore.publish(0, driver=driver)
    counter = producer.core(0).inference_count
    lose(root)
    for use in (lambda: datastore.publish(0, driver=driver), lambda: driver.owners(0)):
        with pytest.raises(DirectoryGone, match="deleted or replaced.*close it and publish again") as gone:
            use()
        assert (gone.value.errno, gone.value.path) == (errno.ESTALE, f"{root}/neuron0")
    counter.add(1)  # no crash: the memory is still there
    assert producer.snapshot().tag == str(os.getpid())
    producer.close()
    with datastore.publish(0, driver=driver) as again:
        assert (again.slot, again.generation) == (0, 1)
        assert result_of(lambda talk: [o.pid for o in SoftwareDriver(root).owners(0)]) == [os.getpid()]


@pytest.mark.parametrize("lose", LOSSES)
def test_a_reader_whose_directory_goes_notices(root, driver, lose):
    with Child(publish_and_wait, root, "unseen") as child:
        child.expect()
        reader = datastore.attach(child.pid, driver=driver)
        lose(root)
        with pytest.raises((NoDevice, NoSlab)):
            datastore.attach(child.pid, driver=driver)
        assert reader.snapshot().tag == "unseen"  # still true, and still its producer's
        child.end()
        assert not reader.alive
        with pytest.raises(ProducerGone):
            reader.snapshot()
    with datastore.publish(0, driver=driver) as producer, datastore.attach(os.getpid(), driver=driver) as other:
        assert other.snapshot().nc(0, 28) == producer.core(0).counter(28).get() == 0
    reader.close()


def test_a_directory_that_is_moved_with_its_processes_is_the_same(root, driver):
    with datastore.publish(0, driver=driver) as producer:
        os.rename(root, f"{root}-moved")
        moved = SoftwareDriver(f"{root}-moved")
        assert datastore.publish(0, driver=moved).slot == producer.slot
        assert [o.pid for o in moved.owners(0)] == [os.getpid()]


# --- Several roots --------------------------------------------------------------------------------------------------


@pytest.fixture
def two(root):
    """Two directories, a producer in each, both in slot 0 of device 0."""
    with Child(publish_and_wait, root + "-a", "a") as a, Child(publish_and_wait, root + "-b", "b") as b:
        a.expect()
        b.expect()
        yield SoftwareDriver(f"{root}-a:{root}-b"), a, b


def test_a_reader_looks_in_several_directories(root, two):
    both, a, b = two
    assert [(o.pid, o.slot, o.path) for o in both.owners(0)] == [
        (a.pid, 0, f"{root}-a/neuron0"),
        (b.pid, 0, f"{root}-b/neuron0"),
    ]
    for child, tag in ((a, "a"), (b, "b")):
        for slot in (None, 0):
            with datastore.attach(child.pid, slot=slot, driver=both) as reader:
                assert (reader.pid, reader.snapshot().tag) == (child.pid, tag)
    with pytest.raises(AmbiguousPid, match="taken in several directories"):
        datastore.attach(slot=0, driver=both)
    b.end()
    assert (
        result_of(lambda talk: SoftwareDriver(f"{root}-b").release(SoftwareDriver(f"{root}-b").acquire(0)) or "ok")
        == "ok"
    )
    with datastore.attach(slot=0, driver=both) as reader:
        assert reader.snapshot().tag == "a"


def test_devices_of_all_directories_are_listed(root):
    SoftwareDriver(root + "-a").probe(0)
    SoftwareDriver(root + "-a").probe(2)
    SoftwareDriver(root + "-b").probe(1)
    SoftwareDriver(root + "-b").probe(2, type="trn1")
    both = SoftwareDriver(f"{root}-none:{root}-a:{root}-b")
    assert both.devices() == [0, 1, 2]
    assert (both.properties(1).path, both.properties(2).type) == (f"{root}-b/neuron1", "trn2")


def test_a_producer_uses_the_first_directory_alone(root):
    both = SoftwareDriver(f"{root}-a:{root}-b")
    with datastore.publish(0, driver=both):
        assert os.path.isdir(f"{root}-a/neuron0")
        assert not os.path.exists(f"{root}-b")


def test_one_bad_directory_does_not_hide_the_others(root, two):
    _, a, b = two
    os.chmod(f"{root}-a", 0o777)
    fresh = SoftwareDriver(f"{root}-a:{root}-b:{root}-a")
    assert fresh.devices() == [0]

    def look(talk: Talk) -> list[object]:
        return [
            [o.pid for o in fresh.owners(0)],
            outcome(lambda: fresh.attach(0, a.pid)),
            outcome(lambda: fresh.attach(0, b.pid)),
        ]

    assert result_of(look) == [[b.pid], "NoSlab", "ok"]
    with pytest.raises(UnsafeDirectory):
        SoftwareDriver(f"{root}-a").devices()


def test_the_environment_names_the_directory(root, monkeypatch):
    monkeypatch.setenv("NEURON_DS_DIR", root)
    with datastore.publish(0, driver=SoftwareDriver()):
        assert os.path.isdir(f"{root}/neuron0")
    monkeypatch.setenv("NEURON_DS_DIR", f"{root}-2:{root}")
    assert SoftwareDriver().roots() == [(f"{root}-2", True), (root, True)]
    monkeypatch.setenv("NEURON_DS_DIR", "")
    own, others = f"/dev/shm/neuron-ds-{os.geteuid()}", "/dev/shm/neuron-ds-0"
    assert [path for path, _ in SoftwareDriver().roots()] == list(dict.fromkeys((own, others)))
    assert not any(told for _, told in SoftwareDriver().roots())


def test_a_relative_directory_is_where_one_stands(root, monkeypatch):
    parent = os.path.dirname(root)
    monkeypatch.chdir(parent)
    relative = SoftwareDriver("devices")
    with datastore.publish(0, driver=relative) as producer:
        assert producer.properties.path == f"{root}/neuron0"
        monkeypatch.chdir("/")
        assert datastore.publish(0, driver=SoftwareDriver(root)).slot == producer.slot
        with pytest.raises(NoDevice):
            relative.owners(0)
