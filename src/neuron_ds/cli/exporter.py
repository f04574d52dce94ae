"""The command ``exporter``: serves metrics for Prometheus, and pushes them over OTLP if asked, until it is stopped."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack

import click

from neuron_ds.cli.base import NEGATIVE, OK, UNUSABLE, Failure, Finite, tell
from neuron_ds.cli.pods import names_of_pods
from neuron_ds.cli.replay import replayed

DEFAULT_PORT = 8000
#: The names of what may be told of a process; the room that knows what they mean is only loaded when it runs.
LABELS = ("pod", "container", "user", "command")


def address(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int] | None:
    """HOST:PORT, :PORT, PORT or [ADDRESS]:PORT; None for "none"."""
    if value == "none":
        return None
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
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
    callback=address,
    help="Where to listen; port 0 takes a free one, and with --otlp 'none' serves nothing.",
)
@click.option("--tls-cert", metavar="FILE", help="Speak TLS with this certificate (PEM); read again when it changes.")
@click.option("--tls-key", metavar="FILE", help="Its key, where that is not in the same file.")
@click.option("--per-process", is_flag=True, help="Every counter of every process and core: many series.")
@click.option(
    "--label",
    "labels",
    type=click.Choice(LABELS),
    multiple=True,
    help="Tell runtimes apart by this too: pod (uid and names), container id, user or command. May be given several "
    "times.",
)
@click.option(
    "--pod-resources",
    metavar="PATH",
    help="Kubelet's socket, which tells --label pod their names; 'none' asks nobody.  [default: where kubelet has it]",
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
@click.option("--otlp", is_flag=True, help="Push to an OpenTelemetry collector too; the OTEL_* variables say where.")
@replayed(steps=False)
def exporter(
    listen: tuple[str, int] | None,
    tls_cert: str | None,
    tls_key: str | None,
    per_process: bool,
    labels: tuple[str, ...],
    pod_resources: str | None,
    sample_hz: float,
    window_s: float,
    otlp: bool,
) -> int:
    """Serve metrics for Prometheus until stopped: the vendor's families by their names, and more as neuron_ds_*.

    There are /metrics (text or OpenMetrics, as asked for), /healthz and a page at /. Exit 0 when stopped by a signal;
    1 without a device; 2 where none can be read, the address can't be had, the certificate or an OTEL_* variable can't
    be used or the extra isn't installed.
    """
    if tls_key and not tls_cert:
        raise Failure("--tls-key without --tls-cert: name the certificate too")
    if listen is None and not otlp:
        raise Failure("--listen none leaves nothing to do; --otlp pushes")
    if listen is None and tls_cert:
        raise Failure("--tls-cert without a server: leave out --listen none")
    if pod_resources is not None and "pod" not in labels:
        raise Failure("--pod-resources without --label pod: there is nothing to name")
    try:
        from neuron_ds.exporter.server import Server, own_process
        from neuron_ds.exporter.watch import Watch
    except ModuleNotFoundError as e:
        name = (e.name or "").partition(".")[0]
        if name in ("prometheus_client", "psutil"):
            extra = "otlp" if otlp else "exporter"  # the one has all of the other
            raise Failure(f"{name} is not installed; pip install 'neuron-datastore[{extra}]'") from None
        raise
    if otlp:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to standard error by itself
        try:
            from neuron_ds.exporter.otlp import Push, disabled
        except ModuleNotFoundError as e:
            name = (e.name or "").partition(".")[0]
            if name == "neuron_ds":
                raise
            raise Failure(f"{name} is not installed; pip install 'neuron-datastore[otlp]'") from None
    from neuron_ds import _core
    from neuron_ds.cli.run import until_stopped

    _core.share_heap()
    tls = (tls_cert, tls_key) if tls_cert else None
    with (
        until_stopped(),
        names_of_pods(pod_resources, "pod" in labels, tell) as pods,
        Watch(window_s=window_s, sample_hz=sample_hz, per_process=per_process, choices=labels, pods=pods) as watch,
    ):
        if not watch.readable:
            if watch.errors:
                return tell(watch.errors[0], UNUSABLE)
            return tell("no Neuron device; neuron-ds doctor tells more", NEGATIVE)
        with ExitStack() as stack:
            server = None
            if listen is not None:
                server = stack.enter_context(Server(watch, *listen, tls=tls, registry=own_process(), told=tell))
            for error in watch.errors:
                tell(error)
            if otlp and disabled():
                tell("otlp: OTEL_SDK_DISABLED is set: nothing is pushed")
            elif otlp:
                push = stack.enter_context(Push(watch, told=tell))
                tell(f"otlp: every {push.interval_s:g} s to {push.endpoint}")
            if server is not None:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                stack.callback(server.shutdown)
                tell(f"{server.url}/metrics")  # last: who reads it may end us at once, and finds all of it in place
            _wait_for_the_end()
    return OK


def _wait_for_the_end() -> None:
    """For ever, or until a recording is over."""
    from neuron_ds.driver import get_driver
    from neuron_ds.driver.clock import REAL_TIME, clock_of

    clock, never = clock_of(get_driver()), threading.Event()
    while not clock.over:
        never.wait(None if clock is REAL_TIME else 0.1)
