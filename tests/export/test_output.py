"""The file of an export is there as a whole or not at all, and the command says why in one line."""

import errno
import gzip
import os
import resource
import signal
import stat
import subprocess
import sys
import time

import pytest

from neuron_ds.errors import NoSpace, SystemFailure
from neuron_ds.export import writing
from tests.cli.helpers import environment, run, start


def test_the_file_has_its_name_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a.csv"
    with writing(str(path)) as file:
        file.write(b"half")
        assert not path.exists()
        file.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, BrokenPipeError])
def test_an_error_leaves_nothing_behind_and_the_old_file_as_it_was(tmp_path, kind):
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail():
        with writing(str(path), force=True) as file:
            file.write(b"x" * 1_000_000)
            raise kind

    with pytest.raises(kind):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_file_that_exists_is_kept_unless_forced(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(SystemFailure, match="exists already; --force replaces it"), writing(str(path)):
        pass
    with writing(str(path), force=True) as file:
        file.write(b"new")
    assert path.read_text() == "new"


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "a")
    with writing(str(tmp_path / "link"), force=True) as file:
        file.write(b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "a").read_bytes() == b"x"


@pytest.mark.parametrize("where", ["", "missing/a"])
def test_where_nothing_can_be_written_the_path_is_named(tmp_path, where):
    with pytest.raises(SystemFailure) as e, writing(f"{tmp_path}/{where}"):
        pass
    assert e.value.path == f"{tmp_path}/{where}"


@pytest.mark.parametrize("compress", [False, True])
def test_a_full_disk_leaves_nothing_behind(tmp_path, compress):
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill():
        with writing(str(tmp_path / "a"), compress=compress) as file:
            for _ in range(20):
                file.write(os.urandom(100_000))

    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(NoSpace, match="nothing of it was kept"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == []


def test_what_is_no_file_is_written_to_as_it_is():
    with pytest.raises(NoSpace), writing("/dev/full") as file:
        file.write(b"x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    with writing("/dev/null") as file:
        file.write(b"x")


def test_compressed_bytes_are_the_same_every_time(tmp_path):
    for name in "ab":
        with writing(str(tmp_path / name), compress=True) as file:
            file.write(b"text")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert gzip.decompress((tmp_path / "a").read_bytes()) == b"text"


# --- The command


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.json", "a.json.gz", "a.perfetto-trace"])
def test_the_command_writes_each_form(made, tmp_path, name):
    done = run("export", made.path, "-o", tmp_path / name, directory=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "13 looks" in done.stderr
    data = (tmp_path / name).read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    assert data.startswith({"parquet": b"PAR1", "csv": b"time,", "json": b"{"}.get(name.split(".")[1], b"\n"))


def test_csv_on_standard_output_is_data_only(made, tmp_path):
    done = run("export", made.path, "-o", "-", "--since", "1", "--until", "-4.5", "--changes", directory=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split(",")[1] for line in done.stdout.splitlines()[1:]} == {"1001000000000", "1001500000000"}


def test_a_reader_that_goes_away_ends_it_quietly(made, tmp_path):
    with start("export", made.path, "-o", "-", directory=tmp_path) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.parametrize("command", ["export", "report"])
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("missing.mcap", "-o", "a.csv"), "missing.mcap: No such file or directory"),
        (("a.mcap", "-o", "there.csv"), "there.csv: exists already; --force replaces it"),
        (("a.mcap", "-o", "no/a.csv"), "no/a.csv: can't be written"),
        (("a.mcap", "-o", "/dev/full", "--force"), "/dev/full: no room for it"),
        (("there.csv", "-o", "a.csv"), "there.csv: this is no recording"),
        (("a.mcap", "-o", "a.csv", "--since", "5m"), "nothing of it lies there; it is 6.0 s long"),
        (("a.mcap", "-o", "a.csv", "--since", "x"), "--since: 'x' is no time"),
        (("a.mcap", "-o", "a.csv", "--every", "x"), "'x' is no duration"),
    ],
)
def test_what_goes_wrong_is_one_line(made, tmp_path, command, args, said):
    os.symlink(made.path, tmp_path / "a.mcap")
    (tmp_path / "there.csv").write_text("old")
    more = ("--format", "csv") if command == "export" else ()
    done = run(command, *args, *more, directory=tmp_path, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["a.mcap", "there.csv"]


def test_a_form_that_nobody_said(made, tmp_path):
    done = run("export", made.path, "-o", tmp_path / "a.xyz", directory=tmp_path)
    assert done.returncode == 2
    assert "say it with --format parquet|csv|trace|perfetto" in done.stderr
    done = run("export", made.path, "-o", tmp_path / "a.json", "--changes", directory=tmp_path)
    assert done.returncode == 2
    assert "--changes is for parquet and csv" in done.stderr


def test_a_recording_that_is_cut_short_gives_what_is_whole(made, tmp_path):
    with open(made.path, "rb") as file:
        data = file.read()
    (tmp_path / "a.mcap").write_bytes(data[: len(data) // 3])
    done = run("export", "a.mcap", "-o", "a.csv", directory=tmp_path, cwd=tmp_path)
    assert done.returncode == 0
    assert "cut short" in done.stderr
    times = {line.split(",")[1] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]}
    assert 0 < len(times) < 13


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(made, tmp_path, number):
    fifo = tmp_path / "slow.mcap"
    os.symlink(made.path, fifo)
    # A step of the export waits until the test has sent its signal.
    code = (
        "import sys, time\n"
        "from neuron_ds.export import forms\n"
        "def slow(steps, sink):\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "forms.write_trace = slow\n"
        "from neuron_ds.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "export", str(fifo), "-o", str(tmp_path / "a.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(tmp_path)) as process:
        assert process.stdout.readline() == b"writing\n"
        assert len(os.listdir(tmp_path)) == 2
        process.send_signal(number)
        assert process.wait(20) == 130
    assert os.listdir(tmp_path) == ["slow.mcap"]


def test_progress_is_for_terminals(made, tmp_path):
    import pty

    master, slave = pty.openpty()
    try:
        done = run("export", made.path, "-o", tmp_path / "a.csv", directory=tmp_path, stderr=slave)
        assert done.returncode == 0
        deadline, said = time.monotonic() + 20, b""
        while b"rows" not in said and time.monotonic() < deadline:
            said += os.read(master, 4096)
    finally:
        os.close(master)
        os.close(slave)
    assert b"%, " in said
    assert said.count(b"\n") == 1


def test_errno_is_kept(tmp_path):
    with pytest.raises(SystemFailure) as e, writing(f"{tmp_path}/missing/a"):
        pass
    assert e.value.errno == errno.ENOENT
