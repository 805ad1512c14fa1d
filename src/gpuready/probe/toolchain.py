"""The CUDA toolkit that a build would use, chosen as torch chooses it, and all other toolkits.

Versions are read from files where possible: one command costs more than all these reads.
"""

from collections.abc import Iterator
from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import gap_facts, leading_version, read_if_present
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.system import AccessError, HostAccess

KEYS = (
    "toolkit.version",
    "toolkit.path",
    "toolkit.nvcc",
    "toolkit.chosen_by",
    "toolkit.others",
    "toolkit.home_missing",
)
USR_LOCAL = "/usr/local"
MAX_HEADER_BYTES = 65536
"""How much of cuda.h is read; its version is in the first quarter."""


def probe_toolchain(host: HostAccess, target: TargetEnvironment | None = None) -> list[Fact]:
    """Return the toolkit that torch would build with, and every other one."""
    try:
        path, by = choose_toolkit(host)
    except AccessError as error:
        return gap_facts(KEYS, str(error), "CUDA_HOME, PATH, /usr/local")
    others = tuple(_describe_toolkits(host, target))
    missing = _missing_toolkit_fact(host)
    if path is None:
        tried = "CUDA_HOME, CUDA_PATH, nvcc on the path, /usr/local/cuda"
        rest = [Fact(key, None, tried) for key in KEYS[:4]]
        return [*rest, Fact("toolkit.others", others, USR_LOCAL), missing]
    nvcc = _find_nvcc(host, path)
    return [
        _toolkit_version_fact(host, path, nvcc),
        Fact("toolkit.path", path, by),
        Fact("toolkit.nvcc", nvcc, path),
        Fact("toolkit.chosen_by", by, by),
        Fact("toolkit.others", others, USR_LOCAL),
        missing,
    ]


def choose_toolkit(host: HostAccess) -> tuple[str | None, str]:
    """Return the folder that torch uses, and why. Like torch, do not check that it exists."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := host.get_env_var(name):
            return value.rstrip("/") or "/", name
    nvcc = host.find_program("nvcc")
    if nvcc is not None:
        return nvcc.rpartition("/")[0].rpartition("/")[0] or "/", f"nvcc on the path ({nvcc})"
    status = host.stat_path(f"{USR_LOCAL}/cuda")
    if status is not None and status["kind"] == "dir":
        return f"{USR_LOCAL}/cuda", f"{USR_LOCAL}/cuda"
    return None, ""


def _missing_toolkit_fact(host: HostAccess) -> Fact:
    """A variable or link that names a toolkit that does not exist."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        value = read_if_present(host.get_env_var, name)
        status = read_if_present(host.stat_path, value) if value else None
        if value and (status is None or status["kind"] != "dir"):
            return Fact("toolkit.home_missing", value, name)
    link = read_if_present(host.stat_path, f"{USR_LOCAL}/cuda")
    if link is not None and link["kind"] == "link":
        return Fact("toolkit.home_missing", f"{USR_LOCAL}/cuda", "a link that leads nowhere")
    return Fact("toolkit.home_missing", None, "CUDA_HOME, CUDA_PATH, /usr/local/cuda")


def _find_nvcc(host: HostAccess, path: str) -> str | None:
    status = read_if_present(host.stat_path, f"{path}/bin/nvcc")
    return f"{path}/bin/nvcc" if status is not None and status["kind"] == "file" else None


def _toolkit_version_fact(host: HostAccess, path: str, nvcc: str | None) -> Fact:
    version, source = read_toolkit_version(host, path)
    if version is None and nvcc is not None and (home := _find_wrapped_toolkit(host, nvcc)):
        version, source = read_toolkit_version(host, home)
    if version is None and nvcc is not None:
        ran = host.run([nvcc, "--version"])
        version, source = parse_nvcc_version(ran.out), f"{nvcc} --version"
        if version is None:
            gap = ran.end or f"it ended with {ran.rc} and named no release"
            return Fact("toolkit.version", None, source, gap=gap)
    return Fact("toolkit.version", version, source)


