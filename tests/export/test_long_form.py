"""Parquet and CSV: what DuckDB and the csv module read back is what was in the slabs."""

import csv
import gzip
import io
import json
import sys
from dataclasses import replace

import duckdb
import pytest

from neuron_ds import layout
from neuron_ds.errors import BadValue, FormatError, NotSupported
from neuron_ds.export import check_form, export, form_of, parquet
from neuron_ds.export.rows import COLUMNS, blocks_of
from neuron_ds.record import Recording
from neuron_ds.snapshot import Snapshot
from tests.recordings import START_US, record


def truth(made) -> dict[tuple, int]:
    """{(monotonic time, device, core or None, counter): value} of everything that must have a row."""
    found, used = {}, set()
    for time_ns, slabs in made.slabs.items():
        for device, raw in slabs.items():
            snapshot = Snapshot.from_bytes(raw)
            for counter in layout.ND:
                if counter.kind != layout.RESERVED:
                    found[time_ns, device, None, counter.name] = snapshot.nd(counter.index)
            for core in range(layout.MAX_CORES):
                values = dict(snapshot.core(core).items())
                if any(values.values()):
                    used.add((device, core))
                if (device, core) in used:
                    named = {c.name for c in layout.NC if c.kind != layout.RESERVED}
                    found |= {(time_ns, device, core, n): v for n, v in values.items() if n in named}
    return found


@pytest.fixture(scope="module")
def table(made, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    with Recording(made.path) as recording, open(path, "wb") as file:
        export(recording, "parquet", file)
    return str(path)


def query(sql: str, **files: str) -> list[tuple]:
    with duckdb.connect() as db:
        return db.execute(sql.format(**{k: f"read_parquet('{v}')" for k, v in files.items()})).fetchall()


def test_duckdb_reads_back_every_counter_of_every_slab(made, table):
    rows = query("SELECT monotonic_ns, device, core, counter, value FROM {t}", t=table)
    assert len(rows) == len(truth(made)) > 1000
    assert {row[:4]: row[4] for row in rows} == truth(made)


def test_the_columns_have_their_types(table):
    types = dict(query("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM {t})", t=table))
    assert list(types) == list(COLUMNS)
    assert types["value"] == "UBIGINT"
    assert types["core"] == "UTINYINT"
    assert types["counter"] == types["tag"] == "VARCHAR"
    assert types["time"].startswith("TIMESTAMP")


def test_the_time_is_the_wall_clocks(made, table):
    ((first, monotonic),) = query("SELECT min(epoch_ns(time)), min(monotonic_ns) FROM {t}", t=table)
    assert monotonic == START_US * 1000
    assert first // 1000 == (monotonic + made.wall_offset_ns) // 1000


def test_units_kinds_and_owners_stand_beside_the_values(table):
    found = query("SELECT DISTINCT counter, unit, kind FROM {t} WHERE core IS NOT NULL", t=table)
    assert set(found) == {(c.name, c.unit, c.kind) for c in layout.NC if c.kind != layout.RESERVED}
    owners = query("SELECT DISTINCT device, slot, tag FROM {t} ORDER BY device", t=table)
    assert owners == [(0, 0, 'serve,"me"\\n'), (1, 0, "</script>erring"), (2, 0, "idle")]


def test_row_groups_keep_memory_bounded(recording, tmp_path, monkeypatch, made):
    monkeypatch.setattr(parquet, "ROWS_PER_GROUP", 500)
    path = tmp_path / "a.parquet"
    with open(path, "wb") as file:
        rows = export(recording, "parquet", file)
    with duckdb.connect() as db:
        groups = db.execute(f"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('{path}')").fetchone()[0]
    assert groups >= rows // 1000
    assert {r[:4]: r[4] for r in query("SELECT monotonic_ns, device, core, counter, value FROM {t}", t=path)} == truth(
        made
    )


def test_the_metadata_say_where_it_comes_from(table, made):
    with duckdb.connect() as db:
        rows = db.execute(f"SELECT key, value FROM parquet_kv_metadata('{table}')").fetchall()
    about = json.loads({bytes(k).decode(): bytes(v).decode() for k, v in rows}["neuron_ds"])
    assert about["wall_offset_ns"] == made.wall_offset_ns


def test_changes_give_the_whole_again(recording, made, tmp_path):
    path = tmp_path / "a.parquet"
    with open(path, "wb") as file:
        count = export(recording, "parquet", file, changes=True)
    whole = truth(made)
    assert count < len(whole) / 2
    sql = """
        SELECT t.monotonic_ns, t.device, c.core, c.counter, c.value
        FROM (SELECT DISTINCT monotonic_ns, device FROM {t}) t JOIN {t} c
        ON c.device = t.device AND c.monotonic_ns <= t.monotonic_ns
        QUALIFY row_number() OVER (PARTITION BY t.monotonic_ns, t.device, c.core, c.counter
                                   ORDER BY c.monotonic_ns DESC) = 1
    """
    rows = {row[:4]: row[4] for row in query(sql, t=path)}
    assert rows
    assert rows == {key: whole[key] for key in rows}
    last = max(time for time, *_ in rows)
    assert {k[1:] for k in rows if k[0] == last} == {k[1:] for k in whole if k[0] == last and k[1] != 2}


def test_thinning_takes_one_tick_in_so_long(recording, tmp_path):
    path = tmp_path / "a.parquet"
    with open(path, "wb") as file:
        export(recording, "parquet", file, every_ns=2_000_000_000)
    times = query("SELECT DISTINCT monotonic_ns FROM {t} ORDER BY 1", t=path)
    assert [(t - START_US * 1000) / 1e9 for (t,) in times] == [0, 2, 4, 6]


def test_a_part_of_the_time(recording):
    start_ns = START_US * 1000 + 1_000_000_000
    out = io.BytesIO()
    export(recording, "csv", out, start_ns=start_ns, end_ns=start_ns + 1_000_000_000)
    times = {row["monotonic_ns"] for row in csv.DictReader(io.StringIO(out.getvalue().decode()))}
    assert times == {str(start_ns + n * 500_000_000) for n in range(3)}


# --- CSV


def test_csv_holds_the_same(recording, made):
    out = io.BytesIO()
    export(recording, "csv", out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))
    assert {
        (int(r["monotonic_ns"]), int(r["device"]), int(r["core"]) if r["core"] else None, r["counter"]): int(r["value"])
        for r in rows
    } == truth(made)
    assert {r["tag"] for r in rows} == {'serve,"me"\\n', "</script>erring", "idle"}
    assert all(r["time"].endswith("Z") and None not in r for r in rows)


