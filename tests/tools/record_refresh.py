"""Record what an index answers, cut down to what the tests of tools/refresh_catalog.py need.

Run it by hand: ``python tests/tools/record_refresh.py INDEX``. Pages keep the rows of a few releases and lose their
hosts; of a wheel the headers of its METADATA and the members that the tool opens are kept, and of a shared library
the tables that say what it loads, and the string with its architectures, the rest being zero.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tools"))

from refresh import packages, releases  # noqa: E402
from refresh.index import KINDS, Index, _file, _links, best  # noqa: E402

HEADERS = ("Metadata-Version:", "Name:", "Version:", "Requires-")
# Project: the releases that are kept.
KEPT = {
    "torch": ["2.14.1", "2.15.0"],
    "torchvision": ["0.29.1", "0.29.2"],
    "torchaudio": ["2.11.0"],
    "fbgemm-gpu-genai": ["1.8.0", "1.9.0"],
    "bitsandbytes": ["0.50.0", "0.50.2"],
    "flash-attn": ["2.8.3.post1", "2.8.3.post2"],
    "peft": ["0.21.2"],
    "cuda-toolkit": ["13.4.2", "13.4.3"],
    "nvidia-cuda-runtime": ["13.4.92"],
    "nvidia-cuda-runtime-cu12": ["12.9.79"],
}


def main(index: str) -> None:
    asked = Index(index)
    pages, wheels = {}, io.BytesIO()
    with zipfile.ZipFile(wheels, "w", zipfile.ZIP_DEFLATED) as out:
        for project, kept in KEPT.items():
            pages[project] = page(asked, project, kept)
            for version, files in asked.releases(project).items():
                if str(version) in kept:
                    record(asked, project, files, out)
    (HERE / "recorded" / "pages.json").write_text(json.dumps(pages, indent=1) + "\n", encoding="utf-8")
    (HERE / "recorded" / "wheels.zip").write_bytes(wheels.getvalue())
    print(f"{len(wheels.getvalue())} bytes kept")


def page(asked: Index, project: str, kept: list[str]) -> list[dict[str, Any]]:
    address = f"{asked.address}{project}/"
    found = []
    body = asked.read(address, accept=KINDS)
    for row in _links(body) if body.lstrip().startswith(b"<") else json.loads(body)["files"]:
        file = _file(row, address, project)
        if file and str(file.version) in kept:
            keys = {key: row.get(key) or "" for key in ("requires-python", "upload-time")}
            found.append(keys | {"name": file.name, "href": file.name, "yanked": file.withdrawn, "metadata": ""})
    return found


def record(asked: Index, project: str, files: list[Any], out: zipfile.ZipFile) -> None:
    if project == "torch":
        opened = [f for f in (releases.chosen(files, m) for m in ("x86_64", "aarch64")) if f]
    else:
        opened = [f for f in (best(files) or next((f for f in files if f.tags), None),) if f]
    for file in opened:
        wheel = asked.wheel(file)
        for name in wheel.members:
            if (body := cut(wheel, name)) is not None:
                out.writestr(f"{file.name}/{name}", body)


def cut(wheel: Any, name: str) -> bytes | None:
    if name.count("/") == 1 and name.endswith(".dist-info/METADATA"):
        head = str(wheel.text(name)).replace("\r\n", "\n").partition("\n\n")[0].split("\n")
        return "\n".join(line for line in head if line.startswith(HEADERS)).encode()
    if name == "torch/version.py":
        return str(wheel.text(name)).encode()
    if name == "torch/cuda/__init__.py":
        return table(str(wheel.text(name)))
    if name == releases.LIBRARY:
        seen = wheel.find(name, releases.ARCHS)
        return bytes(1 << 21) + seen[0] + bytes(4096)
    if packages.LIBRARY_OF.search(name):
        return b""
    if name.endswith(".so") and name.startswith("fbgemm_gpu/experimental/example"):
        with wheel._zip.open(name) as stream:
            return bones(stream.read())
    return None


def table(text: str) -> bytes:
    """The table of builds, as it stands in the file."""
    first = text.index("PYTORCH_RELEASES_CODE_CC")
    return ("import torch\n\n" + text[first : text.index("\n}\n", first) + 3]).encode()


def bones(body: bytes) -> bytes:
    """A shared library of which only the headers, the dynamic section and its names are left."""
    kept = bytearray(len(body))
    at, size, count = *struct.unpack_from("<Q", body, 32), *struct.unpack_from("<HH", body, 54)
    spans = [(0, 64), (at, size * count)]
    heads = [struct.unpack_from("<IIQQQQ", body, at + i * size) for i in range(count)]
    dynamic = next((h[2], h[5]) for h in heads if h[0] == 2)
    tags = dict(struct.iter_unpack("<QQ", body[dynamic[0] : sum(dynamic)]))
    names = next(h[2] + tags[5] - h[3] for h in heads if h[0] == 1 and h[3] <= tags[5] < h[3] + h[5])
    for first, length in [*spans, dynamic, (names, tags[10])]:
        kept[first : first + length] = body[first : first + length]
    return bytes(kept)


if __name__ == "__main__":
    main(sys.argv[1])
