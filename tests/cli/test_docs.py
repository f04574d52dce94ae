"""docs/commands.md against the commands: every option is told, every one that is told is there, defaults agree."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from neuron_ds.cli import main

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
TEXT = (DOCS / "commands.md").read_text()
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
#: Told once for all, at the head of the page.
HELP = {"--help"}
COMMANDS = sorted(main.commands)
OPTION = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[a-zA-Z])(?![\w-])")


def options(name: str) -> dict[str, click.Option]:
    """By their long names."""
    found = {}
    for parameter in main.commands[name].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            found[next(o for o in parameter.opts if o.startswith("--"))] = parameter
    return found


def synopsis(name: str) -> str:
    """The blocks without a language in a command's section, those of this command."""
    blocks = re.findall(r"^```\n(.*?)^```", SECTIONS[name], re.MULTILINE | re.DOTALL)
    return "".join(block for block in blocks if f"neuron-ds {name}" in block)


def test_every_command_has_a_section() -> None:
    assert sorted(SECTIONS) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_told(name: str) -> None:
    page = DOCS / {"ls": "commands.md", "record": "recording.md"}.get(name, f"{name}.md")
    told = SECTIONS[name] + (page.read_text() if page.exists() else "")
    if name in ("export", "report"):
        told += (DOCS / "analyse.md").read_text()
    replay = {"--from", "--at", "--speed", "--loop"}
    names = set(OPTION.findall(told))
    missing = {o for o, option in options(name).items() if names.isdisjoint(option.opts)} - replay
    assert missing == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_told_is_there(name: str) -> None:
    known = {o for option in options(name).values() for o in (*option.opts, *option.secondary_opts)}
    assert set(OPTION.findall(synopsis(name))) - known - HELP == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_numbers_in_the_synopsis_are_the_defaults(name: str) -> None:
    found = re.findall(r"(--[a-z-]+) (\d+(?:\.\d+)?)(?=\])", synopsis(name))
    assert {o: float(n) for o, n in found} == {o: float(options(name)[o].default) for o, _ in found}


def test_those_that_work_on_a_recording_are_named() -> None:
    paragraph = next(p for p in TEXT.split("\n\n") if "in place\nof devices" in p)
    named = set(re.findall(r"`([a-z]+)`", paragraph.partition(" also work")[0]))
    assert named == {name for name in COMMANDS if "--from" in options(name)}
