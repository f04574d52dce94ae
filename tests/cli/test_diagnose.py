"""The command ``diagnose`` over real processes: what it prints, when it ends, and what it says where nothing is."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from neuron_ds.diagnose import RULES, Thresholds
from tests.cli.helpers import Producer, probe, run, start

TROUBLE = "producer.core(2).hw_err_hbm_ue.add(1); producer.core(0).mem_usage_tensors_device.add(90 << 30)"
QUICK = ("--for", "1s", "--period", "0.2")


def test_findings_are_told_the_worst_first_and_exit_1(tmp_path: Path) -> None:
    with Producer(tmp_path, tag="bad\x1bone", then=TROUBLE) as producer:
        done = run("diagnose", *QUICK, directory=tmp_path)
    assert done.returncode == 1
    first, second = done.stdout.split("\n\n")
    assert first.startswith("CRITICAL  hardware-error  since ")
    assert f"(pid {producer.pid}) on device 0 core 2" in first
    assert "evidence: hw_err_hbm_ue 1" in first
    assert "  next: " in first
    assert second.startswith("WARNING  memory-near-full")
    assert "\x1b" not in done.stdout
    assert "2 findings in 6 looks, 1 s" in done.stderr


def test_as_json(tmp_path: Path) -> None:
    with Producer(tmp_path, tag="t", then=TROUBLE) as producer:
        done = run("diagnose", *QUICK, "--json", directory=tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert (report["looks"], report["devices"], report["processes"]) == (6, 1, 1)
    assert [f["kind"] for f in report["findings"]] == ["hardware-error", "memory-near-full"]
    finding = report["findings"][0]
    assert (finding["pid"], finding["core"], finding["severity"]) == (producer.pid, 2, "critical")
    assert finding["evidence"] == {"hw_err_hbm_ue": 1}
    assert finding["over"] is None
    assert finding["since"].endswith("Z")
    assert report["findings"][1]["evidence"]["used_bytes"] == 90 << 30


def test_nothing_wrong_is_exit_0(tmp_path: Path) -> None:
    with Producer(tmp_path):
        done = run("diagnose", *QUICK, directory=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no findings in 6 looks" in done.stderr


def test_no_device_is_exit_2_with_the_reason(tmp_path: Path) -> None:
    done = run("diagnose", directory=tmp_path / "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "does not exist" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_no_process_is_said(tmp_path: Path) -> None:
    probe(tmp_path / "devices")
    done = run("diagnose", *QUICK, directory=tmp_path / "devices")
    assert done.returncode == 0
    assert "no process publishes" in done.stderr


def test_a_threshold_can_be_set(tmp_path: Path) -> None:
    with Producer(tmp_path, then="producer.core(0).mem_usage_tensors_device.add(60 << 30)"):
        assert run("diagnose", *QUICK, directory=tmp_path).returncode == 0
        done = run("diagnose", *QUICK, "--set", "memory_full_share=0.5", directory=tmp_path)
        assert (done.returncode, "memory-near-full" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--set", "nonsense=3"), "no threshold is called 'nonsense'"),
        (("--set", "hung_after_s"), "write NAME=NUMBER"),
        (("--for", "soon"), "is no duration"),
        (("--for", "0.1s"), "is not within"),
        (("--period", "0"), "is no finite number"),
        (("--follow", "--from", "x.mcap"), "--follow is for what goes on"),
        (("--from", "/nonexistent.mcap"), "/nonexistent.mcap"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(tmp_path: Path, args: tuple[str, ...], says: str) -> None:
    done = run("diagnose", *args, directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_follow_tells_what_begins_and_ends_by_a_signal(tmp_path: Path) -> None:
    with Producer(tmp_path, tag="t", then=TROUBLE):
        command = start("diagnose", "--follow", "--period", "0.2", directory=tmp_path)
        assert command.stdout is not None
        lines = [command.stdout.readline(), command.stdout.readline()]
        assert ["  began  CRITICAL  hardware-error  " in lines[0], "  began  WARNING   memory-near" in lines[1]] == [
            True
        ] * 2
        command.send_signal(signal.SIGTERM)
        rest, talk = command.communicate(timeout=20)
    assert (command.returncode, rest, talk) == (1, "", "")


def test_follow_tells_what_is_over_as_json_lines(tmp_path: Path) -> None:
    producer = Producer(tmp_path, tag="t", then=TROUBLE)
    args = ("diagnose", "--follow", "--json", "--period", "0.2", "--set", "clear_after_s=0.3")
    command = start(*args, directory=tmp_path)
    assert command.stdout is not None
    events = [json.loads(command.stdout.readline()) for _ in range(2)]
    producer.__exit__()
    events += [json.loads(command.stdout.readline()) for _ in range(2)]
    command.send_signal(signal.SIGINT)
    command.communicate(timeout=20)
    assert [e["event"] for e in events] == ["began", "began", "over", "over"]
    assert {e["kind"] for e in events[2:]} == {"hardware-error", "memory-near-full"}


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    with Producer(tmp_path):
        command = start("diagnose", "--follow", "--period", "0.2", directory=tmp_path)
        assert command.stdout is not None
        command.stdout.close()
        deadline = time.monotonic() + 30
        while command.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert command.returncode == 141
        assert command.stderr is not None
        assert command.stderr.read() == ""
        command.stderr.close()


def test_a_recording_is_gone_through_faster_than_it_took(tmp_path: Path) -> None:
    pytest.importorskip("mcap", reason="pip install 'neuron-datastore[record]'")
    file = tmp_path / "r.mcap"
    with Producer(tmp_path / "devices", tag="t", then=TROUBLE):
        made = run("record", "-o", file, "--rate", "10", "--seconds", "2", directory=tmp_path / "devices")
    assert made.returncode == 0, made.stderr
    done = run("diagnose", "--from", file, "--json", directory=tmp_path / "elsewhere")
    report = json.loads(done.stdout)
    assert done.returncode == 1
    assert [f["kind"] for f in report["findings"]] == ["hardware-error", "memory-near-full"]
    assert report["findings"][0]["evidence"] == {"hw_err_hbm_ue": 1}


def test_the_rules_are_listed(tmp_path: Path) -> None:
    done = run("diagnose", "--rules", directory=tmp_path)
    assert done.returncode == 0
    for kind in RULES:
        assert f"  {kind} " in done.stdout
    for name in Thresholds.sentences():
        assert f"  {name}=" in done.stdout
