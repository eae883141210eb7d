"""Who may look: requests with a known Host header, from no other site, and beyond this machine with a token.

All is read by GET. The one thing that a page can do is to play a task by hand, by POST to addresses that begin with `WRITES`: only for
a page of this very dashboard, as the browser says by the Origin header, and as JSON, which no form of another site can send.

The Host header is what stops a page on the web from reading a dashboard on this machine by pointing its own name at 127.0.0.1
(DNS rebinding). The token is compared in constant time and then kept in a cookie that no script can read.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PARAMETER = "token"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
WRITES = "/api/attempts"
LONGEST_BODY = 64 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may look."""

    host: str = "127.0.0.1"
    """The address that the server listens at."""
    token: str = ""
    """Empty: none is needed, which is for this machine alone."""
    methods: frozenset[str] = frozenset({"GET", "HEAD"})


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_any(host: str) -> bool:
    """Whether it stands for all addresses of this machine."""
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified


class Guard:
    """The outermost layer: refuses, and adds the headers to whatever is answered."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access
        self._cookie = cookie_of(access.token)
        # Asked for once: to look a name up may take seconds, and a request can hold any.
        self._names = {socket.gethostname().casefold(), socket.getfqdn().casefold()} if access.token else set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # no web sockets here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._knows(host_of(headers.get("host", ""))):
            return _refused(421, "this Host header names another server; open the address that distrl printed")
        writes = scope["method"] == "POST" and (scope["path"] == WRITES or scope["path"].startswith(f"{WRITES}/"))
        if scope["method"] not in self._access.methods and not writes:
            return _refused(405, "this dashboard only shows")
        if writes and (why := foreign(headers)):
            return _refused(403, why)
        if (
            headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            and headers.get("sec-fetch-mode") != "navigate"
        ):
            return _refused(403, "another site has no business here")
        return self._refuse_unknown(scope, headers) if self._access.token else None

    def _knows(self, host: str) -> bool:
        if host in LOOPBACK or host == self._access.host.casefold():
            return True
        if is_loopback(self._access.host):
            return False
        return _is_address(host) or host in self._names

    def _refuse_unknown(self, scope: Scope, headers: Headers) -> Response | None:
        """Let in who has the token: from the address, which then becomes a cookie, from that cookie, or as a bearer."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        given = next((value for name, value in query if name == PARAMETER), None)
        if given is not None and self._is_token(given):
            left = urlencode([(name, value) for name, value in query if name != PARAMETER])
            answer = RedirectResponse("/" + scope["path"].lstrip("/\\") + (f"?{left}" if left else ""), status_code=303)
            answer.set_cookie(self._cookie, self._access.token, httponly=True, samesite="strict")
            return answer
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookies = cookie_parser(
            headers.get("cookie", "")
        )  # that of the standard library gives up at one it cannot read
        if self._is_token(cookies.get(self._cookie, "")) or self._is_token(bearer):
            return None
        return _refused(401, "this dashboard needs its token: open the address with ?token=… that distrl printed")

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._access.token.encode())


def foreign(headers: Headers) -> str:
    """Why a request that does something is not from a page of this dashboard; empty: it is."""
    scheme, _, origin = headers.get("origin", "").partition("://")
    if scheme not in ("http", "https") or origin.casefold() != headers.get("host", "").casefold():
        return "only a page of this dashboard may do that: its Origin header has to name this server"
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return "another site has no business here"
    if headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/json":
        return "this has to be sent as application/json"
    return ""


def cookie_of(token: str) -> str:
    """The name of the cookie for a token: browsers send cookies to every port of a machine, and there may be a dashboard at each."""
    return f"distrl-{sha256(token.encode()).hexdigest()[:12]}"


def host_of(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].casefold()
    return header.partition(":")[0].casefold()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _refused(status: int, why: str) -> Response:
    return PlainTextResponse(f"{why}\n", status_code=status)
