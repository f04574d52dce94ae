"""The layout table against the machine's C compiler, and everything generated from it against the files on disk.

The C program below declares the published structs a second time, as their headers do: without offsets, without named
padding, and with the frozen start of the extension computed. What the compiler makes of it must be layout.py.
"""

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import neuron_ds
from neuron_ds import _core, errors, layout

ROOT = Path(__file__).resolve().parent.parent

# Each struct as published: {name: [(type, field, dimensions)]}.
STRUCTS = {
    "header": [("char", "signature", "[4]"), ("int32_t", "version", "")],
    "version": [("uint8_t", "major", ""), ("uint8_t", "minor", ""), ("uint32_t", "build", "")],
    "process_info": [
        ("uint32_t", "hash", ""),
        ("int8_t", "framework_type", ""),
        ("char", "tag", "[32]"),
        ("struct version", "framework_version", ""),
        ("struct version", "fal_version", ""),
        ("struct version", "runtime_version", ""),
    ],
    "process_info_ext": [("uint32_t", "hash", ""), ("char", "tag", "[256]")],
    "mem_usage": [("uint64_t", "total_size", ""), ("uint32_t", "chunk_count", "")],
    "model_node": [
        ("uint32_t", "hash", ""),
        ("uint32_t", "model_id", ""),
        ("uint32_t", "model_node_id", ""),
        ("char", "name", "[256]"),
        ("uint8_t", "uuid", "[16]"),
        ("uint8_t", "nc_index", ""),
        ("uint8_t", "sg_index", ""),
        ("struct mem_usage", "mem_usage", "[2][12]"),
    ],
    # The blob up to where the first extension began ...
    "original": [
        ("struct header", "header", ""),
        ("uint64_t", "nd_counters", "[31]"),
        ("uint64_t", "nc_counters", "[4][31]"),
        ("struct process_info", "process_info", ""),
        ("uint64_t", "model_bitmap", ""),
        ("struct model_node", "models", "[64]"),
        ("struct process_info_ext", "process_info_ext", ""),
        ("char", "pad", "[1]"),
    ],
    # ... and whole: the old extension's size (65 counters, then 96) freezes where the new one begins.
    "blob": [
        ("struct header", "header", ""),
        ("uint64_t", "nd_counters", "[31]"),
        ("uint64_t", "nc_counters", "[4][31]"),
        ("struct process_info", "process_info", ""),
        ("uint64_t", "model_bitmap", ""),
        ("struct model_node", "models", "[64]"),
        ("struct process_info_ext", "process_info_ext", ""),
        ("char", "pad", "[NDS_EXT_OFFSET - OLD_START]"),
        ("uint64_t", "ext_nc_counters", "[4][64]"),
        ("uint64_t", "ext_nc_data", "[12][96]"),
    ],
}
RECORDS = {
    "version": layout.VERSION_FIELDS,
    "process_info": layout.PROCESS_INFO_FIELDS,
    "process_info_ext": layout.PROCESS_INFO_EXT_FIELDS,
    "mem_usage": layout.MEM_USAGE_FIELDS,
    "model_node": layout.MODEL_FIELDS,
}
#: Array elements and where the format's description says they are.
WORKED = {
    "nd_counters[3]": 0x020,
    "nc_counters[2][1]": 0x2F8,
    "ext_nc_counters[1][32 - 31]": 0xDC88,
    "ext_nc_data[7 - 4][29]": 0xEC68,
    "models[5]": 0x1248,
}


