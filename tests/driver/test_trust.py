"""Which directories of the software driver are trusted, by whom, and what happens when they go; several of them."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from neuron_ds import datastore
from neuron_ds.driver import directory as d
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.errors import (
    AccessDenied,
    AmbiguousPid,
    BadValue,
    DirectoryGone,
    NoDevice,
    NoSlab,
    ProducerGone,
    UnsafeDirectory,
)
from tests.devices import USES, files_of, mode, publish_and_wait
from tests.processes import Child, Talk, as_root, become, outcome, result_of

NOBODY, STRANGER, GROUP = 65534, 54321, 54399


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
