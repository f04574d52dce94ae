"""Whatever happens to a file or its recorder: what is whole is read, and what isn't is said."""

import errno
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

from neuron_ds.errors import FormatError, NeuronDSError, NoSpace, SystemFailure
from neuron_ds.record import Recorder, Recording
from neuron_ds.record.container import FileSink
from tests.cli.helpers import environment
from tests.record.conftest import Clock, play_some, workload

TICKS = 4200


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(bytes of a recording with several chunks and keyframes, the slab at each tick's time)."""
    from neuron_ds import publish
    from neuron_ds.driver.software import SoftwareDriver

    folder = tmp_path_factory.mktemp("whole")
    driver = SoftwareDriver(f"{folder}/ds")
    sink, events = FileSink(f"{folder}/a.mcap"), workload(rate=200)
    slabs = {}
    with (
        publish(0, driver=driver) as producer,
        Recorder(sink, driver, rate_hz=1000, keyframe_s=2, now_ns=Clock()) as recorder,
    ):
        for _ in range(TICKS):
            play_some(producer, events, 1)
            recorder.tick()
            slabs[recorder.last_us * 1000] = recorder.raw(0)
        recorder.finish()
    sink.close()
    with open(f"{folder}/a.mcap", "rb") as file:
        return file.read(), slabs


def read(path, data, slabs) -> tuple[int, tuple[str, ...]]:
    """(how many ticks can be read, what is said of the rest): each that can be read is right."""
    path.write_bytes(data)
    with Recording(str(path)) as recording:
        count = 0
        for sample in recording.samples():
            assert bytes(sample.processes[0].snapshot.raw) == slabs[sample.time_ns]
            count += 1
        return count, recording.damage


def test_the_whole_file(tmp_path, whole):
    count, damage = read(tmp_path / "a", *whole)
    assert (count, damage) == (TICKS, ())


def chunks(data, tmp_path):
    path = tmp_path / "chunks"
    path.write_bytes(data)
    with Recording(str(path)) as recording:
        return recording._file.spans


def test_cut_at_every_kind_of_place(tmp_path, whole):
    data, slabs = whole
    spans = chunks(data, tmp_path)
    ends = [s.offset + s.size for s in spans]
    places = {e + d for e in ends for d in (-20, -1, 0, 1, 8, 9, 30)} | {s.offset + s.size // 2 for s in spans}
    places |= {len(data) - n for n in (1, 8, 20, 60, 200)}
    seen = {}
    for place in sorted(p for p in places if ends[0] <= p < len(data)):
        count, damage = read(tmp_path / "cut", data[:place], slabs)
        seen[place] = count
        assert damage or place > ends[-1], place
        assert "keyframe" not in "".join(damage)
    assert sorted(seen.values()) == list(seen.values()), "the more there is, the more is read"
    assert seen[ends[-1]] == TICKS, "a file without its index has all ticks"
    assert 900 < seen[ends[0]] < 1200


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 40, 300])
def test_nothing_whole_is_a_clear_error(tmp_path, whole, size):
    with pytest.raises(FormatError, match="this is no recording|nothing can be read of it"):
        read(tmp_path / "cut", whole[0][:size], whole[1])


def test_other_files_are_no_recordings(tmp_path):
    for data in (b"hello", bytes(1000), os.urandom(5000), b"\x89MCAP0\r\n" + os.urandom(3000)):
        with pytest.raises(FormatError):
            read(tmp_path / "other", data, {})
    with pytest.raises(FileNotFoundError):
        Recording(str(tmp_path / "absent"))


def test_a_damaged_chunk_costs_what_is_up_to_the_next_keyframe(tmp_path, whole):
    data, slabs = whole
    spans = chunks(data, tmp_path)
    for hurt in range(len(spans)):
        broken = bytearray(data)
        at = spans[hurt].offset + spans[hurt].size // 2
        broken[at : at + 4] = bytes(b ^ 0xFF for b in broken[at : at + 4])
        count, damage = read(tmp_path / "hurt", bytes(broken), slabs)
        assert any("damaged" in d for d in damage)
        assert TICKS - 2100 <= count < TICKS


def test_a_damaged_head_is_passed_by(tmp_path, whole):
    data, slabs = whole
    spans = chunks(data, tmp_path)
    for field in range(9):  # of the code and the length
        broken = bytearray(data)
        broken[spans[1].offset + field] ^= 0x55
        count, damage = read(tmp_path / "hurt", bytes(broken), slabs)
        assert damage
        assert count >= TICKS - 2100


