"""MCP over HTTP: loopback only, behind the guard and the bounds of ``gpuready serve``."""

from collections.abc import Callable
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from gpuready.mcp import server
from gpuready.web.http_server import allowed_hosts, open_listener, serve_until_signal
from gpuready.web.request_guard import BODY_TIMEOUT, InvalidUpload, RequestGuard, read_request_body, refusal_response
from gpuready.workflow.allowed_paths import AllowedPaths

LOOPBACK_ADDRESS = "127.0.0.1"
ENDPOINT_PATH = "/mcp"
MAX_REQUEST_BYTES = 8 << 20
"""The largest request; a log may be sent as text."""


class AgentGuard(RequestGuard):
    """The guard of ``serve`` for an agent: POST alone, nothing in the address, and the whole body before the SDK sees any of it."""

    body_seconds = BODY_TIMEOUT

    def find_response(self, scope: Any, headers: Headers) -> Response | None:
        refusal = super().find_response(scope, headers)
        if refusal is not None and refusal.status_code != 401:
            return refusal
        if scope["method"] != "POST":
            return refusal_response(405, "only POST is served")
        if scope["query_string"]:
            return refusal_response(401, "nothing is taken from the address: send the token in the header")
        return refusal

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            body = await read_request_body(Request(scope, receive), MAX_REQUEST_BYTES, self.body_seconds)
        except InvalidUpload as error:
            await refusal_response(error.status, str(error))(scope, receive, send)
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Any:
            return next(messages, None) or await receive()

        await super().answer(scope, receive_again, send)


def serve_over_http(
    allowed_paths: AllowedPaths, port: int, token: str, announce: Callable[[str], None], allow_changes: bool = False
) -> None:
    """Serve on loopback until a signal arrives."""
    with open_listener(LOOPBACK_ADDRESS, port) as listener:
        hosts = allowed_hosts(LOOPBACK_ADDRESS, listener.getsockname()[1])
        safety = TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        )
        app = server.build_mcp_server(server.ToolServer(allowed_paths, allow_changes)).streamable_http_app(
            streamable_http_path=ENDPOINT_PATH, json_response=True, stateless_http=True, transport_security=safety
        )
        announce(f"listening on http://{hosts[0]}{ENDPOINT_PATH}")
        serve_until_signal(AgentGuard(app, token=token, hosts=hosts), listener)
