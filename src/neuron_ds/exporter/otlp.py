"""The same families pushed to an OpenTelemetry collector: one report of the Watch is one push.

The points are made here and handed to OpenTelemetry's own exporter, which reads the OTEL_* variables and speaks the
protocol: the SDK's instruments would each be asked by itself, would remember series that are gone, and know no other
beginning of a count than its first sight. What a collector took is remembered only then, so that nothing is lost to one
that wasn't there. This module knows OpenTelemetry; it knows no slab, and of the families only when they began to count.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, Self

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from neuron_ds import __version__
from neuron_ds.errors import BadValue, Closed
from neuron_ds.exporter import families as f
from neuron_ds.exporter.report import Report
from neuron_ds.exporter.text import Block, Number, Rows
from neuron_ds.exporter.watch import Watch

INTERVAL_S = 60.0
#: How long the last push may take.
LAST_PUSH_S = 10.0
#: Points in a request. Collectors refuse more than 4 MiB over gRPC; a point is some 230 bytes, with long labels 600.
REQUEST_POINTS = 6200
SERVICE_NAME = "neuron-ds-exporter"
HTTP, GRPC = "http/protobuf", "grpc"
_DEFAULT_ENDPOINTS = {HTTP: "http://localhost:4318/v1/metrics", GRPC: "http://localhost:4317"}
_SCOPE = InstrumentationScope("neuron_ds", __version__)
#: Where the name ends in the unit anyway. Elsewhere a unit would become part of the name behind the collector.
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
#: From here on a whole number is none that OTLP can carry.
_TOO_LARGE = 1 << 63
#: Counted by the exporter, so from zero at its start. Whatever else counts has begun at a time that nobody knows.
_OWN_COUNTS = frozenset(each.name for each in (f.ECC, f.RECORD_READS, f.SLAB_ERRORS, f.LOOKS, f.LATENCIES_DROPPED))
_RUNTIME_COUNTS = frozenset(each.name for each in (f.EXECUTION_STATUS, f.EXECUTION_ERRORS))


# --- What the environment says ---------------------------------------------------------------------------------------


def _setting(name: str) -> str:
    """An OTEL_* variable, "" where it isn't set."""
    return os.environ.get(name, "").strip()


def _otlp_setting(name: str) -> tuple[str, str]:
    """(variable, value) of a setting of the exporter: the one for metrics goes before the one for everything."""
    for variable in (f"OTEL_EXPORTER_OTLP_METRICS_{name}", f"OTEL_EXPORTER_OTLP_{name}"):
        if value := _setting(variable):
            return variable, value
    return variable, ""


def disabled() -> bool:
    """Whether OTEL_SDK_DISABLED is set: nothing is pushed then."""
    return _setting("OTEL_SDK_DISABLED").lower() == "true"


def interval_s() -> float:
    """OTEL_METRIC_EXPORT_INTERVAL in seconds. Raises BadValue (EINVAL)."""
    text = _setting("OTEL_METRIC_EXPORT_INTERVAL") or str(INTERVAL_S * 1000)
    try:
        interval_ms = float(text)
    except ValueError:
        interval_ms = 0
    if not 1 <= interval_ms <= 1e9:
        raise BadValue(f"OTEL_METRIC_EXPORT_INTERVAL={text}: give milliseconds, as in 60000 for a minute")
    return interval_ms / 1000


def resource() -> Resource:
    """Who pushes: what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say goes before what we say.

    A collector makes Prometheus's ``job`` and ``instance`` of the service's name and instance.
    """
    host = socket.gethostname()
    ours = {
        "service.name": SERVICE_NAME,
        "service.version": __version__,
        "service.instance.id": host,
        "host.name": host,
    }
    return Resource.create({**ours, **OTELResourceDetector().detect().attributes})


def _protocol() -> str:
    variable, protocol = _otlp_setting("PROTOCOL")
    if protocol and protocol not in _DEFAULT_ENDPOINTS:
        raise BadValue(f"{variable}={protocol}: there are {HTTP} and {GRPC}")
    return protocol or HTTP


def _endpoint(protocol: str) -> str:
    """Where it goes, to be told: without a password."""
    variable, endpoint = _otlp_setting("ENDPOINT")
    if endpoint and protocol == HTTP and variable == "OTEL_EXPORTER_OTLP_ENDPOINT":
        endpoint = f"{endpoint.removesuffix('/')}/v1/metrics"
    return re.sub(r"//[^/@]*@", "//", endpoint or _DEFAULT_ENDPOINTS[protocol])


