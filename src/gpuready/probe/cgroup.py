"""CPU and memory limits of the control group: a container on a large host is not a large machine."""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuready.system import Door

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"
ENDLESS = 1 << 60
"""cgroup v1 writes a number near 2**63 for no limit."""


class Limits(Noun):
    """The tightest limits of our group and all its parents."""

    cpus: float | None = None
    cpus_source: str = ROOT
    memory: int | None = None
    memory_left: int | None = None
    memory_source: str = ROOT
    gap: str = ""


def limits(door: Door) -> Limits:
    """Read the limits of cgroup v2 or v1, whichever is mounted; a gap if neither is readable."""
    try:
        own = door.read(OWN) or ""
        if door.list(ROOT) is None:
            return Limits(gap=f"there is no {ROOT}")
        return _second(door, own) if door.stat(f"{ROOT}/cgroup.controllers") else _first(door, own)
    except Blind as blind:
        return Limits(gap=str(blind))


def _folders(top: str, path: str) -> Iterator[str]:
    """Yield our group's folder and all its parents. In a container the path may not exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield "/".join([top, *parts[:depth]])


def _path(own: str, controller: str) -> str:
    """Our group's path in one controller's hierarchy; v2 has a single unnamed hierarchy."""
    for line in own.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            return path
    return "/"


def _second(door: Door, own: str) -> Limits:
    folders = list(_folders(ROOT, _path(own, "")))
    cpus, cpus_source = _least((_quota(door.read(f"{f}/cpu.max")), f"{f}/cpu.max") for f in folders)
    memory, source = _least((_number(door.read(f"{f}/memory.max")), f"{f}/memory.max") for f in folders)
    used = (
        _used(door, source.rpartition("/")[0], "memory.current", "inactive_file") if memory is not None else 0
    )
    return _made(cpus, cpus_source, memory, source, used)


def _first(door: Door, own: str) -> Limits:
    cpu = list(_folders(f"{ROOT}/cpu", _path(own, "cpu")))
    ram = list(_folders(f"{ROOT}/memory", _path(own, "memory")))
    cpus, cpus_source = _least((_old_quota(door, f), f"{f}/cpu.cfs_quota_us") for f in cpu)
    name = "memory.limit_in_bytes"
    memory, source = _least((_number(door.read(f"{f}/{name}")), f"{f}/{name}") for f in ram)
    folder = source.rpartition("/")[0]
    used = _used(door, folder, "memory.usage_in_bytes", "total_inactive_file") if memory is not None else 0
    return _made(cpus, cpus_source, memory, source, used)


def _made(cpus: float | None, cpus_source: str, memory: float | None, source: str, used: int) -> Limits:
    whole = None if memory is None else int(memory)
    left = None if whole is None else max(whole - used, 0)
    return Limits(cpus, cpus_source, whole, left, source)


def _least(found: Iterator[tuple[float | None, str]]) -> tuple[float | None, str]:
    known = [(value, source) for value, source in found if value is not None]
    return min(known) if known else (None, ROOT)


def _number(text: str | None) -> int | None:
    word = (text or "").strip()
    number = int(word) if word.isdecimal() and len(word) < 20 else None
    return number if number is not None and number < ENDLESS else None


def _quota(text: str | None) -> float | None:
    """``200000 100000`` is two processors; ``max 100000`` is no limit."""
    words = [_number(word) for word in (text or "").split()]
    return words[0] / words[1] if len(words) == 2 and words[0] and words[1] else None


def _old_quota(door: Door, folder: str) -> float | None:
    quota, period = (door.read(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return _quota(f"{(quota or '').strip()} {(period or '').strip()}")


def _used(door: Door, folder: str, current: str, cached: str) -> int:
    """Memory used by the group, without the file cache that the kernel would reclaim first."""
    held = _number(door.read(f"{folder}/{current}")) or 0
    lines = (line.partition(" ") for line in (door.read(f"{folder}/memory.stat") or "").splitlines())
    spare = next((_number(value) for name, _, value in lines if name == cached), None)
    return max(held - (spare or 0), 0)
