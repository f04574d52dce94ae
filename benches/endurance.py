"""What takes too long to be measured each time: the exporter over thousands of scrapes of a full machine."""

from __future__ import annotations

from collections.abc import Iterator

from benches import exporter
from benches.harness import Reading


def comparisons() -> Iterator[Reading]:
    yield from exporter.endurance()
