"""The queries in docs/analyse.md run on what the export writes, and say what is in the slabs."""

import re
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from neuron_ds.export import export
from neuron_ds.record import Recording
from neuron_ds.snapshot import Snapshot

PAGE = (Path(__file__).parents[2] / "docs" / "analyse.md").read_text()
DUCKDB = PAGE[PAGE.index("### DuckDB") : PAGE.index("### polars")]
UTILIZATION, ERRORS, MEMORY, LATENCIES = re.findall(r"```sql\n(.*?)```", DUCKDB, re.DOTALL)


@pytest.fixture(scope="module")
def ask(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("docs") / "incident.parquet"
    with Recording(made.path) as recording, open(path, "wb") as file:
        export(recording, "parquet", file)
    with duckdb.connect() as db:
        yield lambda sql: db.execute(sql.replace("incident.parquet", str(path))).fetchall()


def shots(made, device: int) -> list[Snapshot]:
    return [Snapshot.from_bytes(slabs[device]) for slabs in made.slabs.values()]


def test_utilization(ask, made):
    rows = [row[-1] for row in ask(UTILIZATION) if row[2:4] == (0, 1)]
    busy = [shot.core(1).time_in_use for shot in shots(made, 0)]
    assert rows[0] is None
    assert rows[1:] == pytest.approx([(b - a) / 5e5 for a, b in pairwise(busy)])


def test_errors(ask, made):
    rows = {(row[2], row[3]): row[4] for row in ask(ERRORS)}
    first, *_, last = shots(made, 1)
    assert len(rows) > 5
    for (core, counter), errors in rows.items():
        assert errors == getattr(last.core(core), counter) - getattr(first.core(core), counter)


def test_memory(ask, made):
    highest = max(row[2] for row in ask(MEMORY) if row[1].startswith("serve"))
    used = [sum(v for c in (0, 1) for n, v in s.core(c).items() if n.startswith("mem_usage")) for s in shots(made, 0)]
    assert highest == max(used)


def test_latencies(ask):
    assert {row[0][:5] for row in ask(LATENCIES)} == {"serve", "</scr"}
    assert all(p50 <= p99 for *_, (p50, p99) in ask(LATENCIES))
