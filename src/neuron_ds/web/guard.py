"""Who may ask: the layer around the application that checks the host's name, the token and the method.

On loopback the name in the Host header must be loopback's own, or a foreign page could reach us under a name that it
makes resolve to this machine. Elsewhere a token is asked for. Every answer carries the headers that keep a browser from
loading, framing or guessing anything. This module knows HTTP, and nothing of what is served.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Probes need no token, and learn no more than that we live.
OPEN_PATHS = ("/healthz",)
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Whether a host's name, as in a Host header without its port, means this machine and no other."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """A Host header without its port."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0]


class Guard:
    """Wraps an application. ``token``: what has to be shown, None for nothing. ``loopback``: the only names we have."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        loopback: bool,
        cookie: str = "neuron_ds_token",
        told: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._app, self._token, self._loopback, self._cookie, self._told = app, token, loopback, cookie, told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        begun = False

        async def sealed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            answer: ASGIApp = self._refusal(scope) or self._app
            await answer(scope, receive, sealed)
        except Exception as e:
            self._told(f"{scope['path']}: {e!r}")
            if not begun:
                await PlainTextResponse("that failed; the server's standard error tells more\n", 500)(
                    scope, receive, sealed
                )

    def _refusal(self, scope: Scope) -> Response | None:
        """What to answer instead, None if all is well."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("there are GET and HEAD\n", 405, {"Allow": "GET, HEAD"})
        headers = Headers(scope=scope)
        if self._loopback and not is_loopback(host_of(headers.get("host", ""))):
            return PlainTextResponse("this server is called localhost; use that name\n", 421)
        if self._token is None or scope["path"] in OPEN_PATHS:
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if self._is_token(query.get("token", "")):
            return self._remembered(scope["path"], {k: v for k, v in query.items() if k != "token"})
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(shown.strip()):
            return None
        if self._is_token(_cookie(headers.get("cookie", ""), self._cookie)):
            return None
        return PlainTextResponse(
            "a token is needed: open the address that the server printed, or send Authorization: Bearer TOKEN\n",
            401,
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_token(self, shown: str) -> bool:
        assert self._token is not None
        return hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), self._token.encode())

    def _remembered(self, path: str, query: dict[str, str]) -> Response:
        """Off to the same place without the token, which the browser keeps to itself from now on."""
        assert self._token is not None
        where = "/" + path.lstrip("/\\") + (f"?{urlencode(query)}" if query else "")
        answer = RedirectResponse(where, 303)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return answer


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return found.value if found else ""
