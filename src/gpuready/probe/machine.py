"""The machine itself: system, processors, memory, limits. Works without /proc and /sys, with gaps.

Nothing here reads a disk that could hang, so one dead mount cannot hide the rest of the machine.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.model.sizes import parse_size
from gpuready.probe import cgroup
from gpuready.probe.fact_helpers import gap_facts, leading_version, read_fact, read_if_present
from gpuready.system import AccessError, HostAccess

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
    limits = cgroup.read_cgroup_limits(host)
    hostname_fact = read_fact("host.name", "hostname", host.get_hostname)
    return [hostname_fact, *_processor_facts(host, limits), *_memory_facts(host, limits)]


def _processor_facts(host: HostAccess, limits: cgroup.CgroupLimits) -> list[Fact]:
    try:
        cpus = host.count_cpus()
    except AccessError as error:
        return gap_facts(("host.cpus", "host.cores_usable"), str(error), "sched_getaffinity")
    usable, source = cpus["usable"], "sched_getaffinity"
    if limits.cpus is not None and limits.cpus < usable:
        usable, source = max(1, -int(-limits.cpus // 1)), limits.cpus_source
    return [Fact("host.cpus", cpus["online"], "os.cpu_count"), Fact("host.cores_usable", usable, source)]


def _memory_facts(host: HostAccess, limits: cgroup.CgroupLimits) -> list[Fact]:
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
