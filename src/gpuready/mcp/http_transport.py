"""MCP over HTTP: loopback only, token in the header, no browser pages, no foreign host names."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from gpuready.mcp import server
from gpuready.workflow.allowed_paths import AllowedPaths

LOOPBACK_ADDRESS = "127.0.0.1"
ENDPOINT_PATH = "/mcp"
MAX_REQUEST_BYTES = 8 << 20
"""The largest request; a log may be sent as text."""
_LOOPBACK_NAMES = ("127.0.0.1", "localhost")


class TokenGuard:
    """Reject a request before the SDK sees it: 403 for a foreign Host or Origin, 405 unless POST, 401 without the token.

    A browser page sends its own Host (DNS rebinding) or its Origin, and cannot change either.
    Every request is checked, also on a connection that passed before.
    """

    def __init__(self, app: Any, token: str):
        self.app, self.token = app, token.encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("only HTTP is served")
        await (self.check_request(scope) or self.app)(scope, receive, send)

    def check_request(self, scope: Any) -> PlainTextResponse | None:
        """Return the refusal; None where the SDK may answer."""
        headers = Headers(scope=scope)
        allowed = [f"{name}:{scope['server'][1]}" for name in _LOOPBACK_NAMES]
        if [one.lower() for one in headers.getlist("host")] not in [[host] for host in allowed]:
            return _refusal_response(403, "this name is not served here")
        if any(one not in [f"http://{host}" for host in allowed] for one in headers.getlist("origin")):
            return _refusal_response(403, "no page of another origin is served")
        if scope["method"] != "POST":
            return _refusal_response(405, "only POST is served", {"allow": "POST"})
        if scope["query_string"]:
            why = "nothing is taken from the address: send the token in the header"
            return _refusal_response(401, why, _BEARER_CHALLENGE)
        authorization = headers.getlist("authorization")
        if len(authorization) != 1 or not hmac.compare_digest(authorization[0].encode(), b"Bearer " + self.token):
            why = "the header Authorization: Bearer TOKEN is missing or wrong"
            return _refusal_response(401, why, _BEARER_CHALLENGE)
        return None


_BEARER_CHALLENGE = {"www-authenticate": 'Bearer realm="gpuready"'}


def _refusal_response(status: int, why: str, more: dict[str, str] | None = None) -> PlainTextResponse:
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff", **(more or {})}
    return PlainTextResponse(f"{why}\n", status, headers)


class _AnnouncingServer(uvicorn.Server):  # type: ignore[misc]
    """Announce the address once listening: with port 0 it is not known earlier."""

    announce: Callable[[str], None]

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        self.announce(f"listening on http://{LOOPBACK_ADDRESS}:{port}{ENDPOINT_PATH}")


def serve_over_http(
    allowed_paths: AllowedPaths, port: int, token: str, announce: Callable[[str], None], allow_changes: bool = False
) -> None:
    """Serve on loopback until a signal arrives."""
    safety = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}:*" for name in _LOOPBACK_NAMES],
        allowed_origins=[f"http://{name}:*" for name in _LOOPBACK_NAMES],
    )
    app = server.build_mcp_server(server.ToolServer(allowed_paths, allow_changes)).streamable_http_app(
        streamable_http_path=ENDPOINT_PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        transport_security=safety,
    )
    config = uvicorn.Config(
        TokenGuard(app, token),
        host=LOOPBACK_ADDRESS,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
    )
    http_server = _AnnouncingServer(config)
    http_server.announce = announce
    http_server.run()
