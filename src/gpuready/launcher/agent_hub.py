"""Where agents report: one socket, JSON lines, and only connections with this run's token."""

from __future__ import annotations

import json
import selectors
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

READ_SIZE, MAX_LINE, PATIENCE, MAX_STRANGERS = 1 << 18, 8 << 20, 5.0, 256


class AgentLink:
    """One connection; trusted after a hello with the token."""

    def __init__(self, sock: socket.socket, peer: str, now: float):
        self.sock, self.peer, self.since = sock, peer, now
        self.buffer, self.trusted, self.hello = b"", False, {}  # type: bytes, bool, dict[str, Any]

    def send_order(self, **order: Any) -> None:
        try:
            self.sock.setblocking(True)
            self.sock.settimeout(2.0)
            self.sock.sendall(json.dumps(order).encode() + b"\n")
        except OSError:
            return
        finally:
            if self.sock.fileno() >= 0:
                self.sock.setblocking(False)


class AgentHub:
    """Accepts agents and yields the messages of trusted ones."""

    def __init__(self, token: str, host: str = "127.0.0.1"):
        self.token, self.links, self.turned_away = token, [], 0  # type: str, list[AgentLink], int
        self._strangers: list[AgentLink] = []
        self.listener = socket.create_server((host, 0), backlog=1024)
        self.listener.setblocking(False)
        self.port = int(self.listener.getsockname()[1])
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def receive_messages(self, seconds: float) -> Iterator[tuple[AgentLink, dict[str, Any]]]:
        """Yield the messages of the next seconds; a closed link yields ``gone``."""
        for key, _ in self.selector.select(seconds):
            if key.fileobj is self.listener:
                self._accept_agent()
            elif key.data is not None:
                yield from self._read_messages(key.data)
        self._drop_strangers()

    def _accept_agent(self) -> None:
        try:
            sock, address = self.listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        link = AgentLink(sock, str(address[0]), time.monotonic())
        self._strangers.append(link)
        self.selector.register(sock, selectors.EVENT_READ, link)

    def _read_messages(self, link: AgentLink) -> Iterator[tuple[AgentLink, dict[str, Any]]]:
        try:
            data = link.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            yield from self._close_link(link)
            return
        *lines, link.buffer = (link.buffer + data).split(b"\n")
        if len(link.buffer) > (MAX_LINE if link.trusted else READ_SIZE):
            yield from self._close_link(link)
            return
        for line in lines:
            message = _parse_message(line)
            if link.trusted and message is not None:
                yield link, message
            elif not link.trusted and not self._admit_agent(link, message):
                yield from self._close_link(link)
                return
            elif message is not None:
                yield link, message

    def _admit_agent(self, link: AgentLink, message: dict[str, Any] | None) -> bool:
        if message is None or not is_valid_hello(message, self.token):
            return False
        link.trusted, link.hello = True, message
        self._strangers.remove(link)
        self.links.append(link)
        return True

    def _close_link(self, link: AgentLink) -> Iterator[tuple[AgentLink, dict[str, Any]]]:
        self._drop_link(link)
        if link in self.links:
            self.links.remove(link)
            yield link, {"t": "gone"}
        else:
            self.turned_away += 1

    def _drop_link(self, link: AgentLink) -> None:
        if link in self._strangers:
            self._strangers.remove(link)
        if link.sock.fileno() >= 0:
            self.selector.unregister(link.sock)
        link.sock.close()

    def _drop_strangers(self) -> None:
        """Drop connections that stay silent or are too many."""
        now = time.monotonic()
        late = [link for link in self._strangers if now - link.since > PATIENCE]
        for link in late + self._strangers[MAX_STRANGERS:]:
            self._drop_link(link)
            self.turned_away += 1

    def broadcast_order(self, **order: Any) -> None:
        for link in list(self.links):
            link.send_order(**order)

    def close(self) -> None:
        for link in [*self.links, *self._strangers]:
            self._drop_link(link)
        self.selector.unregister(self.listener)
        self.listener.close()
        self.selector.close()


def is_valid_hello(message: dict[str, Any], token: str) -> bool:
    """Whether a first message is a hello with the token; compared in constant time."""
    import hmac

    token_sent = str(message.get("token")).encode(
        "utf-8", "surrogatepass"
    )  # compare_digest takes only ASCII text, or bytes
    return message["t"] == "hello" and hmac.compare_digest(token_sent, token.encode())


def _parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("t"), str) else None
