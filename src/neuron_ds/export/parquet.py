"""Parquet: the long form in typed columns, a row group at a time, so that memory doesn't grow with the recording.

Columns are kept as plain arrays of machine words until a row group is full, and handed to pyarrow without being copied
value by value. It needs the extra ``parquet``, and knows no file's name.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable
from typing import IO, Any

from neuron_ds.errors import NotSupported
from neuron_ds.export.rows import COLUMNS, PLACES, Block, picked

MISSING = "pyarrow is not installed; pip install 'neuron-datastore[parquet]'"
ROWS_PER_GROUP = 1 << 19
#: Stands for null in a column that has no negative values, until it is handed over.
_NULL = -1

_COUNTERS = tuple(dict.fromkeys(p.counter.name for p in PLACES))
_UNITS = tuple(dict.fromkeys(p.counter.unit for p in PLACES))
_KINDS = tuple(dict.fromkeys(p.counter.kind for p in PLACES))
_CORE_OF = tuple(_NULL if p.core is None else p.core for p in PLACES)
_COUNTER_OF = tuple(_COUNTERS.index(p.counter.name) for p in PLACES)
_UNIT_OF = tuple(_UNITS.index(p.counter.unit) for p in PLACES)
_KIND_OF = tuple(_KINDS.index(p.counter.kind) for p in PLACES)


def need_pyarrow() -> None:
    """Raises NotSupported where the extra isn't installed."""
    try:
        import pyarrow.parquet  # noqa: F401  only whether it is there
    except ModuleNotFoundError:
        raise NotSupported(MISSING) from None


class _Group:
    """A row group that is being filled. The array's letters are those of its machine words."""

    def __init__(self) -> None:
        self.time, self.monotonic = array("q"), array("q")
        self.device, self.slot, self.generation, self.pid = array("i"), array("i"), array("q"), array("q")
        self.tag, self.core, self.counter = array("i"), array("h"), array("h")
        self.unit, self.kind, self.value = array("b"), array("b"), array("Q")
        self._tags: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.value)

    def add(self, b: Block, wall_offset_ns: int) -> None:
        n, o = len(b.values), b.owner
        tag = self._tags.setdefault(b.tag, len(self._tags))
        self.time.extend(array("q", (b.time_ns + wall_offset_ns,)) * n)
        self.monotonic.extend(array("q", (b.time_ns,)) * n)
        self.device.extend(array("i", (o.device,)) * n)
        self.slot.extend(array("i", (_NULL if o.slot is None else o.slot,)) * n)
        self.generation.extend(array("q", (_NULL if o.generation is None else o.generation,)) * n)
        self.pid.extend(array("q", (o.pid,)) * n)
        self.tag.extend(array("i", (tag,)) * n)
        for column, table in ((self.core, _CORE_OF), (self.counter, _COUNTER_OF)):
            column.extend(picked(table, b.places))
        for column, table in ((self.unit, _UNIT_OF), (self.kind, _KIND_OF)):
            column.extend(picked(table, b.places))
        self.value.extend(b.values)

    def table(self, schema: Any) -> Any:
        """As pyarrow has it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def column(values: array[int], type: Any) -> Any:
            return pa.Array.from_buffers(type, len(values), [None, pa.py_buffer(values)])

        def nullable(values: array[int], raw: Any, type: Any) -> Any:
            whole = column(values, raw)
            return pc.if_else(pc.equal(whole, pa.scalar(_NULL, raw)), pa.scalar(None, raw), whole).cast(type)

        def words(values: array[int], index: Any, names: Iterable[str]) -> Any:
            return pa.DictionaryArray.from_arrays(column(values, index), pa.array(list(names), pa.string()))

        columns = [
            column(self.time, pa.timestamp("ns", "UTC")),
            column(self.monotonic, pa.int64()),
            column(self.device, pa.int32()),
            nullable(self.slot, pa.int32(), pa.int32()),
            nullable(self.generation, pa.int64(), pa.int64()),
            column(self.pid, pa.int64()),
            words(self.tag, pa.int32(), self._tags),
            nullable(self.core, pa.int16(), pa.uint8()),
            words(self.counter, pa.int16(), _COUNTERS),
            words(self.unit, pa.int8(), _UNITS),
            words(self.kind, pa.int8(), _KINDS),
            column(self.value, pa.uint64()),
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def write_parquet(
    blocks: Iterable[Block], file: IO[bytes], wall_offset_ns: int, about: dict[str, object] | None = None
) -> int:
    """Write blocks; how many rows that were. ``about``: kept as JSON in the file's metadata, under neuron_ds."""
    need_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = (
        *(pa.timestamp("ns", "UTC"), pa.int64(), pa.int32(), pa.int32(), pa.int64(), pa.int64()),
        *(pa.dictionary(pa.int32(), pa.string()), pa.uint8(), pa.dictionary(pa.int16(), pa.string())),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int8(), pa.string()), pa.uint64()),
    )
    optional = ("slot", "generation", "core")
    fields = [pa.field(name, type, name in optional) for name, type in zip(COLUMNS, types, strict=True)]
    schema = pa.schema(fields, {"neuron_ds": json.dumps(about or {})})
    group, rows = _Group(), 0
    with pq.ParquetWriter(file, schema, compression="zstd", version="2.6") as writer:
        for block in blocks:
            group.add(block, wall_offset_ns)
            if len(group) >= ROWS_PER_GROUP:
                rows += len(group)
                writer.write_table(group.table(schema), ROWS_PER_GROUP)
                group = _Group()
        rows += len(group)
        writer.write_table(group.table(schema), ROWS_PER_GROUP)
    return rows
