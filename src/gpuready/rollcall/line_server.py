"""A server of lines in one thread that waits for no single connection; connections that stay strangers are dropped in time."""

import os
import selectors
import socket
import time
from collections.abc import Iterable

from gpuready.rollcall.hello import Hello

READ_SIZE = 1 << 16
LOCAL_PEER = "this host"
"""The address of a peer on a socket without addresses."""


class LineConnection:
    """One connection: a stranger until it is admitted."""

    __slots__ = ("conn", "greeted", "hello", "received", "reply_salt", "salt", "sealed", "since", "unsent", "where")

    def __init__(self, conn: socket.socket, where: str) -> None:
        self.conn, self.where, self.since = conn, where, time.monotonic()
        self.received, self.unsent, self.salt, self.reply_salt = b"", b"", os.urandom(12).hex(), ""
        self.greeted, self.sealed = False, True  # sealed: its lines prove the job's secret
        self.hello: Hello | None = None


class LineServer:
    """Subclasses handle lines and disconnects; `dropped` counts the connections that were none of ours."""

    max_strangers = 512
    max_line = max_stranger_line = 1 << 18

    def __init__(self, listeners: Iterable[socket.socket], patience: float) -> None:
        self.patience = patience  # seconds that a stranger may be silent
        self.clients: dict[int, LineConnection] = {}
        self.strangers: dict[int, LineConnection] = {}
        self.dropped = 0
        self.selector = selectors.DefaultSelector()
        for listener in listeners:
            listener.setblocking(False)
            self.selector.register(listener, selectors.EVENT_READ)

    def handle_line(self, client: LineConnection, line: bytes) -> None:
        raise NotImplementedError

    def handle_disconnect(self, client: LineConnection) -> None:
        """The other side has closed the connection, or sent too long a line."""
        raise NotImplementedError

    def admit_client(self, client: LineConnection) -> None:
        self.strangers.pop(client.conn.fileno(), None)

    def poll_events(self, seconds: float) -> None:
        """Accept, read and write for up to some seconds."""
        # Newcomers last: a flood of them must not delay those who are here.
        for key, events in sorted(self.selector.select(seconds), key=lambda ready: ready[0].data is None):
            if key.data is None:
                self._accept_clients(key.fileobj)  # type: ignore[arg-type]
            elif events & selectors.EVENT_WRITE:
                self.flush_client(key.data)
            else:
                self._read_client(key.data)
        now = time.monotonic()
        # They are in order of time, so the first one allowed to stay ends the loop.
        while self.strangers and now - next(iter(self.strangers.values())).since >= self.patience:
            self.drop_client(next(iter(self.strangers.values())), counted=True)

    def _accept_clients(self, listener: socket.socket) -> None:
        for _ in range(64):
            try:
                conn, where = listener.accept()
            except OSError:
                return
            conn.setblocking(False)
            address = str(where[0]).removeprefix("::ffff:") if isinstance(where, tuple) else LOCAL_PEER
            if len(self.strangers) >= self.max_strangers:
                self.drop_client(next(iter(self.strangers.values())), counted=True)
            client = LineConnection(conn, address)
            self.clients[conn.fileno()] = self.strangers[conn.fileno()] = client
            self.selector.register(conn, selectors.EVENT_READ, client)

    def _read_client(self, client: LineConnection) -> None:
        try:
            data = client.conn.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, client.received = (client.received + data).split(b"\n")
        limit = self.max_stranger_line if client.conn.fileno() in self.strangers else self.max_line
        if not data or len(client.received) > limit:
            self.handle_disconnect(client)
            return
        for line in lines:
            if client.conn.fileno() >= 0:
                self.handle_line(client, line)

    def queue_bytes(self, client: LineConnection, data: bytes) -> None:
        client.unsent += data
        self.flush_client(client)

    def flush_client(self, client: LineConnection) -> None:
        """Send what can be sent now; the rest follows when the connection takes it."""
        if client.conn.fileno() < 0:
            return
        try:
            sent = client.conn.send(client.unsent) if client.unsent else 0
            client.unsent = client.unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            client.unsent = b""
            self.handle_disconnect(client)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        if self.selector.get_key(client.conn).events != events:
            self.selector.modify(client.conn, events, client)

    def drop_client(self, client: LineConnection, counted: bool = False) -> None:
        self.dropped += counted
        number = client.conn.fileno()
        if number < 0:
            return
        self.selector.unregister(client.conn)
        self.clients.pop(number, None)
        self.strangers.pop(number, None)
        client.conn.close()

    def close_clients(self) -> None:
        """Drop all connections; the listeners stay open."""
        for client in list(self.clients.values()):
            self.drop_client(client)
        self.selector.close()
