"""A Finding: what an experienced operator would say of the counters, and where to look next. It knows no rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum


class Severity(IntEnum):
    """How bad it is; higher is worse."""

    INFO = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    kind: the rule's name, as ``hung-core``. device, slot, pid, tag, core: whose it is, None or "" where it is wider
    than that; core is the physical one. since_ns: when it began, by the Looks' clock. evidence: counters and figures by
    name, with units in the names. message: one sentence. advice: what to look at next.
    """

    kind: str
    severity: Severity
    message: str
    advice: str
    since_ns: int
    device: int | None = None
    slot: int | None = None
    pid: int | None = None
    tag: str = ""
    core: int | None = None
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, int | None, int | None, int | None, int | None]:
        """What makes it the same finding at the next look."""
        return self.kind, self.device, self.slot, self.pid, self.core

    def to_dict(self, now_ns: int) -> dict[str, object]:
        """As plain values; ``now_ns`` by the same clock gives its age."""
        return {
            "kind": self.kind,
            "severity": self.severity.name.lower(),
            "device": self.device,
            "slot": self.slot,
            "pid": self.pid,
            "tag": self.tag,
            "core": self.core,
            "for_s": max(0.0, (now_ns - self.since_ns) / 1e9),
            "message": self.message,
            "evidence": dict(self.evidence),
            "advice": self.advice,
        }