def test_flipped_bytes_anywhere(tmp_path, whole):
    """Never an exception of another kind, never a wrong slab."""
    data, slabs = whole
    chance = random.Random(11)
    read_at_all = 0
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 1, 3, 20))):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            read(tmp_path / "hurt", bytes(broken), slabs)
            read_at_all += 1
        except FormatError:
            pass
    assert read_at_all > 40


def test_a_file_that_still_grows(tmp_path, taping, producer):
    tape = taping(now_ns=Clock())
    for _ in range(2500):
        tape.tick()
    tape.sink.flush()
    deadline = time.monotonic() + 20
    while True:  # the disk's thread may have some of it still
        with Recording(tape.path) as recording:
            assert any("still writes" in d or "cut short" in d for d in recording.damage)
            count = sum(1 for _ in recording.moments())
        if count > 2000 or time.monotonic() > deadline:
            break
    assert count > 2000


def start_recording(directory, path, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "neuron_ds", "record", "--rate", "500", "-o", str(path), *options],
        env=environment(directory),
        stderr=subprocess.PIPE,
        text=True,
    )


def size_reaches(path, size, process) -> None:
    deadline = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size >= size):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_kill_9_loses_at_most_the_open_chunk(tmp_path, root, producer):
    chance = random.Random(5)
    for turn in range(3):
        path = tmp_path / f"killed-{turn}.mcap"
        with start_recording(root, path) as recorder:
            size_reaches(path, 400, recorder)
            time.sleep(chance.uniform(0.2, 1.6))
            killed_ns = time.monotonic_ns()
            recorder.send_signal(signal.SIGKILL)
            recorder.wait(10)
        with Recording(str(path)) as recording:
            assert recording.damage
            assert sum(1 for _ in recording.samples()) > 200
            assert killed_ns - recording.end_ns < 2.5e9
            assert killed_ns > recording.end_ns


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(tmp_path, root, producer, number):
    path = tmp_path / "a.mcap"
    with start_recording(root, path) as recorder:
        size_reaches(path, 400, recorder)
        recorder.send_signal(number)
        assert recorder.wait(20) == 0
        said = recorder.stderr.read()
    assert "looks" in said
    assert said.count("\n") == 1
    with Recording(str(path)) as recording:
        assert recording.damage == ()


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_what_is_whole(tmp_path, root, producer):
    path = tmp_path / "a.mcap"

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30000, 30000))

    command = [sys.executable, "-m", "neuron_ds", "record", "--rate", "1000", "-o", str(path), "--seconds", "60"]
    with subprocess.Popen(
        command, env=environment(root), stderr=subprocess.PIPE, text=True, preexec_fn=little_room
    ) as recorder:
        while recorder.poll() is None:
            for i in range(200):
                producer.nd.counter(7).set(i * 0x123456789ABCDEF)
            time.sleep(0.001)
        said = recorder.stderr.read()
    assert recorder.returncode == 2
    assert said.count("\n") == 1
    assert "no room for more; what is whole stays readable" in said
    with Recording(str(path)) as recording:
        assert sum(1 for _ in recording.samples()) > 300


def test_a_device_that_is_always_full(root, driver, producer):
    sink = FileSink("/dev/full", force=True)
    with Recorder(sink, driver, rate_hz=1000, now_ns=Clock()) as recorder:
        deadline = time.monotonic() + 20

        def tick_on() -> None:
            while time.monotonic() < deadline:
                recorder.tick()

        with pytest.raises(NoSpace) as caught:
            tick_on()
    assert caught.value.errno == errno.ENOSPC
    sink.abandon()


def test_files_that_cannot_be_made(tmp_path):
    (tmp_path / "there").write_bytes(b"x")
    with pytest.raises(SystemFailure, match="exists already; --force"):
        FileSink(str(tmp_path / "there"))
    assert (tmp_path / "there").read_bytes() == b"x"
    with pytest.raises(NeuronDSError, match="can't be made"):
        FileSink(str(tmp_path / "absent" / "a.mcap"))
    FileSink(str(tmp_path / "there"), force=True).close()
    assert (tmp_path / "there").read_bytes().startswith(b"\x89MCAP")


@pytest.mark.parametrize("compression", ["lz4", "none", "zstd"])
def test_compressions(tmp_path, driver, producer, compression):
    path = str(tmp_path / "a.mcap")
    sink = FileSink(path, compression=compression)
    with Recorder(sink, driver, rate_hz=1000) as recorder:
        for _ in range(50):
            recorder.tick()
        recorder.finish()
        raw = recorder.raw(0)
    sink.close()
    with Recording(path) as recording:
        *_, last = recording.samples()
        assert bytes(last.processes[0].snapshot.raw) == raw
