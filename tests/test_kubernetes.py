"""Names of pods: kubelet's answers decoded, a kubelet that hangs or lies, and who a container is - or may not be."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuron_ds import layout
from neuron_ds.collect import DeviceSample, ProcessSample, Sample
from neuron_ds.driver import DeviceProperties, Owner
from neuron_ds.kubernetes import Allocations, Place, Placing, PodResources
from tests.kubelet import answer, kubelet

A, B = Place("prod", "serving-0", "model"), Place("prod", "serving-1", "model")
FULL = answer(
    {
        "prod/serving-0/model": {"neuron": ["0", "1"], "nvidia.com/gpu": ["GPU-7"]},
        "prod/serving-0/sidecar": {},
        "prod/serving-1/model": {"neuroncore": ["16", "17"]},
        "dev/old/x": {"neurondevice": ["3"]},
    }
)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- The answer


def test_an_answer_is_decoded() -> None:
    found = Allocations(FULL, 7)
    assert found.devices == {0: {A}, 1: {A}, 3: {Place("dev", "old", "x")}}
    assert found.cores == {16: {B}, 17: {B}}
    assert (found.asked_ns, found.odd) == (7, "")


def test_an_empty_answer_is_one() -> None:
    assert Allocations(b"", 0).places == set()


def test_an_id_that_is_no_number_is_told_and_names_nobody() -> None:
    found = Allocations(answer({"n/p/c": {"neuron": ["neuron-0", "01", "\u0661", ""]}, "n/q/c": {"neuron": ["1"]}}), 0)
    assert found.devices == {1: {Place("n", "q", "c")}}
    assert found.odd


@given(st.binary(max_size=200) | st.integers(0, len(FULL)).map(lambda n: FULL[:n] + b"\xff" + FULL[n:]))
def test_garbage_is_a_value_error_or_an_answer(data: bytes) -> None:
    with suppress(ValueError):
        Allocations(data, 0)


def test_an_answer_that_was_cut_is_never_taken_for_more() -> None:
    whole, decoded = Allocations(FULL, 0), 0
    for end in range(1, len(FULL)):
        with suppress(ValueError):
            assert Allocations(FULL[:end], 0).places <= whole.places
            decoded += 1
    assert decoded == 2, "one for each pod after the first whose end it could have been"


# --- Asking


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kubelet.sock")


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def ask(path: str, told: list[str]) -> Iterator[Callable[..., PodResources]]:
    made: list[PodResources] = []

    def make(**options: float) -> PodResources:
        options = {"period_s": 0.05, "haste_s": 0.02, "patience_s": 5, **options}
        made.append(PodResources(path, tell=told.append, **options))
        return made[-1]

    yield make
    for pods in made:
        pods.close()


def test_kubelet_is_asked(path: str, ask: Callable[..., PodResources], told: list[str]) -> None:
    with kubelet(path, lambda: FULL) as asked:
        pods = ask()
        until(lambda: pods.answer)
        assert asked[0] == b""
        assert pods.answer.devices[0] == {A}
        assert (pods.error, told) == ("", [])


def test_it_is_asked_rarely_and_sooner_for_somebody_new(path: str, ask: Callable[..., PodResources]) -> None:
    with kubelet(path, lambda: FULL) as asked:
        pods = ask(period_s=3600)
        until(lambda: pods.asked == 1)
        pods.want()
        until(lambda: pods.asked == 2)
        pods.close()
        assert len(asked) == 2


def test_without_a_socket_it_says_so_once_and_finds_it_later(
    path: str, ask: Callable[..., PodResources], told: list[str]
) -> None:
    pods = ask()
    until(lambda: pods.asked > 3)
    assert pods.answer is None
    assert told == [f"no names of pods from {path}: No such file or directory"]
    with kubelet(path, lambda: FULL):
        until(lambda: pods.answer)
        until(lambda: len(told) == 2)
    assert told[1].endswith("again")


def test_what_is_no_socket(path: str, ask: Callable[..., PodResources]) -> None:
    Path(path).touch()
    pods = ask()
    until(lambda: pods.asked)
    assert pods.error.endswith("is no socket")


@pytest.mark.parametrize("garbage", [b"\xff" * 20, FULL[:-3], b"\x0b"])
def test_garbage_leaves_the_answer_before(path: str, ask: Callable[..., PodResources], garbage: bytes) -> None:
    answers = [FULL]
    with kubelet(path, lambda: answers[-1]):
        pods = ask()
        until(lambda: pods.answer)
        answers.append(garbage)
        until(lambda: pods.error)
        assert "none of kubelet's" in pods.error
        assert pods.answer.devices[0] == {A}


def test_one_that_accepts_and_says_nothing_holds_up_nobody(path: str, ask: Callable[..., PodResources]) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        pods = ask(patience_s=0.3)
        until(lambda: pods.error)
        assert "DEADLINE_EXCEEDED" in pods.error or "UNAVAILABLE" in pods.error
        hung = ask(patience_s=600)
        placing = Placing(hung)
        assert placing.look(sample(process(0, 11)), {("u", "c"): {0: [process(0, 11)]}}) == {}
        hung.close()  # which ends what would have waited for minutes


def test_one_that_hangs_in_its_answer(path: str, ask: Callable[..., PodResources]) -> None:
    go_on = threading.Event()

    def hang() -> bytes:
        go_on.wait(30)
        return FULL

    with kubelet(path, hang) as asked:
        pods = ask(patience_s=0.2)
        until(lambda: pods.error)
        assert "DEADLINE_EXCEEDED" in pods.error
        hung = ask(patience_s=600)
        until(lambda: len(asked) >= 2)
        hung.close()
        go_on.set()
        until(lambda: pods.answer)


# --- Matching


def process(device: int, pid: int, *used: int) -> ProcessSample:
    """A process whose slab has counted on these cores."""
    zeros, counted = (0,) * layout.NC_COUNTERS, (1,) + (0,) * (layout.NC_COUNTERS - 1)
    snapshot = SimpleNamespace(nc_counters=lambda core: counted if core in used else zeros)
    return ProcessSample(Owner(device, 0, pid, True), snapshot, "")


def sample(*processes: ProcessSample, cores: int = 8, config: int = 1, devices: int = 4) -> Sample:
    found = []
    for device in range(devices):
        mine = tuple(p for p in processes if p.owner.device == device)
        properties = DeviceProperties(device, "trn2", None, cores, None, config, "")
        found.append(DeviceSample(device, properties, mine, None, len(mine), ""))
    return Sample(time.monotonic_ns(), tuple(found), "")


class World:
    """A kubelet's last answer, and containers with their processes."""

    def __init__(self, held: dict[str, dict[str, list[str]]]) -> None:
        self.wanted = 0
        self.pods = SimpleNamespace(answer=None, want=self._want)
        self.placing = Placing(self.pods)
        self.options: dict[str, int] = {}
        self.held = held

    def _want(self) -> None:
        self.wanted += 1

    def answers(self, held: dict[str, dict[str, list[str]]] | None = None) -> None:
        self.pods.answer = Allocations(answer(self.held if held is None else held), time.monotonic_ns())

    def look(self, **containers: ProcessSample | list[ProcessSample]) -> dict[str, str]:
        """Their names as container -> pod."""
        listed = {name: [p] if isinstance(p, ProcessSample) else p for name, p in containers.items()}
        uses: dict = {}
        for name, processes in listed.items():
            for p in processes:
                uses.setdefault(("uid", name), {}).setdefault(p.owner.device, []).append(p)
        everybody = [p for processes in listed.values() for p in processes]
        found = self.placing.look(sample(*everybody, **self.options), uses)
        return {container: place.pod for (_, container), place in found.items()}

    def seen(self, **containers: ProcessSample | list[ProcessSample]) -> dict[str, str]:
        """The names once kubelet has been asked with these containers there."""
        self.look(**containers)
        self.answers()
        return self.look(**containers)