def _find_wrapped_toolkit(host: HostAccess, nvcc: str) -> str | None:
    """Return the toolkit that an nvcc wrapper (such as Debian's) starts, by the program it names."""
    text = read_if_present(host.read_text, nvcc, 4096) or ""
    words = (word.strip("\"'") for word in text.split()) if text.startswith("#!") else ()
    wrapped = next((word for word in words if word.startswith("/") and word.endswith("/bin/nvcc")), None)
    return wrapped.removesuffix("/bin/nvcc") if wrapped and wrapped != nvcc else None


def read_toolkit_version(host: HostAccess, path: str) -> tuple[str | None, str]:
    """Return the version in the toolkit's files, and the file."""
    for file, reader in VERSION_FILES:
        text = read_if_present(host.read_text, f"{path}/{file}", MAX_HEADER_BYTES)
        version = reader(text) if text else None
        if version:
            return version, f"{path}/{file}"
    return None, path


def _parse_version_json(text: str) -> str | None:
    import json

    try:
        version = json.loads(text)["cuda"]["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return leading_version(version) if isinstance(version, str) else None


def _parse_version_txt(text: str) -> str | None:
    return leading_version(text.partition("CUDA Version ")[2])


def _parse_cuda_header(text: str) -> str | None:
    number = leading_version(text.partition("#define CUDA_VERSION ")[2].strip())
    if not number or not number.isdecimal() or len(number) > 9:
        return None
    return f"{int(number) // 1000}.{int(number) % 1000 // 10}"


def parse_nvcc_version(text: str) -> str | None:
    """Parse ``Cuda compilation tools, release 13.0, V13.0.88`` as ``13.0.88``."""
    exact = leading_version(text.partition(", V")[2])
    return exact or leading_version(text.partition("release ")[2])


CUDA_HEADERS = ("include/cuda.h", "targets/x86_64-linux/include/cuda.h", "targets/sbsa-linux/include/cuda.h")
VERSION_FILES = (
    ("version.json", _parse_version_json),
    ("version.txt", _parse_version_txt),
    *((header, _parse_cuda_header) for header in CUDA_HEADERS),
)
"""Files with a toolkit's version; conda keeps its headers below ``targets``."""


# -- every toolkit ------------------------------------------------------------------------------------


def _describe_toolkits(host: HostAccess, target: TargetEnvironment | None) -> Iterator[dict[str, Any]]:
    """Yield each toolkit once, however many links lead to it."""
    seen: set[str] = set()
    for path, by in _toolkit_candidates(host, target):
        real = read_if_present(host.resolve_path, path, default=path)
        status = read_if_present(host.stat_path, path)
        if real in seen or status is None:
            continue
        seen.add(real)
        if status["kind"] == "link":
            yield {"path": path, "version": None, "nvcc": None, "found_by": "a link that leads nowhere"}
        elif status["kind"] == "dir":
            yield {
                "path": path,
                "version": read_toolkit_version(host, path)[0] or leading_version(real.rpartition("/cuda-")[2]),
                "nvcc": _find_nvcc(host, path),
                "found_by": by,
            }


def _toolkit_candidates(host: HostAccess, target: TargetEnvironment | None) -> Iterator[tuple[str, str]]:
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := read_if_present(host.get_env_var, name):
            yield value.rstrip("/"), name
    for name in read_if_present(host.list_directory, USR_LOCAL) or ():
        if name == "cuda" or name.startswith("cuda-"):
            yield f"{USR_LOCAL}/{name}", USR_LOCAL
    yield "/opt/cuda", "/opt/cuda"
    if target is not None:
        if target.kind == "conda" and _find_nvcc(host, target.prefix):
            yield target.prefix, "conda"
        for site in target.site:
            for folder in ("cuda_nvcc", "cu13"):
                if _find_nvcc(host, f"{site}/nvidia/{folder}"):
                    yield f"{site}/nvidia/{folder}", "a wheel"
