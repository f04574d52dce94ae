"""What the doctor says of one thing, and how an error of ours becomes it. It knows nothing of what is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from neuron_ds.driver import Owner
from neuron_ds.errors import NeuronDSError


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. level: "problem" means that something is not to be seen. advice: what to do, "" for ok."""

    level: Literal["ok", "warn", "problem"]
    subject: str
    message: str
    advice: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "message": self.message, "advice": self.advice}


def split(e: NeuronDSError, advice: str = "") -> tuple[str, str]:
    """What is wrong and what to do: our messages end in the latter, behind a semicolon."""
    text, mark, rest = str(e).rpartition("; ")
    return (text, advice or rest) if mark else (rest, advice)


def name_owners(owners: Iterable[Owner]) -> str:
    return ", ".join(f"pid {o.pid}" + ("" if o.slot is None else f" (slot {o.slot})") for o in owners)
