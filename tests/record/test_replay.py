"""A recording as a driver: the slabs, times and owners that were, for whoever asks, and nothing of this host."""

import errno
import json
import os
import time

import pytest

from neuron_ds import layout
from neuron_ds.collect import Collector, LatencySampler
from neuron_ds.datastore import attach, publish
from neuron_ds.driver import get_driver, use_driver
from neuron_ds.driver.clock import REAL_TIME, clock_of
from neuron_ds.errors import BadValue, NoDevice, NoDriver, NoSlab, NotSupported, ProducerGone, ReadOnly
from neuron_ds.listing import survey
from neuron_ds.rates import deltas
from neuron_ds.record import Recording
from neuron_ds.record.replay import ReplayDriver, seconds_of, time_of
from tests.record.conftest import Clock, other_process, play_some, workload

S = 1_000_000_000


@pytest.fixture
def recorded(taping, producer):
    """A finished recording: 3 s at 100 Hz, something happening before each tick."""
    tape, events = taping(rate_hz=100, now_ns=Clock(10_000), keyframe_s=1), workload(rate=100)
    for _ in range(300):
        play_some(producer, events, 3)
        tape.tick()
    tape.end()
    return tape


def test_stepped_every_pass_is_the_next_tick(recorded):
    with ReplayDriver(recorded.path, speed=0) as driver, Collector(driver) as collector:
        for raws, time_ns in zip(recorded.raws, recorded.times_ns, strict=True):
            assert not driver.over
            sample = collector.collect()
            assert sample.error == ""
            (process,) = sample.processes
            assert process.error == ""
            assert bytes(process.snapshot.raw) == raws[0]
            assert (sample.time_ns, process.snapshot.time_ns) == (time_ns, time_ns)
        assert driver.over
        again = collector.collect()
        assert (again.time_ns, bytes(again.processes[0].snapshot.raw)) == (time_ns, raws[0]), "the last state is held"


def test_samples_through_the_driver_are_those_of_the_recording(recorded):
    with (
        Recording(recorded.path) as recording,
        ReplayDriver(recorded.path, speed=0) as driver,
        Collector(driver) as collector,
    ):
        for wanted in list(recording.samples())[:120]:
            got = collector.collect()
            assert got.time_ns == wanted.time_ns
            a, b = got.devices[0], wanted.devices[0]
            assert (a.properties, a.slots_used) == (b.properties, b.slots_used)
            assert a.totals.words == b.totals.words
            assert [p.owner for p in a.processes] == [p.owner for p in b.processes]
            assert [p.snapshot.states() for p in a.processes] == [p.snapshot.states() for p in b.processes]


def test_rates_at_another_speed_are_as_they_were(recorded):
    with ReplayDriver(recorded.path, speed=20) as driver, Collector(driver) as collector:
        before = collector.collect()
        deadline = time.monotonic() + 20
        while not driver.over:
            assert time.monotonic() < deadline
            after = collector.collect()
            if after.time_ns == before.time_ns:
                continue
            (delta,) = deltas(before, after).values()
            ticks = (after.time_ns - before.time_ns) // 10_000_000
            assert delta.period_s == pytest.approx(ticks / 100)
            assert recorded.times_ns.index(after.time_ns) - recorded.times_ns.index(before.time_ns) == ticks
            before = after
        assert collector.collect().time_ns == recorded.times_ns[-1]


def test_a_sampler_sees_completions_while_it_plays(recorded):
    with ReplayDriver(recorded.path, speed=2) as driver, Collector(driver) as collector:
        LatencySampler(collector, 200)
        seen, deadline = 0, time.monotonic() + 20
        while not driver.over and time.monotonic() < deadline:
            seen += sum(len(p.latencies.total_us) for p in collector.collect().processes)
            time.sleep(0.02)
        assert seen > 10


def test_seeking(recorded):
    for at in (0, 1, 99, 100, 101, 250, 299):
        with (
            ReplayDriver(recorded.path, at_ns=recorded.times_ns[at], still=True) as driver,
            attach(slot=0, driver=driver) as reader,
        ):
            for _ in range(2):
                snapshot = reader.snapshot()
                assert bytes(snapshot.raw) == recorded.raws[at][0]
                assert snapshot.time_ns == recorded.times_ns[at]
    with ReplayDriver(recorded.path, at_ns=recorded.times_ns[7] + 1, still=True) as driver:
        assert driver.moment_ns == recorded.times_ns[7], "the last tick before"
    with ReplayDriver(recorded.path, at_ns=10 * recorded.times_ns[-1], still=True) as driver:
        assert driver.moment_ns == recorded.times_ns[-1]


