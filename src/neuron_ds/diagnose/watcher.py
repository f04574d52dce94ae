"""A Watcher sees one Look after the other and says what is found now, what has begun and what is over.

Findings are remembered by their identity: one that goes on keeps the time at which it began, and one that is not found
for a moment is not over yet. Time is that of the Looks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from neuron_ds.collect import Sample
from neuron_ds.diagnose.finding import Finding
from neuron_ds.diagnose.looks import Look, look_at
from neuron_ds.diagnose.rules import diagnose
from neuron_ds.diagnose.thresholds import Thresholds
from neuron_ds.diagnose.window import Window

Identity = tuple[str, int | None, int | None, int | None, int | None]
#: The findings now, those of them that have begun, and those that are over.
News = tuple[list[Finding], list[Finding], list[Finding]]


class Watcher:
    """Keeps the window and the findings. ``window`` may be read by whoever wants to, and added to by nobody else."""

    def __init__(self, thresholds: Thresholds | None = None, window: Window | None = None) -> None:
        self.thresholds = thresholds or Thresholds()
        self.window = Window() if window is None else window
        self.findings: list[Finding] = []
        self.judged = False  #: whether the rules were asked about the newest look
        self._seen_ns: dict[Identity, int] = {}

    def add(self, look: Look, *, judge: bool = True) -> News:
        """One more look. A look that is not newer than the last (a recording was rewound) begins anew.

        Without ``judge`` it is only kept, and what was found stands: rules cost more than a look. As long as it is the
        newest it can be judged still.
        """
        rewound = len(self.window) > 0 and look.time_ns <= self.window.now.time_ns
        if rewound:
            self._seen_ns.clear()
        self.window.add(look)
        self.judged = False
        return self.judge() if judge or rewound else (list(self.findings), [], [])

    def judge(self) -> News:
        """What the rules say of the newest look. Raises IndexError where there is none."""
        self.judged = True
        look = self.window.now
        known = {f.identity: f for f in self.findings}
        now: dict[Identity, Finding] = {}
        for finding in diagnose(self.window, self.thresholds):
            old = known.get(finding.identity)
            since_ns = finding.since_ns if old is None else min(old.since_ns, finding.since_ns)
            now.setdefault(finding.identity, replace(finding, since_ns=since_ns))
            self._seen_ns[finding.identity] = look.time_ns
        began = [f for identity, f in now.items() if identity not in known]
        patience_ns = int(self.thresholds.clear_after_s * 1e9)
        over = []
        for identity, old in known.items():
            if identity not in now:
                if look.time_ns - self._seen_ns.get(identity, -patience_ns - 1) <= patience_ns:
                    now[identity] = old
                else:
                    over.append(old)
                    self._seen_ns.pop(identity, None)
        self.findings = sorted(now.values(), key=lambda f: -f.severity)
        return list(self.findings), began, over


def looks_of(samples: Iterable[Sample]) -> Iterator[Look]:
    """The Looks of Samples, from wherever those come: devices or a recording."""
    look = None
    for sample in samples:
        look = look_at(sample, look)
        yield look
