"""The command ``exporter``: serves metrics for Prometheus until it is stopped."""

from __future__ import annotations

import threading

import click

from neuron_ds.cli.base import NEGATIVE, OK, Failure, Finite, tell

DEFAULT_PORT = 8000
#: The names of what may be told of a process; the room that knows what they mean is only loaded when it runs.
LABELS = ("pod", "container", "user", "command")


def _address(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int]:
    """HOST:PORT, :PORT, PORT or [ADDRESS]:PORT."""
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise click.BadParameter(f"{value!r} is no HOST:PORT; as in :8000, 127.0.0.1:8000 or [::1]:8000")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise click.BadParameter(f"{value!r}: put an IPv6 address in brackets, as in [::1]:8000")
    return host, int(port)


@click.command(short_help="Metrics for Prometheus, over HTTP.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f":{DEFAULT_PORT}",
    show_default=True,
    callback=_address,
    help="Where to listen; port 0 takes a free one.",
)
@click.option("--tls-cert", metavar="FILE", help="Speak TLS with this certificate (PEM); read again when it changes.")
@click.option("--tls-key", metavar="FILE", help="Its key, where that is not in the same file.")
@click.option("--per-process", is_flag=True, help="Every counter of every process and core: many series.")
@click.option(
    "--label",
    "labels",
    type=click.Choice(LABELS),
    multiple=True,
    help="Tell runtimes apart by this too: pod uid, container id, user or command. May be given several times.",
)
@click.option(
    "--sample-hz",
    type=Finite(0, 1000),
    default=100.0,
    show_default=True,
    help="How often to look at latencies; 0: never.",
)
@click.option(
    "--window",
    "window_s",
    type=Finite(0.1, 3600),
    default=5.0,
    show_default=True,
    help="Seconds that utilization and percentiles are over.",
)
def exporter(
    listen: tuple[str, int],
    tls_cert: str | None,
    tls_key: str | None,
    per_process: bool,
    labels: tuple[str, ...],
    sample_hz: float,
    window_s: float,
) -> int:
    """Serve metrics for Prometheus until stopped: the vendor's families by their names, and more as neuron_ds_*.

    There are /metrics (text or OpenMetrics, as asked for), /healthz and a page at /. Exit 0 when stopped by a signal;
    1 without a device that can be read; 2 where the address can't be had, the certificate can't be used or the extra
    isn't installed.
    """
    if tls_key and not tls_cert:
        raise Failure("--tls-key without --tls-cert: name the certificate too")
    try:
        from neuron_ds.exporter.server import Server, own_process
        from neuron_ds.exporter.watch import Watch
    except ModuleNotFoundError as e:
        name = (e.name or "").partition(".")[0]
        if name in ("prometheus_client", "psutil"):
            raise Failure(f"{name} is not installed; pip install 'neuron-datastore[exporter]'") from None
        raise
    from neuron_ds.cli.run import until_stopped

    host, port = listen
    tls = (tls_cert, tls_key) if tls_cert else None
    with (
        until_stopped(),
        Watch(window_s=window_s, sample_hz=sample_hz, per_process=per_process, choices=labels) as watch,
    ):
        if not watch.readable:
            return tell(next(iter(watch.errors), "no Neuron device; neuron-ds doctor tells more"), NEGATIVE)
        with Server(watch, host, port, tls=tls, registry=own_process(), told=tell) as server:
            for error in watch.errors:
                tell(error)
            tell(f"{server.url}/metrics")
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                threading.Event().wait()
            finally:
                server.shutdown()
    return OK
