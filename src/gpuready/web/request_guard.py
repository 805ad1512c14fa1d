"""Checks before every request, of ``gpuready serve`` and of ``gpuready mcp --http``: the right host, no foreign origin, the token, a bounded body.

A page of another site can make a browser send requests here, and a name it owns can resolve to this address (DNS
rebinding). So every request must name the host we listen on, must come from no other origin, and must carry the token: as
``Authorization: Bearer``, or on the page as the session cookie it was exchanged for together with a header that no form and
no link can send. There is no CORS and no framing.
"""

import asyncio
import hmac
import html
from collections.abc import MutableMapping, Sequence
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers, QueryParams
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import Response

from gpuready.model.visible_text import escape_unprintable
from gpuready.web.query_service import error_reply

Scope = MutableMapping[str, Any]


PAGE_HEADER = "x-gpuready"
"""Sent by the page with every query. A form cannot send it, and a script of another site needs a preflight, which we deny."""
MAX_QUERY_BYTES = 4096
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class RequestGuard:
    """Middleware: a refused request never reaches the app."""

    token_missing = "the header Authorization: Bearer TOKEN is missing or wrong"

    def __init__(self, app: Any, *, token: str, hosts: Sequence[str]):
        self._app, self._hosts = app, tuple(host.lower() for host in hosts)
        self._token = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        secure_send = _add_security_headers(send)
        refusal = self.find_response(scope, Headers(scope=scope))
        await (refusal or self.answer)(scope, receive, secure_send)

    async def answer(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass a request that was not refused to the app."""
        await self._app(scope, receive, send)

    def find_response(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response of the guard itself; None where the app may answer."""
        refusal = self._check_origin(scope, headers)
        if refusal is None and not self._is_authenticated(headers):
            refusal = 401, self.token_missing
        return None if refusal is None else refusal_response(*refusal)

    def _check_origin(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 403, f"this server is {self._hosts[0]}, and was called by another name"
        for origin in headers.getlist("origin"):
            if origin.lower() not in [f"http://{host}" for host in self._hosts]:
                return 403, "another site may not ask here"
        if not _is_same_site(headers):
            return 403, "another site may not ask here"
        if len(scope.get("query_string", b"")) > MAX_QUERY_BYTES:
            return 414, f"the query is longer than {MAX_QUERY_BYTES} bytes"
        return None

    def _is_authenticated(self, headers: Headers) -> bool:
        authorization = headers.getlist("authorization")
        kind, _, token = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        return kind.lower() == "bearer" and self._matches_token(token.strip())

    def _matches_token(self, token: str) -> bool:
        """Compare digests in constant time."""
        return hmac.compare_digest(sha256(token.encode("utf-8", "replace")).digest(), self._token)


class PageGuard(RequestGuard):
    """The guard of a page in a browser, which has a session cookie in place of the token."""

    token_missing = "the token is missing or wrong: gpuready serve prints the address with it when it starts"

    def __init__(self, app: Any, *, token: str, hosts: Sequence[str], port: int):
        super().__init__(app, token=token, hosts=hosts)
        # Cookies are shared between the ports of a host, hence the port in the name. The value is not the token itself.
        self._cookie = f"gpuready-{port}"
        self._session = hmac.new(self._token, b"session", sha256).hexdigest()

    def find_response(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response of the guard itself; None where the app may answer."""
        is_api = scope["path"].startswith("/api")
        refusal = self._check_origin(scope, headers)
        if refusal is not None:
            return refusal_response(*refusal)
        if scope["path"] == "/" and (token := _query_token(scope)) is not None:
            return self._exchange_token(scope, token)
        if not self._is_authenticated(headers):
            return refusal_response(401, self.token_missing if is_api else _SIGN_IN_PAGE)
        if is_api and "authorization" not in headers and headers.get(PAGE_HEADER) != "1":
            needed = f"a question needs the header {PAGE_HEADER}: 1, or Authorization: Bearer TOKEN"
            return refusal_response(403, needed)
        return None

    def _is_authenticated(self, headers: Headers) -> bool:
        if "authorization" in headers:
            return super()._is_authenticated(headers)
        cookies = [cookie_parser(line).get(self._cookie, "") for line in headers.getlist("cookie")]
        return any(hmac.compare_digest(value.encode(), self._session.encode()) for value in cookies)

    def _exchange_token(self, scope: Scope, token: str) -> Response:
        """Exchange the token in the URL for a cookie; the page then reloads the same URL without the token.

        Not a redirect: a browser that came from another site does not send a strict cookie with it.
        """
        if not self._matches_token(token):
            return refusal_response(401, self.token_missing)
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        page = _CONTINUE_PAGE.format(address=html.escape(escape_unprintable(_path_without_token(scope))))
        return Response(page, 200, {"set-cookie": cookie}, "text/html")


_PAGE_HEAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>gpuready</title><link rel="icon" href="data:,">'
)
_SIGN_IN_PAGE = _PAGE_HEAD + (
    "<h1>gpuready serve</h1><p>This page needs the token: open the address that <code>gpuready serve</code> printed when it "
    'started.</p><p>You have been here before? <a href="">Go on</a>.</p></html>\n'
)
_CONTINUE_PAGE = (
    _PAGE_HEAD + '<meta http-equiv="refresh" content="0;url={address}"><p><a href="{address}">Go on</a>.</p></html>\n'
)


def _is_same_site(headers: Headers) -> bool:
    """Whether the browser reports our own site, the address bar, or a plain link to one of our pages."""
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return True
    return (headers.getlist("sec-fetch-mode"), headers.getlist("sec-fetch-dest")) == (["navigate"], ["document"])


def _query_token(scope: Scope) -> str | None:
    if scope["method"] != "GET":
        return None
    return QueryParams(scope["query_string"]).get("token")


def _path_without_token(scope: Scope) -> str:
    rest = [(key, value) for key, value in QueryParams(scope["query_string"]).multi_items() if key != "token"]
    return "/" + (f"?{QueryParams(rest)}" if rest else "")


def _add_security_headers(send: Any) -> Any:
    """Wrap ``send`` to add the security headers to every response."""

    async def send_with_headers(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            missing = [(n.encode(), v.encode()) for n, v in SECURITY_HEADERS.items() if n.encode() not in present]
            message = {**message, "headers": [*message.get("headers", ()), *missing]}
        await send(message)

    return send_with_headers


def refusal_response(status: int, text: str) -> Response:
    """Return a page if ``text`` is one, else a sentence as JSON. The request may still be sending its body: close."""
    headers = {"connection": "close", **_REFUSAL_HEADERS.get(status, {})}
    if text.startswith("<!doctype"):
        return Response(text, status, headers, "text/html")
    return Response(error_reply(status, text).text, status, headers, "application/json")


_REFUSAL_HEADERS = {401: {"www-authenticate": 'Bearer realm="gpuready"'}, 405: {"allow": "POST"}}


# -- bodies ---------------------------------------------------------------------------------------------------------

BODY_TIMEOUT = 30.0
"""The seconds a body may take to arrive."""


class InvalidUpload(Exception):
    """A body that is too large, too late or empty, with an HTTP status."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


async def read_request_body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the whole body. InvalidUpload where it is too large, late, broken off or empty."""
    declared_length = request.headers.get("content-length", "")
    if declared_length.isdecimal() and int(declared_length) > max_bytes:
        raise _too_large_error(max_bytes)
    try:
        body = await asyncio.wait_for(_collect_body(request, max_bytes), seconds)
    except (TimeoutError, asyncio.TimeoutError):  # two names before Python 3.11
        raise InvalidUpload(408, f"it was not here within {seconds:.0f} s") from None
    except ClientDisconnect:
        raise InvalidUpload(400, "the connection ended before the whole was here") from None
    if not body:
        raise InvalidUpload(400, "there is nothing in it: send the file as the body")
    return body


async def _collect_body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large_error(max_bytes)
    return bytes(body)


def _too_large_error(max_bytes: int) -> InvalidUpload:
    return InvalidUpload(413, f"larger than {max_bytes >> 20} MiB: use the command line for it")
