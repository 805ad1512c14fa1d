"""Listen and serve until stopped."""

from __future__ import annotations

import gc
import os

from gpuready import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 4
"""At most this many, and no more than processors."""
CONNECTIONS = 512
OTHERS = 20
"""How many following ports to try if the usual one is taken."""


def workers() -> int:
    return max(1, min(WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))


def serve(
    host: str, port: int, *, token: str, tell: Callable[[str], None], look: bool, exactly: bool = False
) -> None:
    """Serve until a signal arrives. ``announce`` gets the URL with the token."""
    import uvicorn

    from gpuready.system.listening import listen, show
    from gpuready.system.scratch import Scratch
    from gpuready.web.app import build
    from gpuready.workflow import Refused

    gc.enable()  # the command line disables it; a server runs for days
    try:
        sock = listen(host, port, 0 if exactly else OTHERS)
    except system.Blind as blind:
        raise Refused(f"{blind}; --port 0 takes any port that is free") from None
    with sock, Scratch(os.environ) as scratch:
        number = sock.getsockname()[1]
        names = hosts(host, number)
        address = f"http://{names[0]}/?token={token}"
        app = build(token=token, hosts=names, port=number, folders=_folders(scratch))
        config = uvicorn.Config(
            app,
            log_level="critical",  # its log would contain URLs, and so the token
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="on",
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 << 10,
            proxy_headers=False,
        )
        tell(address)
        if look:
            show(address, scratch)
        uvicorn.Server(config).run(sockets=[sock])


def hosts(host: str, port: int) -> list[str]:
    """The allowed values of the Host header: the address we listen on, and localhost for loopback."""
    from gpuready.system.listening import loopback

    shown = f"[{host}]" if ":" in host else host
    return [f"{shown}:{port}", *([f"localhost:{port}"] if loopback(host) else [])]


def _folders(scratch: str) -> list[str]:
    found = [f"{scratch}/{number}" for number in range(workers())]
    for folder in found:
        os.mkdir(folder, 0o700)
    return found