def test_who_holds_the_device_is_it() -> None:
    world = World({"n/a/c": {"neuron": ["0", "1"]}, "n/b/c": {"neurondevice": ["2"]}})
    assert world.seen(x=[process(0, 1), process(1, 1)], y=process(2, 2), z=process(3, 3)) == {"x": "a", "y": "b"}


def test_an_answer_from_before_a_container_was_there_says_nothing_of_it() -> None:
    world = World({"n/gone/c": {"neuron": ["0"]}})
    world.answers()
    assert world.look(x=process(0, 1)) == {}
    assert world.wanted == 1
    world.answers({"n/new/c": {"neuron": ["0"]}})
    assert world.look(x=process(0, 1)) == {"x": "new"}
    assert world.wanted == 1


def test_cores_are_numbered_over_the_instance() -> None:
    world = World(
        {"n/a/c": {"neuroncore": ["8", "9"]}, "n/b/c": {"neuroncore": ["10"]}, "n/d/c": {"neuroncore": ["0"]}}
    )
    used = {"x": process(1, 1, 0, 1), "y": process(1, 2, 2)}
    assert world.seen(**used) == {"x": "a", "y": "b"}
    assert world.look(x=process(1, 1), y=process(1, 2, 2)) == {"x": "a", "y": "b"}


