"""The server: a socket, an event loop in a thread of its own, and the order in which everything begins and ends.

It listens on loopback unless told otherwise, and elsewhere only with a token. This module knows uvicorn and sockets;
what is served it doesn't.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from neuron_ds.errors import BadValue, SystemFailure
from neuron_ds.web.app import Site
from neuron_ds.web.guard import Guard, is_loopback
from neuron_ds.web.others import Others
from neuron_ds.web.pump import Picture, Pump
from neuron_ds.web.stream import MOST_CLIENTS, Hub, event

#: What a client takes nothing of for so long ends its connection; and how long the end may wait for anybody.
STUCK_MS, GRACE_S = 30_000, 1
#: Who asks nothing for so long, twice that at the most, is let go.
ASK_S = 15.0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SystemFailure where the address can't be had."""
    where = f"{host or '*'}:{port}"
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, address = next(((f, a) for f, _, _, _, a in found if f == socket.AF_INET), (found[0][0], found[0][4]))
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as e:
        raise SystemFailure(f"can't listen on {where}: {e.strerror}; --listen chooses another", code=e.errno) from e
    except UnicodeError:
        raise SystemFailure(f"can't listen on {where}: that is no name of a host; --listen chooses another") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STUCK_MS)  # connections inherit it
        made.bind(address)
        made.listen(MOST_CLIENTS)
    except OSError as e:
        made.close()
        raise SystemFailure(f"can't listen on {where}: {e.strerror}; --listen chooses another", code=e.errno) from e
    return made


class _Connection(H11Protocol):
    """A connection that is let go when it asks nothing for a while: those whose other end is gone without having asked
    would add up until there is no room for anybody."""

    _asked: object = None
    _look: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._look = self.loop.call_later(ASK_S, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # None at first
        if waits and self._asked is self.cycle:
            self.transport.close()
            return
        self._asked = self.cycle
        self._look = self.loop.call_later(ASK_S, self._look_again)


class WebServer:
    """Serves the frames of a Pump. It runs from the making on; close it, or use it as a context manager."""

    def __init__(
        self,
        pump: Pump,
        listening: socket.socket,
        *,
        title: str,
        token: str | None = None,
        others: Others | None = None,
        told: Callable[[str], object] = lambda text: None,
    ) -> None:
        """``listening`` and ``others`` are closed with the server. Raises BadValue without a token off loopback."""
        self._host, self.port = listening.getsockname()[:2]
        self._others = others
        loopback = is_loopback(self._host)
        if token is None and not loopback:
            raise BadValue(f"listening on {self._host} needs a token: whoever reaches it sees everything")
        self._hub = Hub(pump.watched)
        site = Site(pump, self._hub, others, title=title)
        guard = Guard(
            site.app, token=token, loopback=loopback and token is None, cookie=f"neuron_ds_{self.port}", told=told
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                guard,
                loop="asyncio",
                http=_Connection,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                log_level="critical",
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
                limit_concurrency=4 * MOST_CLIENTS,
            )
        )
        self._socket, self._pump = listening, pump
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="neuron-ds-web", daemon=True)
        self._thread.start()
        pump.start(self._deliver)

    @property
    def url(self) -> str:
        """Where the page is; the token is not part of it."""
        host = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(self._host, self._host)
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        finally:
            self._loop.close()

    def _deliver(self, picture: Picture) -> None:
        """In the pump's thread: the message is made here, the loop only hands it on."""
        self._call(self._hub.send, picture.number, event("frame", picture.body, picture.number))

    def _call(self, what: Callable[..., Any], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError as e:  # the loop has ended
            if not self._loop.is_closed():
                raise SystemFailure(f"the server's loop refused: {e}", code=errno.EBADF) from e

    def close(self) -> None:
        """Let everybody go and stop listening; takes a moment, not as long as a client likes."""
        if self._others:
            self._others.close()
        self._server.should_exit = True
        self._call(self._hub.close)
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
