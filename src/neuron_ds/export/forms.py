"""The forms of an export by their names, which one a file's name asks for, and the way from a recording to each.

It puts the pieces of this room together; what they do is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO

from neuron_ds import __version__
from neuron_ds.collect import Sample
from neuron_ds.errors import BadValue, FormatError
from neuron_ds.export.parquet import need_pyarrow, write_parquet
from neuron_ds.export.rows import blocks_of
from neuron_ds.export.steps import Step, steps_of
from neuron_ds.export.table import write_csv
from neuron_ds.export.trace import write_trace
from neuron_ds.export.tracefile import JsonTrace, PerfettoTrace
from neuron_ds.record import Recording

PARQUET, CSV, TRACE, PERFETTO = "parquet", "csv", "trace", "perfetto"
FORMS = (PARQUET, CSV, TRACE, PERFETTO)
#: What a form is recognized by; a .gz may follow where it is text or packets.
SUFFIXES = {".parquet": PARQUET, ".csv": CSV, ".json": TRACE, ".perfetto-trace": PERFETTO, ".pftrace": PERFETTO}


def form_of(path: str) -> str:
    """The form that a file's name asks for. Raises BadValue where it asks for none."""
    name = path.removesuffix(".gz")
    for suffix, form in SUFFIXES.items():
        if name.endswith(suffix) and (name == path or form != PARQUET):
            return form
    raise BadValue(f"{path!r} says no form by its end ({', '.join(SUFFIXES)}): say it with --format {'|'.join(FORMS)}")


def check_form(form: str, path: str) -> None:
    """Before anything is read: whether it can be. Raises NotSupported without the extra, BadValue."""
    if form == PARQUET:
        need_pyarrow()
        if path.endswith(".gz"):
            raise BadValue("a Parquet file is compressed inside: leave .gz away")


def export(
    recording: Recording,
    form: str,
    file: IO[bytes],
    *,
    every_ns: int = 0,
    start_ns: int | None = None,
    end_ns: int | None = None,
    changes: bool = False,
    seen: Callable[[Step], None] = lambda step: None,
) -> int:
    """Write a recording in a form; how many rows that were, 0 for a trace. ``seen`` is told each Step.

    Raises FormatError where the recording holds numbers that can't be.
    """
    offset_ns = recording.session.wall_offset_ns

    def steps() -> Iterator[Step]:
        for step in steps_of(recording, every_ns, start_ns, end_ns):
            seen(step)
            yield step

    def samples() -> Iterator[Sample]:
        return (step.sample for step in steps())

    try:
        if form == CSV:
            return write_csv(blocks_of(samples(), changes=changes), file, offset_ns)
        if form == PARQUET:
            return write_parquet(blocks_of(samples(), changes=changes), file, offset_ns, _about(recording))
        about = {"software": f"neuron-datastore {__version__}", "host": recording.session.host}
        write_trace(steps(), (JsonTrace if form == TRACE else PerfettoTrace)(file, offset_ns, about))
        return 0
    except OverflowError as e:
        raise FormatError(f"holds a number that can't be: {e}", path=recording.path) from None


def _about(recording: Recording) -> dict[str, object]:
    session = recording.session
    return {
        "software": f"neuron-datastore {__version__}",
        "recorded_by": session.software,
        "host": session.host,
        "driver": session.driver,
        "wall_offset_ns": session.wall_offset_ns,
        "period_us": session.period_us,
    }