def program() -> str:
    """C source that prints {"struct.field": [offset, size], "struct": size, "element": offset} as JSON."""
    out = ["#include <stddef.h>", "#include <stdint.h>", "#include <stdio.h>"]
    prints = []
    for name, fields in STRUCTS.items():
        if name == "blob":
            out.append("#define OLD_START offsetof(struct original, pad)")
            out.append("#define ALIGN64(n) (((n) + 63) / 64 * 64)")
            out.append("#define NDS_EXT_OFFSET ALIGN64(OLD_START + 65 * 4 * 8 + 96 * 12 * 8)")
        out.append(f"struct {name} {{")
        out += [f"    {kind} {field}{dimensions};" for kind, field, dimensions in fields]
        out.append("};")
        for _, field, _ in fields:
            place = f"offsetof(struct {name}, {field}), sizeof(((struct {name} *)0)->{field})"
            prints.append(rf'printf("\"{name}.{field}\": [%zu, %zu],\n", {place});')
        prints.append(rf'printf("\"{name}\": %zu,\n", sizeof(struct {name}));')
    for element in WORKED:
        prints.append(rf'printf("\"{element}\": %zu,\n", offsetof(struct blob, {element}));')
    body = "\n    ".join(prints)
    return "\n".join(out) + f'\nint main(void) {{\n    puts("{{");\n    {body}\n    puts("\\"end\\": 0}}");\n}}\n'


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict:
    """What the compiler makes of the structs. `toolchain` finds the compiler the core was built with."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import toolchain
    finally:
        sys.path.pop(0)
    compiler = toolchain.find_compiler()
    if compiler is None:
        pytest.fail(toolchain.compiler_fault(), pytrace=False)
    place = tmp_path_factory.mktemp("layout")
    (place / "layout.c").write_text(program())
    subprocess.run([*compiler, "-std=c11", "-Wall", "-Werror", "-o", place / "layout", place / "layout.c"], check=True)
    return json.loads(subprocess.run([place / "layout"], capture_output=True, check=True).stdout)


def gaps(compiled: dict, struct: str) -> list[tuple[int, int]]:
    """(offset, size) of the padding that the compiler put between and behind the fields."""
    ends, found = 0, []
    for offset, size in (compiled[f"{struct}.{field}"] for _, field, _ in STRUCTS[struct]):
        if offset > ends:
            found.append((ends, offset - ends))
        ends = offset + size
    if compiled[struct] > ends:
        found.append((ends, compiled[struct] - ends))
    return found


def compare(compiled: dict, table: SimpleNamespace) -> tuple[int, list[str]]:
    """How many places were compared, and which differ."""
    compared, wrong = 0, []

    def same(what: str, ours: object, theirs: object) -> None:
        nonlocal compared
        compared += 1
        if ours != theirs:
            wrong.append(f"{what}: the table says {ours}, the compiler {theirs}")

    for struct, fields in table.records.items():
        named = [f for f in fields if f.name != "pad"]
        same(f"fields of {struct}", [f.name for f in named], [name for _, name, _ in STRUCTS[struct]])
        for f in named:
            same(f"{struct}.{f.name}", [f.offset, f.size], compiled.get(f"{struct}.{f.name}"))
        pads = [(f.offset, f.size) for f in fields if f.name == "pad"]
        same(f"padding of {struct}", pads, gaps(compiled, struct))
        same(f"size of {struct}", sum(f.size for f in fields), compiled[struct])
    same("regions", [r.name for r in table.regions], [name for _, name, _ in STRUCTS["blob"]])
    for region in table.regions:
        same(f"region {region.name}", [region.offset, region.size], compiled[f"blob.{region.name}"])
    same("size of the blob", table.regions[-1].offset + table.regions[-1].size, compiled["blob"])
    return compared, wrong


def table() -> SimpleNamespace:
    """A copy of the table that a test may spoil."""
    return SimpleNamespace(records=copy.deepcopy(RECORDS), regions=copy.deepcopy(layout.REGIONS))


def test_every_field_and_region_is_where_the_compiler_puts_it(compiled):
    compared, wrong = compare(compiled, table())
    assert wrong == []
    fields = sum(len([f for f in fields if f.name != "pad"]) for fields in RECORDS.values())
    assert fields == sum(len(STRUCTS[name]) for name in RECORDS) == 21
    assert compared == fields + 3 * len(RECORDS) + len(layout.REGIONS) + 2 == 48


def test_any_field_that_moves_is_noticed(compiled):
    places = [(struct, i) for struct, fields in RECORDS.items() for i in range(len(fields))]
    for struct, i in places:
        for attribute in ("offset", "size"):
            spoiled = table()
            field = spoiled.records[struct][i]
            setattr(field, attribute, getattr(field, attribute) + 1)
            assert compare(compiled, spoiled)[1], f"{struct}.{field.name}.{attribute}"
    for i in range(len(layout.REGIONS)):
        for attribute in ("offset", "size"):
            spoiled = table()
            setattr(spoiled.regions[i], attribute, getattr(spoiled.regions[i], attribute) + 8)
            assert compare(compiled, spoiled)[1], f"{spoiled.regions[i].name}.{attribute}"
    spoiled = table()
    spoiled.records["model_node"] = spoiled.records["model_node"][:-1]
    assert compare(compiled, spoiled)[1]


def test_the_worked_addresses(compiled):
    assert {element: compiled[element] for element in WORKED} == WORKED
    assert layout.nd_index(3) * 8 == WORKED["nd_counters[3]"]
    assert layout.nc_index(2, 1) * 8 == WORKED["nc_counters[2][1]"]
    assert layout.nc_index(1, 32) * 8 == WORKED["ext_nc_counters[1][32 - 31]"]
    assert layout.nc_index(7, 29) * 8 == WORKED["ext_nc_data[7 - 4][29]"]
    assert layout.model_offset(5) == WORKED["models[5]"]


def test_the_sizes(compiled):
    assert (
        compiled["model_node"],
        compiled["process_info"],
        compiled["process_info_ext"],
    ) == (layout.MODEL_SIZE, layout.PROCESS_INFO_SIZE, layout.PROCESS_INFO_EXT_SIZE)
    assert layout.REQUIRED_SIZE == compiled["blob"] == 67200
    assert layout.REQUIRED_WORDS * 8 == layout.REQUIRED_SIZE
    assert layout.SLAB_SIZE == 262144


def test_the_header_word():
    assert layout.HEADER_WORD == 0x000186A0_0073646E
    assert layout.HEADER_WORD.to_bytes(8, "little") == b"nds\0" + (100000).to_bytes(4, "little")


def test_the_older_extension():
    """It began where the pad does, with 65 counters of four cores and then 96 of twelve."""
    first, second = layout.OLDER_EXT_NC_REGION, layout.OLDER_EXT_NC_DATA
    assert (first.offset, first.size) == (layout.PAD.offset, 65 * 4 * 8)
    assert (second.offset, second.end) == (46668, 55884)
    assert layout.older_nc_offset(0, 31) == 44588
    assert layout.older_nc_offset(3, 94) == 44588 + (3 * 65 + 94 - 31) * 8
    assert layout.older_nc_offset(15, 94) == 46668 + (11 * 96 + 94) * 8
    for core, counter in ((0, 30), (3, 0), (0, 95), (4, 95), (16, 0), (-1, 31), (4, -1)):
        with pytest.raises(errors.BadIndex):
            layout.older_nc_offset(core, counter)


def test_indices_outside_the_format():
    for counter in (-1, 31, 2**40):
        with pytest.raises(errors.BadIndex, match=str(counter)):
            layout.nd_index(counter)
    for core, counter in ((-1, 0), (16, 0), (0, -1), (0, 95), (15, 95)):
        with pytest.raises(errors.BadIndex):
            layout.nc_index(core, counter)
    for slot in (-1, 64):
        with pytest.raises(errors.BadIndex):
            layout.model_offset(slot)


def test_no_two_counters_share_a_word_and_none_leaves_its_region():
    counter_regions = (layout.ND_REGION, layout.NC_REGION, layout.EXT_NC_REGION, layout.EXT_NC_DATA)
    allowed = {at // 8 for r in counter_regions for at in range(r.offset, r.end, 8)}
    indices = [layout.nd_index(i) for i in range(layout.ND_COUNTERS)]
    indices += [layout.nc_index(c, i) for c in range(layout.MAX_CORES) for i in range(layout.NC_COUNTERS)]
    assert len(set(indices)) == len(indices) == 31 + 16 * 95
    spare = {layout.EXT_NC_DATA.offset // 8 + core * layout.EXT_NC_STRIDE + 95 for core in range(12)}
    assert allowed - set(indices) == spare


def test_names_and_indices_of_the_counters():
    for counters, count in ((layout.ND, layout.ND_COUNTERS), (layout.NC, layout.NC_COUNTERS)):
        assert [c.index for c in counters] == list(range(count))
        assert len({c.name for c in counters}) == len({c.symbol for c in counters}) == count
        assert all(c.name == c.symbol.split("_COUNTER_")[1].lower() for c in counters)
        assert all(c.help for c in counters)
        kinds = {layout.COUNTER, layout.GAUGE, layout.LAST_VALUE, layout.INFO, layout.BITMAP, layout.RESERVED}
        assert {c.kind for c in counters} <= kinds
        sysfs = [c.sysfs for c in counters if c.sysfs]
        assert len(set(sysfs)) == len(sysfs)


def test_generated_files_are_those_of_the_table():
    done = subprocess.run([sys.executable, ROOT / "tools" / "gen_layout.py", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_core_was_compiled_from_this_table():
    report = _core.layout_report()
    assert report[0] == layout.REQUIRED_SIZE
    assert report[-1] == [layout.nc_index(c, i) for c in range(layout.MAX_CORES) for i in range(layout.NC_COUNTERS)]
    neuron_ds._compare_layouts()


@pytest.mark.parametrize("position", range(len(_core.layout_report())))
def test_a_core_of_another_table_is_refused(monkeypatch, position):
    report = list(_core.layout_report())
    report[position] = report[position] + ([1] if position == len(report) - 1 else 8)
    monkeypatch.setattr(_core, "layout_report", lambda: tuple(report))
    with pytest.raises(ImportError, match="another layout table"):
        neuron_ds._compare_layouts()
