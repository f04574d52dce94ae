"""The command: what it says where it can't begin, that it ends at once, and that an empty page says why."""

import json
import re
import signal
import socket
import stat
import time

import pytest

from tests.cli.helpers import Producer, one_line, probe, run, start
from tests.web.helpers import Listener, get, one_who_never_reads


def address(process):
    """(port, the rest of the line) of the address that it prints."""
    line = process.stderr.readline()
    found = re.fullmatch(r"neuron-ds: http://[^/]*:(\d+)/(.*)\n", line)
    assert found, line + process.stderr.read() if process.poll() is not None else line
    return int(found[1]), found[2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_at_once_though_clients_are_connected(tmp_path, number):
    directory = tmp_path / "ds"
    with Producer(directory, tag="t"), start("web", "--listen", "127.0.0.1:0", directory=directory) as process:
        port, rest = address(process)
        assert rest == ""
        with Listener(port) as client, one_who_never_reads(port):
            assert client.next("frame")["empty"] == ""
            began = time.monotonic()
            process.send_signal(number)
            out, err = process.communicate(timeout=20)
            assert time.monotonic() - began < 5
    assert (process.returncode, out, err) == (0, "", "")


def test_without_a_device_the_page_says_why(tmp_path):
    with start("web", "--listen", "127.0.0.1:0", directory=tmp_path / "ds") as process:
        port, _ = address(process)
        with Listener(port) as client:
            assert client.next("frame")["empty"]
        assert get(port, "/api/report")[0] == 200
        assert get(port, "/metrics")[0] == 200
        process.terminate()
        assert process.communicate(timeout=20) == ("", "")


def test_a_recording_in_place_of_devices(tmp_path):
    file = tmp_path / "recorded.mcap"
    with Producer(tmp_path / "ds", tag="recorded") as producer:
        done = run("record", "-o", file, "--seconds", "1", directory=tmp_path / "ds")
        assert done.returncode == 0, done.stderr
    arguments = ("web", "--listen", "127.0.0.1:0", "--from", file, "--loop")
    with start(*arguments, directory=tmp_path / "nothing") as process:
        port, _ = address(process)
        with Listener(port) as client:
            rows = client.next("frame")["processes"]
        assert [(row[1], row[3]) for row in rows] == [(producer.pid, "recorded")]
        assert json.loads(get(port, "/api/report")[2])["neuron_runtime_data"][0]["pid"] == producer.pid
        process.terminate()
        assert process.communicate(timeout=20) == ("", "")


def test_off_loopback_there_is_a_token(tmp_path):
    probe(tmp_path / "ds")
    with start("web", "--listen", "0.0.0.0:0", directory=tmp_path / "ds") as process:
        port, rest = address(process)
        token = re.fullmatch(r"\?token=([\w-]{32})", rest)[1]
        assert get(port, "/")[0] == 401
        assert get(port, "/", Authorization=f"Bearer {token}")[0] == 200
        process.terminate()
        process.communicate(timeout=20)


def test_a_token_of_a_file(tmp_path):
    probe(tmp_path / "ds")
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(stat.S_IRUSR)
    with start("web", "--listen", "127.0.0.1:0", "--token-file", file, directory=tmp_path / "ds") as process:
        port, rest = address(process)
        assert rest == ""  # who wrote the file knows it; no need for it to stand in a log
        assert get(port, "/")[0] == 401
        assert get(port, "/?token=0123456789abcdef")[0] == 303
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize("text", ["", "short\n", "with a space in it\n", "öööööööööööööööööö\n"])
def test_a_token_that_is_none(tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    done = run("web", "--listen", "127.0.0.1:0", "--token-file", file, directory=tmp_path / "ds")
    assert done.returncode == 2
    assert f"{file}: a token has at least 16 characters" in one_line(done)


def test_an_occupied_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("web", "--listen", f"127.0.0.1:{port}", directory=tmp_path / "ds")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}: Address already in use" in one_line(done)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "nowhere"), "no HOST:PORT"),
        (("--period", "0"), "'0' is no finite number"),
        (("--token-file", "/nonexistent/token"), "/nonexistent/token: No such file"),
    ],
)
def test_what_cannot_be_used(tmp_path, arguments, said):
    done = run("web", *arguments, directory=tmp_path / "ds")
    assert done.returncode == 2
    assert said in one_line(done)


def test_the_extra_is_named_where_it_lacks(tmp_path):
    (tmp_path / "starlette.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'starlette'\", name='starlette')"
    )
    done = run("web", "--listen", "127.0.0.1:0", directory=tmp_path / "ds", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert one_line(done) == "neuron-ds: starlette is not installed; pip install 'neuron-datastore[web]'\n"


def test_the_port_is_free_again_at_once(tmp_path):
    """A server that restarts finds its clients' old connections in the way of nobody."""
    probe(tmp_path / "ds")
    port = 0
    for _ in range(2):
        with start("web", "--listen", f"127.0.0.1:{port}", directory=tmp_path / "ds") as process:
            port, _ = address(process)
            with Listener(port) as client:
                assert json.dumps(client.next("frame"))
                process.terminate()
                assert process.communicate(timeout=20) == ("", "")
