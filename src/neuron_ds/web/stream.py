"""Server-sent events: who is connected, and how the newest picture reaches each of them.

A client has room for one message: what it is too slow for is replaced by what is newer, so that nobody waits for it and
nothing piles up. All of this runs in one event loop. This module knows bytes and connections, and no picture.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MOST_CLIENTS = 64
#: A client that takes nothing for so long is let go; one that hears nothing for so long hears that we live.
PATIENCE_S, SILENCE_S = 30.0, 15.0
RETRY_MS = 1000
_ALIVE = b": still here\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def event(name: str, body: bytes, number: int) -> bytes:
    """One event of the stream. JSON has no line breaks, so a body is one line."""
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), number, body)


class Client:
    """One connection: the newest message that it was not sent yet. ``seen``: the number of the last that it knows."""

    def __init__(self) -> None:
        self.seen = 0
        self._message: bytes | None = None
        self._ended = False
        self._news = asyncio.Event()

    def put(self, number: int, message: bytes) -> None:
        if number > self.seen:
            self.seen, self._message = number, message
            self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def next(self) -> bytes | None:
        """The newest message as soon as there is one, a sign of life after a while without; None at the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), SILENCE_S)
        self._news.clear()
        message, self._message = self._message, None
        return None if self._ended else message or _ALIVE


class Hub:
    """All clients. ``changed`` is told whether there are any."""

    def __init__(self, changed: Callable[[bool], object] = lambda any: None) -> None:
        self._clients: set[Client] = set()
        self._changed, self._closed = changed, False

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def full(self) -> bool:
        return self._closed or len(self._clients) >= MOST_CLIENTS

    @contextmanager
    def client(self) -> Iterator[Client]:
        """One more, as long as the block lasts."""
        client = Client()
        self._clients.add(client)
        if len(self._clients) == 1:
            self._changed(True)
        if self._closed:
            client.end()
        try:
            yield client
        finally:
            self._clients.remove(client)
            if not self._clients:
                self._changed(False)

    def send(self, number: int, message: bytes) -> None:
        """To everybody who has not seen that number yet."""
        for client in self._clients:
            client.put(number, message)

    def close(self) -> None:
        """Let everybody go, now and from now on."""
        self._closed = True
        for client in self._clients:
            client.end()


class EventStream(Response):
    """The answer that doesn't end: ``greeting`` makes the first message and its number, the hub the others."""

    def __init__(self, hub: Hub, greeting: Callable[[], tuple[int, bytes]]) -> None:
        super().__init__()
        self._hub, self._greeting = hub, greeting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b""})
            return
        with self._hub.client() as client:
            leaving = asyncio.ensure_future(_left(receive))
            leaving.add_done_callback(lambda _: client.end())
            client.seen, greeting = self._greeting()
            message: bytes | None = b"retry: %d\n" % RETRY_MS + greeting
            try:
                while message is not None:
                    body = {"type": "http.response.body", "body": message, "more_body": True}
                    await asyncio.wait_for(send(body), PATIENCE_S)
                    message = await client.next()
            except TimeoutError:
                pass
            finally:
                leaving.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
