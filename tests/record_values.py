"""Records and blobs as tests want them: strategies for any, and the golden files' JSON as our own shapes.

Knows the layout and the fields of records; knows no slab that lives.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from neuron_ds import layout
from neuron_ds.records import ModelNode, ProcessInfo, ProcessInfoExt, Record

#: Of a property test: how long an example takes on a busy machine is no fault.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

RECORD_CLASSES = (ModelNode, ProcessInfo, ProcessInfoExt)

u8 = st.integers(0, 0xFF)
u32 = st.integers(0, 0xFFFF_FFFF)
u64 = st.integers(0, 0xFFFF_FFFF_FFFF_FFFF)
versions = st.tuples(u8, u8, u32)


def size_of(kind: type[Record], field: str) -> int:
    return next(f.size for f in kind.FIELDS if f.name == field)


def texts(size: int) -> st.SearchStrategy[str]:
    """Any text that fits a field of so many bytes, bytes that are no UTF-8 among it, the full field often."""
    data = st.one_of(
        st.binary(max_size=size),
        st.binary(min_size=size, max_size=size),
        st.text(max_size=size // 4).map(str.encode),
    )
    return data.map(lambda b: b.replace(b"\0", b"\x01").decode("utf-8", "surrogateescape"))


grids = st.tuples(*[st.tuples(*[st.tuples(u64, u32)] * layout.MEM_SLOTS)] * len(layout.MEM_LOCATIONS))

#: The arguments of ``build`` for each kind.
FIELDS: dict[type[Record], st.SearchStrategy[dict[str, Any]]] = {
    ModelNode: st.fixed_dictionaries(
        {
            "model_id": u32,
            "model_node_id": u32,
            "name": texts(size_of(ModelNode, "name")),
            "uuid": st.binary(min_size=layout.UUID_SIZE, max_size=layout.UUID_SIZE),
            "nc_index": u8,
            "sg_index": u8,
            "mem_usage": grids,
        }
    ),
    ProcessInfo: st.fixed_dictionaries(
        {
            "tag": texts(size_of(ProcessInfo, "tag")),
            "framework_type": st.integers(-128, 127),
            "framework_version": versions,
            "fal_version": versions,
            "runtime_version": versions,
        }
    ),
    ProcessInfoExt: st.fixed_dictionaries({"tag": texts(size_of(ProcessInfoExt, "tag"))}),
}

#: A kind of record and the fields of one of its kind.
any_fields = st.sampled_from(RECORD_CLASSES).flatmap(lambda kind: st.tuples(st.just(kind), FIELDS[kind]))
#: A kind of record and bytes of its size, whatever they are.
any_bytes = st.sampled_from(RECORD_CLASSES).flatmap(
    lambda kind: st.tuples(st.just(kind), st.binary(min_size=kind.SIZE, max_size=kind.SIZE))
)


def is_fit_to_print(text: str) -> bool:
    """No control character, nothing a terminal obeys, nothing UTF-8 can't hold."""
    return text.isprintable() and not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def texts_in(value: object) -> list[str]:
    """Every text of a value made of dicts, lists and tuples, keys included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [t for pair in value.items() for part in pair for t in texts_in(part)]
    if isinstance(value, list | tuple):
        return [t for part in value for t in texts_in(part)]
    return []


def golden_text(text: str) -> bytes:
    """The golden JSON has a string byte by byte, as code points 0-255."""
    return text.encode("latin-1")


def fields_of_golden(values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``build`` in a golden JSON's record."""
    fields = {name: value for name, value in values.items() if name not in ("hash", "slot")}
    return {name: golden_text(value) if name in ("name", "tag") else value for name, value in fields.items()}
