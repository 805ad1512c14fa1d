"""A real server, started as a user starts it, and a client that can send what no browser would."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

TOKEN = "a-token-of-tests-0123456789"


class Reply:
    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    def __init__(self, port: int):
        self.port, self.host, self.address = port, f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"

    def ask(
        self, path: str, method: str = "GET", body: Any = None, *, token: str | None = TOKEN, **headers: str
    ) -> Reply:
        """One request; ``x_gpuready="1"`` is the header ``x-gpuready``."""
        settings = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            settings.setdefault("authorization", f"Bearer {token}")
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            line.putrequest(method, path, skip_host="host" in settings, skip_accept_encoding=True)
            for name, value in settings.items():
                line.putheader(name, value)
            if isinstance(body, bytes):
                line.putheader("content-length", str(len(body)))
            line.endheaders(body if isinstance(body, bytes) else None)
            reply = line.getresponse()
            return Reply(reply.status, reply.getheaders(), reply.read())
        finally:
            line.close()


def ask_until_complete(server: Server, question: str) -> Any:
    """Ask for a page's parts until none is pending: a slow machine may need more than one wait."""
    for _ in range(8):
        result = server.ask(f"{question}&wait=15").json
        if result["pending"] == []:
            return result
    raise AssertionError(f"{question}: {result['pending']} is still pending")


@contextlib.contextmanager
def serving(*flags: str, before: str = "") -> Iterator[Server]:
    """The command, started; ``before`` is run in its process first."""
    started = ["-c", f"{before}\nfrom gpuready.cli import main\nmain()"] if before else ["-m", "gpuready"]
    words = [sys.executable, *started, "serve", "--port", "0", "--no-open", *flags]
    env = {**os.environ, "NO_COLOR": "1", "GPUREADY_SERVE_TOKEN": TOKEN}
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=env)
    try:
        line = run.stderr.readline()
        assert line.startswith("gpuready serve: http://127.0.0.1:"), line
        yield Server(int(line.split(":")[3].partition("/")[0]))
    finally:
        run.terminate()
        assert run.wait(60) in (0, 143, -15)
        run.stderr.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as one:
        yield one
