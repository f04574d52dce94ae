"""An hour of healthy load, looked at once a second, and nothing is said of it; played faster than real time through the
same code. A process that is idle for minutes is said to be idle: that alone, and no fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.simulate import Workload
from tests.diagnose.stage import Story, played, watch, work

HOUR_S = 3600


def crowd(seed: int) -> list[Workload]:
    """Processes of every healthy kind, at a tenth of their usual pace so that an hour is quickly played."""
    return [
        work("inference", 0, 4, seed, rate=12.0),
        work("inference", 1, 2, seed + 1, rate=8.0, model="llama-3.2-1b"),
        work("training", 2, 4, seed + 2, rate=2.0, model="gpt2-medium"),
        work("training", 3, 2, seed + 3, rate=3.0, model="bert-large", checkpoint_s=60.0),
        work("idle", 4, 2, seed + 4),
    ]


def observed(driver: SoftwareDriver, workloads: Sequence[Workload], seconds: float) -> Story:
    return watch(played(driver, workloads, seconds))


def assert_quiet(story: Story, idle_devices: set[int]) -> None:
    assert {(f.kind, f.device) for _, f in story.began} == {("idle-allocated", device) for device in idle_devices}
    assert not story.over


@pytest.mark.timeout(180)
def test_an_hour_of_healthy_load_is_quiet(driver: SoftwareDriver) -> None:
    story = observed(driver, crowd(seed=1), HOUR_S)
    assert_quiet(story, {4})
    (when, finding) = story.began[0]
    assert 290 <= when <= 310, "idle is said after five minutes"
    assert finding.severity.name == "INFO"


@pytest.mark.parametrize("seed", [11, 23, 37])
def test_ten_minutes_of_other_seeds_are_quiet(driver: SoftwareDriver, seed: int) -> None:
    assert_quiet(observed(driver, crowd(seed), 600), {4})


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 103))
def test_hours_at_the_full_pace_are_quiet(driver: SoftwareDriver, seed: int) -> None:
    models = ("bert-base", "resnet50", "llama-3.2-1b", "vit-large")
    serving = [work("inference", n, 2, seed + n, model=model) for n, model in enumerate(models)]
    training = [
        work("training", 4 + n, 4, seed + n, model=model) for n, model in enumerate(("gpt2-medium", "bert-large"))
    ]
    assert_quiet(observed(driver, [*serving, *training, work("idle", 6, 2, seed)], HOUR_S), {6})
