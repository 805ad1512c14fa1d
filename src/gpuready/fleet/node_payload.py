"""What is sent to a node: a short program, the orders, and if needed gpuready itself as one file.

The file is a zipapp of this package and ``packaging``, built in memory from the installed files and
reproducible. A node that sees the controller's installation on a shared disk gets only the orders.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import zipfile
from collections.abc import Iterator
from typing import Any

from gpuready.model.record import Record

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(HERE)
SCRIPTS = os.path.join(HERE, "scripts")
SENTINEL_FILES = ("gpuready/__init__.py", "gpuready/fleet/node_program.py", "gpuready/fleet/node_payload.py")
"""Files by which a node recognizes the controller's own installation of gpuready."""

DEPENDENCIES = ("packaging", "tomli")
NODE_PROGRAM = "gpuready.workflow.fleet_node"
"""Module that runs on the node, with ``line(request, node)``. A string, since this package may not import it."""

# Executes the first line of stdin, in isolated mode (-I): the current folder of a node may hold anybody's json.py. No quote, dollar or exclamation mark: every shell passes it unchanged.
STARTER = "import sys;exec(sys.stdin.buffer.readline().decode())"
MAIN_SOURCE = """import sys
if sys.version_info < (3, 10):
    sys.exit("gpuready needs Python 3.10 or newer, and this is %d.%d" % sys.version_info[:2])
from gpuready.cli import main
main()
"""


class NodeOrders(Record):
    """One request: the run's token, the deadline on the node, and whether gpuready is sent along."""

    request: dict[str, Any]
    deadline: float
    token: str
    send: bool = False

    @property
    def line_mark(self) -> str:
        return f"@gpuready-{self.token}"


def build_stdin(orders: NodeOrders, name: str = "sys.argv[1]") -> bytes:
    """Return everything that the starter reads; ``name`` is the expression that gives the node its name."""
    with open(os.path.join(SCRIPTS, "boot.py"), encoding="utf-8") as file:
        program = file.read()
    start = f"exec(compile({program!r}, {'boot'!r}, {'exec'!r}), globals()); main(sys.stdin.buffer, {name})"
    return b"".join(
        (_ascii_line(start), _ascii_line(json.dumps(orders_to_json(orders))), pack_gpuready() if orders.send else b"")
    )


def orders_to_json(orders: NodeOrders) -> dict[str, Any]:
    """Return the orders as boot.py reads them."""
    file = pack_gpuready() if orders.send else b""
    return {
        "mark": orders.line_mark,
        "program": NODE_PROGRAM,
        "request": orders.request,
        "deadline": orders.deadline,
        "home": describe_installation(),
        "size": len(file),
        "sha256": hashlib.sha256(file).hexdigest(),
    }


def _ascii_line(text: str) -> bytes:
    return text.encode("ascii") + b"\n"


def describe_installation() -> dict[str, Any]:
    """Return the path of this installation with size and time of its sentinel files."""
    path = os.path.dirname(PACKAGE)
    stats = [(name, os.stat(os.path.join(path, name))) for name in SENTINEL_FILES]
    files = [(name, one.st_size, one.st_mtime_ns) for name, one in stats]
    return {"path": path, "files": files, "dependencies": _dependency_folders(path)}


def _dependency_folders(home: str) -> list[str]:
    """Folders of our dependencies beside ours: an isolated Python does not see PYTHONPATH and the user's site."""
    specs = (importlib.util.find_spec(name) for name in DEPENDENCIES)
    folders = [os.path.dirname(os.path.dirname(spec.origin)) for spec in specs if spec is not None and spec.origin]
    return [folder for folder in dict.fromkeys(folders) if folder != home]


_packed_cache: dict[str, bytes] = {}


def pack_gpuready() -> bytes:
    """Return gpuready as one file that Python 3.10 runs; the same bytes for the same files."""
    if PACKAGE not in _packed_cache:
        _packed_cache[PACKAGE] = _build_zipapp()
    return _packed_cache[PACKAGE]


def _build_zipapp() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted({**dict(_package_files(PACKAGE, "gpuready")), **_dependency_files()}.items()):
            archive.writestr(_zip_entry(name), data)
        archive.writestr(_zip_entry("__main__.py"), MAIN_SOURCE)
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()


def _zip_entry(name: str) -> Any:
    entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _package_files(folder: str, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in os.scandir(folder):
        name = f"{prefix}/{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _package_files(entry.path, name)
        elif entry.name.endswith((".py", ".toml", ".c", ".cu", ".json", ".html", ".css", ".js")):
            with open(entry.path, "rb") as file:
                yield name, file.read()


def _dependency_files() -> dict[str, bytes]:
    """Files of the installed ``packaging``, which compares versions, and of ``tomli`` for Python 3.10."""
    collected: dict[str, bytes] = {}
    for name in DEPENDENCIES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            collected |= dict(_package_files(os.path.dirname(spec.origin), name))
    return collected
