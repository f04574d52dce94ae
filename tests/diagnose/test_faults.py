"""Hardware errors, of which one is enough, and bursts of all the others by their class."""

from __future__ import annotations

import pytest

from neuron_ds.diagnose import Severity
from neuron_ds.diagnose.faults import _CLASSES, _HARDWARE, _REPAIRABLE
from neuron_ds.diagnose.measures import COMPLETED
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.layout import COUNTER, NC
from neuron_ds.simulate.faults import KINDS
from tests.diagnose.stage import played, process, row, series, watch, work

#: Kinds of the simulator's faults that are no hardware's, and the class of the burst they make.
CLASSES = {
    "generic": {"err_generic", "infer_completed_with_err"},
    "numerical": {"err_numerical", "infer_completed_with_num_err"},
    "model": {"err_model"},
    "transient": {"err_transient"},
    "runtime": {"err_rt"},
    "timeout": {"infer_timed_out"},
    "input": {"infer_incorrect_input"},
    "queue": {"infer_failed_to_queue", "err_sw_nq_overflow"},
    "api": {"generic_fail", "err_resource", "err_resource_nc", "err_invalid", "err_unsupported_neff_version"},
}


@pytest.mark.parametrize("kind", CLASSES)
def test_a_burst_of_each_class_is_found_within_five_seconds(driver: SoftwareDriver, kind: str) -> None:
    workload = work("erring", cores=2, rate=40.0, share=0.2, kinds=kind, after_s=20.0)
    story = watch(played(driver, [workload], 40))
    assert story.kinds == {"error-burst"}
    ((when, _),) = story.began
    assert 20 < when <= 25
    (finding,) = story.last
    assert finding.evidence["class"] in CLASSES[kind]
    assert finding.evidence["failed_share"] == pytest.approx(0.2, abs=0.06)
    assert finding.severity == Severity.WARNING


def test_a_burst_of_software_errors_is_of_their_class(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("erring", cores=2, rate=40.0, share=0.2, kinds="software")], 30))
    assert story.kinds == {"error-burst", "hardware-error"}, "a fatal sequencer error comes with a hardware status"


def test_most_executions_failing_is_critical(driver: SoftwareDriver) -> None:
    story = watch(played(driver, [work("erring", cores=1, rate=40.0, share=0.8, kinds="numerical")], 20))
    assert {(f.kind, f.severity) for f in story.last} == {("error-burst", Severity.CRITICAL)}


def test_an_error_now_and_then_is_no_burst(driver: SoftwareDriver) -> None:
    kinds = "generic+numerical+transient+input+queue"
    story = watch(played(driver, [work("erring", rate=100.0, share=0.002, kinds=kinds)], 300))
    assert story.began == []


def test_four_errors_are_no_burst_even_if_nothing_else_happens() -> None:
    story = watch(series(lambda n: process(n, {0: row(err_invalid=min(n, 4))}), 60))
    assert story.began == []
    story = watch(series(lambda n: process(n, {0: row(err_invalid=min(n, 5))}), 60))
    assert [f.kind for _, f in story.began] == [f.kind for _, f in story.over] == ["error-burst"]


@pytest.mark.parametrize(("kind", "counters"), [("hbm", {"hw_err_hbm_ue"}), ("dma", {"hw_err_dma_abort"})])
def test_a_hardware_error_is_told_at_the_next_look(driver: SoftwareDriver, kind: str, counters: set[str]) -> None:
    story = watch(played(driver, [work("erring", cores=1, rate=20.0, share=1.0, kinds=kind, after_s=20.0)], 30))
    (when, finding) = story.of("hardware-error")[0]
    assert when == 21.0
    assert (finding.severity, finding.core) == (Severity.CRITICAL, 0)
    assert finding.evidence.keys() == counters
    assert next(iter(counters)) in finding.message
    assert ("repairable-hbm-error" in story.kinds) == (kind == "hbm")


@pytest.mark.parametrize("counter", [*_HARDWARE, *_REPAIRABLE])
def test_one_is_enough_and_stays_told(counter: str) -> None:
    story = watch(series(lambda n: process(n, {3: row(**{counter: int(n >= 5)})}), 400))
    ((when, finding),) = story.began
    assert when == 5.0
    assert finding.kind == ("repairable-hbm-error" if counter in _REPAIRABLE else "hardware-error")
    assert finding.evidence == {counter: 1}
    assert [f.since_ns for f in story.last] == [finding.since_ns]


def test_one_from_before_the_first_look_is_told_too() -> None:
    ((when, _),) = watch([series(lambda n: process(n, {0: row(err_hw=3)}), 1)[0]]).began
    assert when == 0


def test_other_errors_are_none_of_the_hardware() -> None:
    soft = dict.fromkeys(_CLASSES, 4)
    assert "hardware-error" not in watch(series(lambda n: process(n, {0: row(**soft)}), 5)).kinds


def test_every_counter_of_trouble_belongs_to_a_rule() -> None:
    fine = {"time_in_use", "model_load_count", "inference_count", "mac_count", NC[COMPLETED[0]].name}
    trouble = {c.name for c in NC if c.kind == COUNTER} - fine
    assert trouble == _CLASSES.keys() | _HARDWARE.keys() | _REPAIRABLE.keys()
    assert CLASSES.keys() | {"hardware", "hbm", "dma", "collectives", "software"} == KINDS.keys()
