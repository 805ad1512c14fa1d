"""Open a listening socket, and show its page in a browser."""

import html
import ipaddress
import os
import socket
import webbrowser

from gpuready.system.host_access import AccessError

ListeningSocket = socket.socket


def open_listening_socket(host: str, port: int, fallback_ports: int = 0) -> socket.socket:
    """A socket listening at an address, or at one of the next ``fallback_ports`` ports where it is taken. AccessError if none is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for number in range(port, port + 1 + (fallback_ports if port else 0)):
        # With IPPROTO_TCP, asyncio disables Nagle's algorithm; else each answer waits 40 ms for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, number))
            listener.listen(1024)
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            reason = getattr(error, "strerror", None) or str(error)
    raise AccessError(f"cannot listen at {host} port {port}: {reason}")


def find_free_port() -> int:
    """A free loopback port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Whether an address is only reachable from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def open_in_browser(address: str, folder: str) -> bool:
    """Open a page in the user's browser, where there is a display.

    The URL contains a secret, and command lines are readable by all users: the browser gets a private file that redirects.
    """
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.uname().sysname == "Darwin"):
        return False
    path = f"{folder}/open.html"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}">gpuready serve')
    try:
        return webbrowser.open(f"file://{path}")
    except webbrowser.Error:
        return False
