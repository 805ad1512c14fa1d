"""A package index on this machine: wheels made on the spot, served by a real HTTP server on the loopback."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.apply.wheels import wheel


class Index:
    """One server with several indexes: ``index.url("cu126")``. Each is a folder of wheels."""

    def __init__(self, folder: Path):
        self.folder, self.asked, self.dying, self.login = folder, [], set(), ""
        self.hashes: dict[str, str] = {}  # file name -> the hash that the index claims
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def url(self, name: str = "main") -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def add(self, name: str, version: str, needs=(), *, on: str = "main", tag: str = "py3-none-any", **more) -> Path:
        return wheel(self.folder / on, name, version, needs=needs, tag=tag, **more)

    def answer(self, request) -> None:
        self.asked.append(request.path)
        parts = request.path.strip("/").split("/")
        if self.login and request.headers.get("Authorization") != self.login:
            return self.send(request, 401, b"who are you?")
        if parts[0] in self.dying:
            request.send_response(200)
            request.send_header("Content-Length", "100000")
            request.end_headers()
            request.wfile.write(b"<html>")
            request.wfile.flush()
            request.connection.close()
            return None
        if parts[0] == "files":
            return self.send(request, 200, (self.folder / parts[1] / parts[2].replace("%2B", "+")).read_bytes())
        found = [p for p in sorted((self.folder / parts[0]).glob("*.[wt]*")) if _named(p) == parts[-1]]
        if not found:
            return self.send(request, 404, b"no such package")
        links = "".join(
            f'<a href="/files/{parts[0]}/{p.name.replace("+", "%2B")}#sha256={self.hash(p)}">{p.name}</a>\n'
            for p in found
        )
        return self.send(request, 200, f"<!DOCTYPE html><html><body>{links}</body></html>".encode())

    def hash(self, path: Path) -> str:
        return self.hashes.get(path.name) or hashlib.sha256(path.read_bytes()).hexdigest()

    @staticmethod
    def send(request, code: int, body: bytes) -> None:
        request.send_response(code)
        request.send_header("Content-Type", "text/html" if body[:1] == b"<" else "application/octet-stream")
        request.send_header("Content-Length", str(len(body)))
        if code == 401:
            request.send_header("WWW-Authenticate", "Basic")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def _named(path: Path) -> str:
    return path.name.partition("-")[0].replace("_", "-").lower()
