"""MCP over HTTP: loopback only, token in the header, no browser pages, no foreign host names."""

from __future__ import annotations

import hmac

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from gpuready.mcp import server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.workflow.fencing import Yard

HERE = "127.0.0.1"
PATH = "/mcp"
BODY = 8 << 20
"""The largest request; a log may be sent as text."""
_NAMES = ("127.0.0.1", "localhost")


class Guard:
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
        refused = self.refusal(scope)
        if refused is None:
            await self.app(scope, receive, send)
            return
        status, why, extra = refused
        body = f"{why}\n".encode()
        heads = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        heads += [(b"x-content-type-options", b"nosniff"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": [*heads, *extra]})
        await send({"type": "http.response.body", "body": body})

    def refusal(self, scope: Any) -> tuple[int, str, list[tuple[bytes, bytes]]] | None:
        heads: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            heads.setdefault(name.lower(), []).append(value)
        port = scope["server"][1]
        allowed = [f"{name}:{port}".encode() for name in _NAMES]
        if [one.lower() for one in heads.get(b"host", [])] not in [[host] for host in allowed]:
            return 403, "this name is not served here", []
        origins = [b"http://" + host for host in allowed]
        if any(one not in origins for one in heads.get(b"origin", [])):
            return 403, "no page of another origin is served", []
        if scope["method"] != "POST":
            return 405, "only POST is served", [(b"allow", b"POST")]
        if scope["query_string"]:
            return 401, "nothing is taken from the address: send the token in the header", _CHALLENGE
        given = heads.get(b"authorization", [])
        if len(given) != 1 or not hmac.compare_digest(given[0], b"Bearer " + self.token):
            return 401, "the header Authorization: Bearer TOKEN is missing or wrong", _CHALLENGE
        return None


_CHALLENGE = [(b"www-authenticate", b'Bearer realm="gpuready"')]


class _Announced(uvicorn.Server):  # type: ignore[misc]
    """Announce the address once listening: with port 0 it is not known earlier."""

    say: Callable[[str], None]

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        self.say(f"listening on http://{HERE}:{port}{PATH}")


def over_http(
    yard: Yard, port: int, token: str, say: Callable[[str], None], allow_changes: bool = False
) -> None:
    """Serve on loopback until a signal arrives."""
    safety = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[f"{name}:*" for name in _NAMES],
        allowed_origins=[f"http://{name}:*" for name in _NAMES],
    )
    app = server.made(server.Desk(yard, allow_changes)).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=BODY,
        transport_security=safety,
    )
    config = uvicorn.Config(
        Guard(app, token), host=HERE, port=port, log_level="warning", access_log=False, server_header=False
    )
    serving = _Announced(config)
    serving.say = say
    serving.run()
