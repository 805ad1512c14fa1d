"""The driver: its kernel module from files, its user library as a program would load it."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.sight import digits, glimpse
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.presence import Presence
    from gpuready.system import Door

KEYS = (
    "driver.version",
    "driver.kind",
    "driver.cuda",
    "driver.error",
    "driver.says",
    "driver.wsl",
    "driver.library",
    "driver.compat",
    "driver.stub",
    "libcuda.path",
    "libcudart.path",
)
SYS = "/sys/module/nvidia/version"
PROC = "/proc/driver/nvidia/version"


def look(door: Door, found: Presence, answer: dict[str, Any]) -> list[Fact]:
    """Return the driver facts, given the reply of ``query_gpus``."""
    said = glimpse(door.read, PROC) or ""
    return [
        _version(door, found, answer, said),
        _kind(found, said),
        _cuda(found, answer),
        *_error(answer),
        Fact("driver.wsl", found.wsl, "/dev/dxg"),
        *_library(door),
        _runtime(door),
    ]


def _version(door: Door, found: Presence, answer: dict[str, Any], said: str) -> Fact:
    files = f"{SYS}, {PROC}"
    for source, text in ((SYS, glimpse(door.read, SYS)), (PROC, in_banner(said))):
        if text and digits(text.strip()):
            return Fact("driver.version", digits(text.strip()), source)
    reported = answer.get("driver")
    if isinstance(reported, str) and digits(reported):
        return Fact("driver.version", digits(reported), str(answer.get("source")))
    if not found.signs or not _loaded(found):
        return Fact("driver.version", None, files, gap="; ".join(found.blind))
    return Fact("driver.version", None, files, gap=str(answer.get("says") or "no file names it"))


def _loaded(found: Presence) -> bool:
    """Whether anything but PCI indicates a driver: a card alone may have none."""
    return any(not sign.startswith("PCI ") for sign in found.signs)


def in_banner(text: str) -> str | None:
    """Parse ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug …``."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    words = (word for word in line.split() if word[:1].isdigit() and "." in word)
    return next(words, None)


def _kind(found: Presence, said: str) -> Fact:
    if "Open Kernel Module" in said:
        return Fact("driver.kind", "open", PROC)
    if "Kernel Module" in said:
        return Fact("driver.kind", "proprietary", PROC)
    if not _loaded(found) and not found.blind:
        return Fact("driver.kind", None, PROC)
    return Fact("driver.kind", None, PROC, gap="this file, which tells, is not here")


def _cuda(found: Presence, answer: dict[str, Any]) -> Fact:
    reported, source = answer.get("cuda"), str(answer.get("source", ""))
    if isinstance(reported, int):
        reported = f"{reported // 1000}.{reported % 1000 // 10}"
    if isinstance(reported, str) and digits(reported):
        return Fact("driver.cuda", digits(reported), source)
    if not found.signs and not found.blind:
        return Fact("driver.cuda", None, source)
    why = reported.get("gap") if isinstance(reported, dict) else answer.get("says")
    return Fact("driver.cuda", None, source, gap=str(why or "the driver does not say"))


def _error(answer: dict[str, Any]) -> list[Fact]:
    """NVML's error code and message: 18 is a driver/library mismatch, 9 a driver that is not loaded."""
    code, says = answer.get("error"), answer.get("says")
    gap = str(says) if says and code is None else ""
    return [
        Fact("driver.error", code, "NVML", gap=gap),
        Fact("driver.says", str(says) if says else None, "NVML"),
    ]


def _library(door: Door) -> list[Fact]:
    """The libcuda that a program would load, its real path, and the version in its name."""
    keys = ("driver.library", "driver.compat", "driver.stub", "libcuda.path")
    try:
        path = door.library("libcuda.so.1")
        real = door.real(path) if path else None
    except Blind as blind:
        return [Fact(key, None, "libcuda.so.1", gap=str(blind)) for key in keys]
    if path is None or real is None:
        return [Fact(key, None, "libcuda.so.1 in the loader's search path") for key in keys]
    version = named(real)
    gap = "" if version else f"the name of {real} carries no version"
    return [
        Fact("driver.library", version, real, gap=gap),
        Fact("driver.compat", real if "/compat" in real or "/compat" in path else None, path),
        Fact("driver.stub", path if "/stubs/" in path or "/stubs/" in real else None, path),
        Fact("libcuda.path", path, "the loader's search path"),
    ]


def named(path: str) -> str | None:
    """Return the version in ``libcuda.so.580.95.05``; WSL and Jetson use ``libcuda.so.1.1``, which has none."""
    tail = path.rpartition(".so.")[2]
    version = digits(tail) if tail != path else None
    return version if version and version == tail and len(version.partition(".")[0]) >= 3 else None


def _runtime(door: Door) -> Fact:
    source = "libcudart.so.* in the loader's cache"
    try:
        found = door.libraries("libcudart.so")
    except Blind as blind:
        return Fact("libcudart.path", None, source, gap=str(blind))
    return Fact("libcudart.path", next(iter(found.values()), None), source)