def _exporter(protocol: str) -> MetricExporter:
    """OpenTelemetry's, set up by its variables. Raises BadValue (EINVAL), and SystemFailure's like for a file."""
    for what in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
        variable, path = _otlp_setting(what)
        if path:
            try:
                with open(path, "rb"):  # the libraries say so at each push, or not at all
                    pass
            except OSError as e:
                raise BadValue(f"{variable}={path}: {e.strerror}") from None
    try:
        if protocol == GRPC:
            return _grpc_exporter()
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter()
    except ModuleNotFoundError:
        raise
    except Exception as e:  # whatever the libraries make of a variable's value
        raise BadValue(f"an OTEL_EXPORTER_OTLP_* variable can't be used: {e}") from None


def _grpc_exporter() -> MetricExporter:
    try:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    except ModuleNotFoundError:
        package = "opentelemetry-exporter-otlp-proto-grpc"
        raise BadValue(f"{_otlp_setting('PROTOCOL')[0]}=grpc needs {package}; pip install {package}") from None
    return OTLPMetricExporter()


# --- From a report to points -----------------------------------------------------------------------------------------


class _Seen(NamedTuple):
    """What the collector last took of a series that counts."""

    since_ns: int | None  #: monotonic; when it began, where that is known
    start_ns: int  #: the same by the calendar
    time_ns: int
    value: Number


_Series = dict[str, _Seen]  # by label text


class Points:
    """Makes OTLP's metrics from reports, and knows what it needs to of those that were taken.

    ``delta``: tell of a count what it grew since the last push that was taken; else since its beginning.
    """

    def __init__(self, watch: Watch, *, delta: bool = False) -> None:
        self._watch, self._delta = watch, delta
        self._seen: dict[str, _Series] = {}

    def requests(self) -> Iterator[list[Metric]]:
        """All of this moment, some families at a time. Asking for the next says that the one before was taken.

        Raises Closed (EBADF).
        """
        report = self._watch.report()
        moment = _Moment(report, self._watch.begun_ns, self._watch.shared_labels)
        metrics: list[Metric] = []
        found: dict[str, _Series] = {}
        points, told = 0, set()
        for block in report:
            if metrics and points + len(block.values) > REQUEST_POINTS:
                yield metrics
                self._seen |= found
                metrics, found, points = [], {}, 0
            metrics.append(self._metric(block, moment, found))
            points += len(block.values)
            told.add(block.family.name)
        yield metrics
        self._seen |= found
        for gone in self._seen.keys() - told:
            del self._seen[gone]

    def _metric(self, block: Block, moment: _Moment, found: dict[str, _Series]) -> Metric:
        family, rows, values = block
        unit = _UNITS.get(family.name.rpartition("_")[2], "")
        if family.kind != f.COUNTER:
            points = [
                NumberDataPoint(moment.attributes(rows, i), 0, moment.time_ns, _carried(value))
                for i, value in enumerate(values)
            ]
            return Metric(family.sample, family.help, unit, Gauge(points))
        series = found[family.name] = {}
        before = self._seen.get(family.name, {})
        points = []
        for i, value in enumerate(values):
            text = rows.texts[i]
            old = before.get(text)
            now = series[text] = _continued(old, value, moment.since_ns(family, rows.values[i]), moment)
            if self._delta:
                start_ns, value = _growth(old, now)
            else:
                start_ns = now.start_ns
            # A calendar that was put back must not make a point that ends before it begins.
            start_ns = min(start_ns, moment.time_ns)
            points.append(NumberDataPoint(moment.attributes(rows, i), start_ns, moment.time_ns, _carried(value)))
        temporality = AggregationTemporality.DELTA if self._delta else AggregationTemporality.CUMULATIVE
        return Metric(family.sample, family.help, unit, Sum(points, temporality, is_monotonic=True))


class _Moment:
    """When a report was made, by both clocks, and what all of its series share."""

    def __init__(self, report: Report, begun_ns: int, shared: Mapping[str, str]) -> None:
        self.time_ns, self._monotonic_ns = time.time_ns(), time.monotonic_ns()
        self._begun_ns, self._runtimes, self._shared = begun_ns, report.since_ns, shared

    def attributes(self, rows: Rows, i: int) -> dict[str, str]:
        return {**self._shared, **dict(zip(rows.names, rows.values[i], strict=True))}

    def since_ns(self, family: f.Family, labels: tuple[str, ...]) -> int | None:
        """When a series began to count, on the monotonic clock; None where nobody knows."""
        if family.name in _OWN_COUNTS:
            return self._begun_ns
        if family.name in _RUNTIME_COUNTS:
            tag, chosen = labels[0], labels[len(family.labels) :]
            return self._runtimes[(tag, *chosen)]
        return None

    def calendar_ns(self, monotonic_ns: int) -> int:
        return self.time_ns - (self._monotonic_ns - monotonic_ns)


