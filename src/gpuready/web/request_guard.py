"""Checks before every request: the right host, no foreign origin, and the token.

A page of another site can make a browser send requests here, and a name it owns can resolve to this address (DNS
rebinding). So every request must name the host we listen on, must come from no other origin, and must carry the token: as
``Authorization: Bearer``, or as the session cookie it was exchanged for together with a header that no form and no link
can send. There is no CORS and no framing.
"""

from __future__ import annotations

import hmac
import html
from collections.abc import MutableMapping, Sequence
from hashlib import sha256
from typing import Any

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
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

    def __init__(self, app: Any, *, token: str, hosts: Sequence[str], port: int):
        self._app, self._hosts = app, tuple(host.lower() for host in hosts)
        self._token = sha256(token.encode()).digest()
        # Cookies are shared between the ports of a host, hence the port in the name. The value is not the token itself.
        self._cookie = f"gpuready-{port}"
        self._session = hmac.new(self._token, b"session", sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        secure_send = _add_security_headers(send)
        await (self._find_response(scope, Headers(scope=scope)) or self._app)(scope, receive, secure_send)

    def _find_response(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the response of the guard itself; None where the app may answer."""
        is_api = scope["path"].startswith("/api")
        refusal = self._check_origin(scope, headers)
        if refusal is not None:
            return _refusal_response(*refusal)
        if scope["path"] == "/" and (token := _query_token(scope)) is not None:
            return self._exchange_token(scope, token)
        if not self._is_authenticated(headers):
            return _refusal_response(401, TOKEN_MISSING if is_api else _SIGN_IN_PAGE)
        if is_api and "authorization" not in headers and headers.get(PAGE_HEADER) != "1":
            needed = f"a question needs the header {PAGE_HEADER}: 1, or Authorization: Bearer TOKEN"
            return _refusal_response(403, needed)
        return None

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
        if authorization:
            kind, _, token = authorization[0].partition(" ")
            return len(authorization) == 1 and kind.lower() == "bearer" and self._matches_token(token.strip())
        cookies = [cookie_parser(line).get(self._cookie, "") for line in headers.getlist("cookie")]
        return any(hmac.compare_digest(value.encode(), self._session.encode()) for value in cookies)

    def _matches_token(self, token: str) -> bool:
        """Compare digests in constant time."""
        return hmac.compare_digest(sha256(token.encode("utf-8", "replace")).digest(), self._token)

    def _exchange_token(self, scope: Scope, token: str) -> Response:
        """Exchange the token in the URL for a cookie; the page then reloads the same URL without the token.

        Not a redirect: a browser that came from another site does not send a strict cookie with it.
        """
        if not self._matches_token(token):
            return _refusal_response(401, TOKEN_MISSING)
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        page = _CONTINUE_PAGE.format(address=html.escape(escape_unprintable(_path_without_token(scope))))
        return Response(page, 200, {"set-cookie": cookie}, "text/html")


TOKEN_MISSING = "the token is missing or wrong: gpuready serve prints the address with it when it starts"
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


def _refusal_response(status: int, text: str) -> Response:
    """Return a page if ``text`` is one, else a sentence as JSON. The request may still be sending its body: close."""
    if text.startswith("<!doctype"):
        return Response(text, status, {"connection": "close"}, "text/html")
    return Response(error_reply(status, text).text, status, {"connection": "close"}, "application/json")
