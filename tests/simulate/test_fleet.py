"""Many processes: every pattern exact to the unit, and none left behind."""

import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from neuron_ds import attach, devices, owners
from neuron_ds.errors import BadIndex, BadValue, NoDriver
from neuron_ds.layout import MAX_CORES
from neuron_ds.simulate import PATTERNS, Fleet, Plan, Workload, plan
from tests.simulate.helpers import differences

# Anomalies begin early, so that the events played go far beyond.
ALL = (
    "inference,redeploy_s=1",
    "training,checkpoint_s=1",
    "idle",
    "erring,share=0.5",
    "hung,after_s=1,hung_cores=1",
    "straggling,after_s=1",
    "straggling,after_s=1,lockstep=yes",
    "leaking,after_s=0.1,limit_gib=0.1",
    "filling,after_s=0.1,over_s=1,device_gib=4",
    "collapsing,after_s=1",
    "slowing,after_s=1",
)


def test_every_pattern_shows_exactly_what_is_expected_in_a_real_process():
    with Fleet(plan(ALL, devices=2, seed=3), speed=None, events=2500) as fleet:
        assert {p.workload.pattern.name for p in fleet} == set(PATTERNS)
        for process in fleet:
            assert process.wait_played() == 2500 or process.workload.pattern.name == "idle"
            assert differences(process) == [], process.tag
    assert [report.error for report in fleet.reports] == [""] * len(fleet)
    assert owners(0) == owners(1) == []


def test_processes_of_one_device_have_a_slab_and_cores_of_their_own():
    with Fleet(plan(["inference*2", "training@0-1"], devices=2), speed=None, events=600) as fleet:
        first, second, training = fleet
        for process in fleet:
            process.wait_played()
            assert differences(process) == []
        assert {o.pid for o in owners(0)} == {first.pid, training.pid}
        assert {o.pid for o in owners(1)} == {second.pid, training.pid}
        assert len({first.slots[0], training.slots[0]}) == 2
        used = {}
        for process in fleet:
            for device in process.slots:
                with attach(process.pid, device) as reader:
                    snapshot = reader.snapshot()
                for core in range(MAX_CORES):
                    if snapshot.core(core).infer_completed:
                        used.setdefault((device, core), []).append(process.tag)
        assert all(len(tags) == 1 for tags in used.values())
        assert set(used) == {core for process in fleet for core in process.workload.cores}


def test_waiting_ends_with_the_time_or_with_the_last_process():
    with Fleet(plan(["inference*2"])) as fleet:
        assert fleet.wait(0.05) == []
        fleet.processes[0].freeze()
        os.kill(fleet.processes[0].pid, signal.SIGKILL)
        os.kill(fleet.processes[1].pid, signal.SIGTERM)
        assert fleet.wait() == fleet.processes
    assert [report.error for report in fleet.reports] == ["was killed by SIGKILL", ""]
    assert fleet.wait(5) == fleet.processes


def test_a_process_that_dies_does_not_end_the_wait_for_the_others():
    with Fleet(plan(["idle*2"])) as fleet:
        fleet.processes[1].kill()
        assert fleet.wait(0.05) == [fleet.processes[1]]
        assert fleet.processes[0].pause() > 0


def test_one_that_cannot_start_ends_them_all():
    workloads = (Workload(), Workload(cores=((0, 1),), tag="t" * 300), Workload(cores=((0, 2),)))
    fleet = Fleet(Plan(((0, "trn2"),), workloads))
    with pytest.raises(BadValue, match="tag is 300 bytes long"), fleet:
        pytest.fail("it has started")
    assert all(process.ended for process in fleet)
    assert owners(0) == []


def test_an_error_inside_ends_them_all():
    with pytest.raises(ZeroDivisionError), Fleet(plan(["idle"])) as fleet:
        raise ZeroDivisionError
    assert [report.error for report in fleet.reports] == [""]


def test_a_device_that_is_there_keeps_its_type():
    with Fleet(plan(["idle"], type="trn1")):
        pass
    with pytest.raises(BadIndex, match="of type trn1 and has 2 physical cores"), Fleet(plan(["idle"], type="trn2")):
        pytest.fail("it has started")


def test_a_device_of_another_type_is_named_where_that_matters():
    with Fleet(plan(["idle"], type="trn1")):
        pass
    with (
        pytest.raises(BadValue, match="of type trn1, not inf2"),
        Fleet(plan(["idle"], devices=2, type="inf2"), same_type=True),
    ):
        pytest.fail("it has started")
    assert [p.device for p in devices()] == [0]  # and nothing was made
    with Fleet(plan(["idle"], type="trn1"), same_type=True):
        pass


def test_each_end_is_told_as_it_comes():
    reports = []
    with Fleet(plan(["idle*2"])) as fleet:
        os.kill(fleet.processes[1].pid, signal.SIGKILL)

        def tell(report):
            if not reports:
                os.kill(fleet.processes[0].pid, signal.SIGTERM)  # it lives on when the first end is told
            reports.append(report)

        fleet.wait(30, told=tell)
    assert [report.error for report in reports] == ["was killed by SIGKILL", ""]


def test_waiting_ends_when_nobody_reads():
    read, write = os.pipe()
    with Fleet(plan(["idle"])) as fleet:
        assert fleet.wait(0.01, output=write) == []
        os.close(read)
        with pytest.raises(BrokenPipeError):
            fleet.wait(output=write)
    os.close(write)


def test_a_wait_may_be_longer_than_poll_takes():
    with Fleet(plan(["idle"])) as fleet:
        os.kill(fleet.processes[0].pid, signal.SIGTERM)
        assert fleet.wait(1e8) == fleet.processes


def test_another_driver_of_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("NEURON_DS_DRIVER", "replay")
    with pytest.raises(NoDriver, match="'replay'"):
        Fleet(plan(["idle"]))


PARENT = """
    import sys
    from neuron_ds.simulate import Fleet, plan

    with Fleet(plan(["inference", "training", "idle"]), speed=None) as fleet:
        if sys.argv[1] == "frozen":
            for process in fleet:
                process.freeze()
        print(*(process.pid for process in fleet), flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["running", "frozen"])
def test_a_killed_parent_leaves_no_children(how):
    command = [sys.executable, "-c", textwrap.dedent(PARENT), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pidfds = [os.pidfd_open(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(pidfds) == 3
        parent.kill()
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert poll.poll(10_000), "a child lives on"
        os.close(pidfd)
    assert not any(o.alive for o in owners(0))


def test_a_parent_that_fails_leaves_no_children():
    source = textwrap.dedent(PARENT).replace("sys.stdin.read()", "raise SystemExit(3)")
    result = subprocess.run([sys.executable, "-c", source, "running"], capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (3, b"")
    assert owners(0) == []


@pytest.mark.slow
def test_every_pattern_stays_exact_over_many_halts():
    with Fleet(plan(ALL, devices=2, seed=17), speed=20.0) as fleet:
        for _ in range(30):
            for process in fleet:
                process.pause()
                assert differences(process) == []
                process.resume()
