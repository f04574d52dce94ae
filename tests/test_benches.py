"""The harness of the benches: how a figure is made of rounds, judged and reported. Nothing is timed here."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from benches import __main__ as command
from benches import drivers, exporter, harness
from benches.crowd import COUNTED_BEFORE, runtimes
from benches.fixtures import directory
from benches.harness import Comparison, Reading, Side, measure
from neuron_ds.datastore import attach
from neuron_ds.driver import table as t
from neuron_ds.driver.software import SoftwareDriver
from tests.devices import table_of


def taking(*seconds, units=1):
    """A side that takes so long each time, one after the other, the last one for ever."""
    left = list(seconds)

    def run(times):
        return times * (left.pop(0) if len(left) > 1 else left[0])

    return Side(run, units, looped=False)


def comparison(ours, other, limit, **kwargs):
    return Comparison("ours", "the yardstick", ours, other, limit, **kwargs)


def test_the_ratio_is_of_one_unit():
    figure = measure(comparison(taking(6e-3, units=3), taking(1e-3), 2.5), rounds=9)
    assert figure.ratio == pytest.approx(2)
    assert (figure.ours_ns, figure.other_ns) == (pytest.approx(2e6), pytest.approx(1e6))
    assert figure.ok


def test_the_ratio_of_what_is_faster_is_turned_round():
    assert measure(comparison(taking(1e-3), taking(40e-3), 39, faster=True), rounds=9).ratio == pytest.approx(40)
    assert not measure(comparison(taking(1e-3), taking(40e-3), 41, faster=True), rounds=9).ok


def test_a_round_that_strays_does_not_count():
    strays = [1e-3, 1e-3, 1e-3, 90e-3, 80e-3, 70e-3, 60e-3, 1e-3]
    figure = measure(comparison(taking(*strays), taking(1e-3), 1.1), rounds=9)
    assert figure.ratio == pytest.approx(1)
    assert max(figure.ratios) == pytest.approx(90)


def test_there_are_never_fewer_than_nine_rounds():
    assert len(measure(comparison(taking(1e-3), taking(1e-3), 2), rounds=1).ratios) == harness.LEAST_ROUNDS == 9


def test_a_miss_is_measured_again_and_longer():
    missed = measure(comparison(taking(3e-3), taking(1e-3), 2), rounds=9)
    assert (missed.ok, missed.looks, len(missed.ratios)) == (False, 2, 36)
    slow_at_first = taking(*[3e-3] * 10, 1e-3)
    kept = measure(comparison(slow_at_first, taking(1e-3), 2), rounds=9)
    assert (kept.ok, kept.looks, kept.ratio) == (True, 2, pytest.approx(1))


def test_a_comparison_can_do_with_fewer_rounds():
    assert len(measure(comparison(taking(1e-3), taking(1e-3), 2, rounds=11), rounds=101).ratios) == 11


def reading(*values, limit):
    left = list(values)
    return Reading("memory", "then", lambda: left.pop(0), limit, "MiB")


def test_a_reading_is_judged_by_itself():
    figure = measure(reading(3.5, limit=4), rounds=101)
    assert (figure.ratio, figure.ok, figure.looks, figure.unit) == (3.5, True, 1, "MiB")


def test_a_reading_that_misses_is_taken_again():
    kept = measure(reading(5, 3, limit=4), rounds=101)
    assert (kept.ratio, kept.ok, kept.looks) == (3, True, 2)
    assert not measure(reading(5, 6, limit=4), rounds=101).ok


def test_the_loop_is_not_counted(monkeypatch):
    monkeypatch.setattr(harness, "EMPTY_LOOP", taking(1e-3))
    looped = Side(taking(5e-3).run)
    figure = measure(comparison(looped, Side(taking(3e-3).run), 2.5), rounds=9)
    assert figure.ratio == pytest.approx(2)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command on these comparisons: (exit status, standard output, standard error)."""

    def run(comparisons, *arguments):
        monkeypatch.setattr(command, "GROUPS", {"some": SimpleNamespace(comparisons=lambda: iter(comparisons))})
        monkeypatch.setattr(sys, "argv", ["benches", *arguments])
        status = command.main()
        return status, *capsys.readouterr()

    return run


KEPT = comparison(taking(1e-3), taking(1e-3), 1.5)
MISSED = comparison(taking(2e-3), taking(1e-3), 1.5)


def test_each_figure_stands_beside_its_limit(run):
    status, out, err = run([KEPT])
    assert (status, err) == (0, "")
    heading, line = out.splitlines()
    assert heading.split() == ["what", "against", "figure", "limit"]
    assert line.split() == ["ours", "the", "yardstick", "1.00", "≤", "1.50", "ok"]


