"""Listen and serve until stopped, with bounds on connections: for ``gpuready serve`` and ``gpuready mcp --http`` alike."""

import asyncio
import gc
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpuready import system
from gpuready.system.listener import ListeningSocket, is_loopback, open_listening_socket
from gpuready.workflow import Refused

MAX_CONNECTIONS = 512
MAX_HEADER_BYTES = 32 << 10


def open_listener(host: str, port: int, fallback_ports: int = 0) -> ListeningSocket:
    """Listen at an address. Refused where that cannot be."""
    try:
        return open_listening_socket(host, port, fallback_ports)
    except system.AccessError as error:
        raise Refused(f"{error}; --port 0 uses any free port") from None


def allowed_hosts(host: str, port: int) -> list[str]:
    """The allowed values of the Host header: the address we listen on, and localhost for loopback."""
    display_host = f"[{host}]" if ":" in host else host
    return [f"{display_host}:{port}", *([f"localhost:{port}"] if is_loopback(host) else [])]


def serve_until_signal(app: Any, listener: ListeningSocket) -> None:
    gc.enable()  # the command line disables it; a server runs for days
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        log_level="critical",  # its log would contain URLs, and so the token
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        proxy_headers=False,
    )
    uvicorn.Server(config).run(sockets=[listener])


class BoundedProtocol(H11Protocol):  # type: ignore[misc]
    """One connection. It is silent while it has sent no whole request that waits for its answer."""

    header_seconds = 10.0
    max_silent = 128
    """Silent connections of all clients; one more closes the oldest of them."""
    max_of_client = 256
    """Connections of one address; one more closes its oldest silent one, or itself."""
    header_timer: asyncio.TimerHandle | None = None
    silent_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.silent_since = self.loop.time()
        self._time_request()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_request()

    def on_response_complete(self) -> None:
        self.silent_since = self.loop.time()
        super().on_response_complete()
        self._time_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def is_silent(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _time_request(self) -> None:
        """Start the clock where a request has begun, and stop it when the request is whole."""
        if not self.is_silent() or self.transport.is_closing():
            self._stop_timer()
        elif self.header_timer is None:
            self.header_timer = self.loop.call_later(self.header_seconds, self._close_if_silent)

    def _stop_timer(self) -> None:
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _close_if_silent(self) -> None:
        self.header_timer = None
        if self.is_silent():
            self.transport.abort()

    def _make_room(self) -> None:
        others = [one for one in self.connections if isinstance(one, BoundedProtocol) and one is not self]
        silent = [one for one in others if one.is_silent() and not one.transport.is_closing()]
        ours = [one for one in others if _address_of(one) == _address_of(self)]
        if len(ours) >= self.max_of_client:
            _abort_oldest([one for one in silent if _address_of(one) == _address_of(self)] or [self])
        elif len(silent) >= self.max_silent:
            _abort_oldest(silent)


def _address_of(one: BoundedProtocol) -> str:
    return one.client[0] if one.client else ""


def _abort_oldest(connections: list[BoundedProtocol]) -> None:
    min(connections, key=lambda one: one.silent_since).transport.abort()
