"""The CUDA toolkit that a build would use, chosen as torch chooses it, and all other toolkits.

Versions are read from files where possible: one command costs more than all these reads.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.sight import digits, gaps, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from gpuready.probe.patient import Patient
    from gpuready.system import Door

KEYS = (
    "toolkit.version",
    "toolkit.path",
    "toolkit.nvcc",
    "toolkit.chosen_by",
    "toolkit.others",
    "toolkit.home_missing",
)
LOCAL = "/usr/local"
HEADER = 65536
"""How much of cuda.h is read; its version is in the first quarter."""


def look(door: Door, who: Patient | None = None) -> list[Fact]:
    """Return the toolkit that torch would build with, and every other one."""
    try:
        path, by = chosen(door)
    except Blind as blind:
        return gaps(KEYS, str(blind), "CUDA_HOME, PATH, /usr/local")
    others = tuple(_rows(door, who))
    missing = _missing(door)
    if path is None:
        tried = "CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda"
        rest = [Fact(key, None, tried) for key in KEYS[:4]]
        return [*rest, Fact("toolkit.others", others, LOCAL), missing]
    nvcc = _nvcc(door, path)
    return [
        _version(door, path, nvcc),
        Fact("toolkit.path", path, by),
        Fact("toolkit.nvcc", nvcc, path),
        Fact("toolkit.chosen_by", by, by),
        Fact("toolkit.others", others, LOCAL),
        missing,
    ]


def chosen(door: Door) -> tuple[str | None, str]:
    """Return the folder that torch uses, and why. Like torch, do not check that it exists."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := door.env(name):
            return value.rstrip("/") or "/", name
    nvcc = door.which("nvcc")
    if nvcc is not None:
        return nvcc.rpartition("/")[0].rpartition("/")[0] or "/", f"nvcc on the path ({nvcc})"
    status = door.stat(f"{LOCAL}/cuda")
    if status is not None and status["kind"] == "dir":
        return f"{LOCAL}/cuda", f"{LOCAL}/cuda"
    return None, ""


def _missing(door: Door) -> Fact:
    """A variable or link that names a toolkit that does not exist."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = glimpse(door.env, name)
        status = glimpse(door.stat, value) if value else None
        if value and (status is None or status["kind"] != "dir"):
            return Fact("toolkit.home_missing", value, name)
    link = glimpse(door.stat, f"{LOCAL}/cuda")
    if link is not None and link["kind"] == "link":
        return Fact("toolkit.home_missing", f"{LOCAL}/cuda", "a link that leads nowhere")
    return Fact("toolkit.home_missing", None, "CUDA_HOME, CUDA_PATH, /usr/local/cuda")


def _nvcc(door: Door, path: str) -> str | None:
    status = glimpse(door.stat, f"{path}/bin/nvcc")
    return f"{path}/bin/nvcc" if status is not None and status["kind"] == "file" else None


def _version(door: Door, path: str, nvcc: str | None) -> Fact:
    version, source = written(door, path)
    if version is None and nvcc is not None and (home := _behind(door, nvcc)):
        version, source = written(door, home)
    if version is None and nvcc is not None:
        ran = door.run([nvcc, "--version"])
        version, source = spoken(ran.out), f"{nvcc} --version"
        if version is None:
            gap = ran.end or f"it ended with {ran.rc} and named no release"
            return Fact("toolkit.version", None, source, gap=gap)
    return Fact("toolkit.version", version, source)


def _behind(door: Door, nvcc: str) -> str | None:
    """Return the toolkit that an nvcc wrapper (such as Debian's) starts, by the program it names."""
    text = glimpse(door.read, nvcc, 4096) or ""
    words = (word.strip("\"'") for word in text.split()) if text.startswith("#!") else ()
    named = next((word for word in words if word.startswith("/") and word.endswith("/bin/nvcc")), None)
    return named.removesuffix("/bin/nvcc") if named and named != nvcc else None


def written(door: Door, path: str) -> tuple[str | None, str]:
    """Return the version in the toolkit's files, and the file."""
    for file, reader in FILES:
        text = glimpse(door.read, f"{path}/{file}", HEADER)
        version = reader(text) if text else None
        if version:
            return version, f"{path}/{file}"
    return None, path


def _in_json(text: str) -> str | None:
    import json

    try:
        found = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return digits(found) if isinstance(found, str) else None


def _in_text(text: str) -> str | None:
    return digits(text.partition("CUDA Version ")[2])


def _in_header(text: str) -> str | None:
    number = digits(text.partition("#define CUDA_VERSION ")[2].strip())
    if not number or not number.isdecimal() or len(number) > 9:
        return None
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def spoken(text: str) -> str | None:
    """Parse ``Cuda compilation tools, release 13.0, V13.0.88`` as ``13.0.88``."""
    exact = digits(text.partition(", V")[2])
    return exact or digits(text.partition("release ")[2])


HEADERS = ("include/cuda.h", "targets/x86_64-linux/include/cuda.h", "targets/sbsa-linux/include/cuda.h")
FILES = (("version.json", _in_json), ("version.txt", _in_text), *((header, _in_header) for header in HEADERS))
"""Files with a toolkit's version; conda keeps its headers below ``targets``."""


# -- every toolkit ------------------------------------------------------------------------------------


def _rows(door: Door, who: Patient | None) -> Iterator[dict[str, Any]]:
    """Yield each toolkit once, however many links lead to it."""
    seen: set[str] = set()
    for path, by in _places(door, who):
        real = glimpse(door.real, path, otherwise=path)
        status = glimpse(door.stat, path)
        if real in seen or status is None:
            continue
        seen.add(real)
        if status["kind"] == "link":
            yield {"path": path, "version": None, "nvcc": None, "found_by": "a link that leads nowhere"}
        elif status["kind"] == "dir":
            yield {
                "path": path,
                "version": _known(door, path, real),
                "nvcc": _nvcc(door, path),
                "found_by": by,
            }


def _known(door: Door, path: str, real: str) -> str | None:
    """By its files, else by its folder name: ``/usr/local/cuda-12.4``."""
    return written(door, path)[0] or digits(real.rpartition("/cuda-")[2])


def _places(door: Door, who: Patient | None) -> Iterator[tuple[str, str]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := glimpse(door.env, name):
            yield value.rstrip("/"), name
    for name in glimpse(door.list, LOCAL) or ():
        if name == "cuda" or name.startswith("cuda-"):
            yield f"{LOCAL}/{name}", LOCAL
    yield "/opt/cuda", "/opt/cuda"
    if who is not None:
        if who.kind == "conda" and _nvcc(door, who.prefix):
            yield who.prefix, "conda"
        for site in who.site:
            for folder in ("cuda_nvcc", "cu13"):
                if _nvcc(door, f"{site}/nvidia/{folder}"):
                    yield f"{site}/nvidia/{folder}", "a wheel"
