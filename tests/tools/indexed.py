"""An index on this machine that answers from what was recorded, with Range, and misbehaves on request."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import re
import threading
import zipfile
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECORDED = Path(__file__).parent / "recorded"
FILLER = random.Random(7).randbytes(1 << 20)  # what makes a wheel too large to be read whole unnoticed


@cache
def wheels() -> dict[str, bytes]:
    """The recorded wheels, each a zip again, around a megabyte that nobody has to read."""
    made: dict[str, io.BytesIO] = {}
    zips: dict[str, zipfile.ZipFile] = {}
    with zipfile.ZipFile(RECORDED / "wheels.zip") as kept:
        for name in kept.namelist():
            wheel, _, member = name.partition("/")
            if wheel not in zips:
                zips[wheel] = zipfile.ZipFile(made.setdefault(wheel, io.BytesIO()), "w", zipfile.ZIP_DEFLATED)
                zips[wheel].writestr("filler.bin", FILLER, zipfile.ZIP_STORED)
            zips[wheel].writestr(member, kept.read(name))
    for one in zips.values():
        one.writestr("more.bin", FILLER, zipfile.ZIP_STORED)
        one.close()
    return {name: body.getvalue() for name, body in made.items()}


@cache
def pages() -> dict[str, list[dict]]:
    return json.loads((RECORDED / "pages.json").read_text())


class Served:
    """The index while it runs. ``special`` maps a path to a function of the handler that answers in its own way."""

    def __init__(self) -> None:
        self.pages = {name: [dict(row) for row in rows] for name, rows in pages().items()}
        self.wheels = dict(wheels())
        self.special: dict[str, object] = {}
        self.pep658 = False
        self.seen: list[tuple[str, str]] = []
        self.sent = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            served = outer

            def log_message(self, *words: object) -> None:
                pass

            def do_GET(self) -> None:
                outer.seen.append((self.path, self.headers.get("Range", "")))
                answer = outer.special.get(self.path) or outer.special.get("*")
                with contextlib.suppress(BrokenPipeError):
                    answer(self) if answer else outer.answer(self)

            def say(self, code: int, body: bytes = b"", **headers: str) -> None:
                self.send_response(code)
                for name, value in ({"Content_Length": str(len(body))} | headers).items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(body)
                outer.sent += len(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *asked: None  # a client may leave before it has everything
        self.address = f"http://127.0.0.1:{self.server.server_port}/simple/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler) -> None:
        path = handler.path
        if path.startswith("/simple/") and path.strip("/").partition("/")[2] in self.pages:
            project = path.strip("/").partition("/")[2]
            handler.say(200, self._json(project), Content_Type="application/vnd.pypi.simple.v1+json")
        elif path.endswith(".metadata") and self.pep658:
            handler.say(200, self.metadata(path.rpartition("/")[2].removesuffix(".metadata")))
        elif path.startswith("/files/") and path.rpartition("/")[2] in self.wheels:
            ranged(handler, self.wheels[path.rpartition("/")[2]])
        else:
            handler.say(404)

    def metadata(self, wheel: str) -> bytes:
        with zipfile.ZipFile(io.BytesIO(self.wheels[wheel])) as opened:
            return opened.read(next(n for n in opened.namelist() if n.endswith(".dist-info/METADATA")))

    def _json(self, project: str) -> bytes:
        rows = []
        for row in self.pages[project]:
            offered = self.pep658 and row["name"] in self.wheels
            hashed = {"sha256": hashlib.sha256(self.metadata(row["name"])).hexdigest()} if offered else False
            keys = {k: row[k] for k in ("requires-python", "upload-time", "yanked")}
            rows.append(keys | {"filename": row["name"], "url": f"/files/{row['href']}", "core-metadata": hashed})
        return json.dumps({"meta": {"api-version": "1.1"}, "name": project, "files": rows}).encode()


def ranged(handler, body: bytes) -> None:
    """A file, by the range that was asked for; whole only to those who ask for it whole."""
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", handler.headers.get("Range", ""))
    if not asked:
        return handler.say(200, body)
    first = int(asked[1]) if asked[1] else max(0, len(body) - int(asked[2]))
    last = min(int(asked[2]), len(body) - 1) if asked[1] and asked[2] else len(body) - 1
    return handler.say(206, body[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(body)}")