def test_duckdb_reads_the_csv_as_it_reads_the_parquet(recording, table, tmp_path):
    path = tmp_path / "a.csv.gz"
    with gzip.open(path, "wb") as file:
        export(recording, "csv", file)
    with duckdb.connect() as db:
        columns = "monotonic_ns, device, core, counter, value"
        both = f"(SELECT {columns} FROM read_csv('{path}')) EXCEPT (SELECT {columns} FROM read_parquet('{table}'))"
        assert db.execute(f"SELECT count(*) FROM ({both})").fetchone() == (0,)
        assert db.execute(f"SELECT count(*) FROM read_csv('{path}')").fetchone()[0] > 1000


# --- Rows


def test_reserved_counters_and_idle_cores_have_no_rows_until_something_is_in_them(root, tmp_path):
    from neuron_ds.datastore import publish
    from neuron_ds.driver.software import SoftwareDriver
    from neuron_ds.record import Recorder
    from neuron_ds.record.container import FileSink

    driver, now = SoftwareDriver(root), [10**9]
    sink = FileSink(str(tmp_path / "a.mcap"))
    with publish(0, driver=driver) as producer, Recorder(sink, driver, rate_hz=1, now_ns=lambda: now[0]) as recorder:
        for tick in range(3):
            if tick:
                producer.core(7).counter(90).add(1 << 63)
            now[0] += 10**9
            recorder.tick()
        recorder.finish()
    sink.close()
    with Recording(str(tmp_path / "a.mcap")) as recording:
        first, second, third = blocks_of(recording.samples())
    assert len(first.values) == sum(c.kind != layout.RESERVED for c in layout.ND)
    assert len(second.values) == len(first.values) + sum(c.kind != layout.RESERVED for c in layout.NC) + 1
    assert max(second.values) == 1 << 63
    assert third.places == second.places


def test_no_process_gives_a_table_without_rows(root, tmp_path):
    made = record(str(tmp_path / "a.mcap"), root, {}, 2)
    out, path = io.BytesIO(), tmp_path / "a.parquet"
    with Recording(made.path) as recording, open(path, "wb") as file:
        assert export(recording, "csv", out) == 0
        assert export(recording, "parquet", file) == 0
    assert out.getvalue().decode() == ",".join(COLUMNS) + "\n"
    assert query("SELECT count(*) FROM {t}", t=path) == [(0,)]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_time_that_can_not_be_is_an_error_of_ours(recording, form):
    recording.session = replace(recording.session, wall_offset_ns=10**30)
    with pytest.raises(FormatError, match="holds a number that can't be"):
        export(recording, form, io.BytesIO())


# --- Forms


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.parquet", "parquet"),
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.json", "trace"),
        ("a.json.gz", "trace"),
        ("a.perfetto-trace", "perfetto"),
        ("a.pftrace", "perfetto"),
    ],
)
def test_the_name_says_the_form(name, form):
    assert form_of(name) == form


@pytest.mark.parametrize("name", ["a", "a.txt", "a.parquet.gz", "a.gz"])
def test_a_name_that_says_none(name):
    with pytest.raises(BadValue, match="say it with --format"):
        form_of(name)


def test_without_pyarrow_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(NotSupported, match=r"pip install 'neuron-datastore\[parquet\]'"):
        check_form("parquet", "a.parquet")
