"""The files of deploy/ are whole: they parse, ask for nothing that isn't exported, and the rules do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuron_ds.categories import ERROR_TYPES, STATUS_TYPES
from neuron_ds.diagnose import RULES as FINDINGS
from neuron_ds.diagnose import Severity
from neuron_ds.diagnose.rules import RULE_FAILED
from neuron_ds.exporter import families as f
from neuron_ds.exporter.server import MOST_CONNECTIONS
from neuron_ds.host import ECC

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
FLEET = (ROOT / "docs" / "fleet.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "neuron-ds.json").read_text())
RULES = {name: (PROMETHEUS / f"{name}.rules.yml").read_text() for name in ("recording", "alerts")}

LABELS = {family.sample: {*family.labels, *f.INSTANCE_LABELS, "job", "instance"} for family in f.FAMILIES}
RECORDED = re.findall(r"- record: (\S+)", RULES["recording"])
ALERTS = re.findall(r"- alert: (\S+)", RULES["alerts"])

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
_OPERATORS = {"and", "or", "unless", "offset", "bool", "by", "without", "on", "ignoring", "group_left", "group_right"}


def metric_names(promql: str) -> set[str]:
    """What an expression asks for."""
    bare = re.sub(r"\[[^\]]*\]", "", re.sub(r"\{[^}]*\}", "", _GROUPED.sub("", _TEXT.sub('""', promql))))
    return set(_NAME.findall(bare)) - _OPERATORS


def matched_labels(promql: str) -> Iterator[tuple[str, str]]:
    """(metric, label) of each matcher."""
    for metric, matchers in _SELECTOR.findall(promql):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", _TEXT.sub('""', matchers)):
            yield metric, label


def rule_expressions(text: str) -> list[str]:
    """The expressions of a file of rules, whose layout is ours: on the line of the key, or folded below it."""
    return re.findall(r"^        expr: (?:>\n)?((?:.*\n)(?:          .*\n)*)", text, re.M)


def queries() -> list[str]:
    return [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", ())]


EXPRESSIONS = [*rule_expressions(RULES["recording"]), *rule_expressions(RULES["alerts"]), *queries()]


def test_names_are_found_in_expressions() -> None:
    assert metric_names('sum by (job) (rate(a_total{x="b"}[5m])) / on (i) c:d and e > 0.5e3') == {"a_total", "c:d", "e"}
    assert list(matched_labels('a{b="c,d=e", f=~"g"}')) == [("a", "b"), ("a", "f")]
    assert len(rule_expressions(RULES["recording"])) == len(RECORDED)
    assert len(rule_expressions(RULES["alerts"])) == len(ALERTS)


def test_rules_ask_only_for_what_is_exported_or_recorded() -> None:
    for expression in EXPRESSIONS:
        assert metric_names(expression) <= {*LABELS, *RECORDED, "up"}, expression
        for metric, label in matched_labels(expression):
            assert metric == "up" or label in LABELS[metric], expression


def test_the_dashboard_asks_only_for_families_of_the_exporter() -> None:
    assert queries()
    for expression in queries():
        assert metric_names(expression), expression
        assert metric_names(expression) <= LABELS.keys(), expression
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            assert metric_names(re.findall(r"label_values\(([^{,]+)", variable["definition"])[0]) <= LABELS.keys()


def test_no_rule_asks_for_what_only_some_exporters_serve() -> None:
    asked = set().union(*map(metric_names, EXPRESSIONS))
    assert not asked & {family.sample for family in f.PER_PROCESS}


def test_the_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert [p["title"] for p in panels if p["type"] == "row"] == [
        "Fleet",
        "Host",
        "Cores",
        "Latency",
        "Memory",
        "Errors",
    ]
    assert [v["name"] for v in DASHBOARD["templating"]["list"]] == ["datasource", "job", "instance"]
    assert len({p["id"] for p in panels}) == len(panels)
    assert any(p["type"] == "heatmap" for p in panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        pos = panel["gridPos"]
        cells = {(pos["x"] + i, pos["y"] + j) for i in range(pos["w"]) for j in range(pos["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            assert panel["datasource"] == target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_each_alert_has_a_test_that_fires_it_and_one_that_does_not_and_is_documented() -> None:
    text = (PROMETHEUS / "tests.yml").read_text()
    for alert in ALERTS:
        assert re.search(rf"alertname: {alert}\n\s+exp_alerts:", text), alert
        assert re.search(rf"eval_time: \w+, alertname: {alert}}}", text), alert
        assert f"`{alert}`" in FLEET


def test_findings_that_alert_are_kinds_of_findings() -> None:
    (kinds,) = re.findall(r'kind=~"([^"]+)"', RULES["alerts"])
    assert set(kinds.split("|")) < {*FINDINGS, RULE_FAILED}


def test_the_unit_gives_no_capability_and_hides_nothing_that_is_needed() -> None:
    text = (DEPLOY / "systemd" / "neuron-ds-exporter.service").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    settings = dict(line.split("=", 1) for line in lines if not line.startswith("["))
    assert settings["CapabilityBoundingSet"] == settings["AmbientCapabilities"] == ""
    assert settings["DeviceAllow"] == "char-neuron rw"
    assert settings["ProtectProc"] == "default"
    assert settings["ProcSubset"] == "all"
    assert not settings.keys() & {"PrivateDevices", "PrivateUsers", "PrivateNetwork", "PrivatePIDs"}
    assert int(settings["TasksMax"]) >= MOST_CONNECTIONS + 32, "a thread for each, its own, and those of gRPC"


def test_the_count_of_series_is_that_of_the_families() -> None:
    by_device = [
        family for family in (*f.OURS, *(c.family for c in f.DEVICE_COUNTERS)) if "neuron_device" in family.labels
    ]
    # Each once but: processes in 3 states, reads in 5, versions counted apart; and the ECC events.
    of_device = len(by_device) - 3 + 3 + 5 + len(ECC)
    of_runtime = len(STATUS_TYPES) + len(ERROR_TYPES) + 7 + 2 + 2 + 1  # percentiles, memory, vCPU, processes
    of_host = 24 + len((*FINDINGS, RULE_FAILED)) * len(Severity)  # tests/exporter/test_server.py counts them
    formula = (
        f"series = {len(f.CORE_COUNTERS)} × D × C + ({of_device} + V) × D"
        f" + R × ({of_runtime} + D × L + {len(f.CORE_MEMORY_FAMILIES)} × d × L) + {of_host}\n"
    )
    assert formula in FLEET
    assert f"{len(f.PROCESS_CORE_COUNTERS)} × C + {len(f.PROCESS_COUNTERS) + 1} " in FLEET

    def series(devices: int, cores: int, logical: int, runtimes: int, used: int) -> int:
        versions = 3 if runtimes else 0
        of_one = of_runtime + devices * logical + len(f.CORE_MEMORY_FAMILIES) * used * logical
        return len(f.CORE_COUNTERS) * devices * cores + (of_device + versions) * devices + runtimes * of_one + of_host

    for host, shape in {"inf2.xlarge": (1, 2, 2), "trn1.32xlarge": (16, 2, 2), "trn2.48xlarge": (16, 8, 4)}.items():
        cells = [series(*shape, 0, 0), series(*shape, 16, 1), series(*shape, 1, shape[0])]
        assert f"| {host} | {', '.join(map(str, shape))} | {' | '.join(f'{n:,}' for n in cells)} |" in FLEET


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    assert found, "promtool is missing: apt-get install prometheus brings it"
    return found


def run(promtool: str, *arguments: str) -> None:
    done = subprocess.run([promtool, *arguments], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_promtool_accepts_the_rules_and_the_configuration(promtool: str) -> None:
    run(promtool, "check", "rules", "--lint-fatal", "recording.rules.yml", "alerts.rules.yml")
    run(promtool, "check", "config", "scrape.yml")


@pytest.mark.slow
def test_the_rules_do_what_they_say(promtool: str) -> None:
    run(promtool, "test", "rules", "tests.yml")


@pytest.mark.slow
def test_promtool_accepts_the_configurations_of_the_page(promtool: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", FLEET, re.S)
    assert len(blocks) == 2
    for i, block in enumerate(blocks):
        (tmp_path / f"{i}.yml").write_text(block)
        run(promtool, "check", "config", str(tmp_path / f"{i}.yml"))
    run(promtool, "check", "config", "--agent", str(tmp_path / "1.yml"))
