"""The command ``web``: serves the live page until it is stopped."""

from __future__ import annotations

import threading

import click

from neuron_ds.cli.base import OK, Failure, Finite, tell
from neuron_ds.cli.exporter import address
from neuron_ds.cli.replay import replayed

DEFAULT_ADDRESS = "127.0.0.1:8800"
#: Fewer characters than this are guessed too easily.
TOKEN_LENGTH = 16
#: The exporter looks 100 times a second; a page is well served by less, which is most of what it costs.
SAMPLE_HZ = 20.0


def _somewhere(context: click.Context, parameter: click.Parameter, value: str) -> tuple[str, int]:
    """HOST:PORT as the exporter reads it, but not nowhere."""
    found = address(context, parameter, value)
    if found is None:
        raise click.BadParameter(f"{value!r} is no HOST:PORT; as in {DEFAULT_ADDRESS}")
    return found


def _token_of(path: str) -> str:
    """The token in a file: its first line."""
    with open(path, encoding="ascii", errors="replace") as file:
        token = file.readline().strip()
    if len(token) < TOKEN_LENGTH or not all(c.isalnum() or c in "-_.~" for c in token):
        raise Failure(f"{path}: a token has at least {TOKEN_LENGTH} characters, of letters, digits and -_.~")
    return token


@click.command(short_help="A live page in the browser.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=DEFAULT_ADDRESS,
    show_default=True,
    callback=_somewhere,
    help="Where to listen; port 0 takes a free one. Off loopback a token is asked for.",
)
@click.option(
    "--token-file", metavar="FILE", help="Ask for the token in this file, instead of one made up at the start."
)
@click.option(
    "--period", "period_s", type=Finite(0.1, 60), default=2.0, show_default=True, help="Seconds from look to look."
)
@click.option(
    "--sample-hz",
    type=Finite(0, 1000),
    default=SAMPLE_HZ,
    show_default=True,
    help="How often to look at latencies; 0: never.",
)
@click.option("--no-imds", is_flag=True, help="Never ask the instance metadata service.")
@replayed(steps=False)
def web(listen: tuple[str, int], token_file: str | None, period_s: float, sample_hz: float, no_imds: bool) -> int:
    """Serve a live page of all devices and processes, until stopped: open the address that is printed.

    On loopback only, unless --listen names another address; then a token is asked for, which is part of the address
    that is printed. There are also /api/report (a report of the monitor) and /metrics (those of the exporter). Exit 0
    when stopped by a signal; 2 where the address can't be had, the token not be read or the extra isn't installed.
    Without a device the page says why.

    \b
    Examples:
      neuron-ds web
      neuron-ds web --listen 127.0.0.1:0 --period 0.5
      neuron-ds web --listen :8800 --token-file /etc/neuron-ds/token
      neuron-ds web --from incident.mcap --speed 10
    """
    try:
        from neuron_ds.live.picture import Live
        from neuron_ds.live.source import LiveSource
        from neuron_ds.web.guard import is_loopback
        from neuron_ds.web.others import Others
        from neuron_ds.web.pump import Pump
        from neuron_ds.web.server import WebServer
        from neuron_ds.web.server import listen as listen_on
    except ModuleNotFoundError as e:
        name = (e.name or "").partition(".")[0]
        if name in ("starlette", "uvicorn", "msgspec", "psutil", "prometheus_client"):
            raise Failure(f"{name} is not installed; pip install 'neuron-datastore[web]'") from None
        raise
    from neuron_ds.cli.run import collect_seldom, until_stopped

    token, shown = _token_of(token_file) if token_file else None, ""
    collect_seldom()
    with until_stopped():
        listening = listen_on(*listen)
        if token is None and not is_loopback(listening.getsockname()[0]):
            import secrets

            token = secrets.token_urlsafe(24)
            shown = f"?token={token}"
        live = Live(LiveSource(sample_hz=sample_hz))
        with (
            Pump(live, period_s, told=tell) as pump,
            WebServer(
                pump, listening, title=live.title, token=token, others=Others(None, imds=not no_imds), told=tell
            ) as server,
        ):
            tell(server.url + shown)
            threading.Event().wait()
    return OK
