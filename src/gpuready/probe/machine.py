"""The machine itself: system, processors, memory, limits. Works without /proc and /sys, with gaps.

Nothing here reads a disk that could hang, so one dead mount cannot hide the rest of the machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.model import Fact, Record
from gpuready.model.sizes import parse_size
from gpuready.probe.fact_helpers import gap_facts, leading_version, read_fact, read_if_present
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


RLIMIT_NAMES = ("nofile", "memlock", "nproc", "stack")
KEYS = (
    "os.system", "os.kernel", "os.release", "os.arch", "os.name", "os.version", "os.pretty", "os.glibc",
    "os.wsl", "os.sandbox", "os.container", "host.name", "host.cpus", "host.cores_usable",
    "memory.total", "memory.available", "memory.limit",
    "system.shm", "system.shm_free", "limit.nofile", "limit.memlock", "limit.nproc", "limit.stack",
)  # fmt: skip
OS_RELEASE_FILES = ("/etc/os-release", "/usr/lib/os-release")
CONTAINER_MARKERS = (
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("APPTAINER_CONTAINER", "singularity"),
    ("SINGULARITY_CONTAINER", "singularity"),
    ("/.singularity.d", "singularity"),
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
    ("/dev/.lxc", "lxc"),
)
GVISOR_BUILD_DATE = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""The build date that gVisor has reported for its kernel since its first release."""


def probe_machine(host: HostAccess) -> list[Fact]:
    """Return all facts about the machine except GPUs and packages."""
    return [
        *_kernel_facts(host),
        *_distribution_facts(host),
        *_virtualization_facts(host),
        *_capacity_facts(host),
        *_shared_memory_facts(host),
        *_rlimit_facts(host),
    ]


# -- the operating system -----------------------------------------------------------------------------


def _kernel_facts(host: HostAccess) -> list[Fact]:
    try:
        name = host.get_uname()
    except AccessError as error:
        return gap_facts(("os.system", "os.kernel", "os.release", "os.arch"), str(error), "uname")
    release = name.get("release", "")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(name.get("machine", ""), name.get("machine", ""))
    return [
        Fact("os.system", name.get("system", "").lower() or None, "uname"),
        # Only the leading numbers are a version, as in 6.8.0-45-generic.
        Fact("os.kernel", leading_version(release), "uname"),
        Fact("os.release", release or None, "uname"),
        Fact("os.arch", arch or None, "uname"),
    ]


def _distribution_facts(host: HostAccess) -> list[Fact]:
    keys = {"os.name": "ID", "os.version": "VERSION_ID", "os.pretty": "PRETTY_NAME"}
    libc = read_fact("os.glibc", "the C library", host.get_glibc_version)
    try:
        files = [(path, text) for path in OS_RELEASE_FILES if (text := host.read_text(path))]
    except AccessError as error:
        return [*gap_facts(keys, str(error), OS_RELEASE_FILES[0]), libc]
    if not files:
        return [*(Fact(key, None, OS_RELEASE_FILES[0]) for key in keys), libc]
    path, text = files[0]
    words = parse_os_release(text)
    return [*(Fact(key, words.get(word) or None, path) for key, word in keys.items()), libc]


def parse_os_release(text: str) -> dict[str, str]:
    """Parse an os-release file, unquoted."""
    words = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            words[name] = value.strip().strip("\"'")
    return words


def _virtualization_facts(host: HostAccess) -> list[Fact]:
    """What the system runs inside: WSL, gVisor, a container."""
    version = read_if_present(host.read_text, "/proc/version")
    kernel = read_if_present(host.get_uname, default={})
    words = f"{version or ''} {kernel.get('release', '')}".lower()
    wsl = "microsoft" in words or bool(read_if_present(host.stat_path, "/dev/dxg"))
    gvisor = "gvisor" in words or GVISOR_BUILD_DATE in kernel.get("version", "")
    return [
        Fact("os.wsl", wsl, "/proc/version, /dev/dxg"),
        Fact("os.sandbox", "gvisor" if gvisor else None, "uname, /proc/version"),
        _container_kind_fact(host),
    ]


def _container_kind_fact(host: HostAccess) -> Fact:
    """The kind of container by the first marker found; more specific markers come first."""
    for marker, kind in CONTAINER_MARKERS:
        if read_if_present(host.stat_path if marker.startswith("/") else host.get_env_var, marker):
            return Fact("os.container", kind, marker)
    source = "/proc/1/cgroup"
    groups = read_if_present(host.read_text, source) or ""
    words = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("/lxc", "lxc"))
    return Fact("os.container", next((kind for word, kind in words if word in groups), None), source)


# -- processors, memory, limits -----------------------------------------------------------------------


def _capacity_facts(host: HostAccess) -> list[Fact]:
    limits = read_cgroup_limits(host)
    hostname_fact = read_fact("host.name", "hostname", host.get_hostname)
    return [hostname_fact, *_processor_facts(host, limits), *_memory_facts(host, limits)]


def _processor_facts(host: HostAccess, limits: CgroupLimits) -> list[Fact]:
    try:
        cpus = host.count_cpus()
    except AccessError as error:
        return gap_facts(("host.cpus", "host.cores_usable"), str(error), "sched_getaffinity")
    usable, source = cpus["usable"], "sched_getaffinity"
    if limits.cpus is not None and limits.cpus < usable:
        usable, source = max(1, -int(-limits.cpus // 1)), limits.cpus_source
    return [Fact("host.cpus", cpus["online"], "os.cpu_count"), Fact("host.cores_usable", usable, source)]


def _memory_facts(host: HostAccess, limits: CgroupLimits) -> list[Fact]:
    source = "/proc/meminfo"
    limit = Fact("memory.limit", limits.memory, limits.memory_source, gap=limits.gap)
    try:
        text = host.read_text(source)
    except AccessError as error:
        return [*gap_facts(("memory.total", "memory.available"), str(error), source), limit]
    if text is None:
        return [*gap_facts(("memory.total", "memory.available"), f"there is no {source}", source), limit]
    total, available = parse_meminfo_bytes(text, "MemTotal"), parse_meminfo_bytes(text, "MemAvailable")
    if available is None:
        available = parse_meminfo_bytes(text, "MemFree")  # kernels before 3.14
    facts = [Fact("memory.total", total, source), Fact("memory.available", available, source)]
    left = limits.memory_left
    if left is not None and available is not None and left < available:
        facts[1] = Fact("memory.available", left, limits.memory_source)
    return [*(f if f.value is not None else f.replace(gap="not in the file") for f in facts), limit]


def parse_meminfo_bytes(text: str, name: str) -> int | None:
    """Return one line of /proc/meminfo in bytes."""
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        if label == name and (size := parse_size(rest, 1024)) is not None:
            return int(size)
    return None


def _shared_memory_facts(host: HostAccess) -> list[Fact]:
    keys = ("system.shm", "system.shm_free")
    try:
        space = host.get_disk_space("/dev/shm") or {}
    except AccessError as error:
        return gap_facts(keys, str(error), "/dev/shm")
    return [Fact(keys[0], space.get("total"), "/dev/shm"), Fact(keys[1], space.get("free"), "/dev/shm")]


def _rlimit_facts(host: HostAccess) -> list[Fact]:
    keys = [f"limit.{name}" for name in RLIMIT_NAMES]
    try:
        rlimits = host.get_resource_limits()
    except AccessError as error:
        return gap_facts(keys, str(error), "getrlimit")
    return [Fact(f"limit.{name}", rlimits.get(name), "getrlimit") for name in RLIMIT_NAMES]
