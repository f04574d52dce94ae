"""One process's use of a slab, as long as it lasted: what it did, column by column, and how it ended.

It is fed with pairs of looks and gives plain data. Which processes there are, and what is found, is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neuron_ds.diagnose.looks import ProcessLook, Row
from neuron_ds.diagnose.measures import who
from neuron_ds.layout import NC, NC_BY_NAME
from neuron_ds.live import figures
from neuron_ds.records import ModelNode, printable
from neuron_ds.report.columns import Columns, Levels

#: So many models of a process are listed, one after the other.
MOST_MODELS = 64
PERCENTILES = (1, 25, 50, 75, 99, 100)
THERE, RELEASED, DIED = "there at the end", "released", "died"
_TOTAL, _DEVICE = NC_BY_NAME["latency_total"].index, NC_BY_NAME["latency_device"].index


@dataclass(slots=True)
class Tally:
    """One counter of errors on one core."""

    errors: int
    first_ns: int
    last_ns: int


@dataclass(slots=True)
class Loaded:
    """A model while it is, or was, loaded."""

    name: str
    core: int
    from_ns: int
    to_ns: int
    identity: object


class Life:
    """What is known of one process on one device."""

    def __init__(self, columns: Columns, look: ProcessLook, now_ns: int) -> None:
        self.columns, self.look = columns, look
        self.first_ns = self.last_ns = now_ns
        self.end, self.died_ns = THERE, None if not look.dead else now_ns
        self.executions = self.failures = self.models_left_out = 0
        self.errors: dict[tuple[int, int], Tally] = {}  # by core and counter
        self.models: list[Loaded] = []
        self._open: dict[int, Loaded] = {}  # models now, by slot
        self.executed, self.failed, self.seconds = columns.zeros(), columns.zeros(), columns.zeros()
        self.device_bytes, self.host_bytes = columns.zeros(), columns.zeros()
        self.latency_total, self.latency_device = Levels(), Levels()
        self.p50: list[int | None] = [None] * columns.count
        self.p99: list[int | None] = [None] * columns.count
        self._now, self._column = Levels(), 0

    @property
    def name(self) -> str:
        return who(self.look)

    def see(
        self, before: Mapping[int, Row] | None, now: ProcessLook, then_ns: int, now_ns: int
    ) -> Mapping[int, figures.Work]:
        """One more look at it, and its rows at the one before; the work of each core since then."""
        self.look, self.last_ns = now, now_ns
        if now.dead and self.died_ns is None:
            self.died_ns = now_ns
        if not now.readable:
            return {}
        works: dict[int, figures.Work] = {}
        if before is not None:
            works = {core: self._core(core, before.get(core, figures.ZEROS), r, now_ns) for core, r in now.rows.items()}
            executions = sum(w.executions for w in works.values())
            failures = sum(w.failures for w in works.values())
            self.executions += executions
            self.failures += failures
            for column, share, seconds in self.columns.share(then_ns, now_ns):
                self.executed[column] += executions * share
                self.failed[column] += failures * share
                self.seconds[column] += seconds
        device = sum(sum(figures.device_memory(row)) for row in now.rows.values())
        host = sum(figures.host_memory(now.host_bytes))
        for column, _, _ in self.columns.share(then_ns, now_ns) or [(self.columns.at(now_ns), 1.0, 0.0)]:
            self.device_bytes[column] = max(self.device_bytes[column], device)
            self.host_bytes[column] = max(self.host_bytes[column], host)
        return works

    def _core(self, core: int, before: Row, now: Row, now_ns: int) -> figures.Work:
        work = figures.work(before, now)
        if work.executions:
            column = self.columns.at(now_ns - 1)
            if column != self._column:
                self._settle()
                self._column = column
            self._now.add(now[_TOTAL])
            self.latency_device.add(now[_DEVICE])
        for counter, by in figures.troubles(before, now):
            tally = self.errors.get((core, counter.index))
            if tally is None:
                self.errors[core, counter.index] = Tally(by, now_ns, now_ns)
            else:
                tally.errors += by
                tally.last_ns = now_ns
        return work

    def _settle(self) -> None:
        """The column that was filled is full."""
        self.p50[self._column] = self._now.percentile(50)
        self.p99[self._column] = self._now.percentile(99)
        self.latency_total.merge(self._now)
        self._now = Levels()

    def load(self, models: Mapping[int, ModelNode], now_ns: int) -> None:
        """The models that are there from now on, by slot."""
        found = {slot: (m.model_id, m.model_node_id, m.name, m.uuid, m.nc_index) for slot, m in models.items()}
        for slot in [s for s, loaded in self._open.items() if loaded.identity != found.get(s)]:
            self._open.pop(slot).to_ns = now_ns
        for slot, identity in found.items():
            if slot not in self._open:
                node = models[slot]
                loaded = Loaded(
                    printable(node.name) or f"model {node.model_id}", node.nc_index, now_ns, now_ns, identity
                )
                self._open[slot] = loaded
                if len(self.models) < MOST_MODELS:
                    self.models.append(loaded)
                else:
                    self.models_left_out += 1

    def close(self, now_ns: int, *, gone: bool) -> None:
        """Nothing more comes: it is gone, or the recording is over."""
        self._settle()
        for loaded in self._open.values():
            loaded.to_ns = now_ns
        self._open.clear()
        self.end = DIED if self.died_ns is not None else RELEASED if gone else THERE

    def to_dict(self) -> dict[str, object]:
        """As plain values; times in seconds since the first column."""
        owner, columns = self.look.owner, self.columns

        def seconds(time_ns: int | None) -> float | None:
            return None if time_ns is None else round((time_ns - columns.start_ns) / 1e9, 3)

        def latency(levels: Levels) -> dict[str, int | None]:
            return {"looks": levels.total} | {f"p{p}": levels.percentile(p) for p in PERCENTILES}

        return {
            "name": self.name,
            "tag": printable(self.look.tag),
            "pid": owner.pid,
            "device": owner.device,
            "slot": owner.slot,
            "command": printable(owner.who.command) if owner.who else "",
            "from_s": seconds(self.first_ns),
            "to_s": seconds(self.last_ns),
            "died_s": seconds(self.died_ns),
            "end": self.end,
            "executions": self.executions,
            "failures": self.failures,
            "latency_total_us": latency(self.latency_total),
            "latency_device_us": latency(self.latency_device),
            "models": [
                {"name": m.name, "core": m.core, "from_s": seconds(m.from_ns), "to_s": seconds(m.to_ns)}
                for m in self.models
            ],
            "models_left_out": self.models_left_out,
            "errors": [
                {
                    "core": core,
                    "counter": NC[counter].name,
                    "errors": t.errors,
                    "first_s": seconds(t.first_ns),
                    "last_s": seconds(t.last_ns),
                }
                for (core, counter), t in sorted(self.errors.items())
            ],
            "series": {
                "executions_s": columns.rates(self.executed, self.seconds, 3),
                "failures_s": columns.rates(self.failed, self.seconds, 3),
                "device_bytes": columns.known(self.device_bytes, self.seconds),
                "host_bytes": columns.known(self.host_bytes, self.seconds),
                "latency_total_p50_us": self.p50,
                "latency_total_p99_us": self.p99,
            },
        }