def test_two_physical_cores_are_one_logical() -> None:
    world = World({"n/a/c": {"neuroncore": ["4"]}, "n/b/c": {"neuroncore": ["5"]}})
    world.options = {"config": 2}
    assert world.seen(x=process(1, 1, 0, 1), y=process(1, 2, 3)) == {"x": "a", "y": "b"}


def test_a_core_of_a_shared_device_that_is_not_known_yet_is_no_guess() -> None:
    world = World({"n/a/c": {"neuroncore": ["0"]}, "n/b/c": {"neuroncore": ["1"]}})
    assert world.seen(x=process(0, 1)) == {}
    assert world.look(x=process(0, 1, 1)) == {"x": "b"}


@pytest.mark.parametrize(
    "held",
    [
        {"n/a/c": {"neuron": ["0"]}, "n/b/c": {"neuron": ["0"]}},
        {"n/a/c": {"neuron": ["0"]}, "n/a/d": {"neuron": ["0"]}},
        {"n/a/c": {"neuron": ["0"]}, "n/b/c": {"neuroncore": ["0"]}},
        {"n/a/c": {"neuroncore": ["0"]}, "n/b/c": {"neuroncore": ["0"]}},
        {"n/a/c": {"neuroncore": ["1"]}},
        {"n/a/c": {"neuron": ["1"]}},
        {"n/a/c": {"nvidia.com/gpu": ["0"]}},
        {},
    ],
)
def test_nobody_or_several_are_no_name(held: dict) -> None:
    assert World(held).seen(x=process(0, 1, 0)) == {}


def test_a_container_with_devices_of_two_pods_is_neither() -> None:
    world = World({"n/a/c": {"neuron": ["0"]}, "n/b/c": {"neuron": ["1"]}})
    assert world.seen(x=process(0, 1)) == {"x": "a"}
    assert world.look(x=[process(0, 1), process(1, 1)]) == {}


def test_two_containers_cannot_be_the_same() -> None:
    world = World({"n/a/c": {"neuron": ["0"]}})
    assert world.seen(x=process(0, 1)) == {"x": "a"}
    assert world.seen(x=process(0, 1), intruder=process(0, 2)) == {}
    assert world.look(x=process(0, 1)) == {"x": "a"}


def test_a_name_stays_while_a_pod_ends_and_not_longer() -> None:
    world = World({"n/a/c": {"neuron": ["0"]}})
    assert world.seen(x=process(0, 1)) == {"x": "a"}
    world.answers({"n/other/c": {"neuron": ["1"]}})
    assert world.look(x=process(0, 1)) == {"x": "a"}
    assert world.look() == {}
    assert world.look(x=process(0, 1)) == {}


def test_a_name_that_kubelet_contradicts_is_dropped() -> None:
    world = World({"n/a/c": {"neuron": ["0"]}})
    assert world.seen(x=process(0, 1)) == {"x": "a"}
    world.answers({"n/a/c": {"neuron": ["0"]}, "n/b/c": {"neuron": ["0"]}})
    assert world.look(x=process(0, 1)) == {}
