"""Small OTLP receivers on loopback, over HTTP and over gRPC, that read what they get with the official messages.

Knows the protocol; knows nothing of what is pushed.
"""

from __future__ import annotations

import gzip
import queue
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric, NumberDataPoint

INSTANCE = ("instance_name", "instance_id", "instance_type", "availability_zone", "region", "subnet_id")
#: (name, labels) of a series.
Key = tuple[str, frozenset[tuple[str, str]]]


class Got:
    """One request: how it came, and what stands in it."""

    def __init__(self, request: ExportMetricsServiceRequest, headers: dict[str, str], path: str = "") -> None:
        self.headers, self.path = headers, path
        (resource,) = request.resource_metrics
        self.resource = {a.key: a.value.string_value for a in resource.resource.attributes}
        (scope,) = resource.scope_metrics
        self.scope = scope.scope
        self.metrics: dict[str, Metric] = {m.name: m for m in scope.metrics}
        assert len(self.metrics) == len(scope.metrics), "a metric stands there twice"

    def points(self, name: str, **labels: object) -> list[NumberDataPoint]:
        """Of a metric, those with these labels among theirs."""
        wanted = {(k, str(v)) for k, v in labels.items()}
        metric = self.metrics.get(name)
        if metric is None:
            return []
        found = getattr(metric, metric.WhichOneof("data")).data_points
        return [p for p in found if wanted <= attributes(p)]

    def one(self, name: str, **labels: object) -> NumberDataPoint:
        found = self.points(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {len(found)}"
        return found[0]

    def value(self, name: str, **labels: object) -> float:
        return number(self.one(name, **labels))

    def series(self) -> dict[Key, float]:
        found = [((name, attributes(p)), number(p)) for name in self.metrics for p in self.points(name)]
        assert len(found) == len(dict(found)), "a series stands there twice"
        return dict(found)

    def tags(self) -> set[str]:
        return {value for _, labels in self.series() for key, value in labels if key == "runtime_tag"}


def attributes(point: NumberDataPoint) -> frozenset[tuple[str, str]]:
    return frozenset((a.key, a.value.string_value) for a in point.attributes)


def number(point: NumberDataPoint) -> float:
    return getattr(point, point.WhichOneof("value"))


def is_sum(metric: Metric, temporality: str = "CUMULATIVE") -> bool:
    wanted = AggregationTemporality.Value(f"AGGREGATION_TEMPORALITY_{temporality}")
    return metric.HasField("sum") and metric.sum.is_monotonic and metric.sum.aggregation_temporality == wanted


class HttpReceiver(ThreadingHTTPServer):
    """Answers 200, or ``status``, and keeps what it got. ``hold``: answers only when set."""

    daemon_threads = True

    def __init__(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        self.status, self.got, self.hold = 200, queue.Queue[Got](), threading.Event()
        self.hold.set()
        self._scheme = "https" if tls else "http"
        super().__init__(("127.0.0.1", port), _Handler)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.server_port}"

    def next(self, timeout_s: float = 30) -> Got:
        return self.got.get(timeout=timeout_s)

    def __exit__(self, *exc: object) -> None:
        self.hold.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: HttpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.hold.wait(30)
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.headers["Content-Type"] == "application/x-protobuf"
        got = Got(
            ExportMetricsServiceRequest.FromString(body), {k.lower(): v for k, v in self.headers.items()}, self.path
        )
        status = self.server.status
        if status == 200:
            self.server.got.put(got)  # before the answer: who has that may look for it
        answer = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


class GrpcReceiver(service.MetricsServiceServicer):
    """The same over gRPC."""

    def __init__(self) -> None:
        self.got = queue.Queue[Got]()
        self._server = grpc.server(ThreadPoolExecutor(2))
        service.add_MetricsServiceServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def Export(
        self, request: ExportMetricsServiceRequest, context: grpc.ServicerContext
    ) -> ExportMetricsServiceResponse:
        metadata = {str(k): str(v) for k, v in context.invocation_metadata()}
        self.got.put(Got(request, metadata))
        return ExportMetricsServiceResponse()

    def next(self, timeout_s: float = 30) -> Got:
        return self.got.get(timeout=timeout_s)

    def __enter__(self) -> GrpcReceiver:
        self._server.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop(None).wait()