def test_a_reading_stands_with_its_unit(run):
    status, out, _ = run([reading(3.5, limit=4)])
    assert status == 0
    assert out.splitlines()[1].split() == ["memory", "then", "3.50", "MiB", "≤", "4.00", "MiB", "ok"]


def test_what_takes_long_is_measured_on_request_only():
    everything = set(command.GROUPS)
    assert everything > command.ON_REQUEST

    class Group:
        def __init__(self, name):
            self.name = name

        def comparisons(self):
            yield self.name

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "GROUPS", {name: Group(name) for name in everything})
        assert set(command.selected([])) == everything - command.ON_REQUEST
        assert list(command.selected(["endurance"])) == ["endurance"]


def test_a_miss_is_said_and_fails(run):
    status, out, err = run([KEPT, MISSED, KEPT], "some")
    assert status == 1
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["ok", "MISSED", "ok"]
    assert err == "missed: ours\n"


def test_the_figures_go_to_a_file(run, tmp_path):
    path = tmp_path / "figures.json"
    assert run([KEPT, MISSED], "--json", str(path), "--rounds", "11")[0] == 1
    report = json.loads(path.read_text())
    assert (report["ok"], report["rounds"]) == (False, 11)
    kept, missed = report["figures"]
    assert (kept["ok"], kept["limit"], kept["direction"], len(kept["ratios"])) == (True, 1.5, "at most", 11)
    assert (missed["ok"], missed["looks"], missed["ratio"]) == (False, 2, pytest.approx(2))


def test_a_group_that_is_none_is_refused(run):
    with pytest.raises(SystemExit) as caught:
        run([KEPT], "others")
    assert caught.value.code == 2


def test_the_crowd_does_what_it_is_told():
    with directory(devices=1) as path, drivers._crowd(path) as side:
        through_the_driver, by_hand = side(drivers.DRIVER), side(drivers.BY_HAND)
        assert through_the_driver.units == by_hand.units == drivers.PROCESSES * drivers.ROUNDS_EACH
        for changes in (2, 4):  # an acquire and a release each raise the generation of a slot
            assert through_the_driver.run(1) > 0
            assert by_hand.run(2) > 0
            generations = [view.generation for view in t.read_slots(table_of(path))]
            assert sum(generations) == changes * through_the_driver.units
        assert SoftwareDriver(path).owners(0) == []


def test_a_process_that_leaves_the_crowd_is_missed():
    with subprocess.Popen([sys.executable, "-c", "print('r', end='')"], stdout=subprocess.PIPE, bufsize=0) as process:
        drivers._wait_for([process], b"r")
        with pytest.raises(RuntimeError, match=f"process {process.pid} of the crowd"):
            drivers._wait_for([process], b"d")


def test_runtimes_are_at_work():
    with directory(devices=2) as path:
        driver = SoftwareDriver(path)
        with runtimes(path, processes=3, devices=2, rate_hz=200) as pids:
            owners = [owner for device in (0, 1) for owner in driver.owners(device)]
            assert [owner.device for owner in owners] == [0, 0, 1]
            assert {owner.pid for owner in owners} == set(pids)
            with attach(owners[2].pid, 1, driver=driver) as reader:
                completed = reader.core(7).infer_completed
                began, patience = completed.get(), time.monotonic() + 10
                assert began > COUNTED_BEFORE
                assert reader.core(7).err_hw.get() == 0
                while completed.get() == began and time.monotonic() < patience:
                    time.sleep(0.01)
                assert completed.get() > began
        assert [driver.owners(device) for device in (0, 1)] == [[], []]


def test_a_runtime_that_finds_no_slot_is_told(capfd):
    with (
        directory(devices=1) as path,
        pytest.raises(RuntimeError, match="did not start"),
        runtimes(path, processes=drivers.PROCESSES + 1, devices=1, rate_hz=1),
    ):
        pass
    assert "SlotsFull" in capfd.readouterr().err


SCRAPE = """\
# HELP up Whether.
# TYPE up gauge
up 1.0
# HELP done_total What was done.
# TYPE done_total counter
done_total{core="0",pid="7"} 3.0
done_total{core="1",pid="7"} 4e+06
done_total{core="0",pid="8"} 5.0
"""


def test_the_yardstick_counts_what_the_scrape_shows(tmp_path):
    seven, eight = exporter._portions(SCRAPE)
    assert seven == [("done_total", "counter", ["core", "pid"], [(["0", "7"], 3.0), (["1", "7"], 4e6)])]
    assert eight == [("done_total", "counter", ["core", "pid"], [(["0", "8"], 5.0)]), ("up", "gauge", [], [([], 1.0)])]
    exporter._count_the_same(SCRAPE, str(tmp_path))
    assert len(list(tmp_path.glob("counter_*.db"))) == 2
    assert len(list(tmp_path.glob("gauge_sum_*.db"))) == 1
