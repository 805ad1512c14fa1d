"""``gpuready serve``: the page behind its guard, with workers in folders of their own."""

import contextlib
import os
from collections.abc import Callable, Iterator

from gpuready import system
from gpuready.system.listener import open_in_browser
from gpuready.system.own_folders import TemporaryFolder
from gpuready.web.app import build_web_app
from gpuready.web.http_server import allowed_hosts, open_listener, serve_until_signal
from gpuready.workflow import Refused

MIN_WORKERS, MAX_WORKERS = 2, 4
"""As many as processors within these bounds: a search or an upload takes all but one of them."""
FALLBACK_PORTS = 20
"""How many following ports to try if the usual one is taken."""


def count_workers() -> int:
    return max(MIN_WORKERS, min(MAX_WORKERS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))


def serve_web_app(
    host: str, port: int, *, token: str, announce: Callable[[str], None], open_browser: bool, exact_port: bool = False
) -> None:
    """Serve until a signal arrives. ``announce`` gets the URL with the token."""
    listener = open_listener(host, port, 0 if exact_port else FALLBACK_PORTS)
    with listener, _open_scratch_folder() as scratch:
        number = listener.getsockname()[1]
        names = allowed_hosts(host, number)
        address = f"http://{names[0]}/?token={token}"
        app = build_web_app(token=token, hosts=names, port=number, folders=_make_worker_folders(scratch))
        announce(address)
        if open_browser:
            open_in_browser(address, scratch)
        serve_until_signal(app, listener)


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


def _make_worker_folders(scratch: str) -> list[str]:
    folders = [f"{scratch}/{number}" for number in range(count_workers())]
    return [system.make_private_folder(folder) for folder in folders]
