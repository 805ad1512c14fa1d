"""Listen and serve until stopped."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator

from gpuready import system
from gpuready.system.listener import is_loopback, open_in_browser, open_listening_socket
from gpuready.system.own_folders import TemporaryFolder
from gpuready.web.app import build_web_app
from gpuready.web.connections import BoundedProtocol
from gpuready.workflow import Refused

MAX_WORKERS = 4
"""At most this many, and no more than processors."""
MAX_CONNECTIONS = 512
FALLBACK_PORTS = 20
"""How many following ports to try if the usual one is taken."""


def count_workers() -> int:
    return max(1, min(MAX_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))


def serve_web_app(
    host: str, port: int, *, token: str, announce: Callable[[str], None], open_browser: bool, exact_port: bool = False
) -> None:
    """Serve until a signal arrives. ``announce`` gets the URL with the token."""
    import uvicorn

    gc.enable()  # the command line disables it; a server runs for days
    try:
        listener = open_listening_socket(host, port, 0 if exact_port else FALLBACK_PORTS)
    except system.AccessError as error:
        raise Refused(f"{error}; --port 0 uses any free port") from None
    with listener, _open_scratch_folder() as scratch:
        number = listener.getsockname()[1]
        names = allowed_hosts(host, number)
        address = f"http://{names[0]}/?token={token}"
        app = build_web_app(token=token, hosts=names, port=number, folders=_make_worker_folders(scratch))
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
            h11_max_incomplete_event_size=32 << 10,
            proxy_headers=False,
        )
        announce(address)
        if open_browser:
            open_in_browser(address, scratch)
        uvicorn.Server(config).run(sockets=[listener])


@contextlib.contextmanager
def _open_scratch_folder() -> Iterator[str]:
    folder = TemporaryFolder(os.environ)
    try:
        path = folder.__enter__()
    except system.AccessError as error:
        raise Refused(f"{error}; set TMPDIR to a folder that can be written") from None
    try:
        yield path
    finally:
        folder.__exit__()


def allowed_hosts(host: str, port: int) -> list[str]:
    """The allowed values of the Host header: the address we listen on, and localhost for loopback."""
    display_host = f"[{host}]" if ":" in host else host
    return [f"{display_host}:{port}", *([f"localhost:{port}"] if is_loopback(host) else [])]


def _make_worker_folders(scratch: str) -> list[str]:
    folders = [f"{scratch}/{number}" for number in range(count_workers())]
    return [system.make_private_folder(folder) for folder in folders]
