"""The page about the rules is about these rules and these thresholds."""

from __future__ import annotations

import re
from pathlib import Path

from neuron_ds.diagnose import RULES, Severity, Thresholds

PAGE = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text()


def test_every_rule_has_its_row_and_its_section() -> None:
    rows = re.findall(r"^\| \[`([a-z-]+)`\]\(#([a-z-]+)\) \| ([a-z]+)", PAGE, re.MULTILINE)
    assert [kind for kind, _, _ in rows] == list(RULES)
    assert all(kind == anchor for kind, anchor, _ in rows)
    assert {severity for _, _, severity in rows} <= {s.name.lower() for s in Severity}
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert [section.split("\n", 1)[0] for section in sections] == list(RULES)
    for kind, section in zip(RULES, sections, strict=True):
        text = " ".join(section.split())
        assert RULES[kind].sentence in text, kind
        assert "**Evidence**:" in text
        assert "**Next**:" in text


def test_every_threshold_has_its_row_and_belongs_to_a_rule() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.e+]+) \| (.+) \|$", PAGE, re.MULTILINE)
    t = Thresholds()
    assert rows == [(name, f"{getattr(t, name):.10g}", text) for name, text in Thresholds.sentences().items()]
    used = set(re.findall(r"(?<!\[)`(\w+)`", "".join(re.findall(r"^\| \[`.*$", PAGE, re.MULTILINE))))
    assert used == Thresholds.sentences().keys() - {"clear_after_s"}, "which is the Watcher's"
