"""The application: what is served under which path. It wires the pump to the hub and the frames to their answers.

No socket, no thread and no signal is known here; ``server`` runs it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from neuron_ds import __version__
from neuron_ds.live.details import core_counters, process_details
from neuron_ds.live.frame import Frame
from neuron_ds.web import wire
from neuron_ds.web.others import Others
from neuron_ds.web.pump import Pump
from neuron_ds.web.stream import EventStream, Hub, event

STATIC = Path(__file__).parent / "static"
_JSON = "application/json"
#: A picture older than this is not given to who connects.
STALE_PERIODS = 2


class _Files(StaticFiles):
    """The page's files. They are asked after each time, so that a newer version is seen at once."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        answer.headers["Cache-Control"] = "no-cache"
        return answer


class _Number(Convertor[int]):
    """A number of a device or core. Longer ones there are none of, and Python refuses to read them."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Number())


class Site:
    """The answers. ``others``: None where there are no devices to report of, only frames of a recording."""

    def __init__(self, pump: Pump, hub: Hub, others: Others | None, *, title: str) -> None:
        self._pump, self._hub, self._others, self._title = pump, hub, others, title
        self.app = Starlette(
            routes=[
                Route("/healthz", self.healthz),
                Route("/metrics", self.metrics),
                Route("/api/report", self.report),
                Route("/api/stream", self.stream),
                Route("/api/frame", self.frame),
                Route("/api/core/{device:number}/{core:number}", self.core),
                Route("/api/core/{device:number}/{core:number}/history", self.core_history),
                Route("/api/process/{id}", self.process),
                Route("/api/process/{id}/history", self.process_history),
                Mount("/", _Files(directory=STATIC, html=True)),
            ]
        )
        # Details are asked for by every page that shows them, once per frame: made once for all of them.
        self._made: dict[tuple[int | str, ...], bytes] = {}
        self._made_of = 0

    async def healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def stream(self, request: Request) -> Response:
        if self._hub.full:
            return PlainTextResponse("too many watch already\n", 503, {"Retry-After": "10"})
        return EventStream(self._hub, self._greeting)

    def _greeting(self) -> tuple[int, bytes]:
        """What a page needs before its first frame: names, the past, and the latest picture if that isn't old."""
        latest = self._pump.latest
        hello = {
            "version": __version__,
            "title": self._title,
            "period_s": self._pump.period_s,
            "names": wire.names(),
            "history": self._pump.history.of_whole(),
            "events": latest.frame.events if latest else (),
        }
        number = latest.number if latest else 0
        greeting = event("hello", wire.encode(hello), number)
        if latest is None or time.monotonic() - latest.made_s > STALE_PERIODS * self._pump.period_s:
            return number, greeting  # nobody watched; now the next look is on its way
        return number, greeting + event("frame", latest.body, number)

    async def frame(self, request: Request) -> Response:
        latest = self._pump.latest
        return Response(latest.body, 200, media_type=_JSON) if latest else _nothing_yet()

    async def core(self, request: Request) -> Response:
        device, core = request.path_params["device"], request.path_params["core"]
        return self._details(
            (device, core), lambda frame: wire.core(frame, device, core, core_counters(frame, device, core))
        )

    async def process(self, request: Request) -> Response:
        id = request.path_params["id"]

        def make(frame: Frame) -> wire.Json | None:
            found = process_details(frame, id)
            return None if found is None else wire.process(frame, found)

        return self._details((id,), make)

    def _details(self, which: tuple[int | str, ...], make: Callable[[Frame], wire.Json | None]) -> Response:
        """What is to be told of one core or process as of the latest frame."""
        latest = self._pump.latest
        if latest is None:
            return _nothing_yet()
        if self._made_of != latest.number:
            self._made.clear()
            self._made_of = latest.number
        body = self._made.get(which)
        if body is None:
            found = make(latest.frame)
            if found is None:
                return PlainTextResponse("there is none of that name\n", 404)
            body = self._made[which] = wire.encode(found)
        return Response(body, media_type=_JSON)

    async def core_history(self, request: Request) -> Response:
        device, core = request.path_params["device"], request.path_params["core"]
        return Response(wire.encode(self._pump.history.of_core(device, core)), media_type=_JSON)

    async def process_history(self, request: Request) -> Response:
        return Response(wire.encode(self._pump.history.of_process(request.path_params["id"])), media_type=_JSON)

    async def report(self, request: Request) -> Response:
        if self._others is None:
            return _only_recorded()
        body = await run_in_threadpool(self._others.report)
        if not body:
            return PlainTextResponse("the recording is over, or the server is\n", 503)
        return Response(body, media_type=_JSON)

    async def metrics(self, request: Request) -> Response:
        if self._others is None:
            return _only_recorded()
        accept = ",".join(request.headers.getlist("accept"))  # a list may come in several lines
        content_type, body = await run_in_threadpool(partial(self._others.metrics, accept))
        return Response(body, 200, {"Content-Type": content_type})


def _nothing_yet() -> Response:
    return PlainTextResponse("nothing was looked at yet; ask again\n", 503, {"Retry-After": "1"})


def _only_recorded() -> Response:
    return PlainTextResponse("this is a recording: there are no devices to report of\n", 404)
