"""The HTTP server: /metrics in whatever form is asked for, /healthz, and a page that says what this is.

The small families and whatever else stands in the registry are the library's to write, the rest is our own text; both
go out as they are made. With a certificate the server speaks TLS and reads it again when its files change. This
module knows HTTP and TLS; it knows no family.
"""

from __future__ import annotations

import errno
import html
import os
import socket
import ssl
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from neuron_ds import __version__
from neuron_ds.errors import SystemFailure
from neuron_ds.exporter.accept import form, takes_gzip
from neuron_ds.exporter.collector import metrics
from neuron_ds.exporter.room import Room
from neuron_ds.exporter.text import Block, write
from neuron_ds.exporter.watch import Watch

#: A client that sends nothing, or takes nothing, for so long is let go.
PATIENCE_S = 30.0
MOST_CONNECTIONS = 64
GZIP_LEVEL = 1
_EOF = b"# EOF\n"
_METHODS = "GET, HEAD"


class Certificate:
    """A TLS context that follows its files: what changes is used for the next connection, what is broken is not."""

    def __init__(self, cert: str, key: str | None, told: Callable[[str], object]) -> None:
        """Raises SystemFailure where the files can't be used."""
        self._files = cert, key
        self._told = told
        self._lock = threading.Lock()
        self._seen = self._stamp()
        try:
            self._context = self._load()
        except (OSError, ValueError) as e:
            raise SystemFailure(f"the certificate can't be used: {_reason(e)}; {self._named()}") from None

    def context(self) -> ssl.SSLContext:
        """As the files are now."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._context = self._load()
                    self._told(f"{self._files[0]}: read again")
                except (OSError, ValueError) as e:
                    self._told(f"the new certificate can't be used, the old one stays: {_reason(e)}; {self._named()}")
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for file in filter(None, self._files):
            with open(file, "rb"):  # the library doesn't say which of the two it can't read
                pass
        cert, key = self._files
        if key is None and os.path.isfile(cert):
            held = Path(cert).read_bytes()
            if b"CERTIFICATE-----" in held and b"PRIVATE KEY-----" not in held:
                raise ValueError("its file holds no private key; --tls-key names the key's file")
        context.load_cert_chain(*self._files, password=_no_password)
        return context

    def _stamp(self) -> tuple[tuple[int, ...], ...]:
        stamps: list[tuple[int, ...]] = []
        for file in filter(None, self._files):
            try:
                s = os.stat(file)
                stamps.append((s.st_mtime_ns, s.st_ino, s.st_size))
            except OSError:
                stamps.append(())
        return tuple(stamps)

    def _named(self) -> str:
        cert, key = self._files
        return f"--tls-cert {cert}" + (f" --tls-key {key}" if key else "")


def _no_password() -> str:
    raise ValueError("the key is protected by a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if "PEM" in (error.reason or str(error)):
            return "no certificate, or no key of it, in PEM form"
        return (error.reason or str(error)).replace("_", " ").lower()
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return str(error)


class _Small(Collector):
    """The small families of a report that was made already, for the library to write."""

    def __init__(self, blocks: Iterable[Block], shared: dict[str, str]) -> None:
        self._blocks, self._shared = blocks, shared

    def collect(self) -> Iterator[Metric]:
        return metrics(self._blocks, self._shared)


class Server(ThreadingHTTPServer):
    """Serves a Watch. ``registry``: more to tell, behind our own families. ``serve_forever`` runs it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        watch: Watch,
        host: str = "",
        port: int = 8000,
        *,
        tls: tuple[str, str | None] | None = None,
        registry: CollectorRegistry | None = None,
        told: Callable[[str], object] = lambda text: None,
    ) -> None:
        """Raises SystemFailure where the address can't be had or the certificate (``tls``) not be used."""
        self.watch, self.registry, self.told = watch, registry, told
        self.room = Room(MOST_CONNECTIONS, told)
        self.certificate = Certificate(*tls, told) if tls else None
        where = f"{host or '*'}:{port}"
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            # An IPv6 socket takes both families of addresses; where there is no IPv6 the next is tried.
            addresses = found if host else sorted(found, key=lambda each: each[0] != socket.AF_INET6)
            for i, (family, _, _, _, address) in enumerate(addresses):
                self.address_family = family
                try:
                    super().__init__(cast(Any, address), _Handler)
                    break
                except OSError as e:
                    if e.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL) or i + 1 == len(addresses):
                        raise
        except OSError as e:
            raise SystemFailure(f"can't listen on {where}: {e.strerror}; --listen chooses another", code=e.errno) from e
        except UnicodeError:
            raise SystemFailure(
                f"can't listen on {where}: that is no name of a host; --listen chooses another"
            ) from None

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"{'https' if self.certificate else 'http'}://{shown}:{port}"

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def get_request(self) -> Any:
        """A connection. Where there is no descriptor for it, it waits, and so do we: not in a busy circle."""
        try:
            return super().get_request()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                time.sleep(0.1)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection, where there is room for it."""
        if not self.room.enter():
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread was to be had
            self.room.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """A connection in its own thread; the handshake too, so that a slow client holds up nobody else."""
        try:
            self.room.use(request)
            if self.certificate is not None:
                try:
                    request.settimeout(PATIENCE_S)
                    context = self.certificate.context()
                    request = context.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
                    self.room.use(request)  # before the handshake: who never ends that gives way too
                    request.do_handshake()
                except (OSError, ValueError):
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            self.room.leave()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away, or speaks no TLS, is no matter; anything else is told in a line."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.told(f"a request failed: {error!r}")

    def body(self, openmetrics: bool, accept: str) -> Iterator[bytes]:
        """Everything that is to be told at this moment, piece by piece."""
        report = self.watch.report()
        shared = self.watch.shared_labels
        blocks = list(report.small())
        encoder, _ = choose_encoder(accept)
        small = CollectorRegistry(auto_describe=False)
        small.register(_Small(blocks, shared))
        yield encoder(small).removesuffix(_EOF)
        yield from write(report.many(), openmetrics=openmetrics)
        if self.registry is not None:
            try:
                yield encoder(self.registry).removesuffix(_EOF)
            except Exception as e:  # somebody else's collector: no reason to leave ours out
                self.told(f"a collector of the registry failed: {e!r}")
        if openmetrics:
            yield _EOF


def own_process() -> CollectorRegistry:
    """A registry with what this process itself uses: ``process_*``, as the library names it."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version = f"neuron-ds/{__version__}"
    sys_version = ""
    timeout = PATIENCE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.server.room.serving(True)
        try:
            self._answered()
        finally:
            self.server.room.serving(False)

    def _answered(self) -> None:
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # what follows is no request of its own, and isn't read
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._metrics()
        elif path == "/healthz":
            problem = self.server.watch.problem
            self._answer(503 if problem else 200, "text/plain; charset=utf-8", (problem or "ok") + "\n")
        elif path == "/":
            self._answer(200, "text/html; charset=utf-8", _page(self.server.watch))
        else:
            self._answer(404, "text/plain; charset=utf-8", "there are /metrics and /healthz\n")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.close_connection = True  # a body may follow, and isn't read
        self._answer(405, "text/plain; charset=utf-8", f"there are {_METHODS}\n", Allow=_METHODS)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST

    def _metrics(self) -> None:
        accept = form(self._header("Accept"))
        _, content_type = choose_encoder(accept)
        pieces = self.server.body("openmetrics" in content_type, accept)
        try:
            first = next(pieces)
        except Exception as e:  # whatever it is, it has to be an answer
            self.server.told(f"a scrape failed: {e!r}")
            self._answer(500, "text/plain; charset=utf-8", f"the scrape failed: {e!r}\n")
            return
        zipped = takes_gzip(self._header("Accept-Encoding"))
        chunked = self.request_version not in ("HTTP/0.9", "HTTP/1.0")
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Vary", "Accept, Accept-Encoding")
        if zipped:
            self.send_header("Content-Encoding", "gzip")
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command == "HEAD":
            return
        self.close_connection, keep = True, self.close_connection  # an answer that breaks off must not look whole
        for piece in _gzip(first, pieces) if zipped else _with(first, pieces):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = keep

    def _header(self, name: str) -> str:
        """A header that is a list, in one line; it may have come in several."""
        return ",".join(self.headers.get_all(name, ()))

    def _answer(self, code: int, content_type: str, text: str, **headers: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are no news."""


def _with(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from (piece for piece in rest if piece)


def _gzip(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    squeeze = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for piece in _with(first, rest):
        if squeezed := squeeze.compress(piece):
            yield squeezed
    yield squeeze.flush()


def _page(watch: Watch) -> str:
    problem = html.escape(watch.problem or "ok")
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>neuron-ds exporter</title>"
        f"<h1>neuron-ds exporter {__version__}</h1>"
        "<p>What processes on Neuron accelerators publish, for Prometheus.</p>"
        f"<ul><li><a href=/metrics>/metrics</a>: {watch.devices} devices, windows of {watch.window_s:g} s"
        f"<li><a href=/healthz>/healthz</a>: {problem}</ul></html>\n"
    )
