"""Scripts: deterministic, in order, and the same whether a workload is given as a value or as a command line."""

import json
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest

from neuron_ds.errors import BadValue
from neuron_ds.simulate import MODELS, PATTERNS, Pattern, Workload, script
from neuron_ds.simulate.events import Executed
from neuron_ds.simulate.patterns import as_text, read_pattern
from neuron_ds.simulate.workload import cores_text, read_cores

CORES = ((0, 0), (0, 1), (2, 5))


def first(workload, n=3000):
    return list(islice(script(workload), n))


@pytest.fixture(params=PATTERNS)
def workload(request):
    return Workload(pattern=PATTERNS[request.param](), seed=11, cores=CORES)


def test_the_same_seed_gives_the_same_script(workload):
    assert first(workload) == first(replace(workload))


def test_another_seed_gives_another_script(workload):
    assert first(workload) != first(replace(workload, seed=12))


def test_events_are_in_order_and_of_the_workloads_cores(workload):
    events = first(workload)
    assert events[0].at_us == 0
    assert all(a.at_us <= b.at_us for a, b in pairwise(events))
    assert {(e.device, e.core) for e in events if hasattr(e, "core")} == set(CORES)


def test_only_the_idle_script_ends(workload):
    ends = len(first(workload)) < 3000
    assert ends == (workload.pattern.name == "idle")


def test_one_core_is_not_disturbed_by_another():
    """What a core does depends on the seed and on itself, not on how many there are beside it."""
    one = Workload(pattern=PATTERNS["inference"](), seed=3, cores=((0, 0),))
    two = replace(one, cores=((0, 0), (0, 1)))

    def of_core_0(workload):
        return list(islice((e for e in script(workload) if isinstance(e, Executed) and e.core == 0), 500))

    assert of_core_0(one) == of_core_0(two)


def test_a_workload_survives_its_command_line(workload):
    pattern, *options = workload.arguments()
    options = dict(o.split("=") if "=" in o else (o, None) for o in options)
    arguments = workload.arguments()
    again = Workload.of_arguments(
        pattern,
        arguments[arguments.index("--cores") + 1],
        arguments[arguments.index("--model") + 1],
        int(arguments[arguments.index("--seed") + 1]),
        options["--tag"],
    )
    assert again == workload
    assert first(again, 500) == first(workload, 500)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("inference,rate=50,redeploy_s=none", {"rate": 50.0, "redeploy_s": None}),
        ("hung,symptom=timeout,hung_cores=1", {"symptom": "timeout", "hung_cores": 1}),
        ("straggling,lockstep=yes,slow_factor=1.5", {"lockstep": True, "slow_factor": 1.5}),
        ("erring,kinds=hbm+dma,share=1", {"kinds": "hbm+dma", "share": 1.0}),
    ],
)
def test_a_pattern_survives_its_text(text, changed):
    pattern = read_pattern(text)
    assert {name: getattr(pattern, name) for name in changed} == changed
    assert read_pattern(str(pattern)) == pattern


def test_every_pattern_explains_itself():
    for name, pattern in PATTERNS.items():
        assert pattern.name == name
        assert len(pattern.summary()) > 20


def test_the_documentation_has_every_pattern_key_and_default():
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    rows = {row[1].strip("` "): row[3] for line in page.splitlines() if len(row := line.split("|")) == 5}
    common = set(Pattern.parameters())
    for name, pattern in PATTERNS.items():
        parameters = {k: v for k, (v, _) in pattern.parameters().items() if k not in common}
        inherited = PATTERNS["inference"].parameters() if name != "inference" else {}
        wanted = {key: as_json_but(value) for key, value in parameters.items() if key not in inherited}
        assert dict(entry.split("=") for entry in rows[name].replace("`", "").split()) == wanted


def as_json_but(value):
    return value if isinstance(value, str) else json.dumps(value).replace("null", "none").removesuffix(".0")


@pytest.mark.parametrize("name", PATTERNS)
def test_a_default_as_text_is_what_can_be_read(name):
    texts = {key: as_text(value) for key, (value, _) in PATTERNS[name].parameters().items()}
    assert PATTERNS[name].read(texts) == PATTERNS[name]()


def test_the_documentation_names_every_model():
    page = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    assert [name for name in MODELS if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sleeping", "no pattern is called 'sleeping'; there are inference, training"),
        ("hung,after=3", "hung has no parameter 'after'; it has"),
        ("hung,after_s", "'after_s' is no parameter"),
        ("hung,after_s=soon", "after_s is float, not 'soon'"),
        ("hung,after_s=nan", "after_s is nan"),
        ("hung,symptom=sad", "symptom is 'sad'; it is one of busy, timeout, silent"),
        ("hung,hung_cores=0", "hung_cores is 0"),
        ("inference,rate=0", "rate is 0.0"),
        ("inference,rate=nan", "rate is nan"),
        ("inference,utilization=1.1", "utilization is 1.1"),
        ("inference,spread=3", "spread is 3.0"),
        ("inference,swing=1", "swing is 1.0"),
        ("inference,redeploy_s=0", "redeploy_s is 0.0; it is 0.001 to"),
        ("erring,share=2", "share is 2.0"),
        ("erring,kinds=bad", "'bad' is no kind of error; they are all, or some of generic"),
        ("straggling,slow_factor=0.5", "slow_factor is 0.5"),
        ("straggling,lockstep=maybe", "lockstep is bool, not 'maybe'"),
        ("leaking,limit_gib=-1", "limit_gib is -1.0"),
    ],
)
def test_a_bad_pattern_is_named(text, says):
    with pytest.raises(BadValue) as e:
        read_pattern(text)
    assert says in str(e.value)


@pytest.mark.parametrize("text", ["0/0", "0/0-3", "0/0-1,0/4,1/0-7", "0/3,0/1,63/15"])
def test_cores_survive_their_text(text):
    assert cores_text(read_cores(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0/", "0/3-1", "0/16", "0/0-16", "a/b", "0/0,,0/1"])
def test_bad_cores_are_named(text):
    with pytest.raises(BadValue, match="names no cores"):
        read_cores(text)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model": "eliza"}, "no model is called 'eliza'"),
        ({"cores": ()}, "has no core"),
        ({"cores": ((0, 1), (0, 1))}, "names a core twice"),
        ({"cores": ((64, 0),)}, "device 64 does not exist"),
        ({"cores": ((0, 16),)}, "core 16 does not exist"),
    ],
)
def test_a_workload_no_process_can_be_is_refused(fields, says):
    with pytest.raises(BadValue) as e:
        Workload(**fields)
    assert says in str(e.value)


def test_tags_name_model_and_role():
    assert Workload(number=0).tag == "bert-serving-0"
    assert Workload(pattern=PATTERNS["training"](), number=1).tag == "bert-training-1"
    assert Workload(model="resnet50", number=4).tag == "resnet50-serving-4"
    assert set(MODELS) >= {"bert-base", "gpt2-medium"}