def _continued(old: _Seen | None, value: Number, since_ns: int | None, moment: _Moment) -> _Seen:
    """A series as it is now. One of unknown beginning begins with its first point, as the data model has it."""
    start_ns = moment.time_ns if since_ns is None else moment.calendar_ns(since_ns)
    if old is not None:
        anew = since_ns != old.since_ns or value < old.value
        known_ns = start_ns if since_ns is not None else 0
        start_ns = max(old.time_ns + 1, known_ns) if anew else old.start_ns
    return _Seen(since_ns, start_ns, moment.time_ns, value)


def _growth(old: _Seen | None, now: _Seen) -> tuple[int, Number]:
    """(since when, by how much) a series grew."""
    if old is None:
        return now.start_ns, now.value if now.since_ns is not None else 0
    if now.start_ns != old.start_ns:
        return now.start_ns, now.value
    return old.time_ns, now.value - old.value


def _carried(value: Number) -> Number:
    """A value as OTLP can carry it."""
    return float(value) if value >= _TOO_LARGE else value


# --- The push --------------------------------------------------------------------------------------------------------


class Push:
    """Pushes a Watch's reports, at once and then by OTEL_METRIC_EXPORT_INTERVAL. Closing it pushes once more.

    Trouble is told once for each kind, until a push is taken again; it never ends the pushing.
    """

    def __init__(self, watch: Watch, *, told: Callable[[str], object] = lambda text: None) -> None:
        """Raises BadValue (EINVAL) for a variable that can't be used."""
        self._told = told
        protocol = _protocol()
        self.endpoint, self.interval_s = _endpoint(protocol), interval_s()
        with _heard() as said:
            self._exporter, self._resource = _exporter(protocol), resource()
        for each in said:
            told(f"otlp: {each}")
        self._points = Points(watch, delta=_otlp_setting("TEMPORALITY_PREFERENCE")[1].upper() == "DELTA")
        self._trouble: set[str] = set()
        self._stop, self._given_up = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="neuron-ds-otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Push once more, but not for longer than LAST_PUSH_S."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(LAST_PUSH_S)
        if self._thread.is_alive():
            self._given_up = True
            self._told(f"otlp: {self.endpoint}: the last push isn't through after {LAST_PUSH_S:g} s, given up")
        with _heard():
            self._exporter.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        due = time.monotonic()
        last = False
        while not (last or self._given_up):
            last = self._stop.wait(max(0.0, due - time.monotonic()))
            self._push()
            due = max(due + self.interval_s, time.monotonic())  # pushes that were missed are not made up for

    def _push(self) -> None:
        trouble: str | None = None
        with _heard() as said:
            try:
                for metrics in self._points.requests():
                    scope = ScopeMetrics(_SCOPE, metrics, "")
                    data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
                    if self._exporter.export(data) is not MetricExportResult.SUCCESS:
                        trouble = _reason(said)
                        break
            except Closed:
                return
            except Exception as e:  # whatever it is, the next push is tried
                trouble = _reason([repr(e)])
        if self._given_up:
            return
        if trouble is None:
            if self._trouble:
                self._trouble.clear()
                self._told(f"otlp: {self.endpoint}: pushed again")
        elif (trouble or not self._trouble) and (kind := _kind(trouble)) not in self._trouble:
            self._trouble.add(kind)
            why = trouble or "no answer, or none in time"
            self._told(f"otlp: {self.endpoint}: {why}; it is tried again every {self.interval_s:g} s")


# --- What OpenTelemetry says -----------------------------------------------------------------------------------------


class _Ear(logging.Handler):
    """Keeps the warnings of one thread."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []
        self._whose = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._whose:
            self.said.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """OpenTelemetry only logs why something failed; by itself that would go to standard error, again and again."""
    logger, ear = logging.getLogger("opentelemetry"), _Ear()
    logger.addHandler(ear)
    try:
        yield ear.said
    finally:
        logger.removeHandler(ear)


def _reason(said: list[str]) -> str:
    """Why a push failed, from what was logged: the last that tells more than that there was no more time.

    "" where nothing does: the libraries log nothing twice in a short time.
    """
    told = [each for each in said if "due to timeout, max retries" not in each]
    text = told[-1] if told else ""
    if system := re.search(r"\[(?:Errno \d+|SSL: \w+)\] ([^'\"()\]]+)", text):
        return system[1].strip()
    text = re.sub(r",? retrying in [\d.]+s\.?| at 0x[0-9a-f]+", "", text)
    return text if len(text) <= 300 else text[:299] + "…"


def _kind(reason: str) -> str:
    """What makes two reasons the same trouble: the code if there is one, else the words."""
    code = re.search(r"StatusCode\.\w+|code: \d+", reason)
    if code is None:
        return re.sub(r"\d+", "", reason)
    # gRPC runs out of time where it waits before it tries to connect again.
    return code[0].replace("DEADLINE_EXCEEDED", "UNAVAILABLE")
