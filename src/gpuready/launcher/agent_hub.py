"""Where agents report: one socket, JSON lines, and only connections with this run's token; the session of the engine."""

import hmac
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

from gpuready.rollcall.endpoint import listen_on_port
from gpuready.rollcall.line_server import LineConnection, LineServer

PATIENCE = 5.0


class AgentHub(LineServer):
    """Accepts agents and returns the messages of trusted ones: those that have sent a hello with the token."""

    max_strangers, max_line = 256, 8 << 20

    def __init__(self, token: str, host: str = "127.0.0.1"):
        self.token = token
        self.listener = listen_on_port(0, 1024, host)
        self.port = int(self.listener.getsockname()[1])
        self._messages: list[tuple[LineConnection, dict[str, Any]]] = []
        super().__init__([self.listener], PATIENCE)

    @property
    def links(self) -> list[LineConnection]:
        return [client for client in self.clients.values() if client.greeted]

    def receive_messages(self, seconds: float) -> list[tuple[LineConnection, dict[str, Any]]]:
        """Return the messages of the next seconds; a closed link gives ``gone``."""
        self.poll_events(seconds)
        messages, self._messages = self._messages, []
        return messages

    def handle_line(self, client: LineConnection, line: bytes) -> None:
        message = _parse_message(line)
        if not client.greeted:
            if message is None or not is_valid_hello(message, self.token):
                self.drop_client(client, counted=True)
                return
            client.greeted = True
            self.admit_client(client)
        if message is not None:
            self._messages.append((client, message))

    def handle_disconnect(self, client: LineConnection) -> None:
        if client.greeted:
            self._messages.append((client, {"t": "gone"}))
        self.drop_client(client, counted=not client.greeted)

    def broadcast_order(self, **order: Any) -> None:
        for link in self.links:
            self.queue_bytes(link, json.dumps(order).encode() + b"\n")

    def close(self) -> None:
        if self.listener.fileno() >= 0:
            self.close_clients()
            self.listener.close()


def is_valid_hello(message: dict[str, Any], token: str) -> bool:
    """Whether a first message is a hello with the token; compared in constant time."""
    # compare_digest takes only ASCII text, or bytes
    token_sent = str(message.get("token")).encode("utf-8", "surrogatepass")
    return message["t"] == "hello" and hmac.compare_digest(token_sent, token.encode())


def _parse_message(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("t"), str) else None


def signal_session(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(OSError):
        os.killpg(process.pid, number)


def end_session(process: subprocess.Popen[bytes], patience: float) -> None:
    """Kill the engine and its session. srun and mpirun need time to end what runs on other nodes."""
    if process.poll() is None:
        signal_session(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
    signal_session(process, signal.SIGKILL)
    process.wait()
