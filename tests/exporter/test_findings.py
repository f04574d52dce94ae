"""The family of findings: what the rules say as of the last window's end, and at no cost for a scrape."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from neuron_ds import datastore
from neuron_ds.diagnose import RULES, Look, Severity, Watcher
from neuron_ds.diagnose.rules import RULE_FAILED
from neuron_ds.driver.software import SoftwareDriver
from neuron_ds.exporter.watch import Watch
from tests.exporter.helpers import scrape

FAMILY = "neuron_ds_findings"


def test_findings_are_counted_by_kind_and_severity(driver: SoftwareDriver, watch: Callable[..., Watch]) -> None:
    with datastore.publish(0, driver=driver, tag="t") as producer:
        watching = watch()
        found = scrape(watching.report())
        kinds = {(labels["kind"], labels["severity"]) for labels, _ in found.all(FAMILY)}
        assert kinds == {(kind, s.name.lower()) for kind in (*RULES, RULE_FAILED) for s in Severity}
        assert {value for _, value in found.all(FAMILY)} == {0}
        for core in (1, 3):
            producer.core(core).hw_err_hbm_ue.add(1)
        assert sum(value for _, value in scrape(watching.report()).all(FAMILY)) == 0, "as of the window's end"
        watching.end_window()
        found = scrape(watching.report())
        assert found.get(FAMILY, kind="hardware-error", severity="critical") == 2
        assert sum(value for _, value in found.all(FAMILY)) == 2


def test_a_scrape_does_not_diagnose(
    driver: SoftwareDriver, watch: Callable[..., Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Look] = []
    add = Watcher.add
    monkeypatch.setattr(Watcher, "add", lambda self, look: (calls.append(look), add(self, look))[1])
    driver.probe(0)
    watching = watch()
    assert len(calls) == 1, "the look it began with"
    for _ in range(5):
        scrape(watching.report())
    assert len(calls) == 1
    watching.end_window()
    assert len(calls) == 2
