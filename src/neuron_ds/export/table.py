"""CSV: the long form as text, for whatever reads tables. It knows rows and their spelling, and no file's name."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import IO

from neuron_ds.export.rows import COLUMNS, PLACES, Block


def iso(wall_ns: int) -> str:
    """A time since 1970 as in 2026-05-01T12:00:00.123456789Z. Raises OverflowError beyond the year 9999."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
    except (ValueError, OSError):
        raise OverflowError("a time that no calendar has") from None


def write_csv(blocks: Iterable[Block], file: IO[bytes], wall_offset_ns: int) -> int:
    """Write blocks; how many rows that were."""
    spelled = [
        f"{'' if p.core is None else p.core},{p.counter.name},{p.counter.unit},{p.counter.kind}," for p in PLACES
    ]
    file.write((",".join(COLUMNS) + "\n").encode())
    rows = 0
    for b in blocks:
        slot = "" if b.owner.slot is None else b.owner.slot
        generation = "" if b.owner.generation is None else b.owner.generation
        fields = (iso(b.time_ns + wall_offset_ns), b.time_ns, b.owner.device, slot, generation, b.owner.pid, b.tag)
        head = _line(fields) + ","
        lines = [f"{head}{spelled[i]}{value}\n" for i, value in zip(b.places, b.values, strict=True)]
        file.write("".join(lines).encode())
        rows += len(lines)
    return rows


def _line(fields: Iterable[object]) -> str:
    """Fields as CSV spells them, a tag with commas and quotes too."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return text.getvalue()