def test_times_as_they_are_written(recorded):
    with Recording(recorded.path) as recording:
        start, end = recording.start_ns, recording.end_ns
        assert time_of(recording, "1.5") == start + 3 * S // 2
        assert time_of(recording, "1m30s") == start + 90 * S
        assert time_of(recording, "-500ms") == end - S // 2
        day = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(recording.wall_start_ns // S))
        assert abs(time_of(recording, day) - start) <= S
        assert abs(time_of(recording, day[11:]) - start) <= S
        for nonsense in ("", "x", "1x", "12:99", "1e5", "--1", "5m3"):
            with pytest.raises(BadValue):
                time_of(recording, nonsense)
    assert seconds_of("1h30m") == 5400


def test_what_a_recording_does_not_do(recorded):
    with ReplayDriver(recorded.path, still=True) as driver:
        with pytest.raises(ReadOnly, match="can't be published in") as caught:
            publish(0, driver=driver)
        assert caught.value.errno == errno.EPERM
        with pytest.raises(NotSupported, match="reset"):
            driver.reset(0)
        assert not driver.can_reset
        with pytest.raises(NoDevice):
            driver.properties(3)
        with pytest.raises(NoSlab):
            attach(1, 0, driver=driver)
        with attach(slot=0, driver=driver) as reader, pytest.raises(ReadOnly):
            reader.core(0).inference_count.add(1)


def test_a_slab_that_was_given_away_is_gone_for_its_reader(taping, producer, root):
    tape = taping(rate_hz=5, now_ns=Clock(200_000))
    with other_process(root) as other:
        other.ask(5)
        tape.tick()
        tape.tick()
        other.ask(None)
    tape.tick()
    tape.tick()
    tape.end()
    with ReplayDriver(tape.path, speed=0) as driver:
        driver.devices()
        driver.devices()
        assert [o.pid for o in driver.owners(0)] == [producer.pid, other.pid]
        with attach(other.pid, driver=driver) as reader:
            assert reader.core(0).inference_count.get() == 5
            assert reader.alive
            driver.devices()
            assert not reader.alive
            with pytest.raises(ProducerGone):
                reader.snapshot()
            with pytest.raises(ProducerGone):
                reader.core(0).inference_count.get()
        assert [o.pid for o in driver.owners(0)] == [producer.pid]


def test_a_loop_begins_anew_and_time_goes_on(recorded):
    with ReplayDriver(recorded.path, speed=0, loop=True) as driver, Collector(driver) as collector:
        times, raws = [], []
        for _ in range(700):
            sample = collector.collect()
            times.append(sample.time_ns)
            raws.append(bytes(sample.processes[0].snapshot.raw))
        assert not driver.over
    assert times == sorted(set(times))
    assert raws == [tick[0] for tick in (recorded.raws * 3)[:700]]


def test_the_environment_names_it(recorded, monkeypatch):
    monkeypatch.setenv("NEURON_DS_REPLAY", recorded.path)
    monkeypatch.setenv("NEURON_DS_REPLAY_SPEED", "step")
    monkeypatch.setenv("NEURON_DS_REPLAY_AT", "1s")
    driver = get_driver("replay")
    try:
        assert driver.name == "replay"
        assert driver.devices() == [0]
        assert driver.moment_ns == recorded.times_ns[100]
        driver.devices()
        assert driver.moment_ns == recorded.times_ns[101]
    finally:
        driver.close()
        from neuron_ds.driver import _cache

        _cache.pop("replay")
    monkeypatch.setenv("NEURON_DS_REPLAY_SPEED", "fast")
    with pytest.raises(BadValue, match="a speed of fast"):
        ReplayDriver()
    monkeypatch.delenv("NEURON_DS_REPLAY")
    with pytest.raises(NoDriver, match="NEURON_DS_REPLAY"):
        ReplayDriver()


def test_a_driver_in_use_is_everybodys(recorded):
    with ReplayDriver(recorded.path, still=True) as driver:
        use_driver(driver)
        try:
            assert get_driver() is driver
            (item,) = survey()
            assert [p.tag for p in item.processes] == ["serving"]
            assert "pytest" in item.processes[0].command
        finally:
            use_driver(None)
        assert get_driver("software") is not driver


def test_clocks(recorded, driver):
    assert clock_of(driver) is REAL_TIME
    assert REAL_TIME.real_ns(5) == 5
    with ReplayDriver(recorded.path, speed=4) as replay:
        clock = clock_of(replay)
        begun_ns = clock.now_ns()
        assert abs(clock.real_ns(begun_ns + 4 * S) - time.monotonic_ns() - S) < S // 2
        assert recorded.times_ns[0] <= begun_ns


def test_the_monitor_gives_the_same_differences_as_live(taping, producer, driver):
    """Each report of the recording is of two of its ticks, as the live one is of two looks at the same bytes."""
    from neuron_ds.monitor import Monitor, load

    config = load(None, S)
    tape, events = taping(rate_hz=1, now_ns=Clock(1_000_000)), workload(rate=50)
    with Monitor(config, driver, sample_hz=0) as live:
        for turn in range(5):
            play_some(producer, events, 40)
            tape.tick()
            if turn == 0:
                live.begin()
                reports = []
            else:
                for pace in live._paces:
                    pace.due_ns = 0
                reports.append(live.report())
    tape.end()
    with ReplayDriver(tape.path, speed=0) as replay, Monitor(config, replay, sample_hz=0) as monitor:
        replayed = list(monitor.reports(lambda until_ns: True))
    assert len(replayed) >= 4

    def told(report):
        (runtime,) = report["neuron_runtime_data"]
        assert runtime["error"] == ""
        groups = runtime["report"]
        summary = dict(groups["execution_stats"]["execution_summary"])
        return {
            "tag": runtime["neuron_runtime_tag"],
            "summary": summary,
            "errors": groups["execution_stats"]["error_summary"],
            "flops": {k: v["flops"] > 0 for k, v in groups["neuroncore_counters"]["neuroncores_in_use"].items()},
            "memory": groups["memory_used"]["neuron_runtime_used_bytes"]["usage_breakdown"]["neuroncore_memory_usage"],
        }

    whole = [r for r in replayed if r["neuron_runtime_data"][0]["report"]["execution_stats"]["period"] > 0.9]
    assert [told(r) for r in whole] == [told(r) for r in reports]
    assert all(r["system_data"]["memory_info"]["error"] == "is not in a recording" for r in replayed)


# --- The commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def command(recorded, monkeypatch, capfdbinary):
    """The command with the recording, in this process."""
    from neuron_ds.cli import main

    monkeypatch.setenv("NEURON_DS_DIR", "/nowhere")

    def run(*args):
        capfdbinary.readouterr()
        code = main([*map(str, args)], standalone_mode=False)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run


def test_ls_show_and_check_look_at_it(command, recorded, producer, tmp_path):
    code, out, err = command("ls", "--from", recorded.path, "--json")
    assert (code, err) == (0, "")
    (device,) = json.loads(out)
    assert [(p["pid"], p["tag"]) for p in device["neuron_processes"]] == [(producer.pid, "serving")]
    code, out, _ = command("ls", "--from", recorded.path)
    assert code == 0
    assert "namespace" not in out
    code, out, _ = command("show", "--from", recorded.path, "--at", "0", producer.pid, "--json")
    shown = json.loads(out)
    assert (code, shown["time_ns"], shown["tag"]) == (0, recorded.times_ns[0], "serving")
    raw = tmp_path / "raw.bin"
    assert command("show", "--from", recorded.path, producer.pid, "--raw", raw)[0] == 0
    assert raw.read_bytes() == recorded.raws[-1][0]
    assert command("check", "--from", recorded.path, producer.pid)[0] == 0
    assert get_driver("software").name == "software"


def test_monitor_ends_with_it(command, recorded):
    code, out, err = command("monitor", "--from", recorded.path, "--speed", "0", "--period", "1s")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [r["neuron_runtime_data"][0]["neuron_runtime_tag"] for r in lines] == ["serving"] * len(lines)
    assert len(lines) >= 3
    assert err == f"neuron-ds: {recorded.path}: the recording is over\n"


def test_exporter_ends_with_it(command, recorded):
    code, _, err = command("exporter", "--from", recorded.path, "--speed", "10", "--listen", "127.0.0.1:0")
    assert code == 0
    assert "the recording is over" in err


def test_options_that_make_no_sense(command, recorded):
    for args in (
        ("ls", "--at", "5"),
        ("monitor", "--speed", "2"),
        ("monitor", "--loop"),
        ("monitor", "--from", recorded.path, "--speed", "x"),
        ("monitor", "--from", recorded.path, "--speed", "-1"),
        ("exporter", "--from", recorded.path, "--speed", "0"),
        ("ls", "--from", recorded.path, "--at", "noon"),
        ("ls", "--from", os.devnull),
        ("ls", "--from", "/absent"),
    ):
        code, out, err = command(*args)
        assert (code, out) == (2, ""), args
        assert err.count("\n") == 1, err


def test_damage_is_told(command, recorded, tmp_path):
    with open(recorded.path, "rb") as file:
        data = file.read()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(data[: len(data) * 2 // 3])
    code, out, err = command("ls", "--from", cut)
    assert code == 0
    assert "serving" in out
    assert "cut short or damaged at byte" in err


def test_no_more_of_a_slab_is_shown_than_was_recorded(recorded):
    with ReplayDriver(recorded.path, still=True) as driver, attach(slot=0, driver=driver) as reader:
        assert reader.read_tail() == bytes(layout.SLAB_SIZE - layout.REQUIRED_SIZE)
