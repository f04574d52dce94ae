"""The configuration file: what is inherited, what it may leave out, and where it says that something is wrong."""

import json

import pytest

from neuron_ds.errors import BadValue
from neuron_ds.monitor.config import RUNTIME_GROUPS, SYSTEM_GROUPS, duration_ns, load

SECOND = 1_000_000_000


@pytest.fixture
def file(tmp_path):
    def write(value) -> str:
        path = tmp_path / "monitor.conf"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return str(path)

    return write


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("5s", 5 * SECOND),
        ("+5s", 5 * SECOND),
        ("100ms", SECOND // 10),
        ("1m30s", 90 * SECOND),
        ("1.5h", 5400 * SECOND),
        ("1h15m30.918s", 4530_918_000_000),
        (".5s", SECOND // 2),
        ("1.s", SECOND),
        ("20000us", 20_000_000),
        ("20000µs", 20_000_000),
        ("20000\u03bcs", 20_000_000),
        ("50000000ns", 50_000_000),
    ],
)
def test_durations_are_gos(text, ns):
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5sec", "-5s", "1e3s", "5S", "5s ", "\u0665s", "5..0s"])
def test_what_is_no_duration(text):
    with pytest.raises(BadValue, match="is no duration"):
        duration_ns(text)


@pytest.mark.parametrize("text", ["0s", "1ms", "25h", "999999999h"])
def test_what_is_no_period(text):
    with pytest.raises(BadValue, match="10ms to 24h"):
        duration_ns(text)


def test_without_a_file_everything_comes_every_five_seconds():
    config = load(None)
    assert config.period_ns == 5 * SECOND
    assert config.rule_of("anything").periods_ns == dict.fromkeys(RUNTIME_GROUPS, 5 * SECOND)
    assert config.system_ns == dict.fromkeys(SYSTEM_GROUPS, 5 * SECOND)
    assert load(None, 2 * SECOND).periods_ns == [2 * SECOND]


def test_periods_are_inherited(file):
    config = load(
        file(
            {
                "period": "1s",
                "neuron_runtimes": [
                    {
                        "tag_filter": "^a",
                        "metrics": [{"type": "memory_used", "period": "3s"}, {"type": "execution_stats"}],
                    },
                    {"tag_filter": ".*", "metrics": [{"type": "neuroncore_counters"}]},
                ],
                "system_metrics": [{"type": "vcpu_usage"}, {"type": "neuron_hw_counters", "period": "2s"}],
            }
        )
    )
    assert config.rule_of("a1").periods_ns == {"memory_used": 3 * SECOND, "execution_stats": SECOND}
    assert config.rule_of("b1").periods_ns == {"neuroncore_counters": SECOND}
    assert config.system_ns == {"vcpu_usage": SECOND, "neuron_hw_counters": 2 * SECOND}
    assert config.periods_ns == [SECOND, 2 * SECOND, 3 * SECOND]
    assert config.unknown == ()


def test_what_is_left_out_is_everything_and_what_is_empty_is_nothing(file):
    assert load(file({"period": "1s"})).rule_of("x").periods_ns == dict.fromkeys(RUNTIME_GROUPS, SECOND)
    assert load(file({"neuron_runtimes": [{}]})).rule_of("x").periods_ns.keys() == set(RUNTIME_GROUPS)
    config = load(file({"period": "1s", "neuron_runtimes": [], "system_metrics": []}))
    assert config.rule_of("x") is None
    assert config.system_ns == {}
    assert config.periods_ns == [SECOND]


def test_a_runtime_without_a_matching_rule_is_left_out(file):
    config = load(file({"neuron_runtimes": [{"tag_filter": "serv"}]}))
    assert config.rule_of("serving") is not None
    assert config.rule_of("training") is None


def test_the_option_takes_the_place_of_the_general_period_only(file):
    path = file({"period": "1s", "system_metrics": [{"type": "vcpu_usage"}, {"type": "memory_info", "period": "2s"}]})
    assert load(path, 7 * SECOND).system_ns == {"vcpu_usage": 7 * SECOND, "memory_info": 2 * SECOND}


def test_names_of_pods_come_only_where_asked_for(file):
    assert load(None).kubernetes_ns is None
    assert load(file({"period": "1s"})).kubernetes_ns is None
    assert load(file({"neuron_k8s_info": None})).kubernetes_ns is None
    assert load(file({"period": "1s", "neuron_k8s_info": {}})).kubernetes_ns == SECOND
    config = load(file({"neuron_runtimes": [], "system_metrics": [], "neuron_k8s_info": {"period": "3s", "x": 1}}))
    assert (config.kubernetes_ns, config.periods_ns) == (3 * SECOND, [3 * SECOND])
    assert config.unknown == ("neuron_k8s_info.x",)


def test_unknown_keys_are_told_with_their_place(file):
    config = load(file({"perod": "1s", "neuron_runtimes": [{"address": "unix:/x", "metrics": []}]}))
    assert config.unknown == ("perod", "neuron_runtimes[0].address")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        (b"", "line 1, column 1"),
        (b'{\n "period": 5s}', "line 2, column 13"),
        (b"\xff{}", "byte 0 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        ([], "the file: an array"),
        ({"period": 5}, "period: a number"),
        ({"period": "5"}, "period: '5' is no duration"),
        ({"neuron_runtimes": {}}, "neuron_runtimes: an object"),
        ({"neuron_runtimes": [3]}, "neuron_runtimes[0]: a number"),
        ({"neuron_runtimes": [{"tag_filter": "("}]}, "neuron_runtimes[0].tag_filter: '(' is no regular expression"),
        ({"neuron_runtimes": [{"tag_filter": True}]}, "neuron_runtimes[0].tag_filter: true or false"),
        ({"neuron_runtimes": [{"metrics": [{}]}]}, "neuron_runtimes[0].metrics[0]: has no type"),
        ({"neuron_runtimes": [{}, {"metrics": [{"type": "x"}]}]}, "neuron_runtimes[1].metrics[0].type: 'x' is none of"),
        ({"system_metrics": [{"type": []}]}, "system_metrics[0].type: an array is none of"),
        ({"system_metrics": [{"type": "memory_info", "period": "1d"}]}, "system_metrics[0].period: '1d'"),
        ({"system_metrics": [None]}, "system_metrics[0]: null"),
        ({"neuron_k8s_info": True}, "neuron_k8s_info: true or false"),
        ({"neuron_k8s_info": {"period": "x"}}, "neuron_k8s_info.period: 'x'"),
    ],
)
def test_a_bad_file_names_the_place(file, value, place):
    path = file(value)
    with pytest.raises(BadValue) as e:
        load(path)
    assert place in str(e.value)
    assert path in str(e.value)
    assert "\n" not in str(e.value)
