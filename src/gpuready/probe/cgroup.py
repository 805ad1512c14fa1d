"""CPU and memory limits of the control group: a container on a large host is not a large machine."""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.model import Record
from gpuready.system import AccessError, HostAccess

CGROUP_ROOT = "/sys/fs/cgroup"
OWN_CGROUP_FILE = "/proc/self/cgroup"
NO_LIMIT = 1 << 60
"""cgroup v1 writes a number near 2**63 for no limit."""


class CgroupLimits(Record):
    """The tightest limits of our group and all its parents."""

    cpus: float | None = None
    cpus_source: str = CGROUP_ROOT
    memory: int | None = None
    memory_left: int | None = None
    memory_source: str = CGROUP_ROOT
    gap: str = ""


def read_cgroup_limits(host: HostAccess) -> CgroupLimits:
    """Read the limits of cgroup v2 or v1, whichever is mounted; a gap if neither is readable."""
    try:
        membership = host.read_text(OWN_CGROUP_FILE) or ""
        if host.list_directory(CGROUP_ROOT) is None:
            return CgroupLimits(gap=f"there is no {CGROUP_ROOT}")
        return (
            _read_cgroup_v2(host, membership)
            if host.stat_path(f"{CGROUP_ROOT}/cgroup.controllers")
            else _read_cgroup_v1(host, membership)
        )
    except AccessError as error:
        return CgroupLimits(gap=str(error))


def _group_folders(top: str, path: str) -> Iterator[str]:
    """Yield our group's folder and all its parents. In a container the path may not exist."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield "/".join([top, *parts[:depth]])


def _group_path(membership: str, controller: str) -> str:
    """Our group's path in one controller's hierarchy; v2 has a single unnamed hierarchy."""
    for line in membership.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if controller in names.split(","):
            return path
    return "/"


def _read_cgroup_v2(host: HostAccess, membership: str) -> CgroupLimits:
    folders = list(_group_folders(CGROUP_ROOT, _group_path(membership, "")))
    cpus, cpus_source = _tightest_limit(
        (_parse_cpu_quota(host.read_text(f"{f}/cpu.max")), f"{f}/cpu.max") for f in folders
    )
    memory, source = _tightest_limit(
        (_parse_limit(host.read_text(f"{f}/memory.max")), f"{f}/memory.max") for f in folders
    )
    used = (
        _read_used_memory(host, source.rpartition("/")[0], "memory.current", "inactive_file")
        if memory is not None
        else 0
    )
    return _make_limits(cpus, cpus_source, memory, source, used)


def _read_cgroup_v1(host: HostAccess, membership: str) -> CgroupLimits:
    cpu = list(_group_folders(f"{CGROUP_ROOT}/cpu", _group_path(membership, "cpu")))
    ram = list(_group_folders(f"{CGROUP_ROOT}/memory", _group_path(membership, "memory")))
    cpus, cpus_source = _tightest_limit((_read_v1_cpu_quota(host, f), f"{f}/cpu.cfs_quota_us") for f in cpu)
    name = "memory.limit_in_bytes"
    memory, source = _tightest_limit((_parse_limit(host.read_text(f"{f}/{name}")), f"{f}/{name}") for f in ram)
    folder = source.rpartition("/")[0]
    used = _read_used_memory(host, folder, "memory.usage_in_bytes", "total_inactive_file") if memory is not None else 0
    return _make_limits(cpus, cpus_source, memory, source, used)


def _make_limits(cpus: float | None, cpus_source: str, memory: float | None, source: str, used: int) -> CgroupLimits:
    limit = None if memory is None else int(memory)
    available = None if limit is None else max(limit - used, 0)
    return CgroupLimits(cpus, cpus_source, limit, available, source)


def _tightest_limit(candidates: Iterator[tuple[float | None, str]]) -> tuple[float | None, str]:
    known = [(value, source) for value, source in candidates if value is not None]
    return min(known) if known else (None, CGROUP_ROOT)


def _parse_limit(text: str | None) -> int | None:
    word = (text or "").strip()
    number = int(word) if word.isdecimal() and len(word) < 20 else None
    return number if number is not None and number < NO_LIMIT else None


def _parse_cpu_quota(text: str | None) -> float | None:
    """``200000 100000`` is two processors; ``max 100000`` is no limit."""
    words = [_parse_limit(word) for word in (text or "").split()]
    return words[0] / words[1] if len(words) == 2 and words[0] and words[1] else None


def _read_v1_cpu_quota(host: HostAccess, folder: str) -> float | None:
    quota, period = (host.read_text(f"{folder}/cpu.cfs_{name}_us") for name in ("quota", "period"))
    return _parse_cpu_quota(f"{(quota or '').strip()} {(period or '').strip()}")


def _read_used_memory(host: HostAccess, folder: str, current: str, cached: str) -> int:
    """Memory used by the group, without the file cache that the kernel would reclaim first."""
    current_bytes = _parse_limit(host.read_text(f"{folder}/{current}")) or 0
    lines = (line.partition(" ") for line in (host.read_text(f"{folder}/memory.stat") or "").splitlines())
    cached_bytes = next((_parse_limit(value) for name, _, value in lines if name == cached), None)
    return max(current_bytes - (cached_bytes or 0), 0)
