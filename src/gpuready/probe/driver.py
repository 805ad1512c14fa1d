"""The driver: its kernel module from files, its user library as a program would load it."""

from typing import Any

from gpuready.model import Fact
from gpuready.probe.device_detection import DetectedDevices
from gpuready.probe.fact_helpers import leading_version, read_if_present
from gpuready.system import AccessError, HostAccess

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
SYS_VERSION_FILE = "/sys/module/nvidia/version"
PROC_VERSION_FILE = "/proc/driver/nvidia/version"


def probe_driver(host: HostAccess, detected: DetectedDevices, reply: dict[str, Any]) -> list[Fact]:
    """Return the driver facts, from the reply of ``query_gpus``."""
    banner = read_if_present(host.read_text, PROC_VERSION_FILE) or ""
    return [
        _driver_version_fact(host, detected, reply, banner),
        _driver_kind_fact(detected, banner),
        _driver_cuda_fact(detected, reply),
        *_driver_error_facts(reply),
        Fact("driver.wsl", detected.wsl, "/dev/dxg"),
        *_libcuda_facts(host),
        _cudart_path_fact(host),
    ]


def _driver_version_fact(host: HostAccess, detected: DetectedDevices, reply: dict[str, Any], banner: str) -> Fact:
    files = f"{SYS_VERSION_FILE}, {PROC_VERSION_FILE}"
    for source, text in (
        (SYS_VERSION_FILE, read_if_present(host.read_text, SYS_VERSION_FILE)),
        (PROC_VERSION_FILE, parse_proc_driver_version(banner)),
    ):
        if text and leading_version(text.strip()):
            return Fact("driver.version", leading_version(text.strip()), source)
    reported = reply.get("driver")
    if isinstance(reported, str) and leading_version(reported):
        return Fact("driver.version", leading_version(reported), str(reply.get("source")))
    if not detected.shows_driver:
        return Fact("driver.version", None, files, gap="; ".join(detected.read_errors))
    return Fact("driver.version", None, files, gap=str(reply.get("says") or "no file names it"))


def parse_proc_driver_version(text: str) -> str | None:
    """Parse ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug …``."""
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    words = (word for word in line.split() if word[:1].isdigit() and "." in word)
    return next(words, None)


def _driver_kind_fact(detected: DetectedDevices, banner: str) -> Fact:
    if "Open Kernel Module" in banner:
        return Fact("driver.kind", "open", PROC_VERSION_FILE)
    if "Kernel Module" in banner:
        return Fact("driver.kind", "proprietary", PROC_VERSION_FILE)
    if not detected.shows_driver and not detected.read_errors:
        return Fact("driver.kind", None, PROC_VERSION_FILE)
    return Fact("driver.kind", None, PROC_VERSION_FILE, gap="this file, which tells, is not here")


def _driver_cuda_fact(detected: DetectedDevices, reply: dict[str, Any]) -> Fact:
    reported, source = reply.get("cuda"), str(reply.get("source", ""))
    if isinstance(reported, int):
        reported = f"{reported // 1000}.{reported % 1000 // 10}"
    if isinstance(reported, str) and leading_version(reported):
        return Fact("driver.cuda", leading_version(reported), source)
    if not detected.signs and not detected.read_errors:
        return Fact("driver.cuda", None, source)
    why = reported.get("gap") if isinstance(reported, dict) else reply.get("says")
    return Fact("driver.cuda", None, source, gap=str(why or "the driver does not say"))


def _driver_error_facts(reply: dict[str, Any]) -> list[Fact]:
    """NVML's error code and message: 18 is a driver/library mismatch, 9 a driver that is not loaded."""
    code, message = reply.get("error"), reply.get("says")
    gap = str(message) if message and code is None else ""
    return [Fact("driver.error", code, "NVML", gap=gap), Fact("driver.says", str(message) if message else None, "NVML")]


def _libcuda_facts(host: HostAccess) -> list[Fact]:
    """The libcuda that a program would load, its real path, and the version in its name."""
    keys = ("driver.library", "driver.compat", "driver.stub", "libcuda.path")
    try:
        path = host.find_library("libcuda.so.1")
        real = host.resolve_path(path) if path else None
    except AccessError as error:
        return [Fact(key, None, "libcuda.so.1", gap=str(error)) for key in keys]
    if path is None or real is None:
        return [Fact(key, None, "libcuda.so.1 in the loader's search path") for key in keys]
    version = parse_libcuda_version(real)
    gap = "" if version else f"the name of {real} carries no version"
    return [
        Fact("driver.library", version, real, gap=gap),
        Fact("driver.compat", real if "/compat" in real or "/compat" in path else None, path),
        Fact("driver.stub", path if "/stubs/" in path or "/stubs/" in real else None, path),
        Fact("libcuda.path", path, "the loader's search path"),
    ]


def parse_libcuda_version(path: str) -> str | None:
    """Return the version in ``libcuda.so.580.95.05``; WSL and Jetson use ``libcuda.so.1.1``, which has none."""
    tail = path.rpartition(".so.")[2]
    version = leading_version(tail) if tail != path else None
    return version if version and version == tail and len(version.partition(".")[0]) >= 3 else None


def _cudart_path_fact(host: HostAccess) -> Fact:
    source = "libcudart.so.* in the loader's cache"
    try:
        libraries = host.list_libraries("libcudart.so")
    except AccessError as error:
        return Fact("libcudart.path", None, source, gap=str(error))
    return Fact("libcudart.path", next(iter(libraries.values()), None), source)
