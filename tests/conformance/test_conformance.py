"""The conformance suite on the drivers that need no other machine: the software driver and the preloaded stand-in.

``make test-kernel`` runs the same rules on a real kernel. Common rules hold on all, so their counts must be equal.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.rules import RULES

ROOT = Path(__file__).resolve().parents[2]


def run(driver: str) -> tuple[str, dict[str, int]]:
    """Run the suite in a process of its own, which opens no device itself; its last line as counts."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.conformance.run", "--driver", driver],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.strip().splitlines()[-1]
    return last, {tag: int(n) for tag, n in re.findall(r"(common|software|kernel) (\d+)", last)}


def test_what_a_reader_finds_holds_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    line, counts = run("replay")
    with capsys.disabled():
        print(f"\n{line}")
    assert counts == {"common": sum(rule.reads for rule in RULES)}
    assert counts["common"] > 25


def expected(*tags: str) -> dict[str, int]:
    return {tag: sum(rule.tag == tag for rule in RULES) for tag in tags}


@pytest.mark.timeout(320)
@pytest.mark.parametrize(
    ("driver", "tags"),
    [
        ("software", ("common", "software")),
        pytest.param("standin", ("common", "kernel"), marks=pytest.mark.slow),  # half a minute
    ],
)
def test_every_rule_holds(driver: str, tags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    line, counts = run(driver)
    with capsys.disabled():
        print(f"\n{line}")
    assert counts == expected(*tags)


def test_every_rule_has_a_name_of_its_own_and_a_known_tag() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert {rule.tag for rule in RULES} == {"common", "software", "kernel"}
