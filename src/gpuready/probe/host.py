"""The machine itself: system, processors, memory, limits. Works without /proc and /sys, with gaps.

Nothing here reads a disk that could hang, so one dead mount cannot hide the rest of the machine.
"""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe import cgroup
from gpuready.probe.sight import digits, gaps, glimpse, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.system import Door

LIMITS = ("nofile", "memlock", "nproc", "stack")
KEYS = (
    "os.system", "os.kernel", "os.release", "os.arch", "os.name", "os.version", "os.pretty", "os.glibc",
    "os.wsl", "os.sandbox", "os.container", "host.name", "host.cpus", "host.cores_usable",
    "memory.total", "memory.available", "memory.limit",
    "system.shm", "system.shm_free", "limit.nofile", "limit.memlock", "limit.nproc", "limit.stack",
)  # fmt: skip
RELEASES = ("/etc/os-release", "/usr/lib/os-release")
CONTAINERS = (
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("APPTAINER_CONTAINER", "singularity"),
    ("SINGULARITY_CONTAINER", "singularity"),
    ("/.singularity.d", "singularity"),
    ("/run/.containerenv", "podman"),
    ("/.dockerenv", "docker"),
    ("/dev/.lxc", "lxc"),
)
GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""The build date that gVisor has reported for its kernel since its first release."""


def look(door: Door) -> list[Fact]:
    """Return all facts about the machine except GPUs and packages."""
    return [
        *_kernel(door),
        *_distribution(door),
        *_around(door),
        *_work(door),
        *_shared(door),
        *_limits(door),
    ]


# -- the operating system -----------------------------------------------------------------------------


def _kernel(door: Door) -> list[Fact]:
    try:
        name = door.uname()
    except Blind as blind:
        return gaps(("os.system", "os.kernel", "os.release", "os.arch"), str(blind), "uname")
    release = name.get("release", "")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(name.get("machine", ""), name.get("machine", ""))
    return [
        Fact("os.system", name.get("system", "").lower() or None, "uname"),
        # Only the leading numbers are a version, as in 6.8.0-45-generic.
        Fact("os.kernel", digits(release), "uname"),
        Fact("os.release", release or None, "uname"),
        Fact("os.arch", arch or None, "uname"),
    ]


def _distribution(door: Door) -> list[Fact]:
    keys = {"os.name": "ID", "os.version": "VERSION_ID", "os.pretty": "PRETTY_NAME"}
    libc = seen("os.glibc", "the C library", door.libc)
    try:
        found = [(path, text) for path in RELEASES if (text := door.read(path))]
    except Blind as blind:
        return [*gaps(keys, str(blind), RELEASES[0]), libc]
    if not found:
        return [*(Fact(key, None, RELEASES[0]) for key in keys), libc]
    path, text = found[0]
    words = release(text)
    return [*(Fact(key, words.get(word) or None, path) for key, word in keys.items()), libc]


def release(text: str) -> dict[str, str]:
    """Parse an os-release file, unquoted."""
    words = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            words[name] = value.strip().strip("\"'")
    return words


def _around(door: Door) -> list[Fact]:
    """What the system runs inside: WSL, gVisor, a container."""
    version = glimpse(door.read, "/proc/version")
    kernel = glimpse(door.uname, otherwise={})
    words = f"{version or ''} {kernel.get('release', '')}".lower()
    wsl = "microsoft" in words or bool(glimpse(door.stat, "/dev/dxg"))
    gvisor = "gvisor" in words or GVISOR in kernel.get("version", "")
    return [
        Fact("os.wsl", wsl, "/proc/version, /dev/dxg"),
        Fact("os.sandbox", "gvisor" if gvisor else None, "uname, /proc/version"),
        _container(door),
    ]


def _container(door: Door) -> Fact:
    """The kind of container by the first marker found; more specific markers come first."""
    for sign, kind in CONTAINERS:
        if glimpse(door.stat if sign.startswith("/") else door.env, sign):
            return Fact("os.container", kind, sign)
    source = "/proc/1/cgroup"
    groups = glimpse(door.read, source) or ""
    words = (("kubepods", "kubernetes"), ("libpod", "podman"), ("docker", "docker"), ("/lxc", "lxc"))
    return Fact("os.container", next((kind for word, kind in words if word in groups), None), source)


# -- processors, memory, limits -----------------------------------------------------------------------


def _work(door: Door) -> list[Fact]:
    limits = cgroup.limits(door)
    host = seen("host.name", "hostname", door.hostname)
    return [host, *_processors(door, limits), *_memory(door, limits)]


def _processors(door: Door, limits: cgroup.Limits) -> list[Fact]:
    try:
        cpus = door.cpus()
    except Blind as blind:
        return gaps(("host.cpus", "host.cores_usable"), str(blind), "sched_getaffinity")
    usable, source = cpus["usable"], "sched_getaffinity"
    if limits.cpus is not None and limits.cpus < usable:
        usable, source = max(1, -int(-limits.cpus // 1)), limits.cpus_source
    return [Fact("host.cpus", cpus["online"], "os.cpu_count"), Fact("host.cores_usable", usable, source)]


def _memory(door: Door, limits: cgroup.Limits) -> list[Fact]:
    source = "/proc/meminfo"
    limit = Fact("memory.limit", limits.memory, limits.memory_source, gap=limits.gap)
    try:
        text = door.read(source)
    except Blind as blind:
        return [*gaps(("memory.total", "memory.available"), str(blind), source), limit]
    if text is None:
        return [*gaps(("memory.total", "memory.available"), f"there is no {source}", source), limit]
    total, available = kibibytes(text, "MemTotal"), kibibytes(text, "MemAvailable")
    if available is None:
        available = kibibytes(text, "MemFree")  # kernels before 3.14
    facts = [Fact("memory.total", total, source), Fact("memory.available", available, source)]
    left = limits.memory_left
    if left is not None and available is not None and left < available:
        facts[1] = Fact("memory.available", left, limits.memory_source)
    return [*(f if f.value is not None else f.but(gap="not in the file") for f in facts), limit]


def kibibytes(text: str, name: str) -> int | None:
    """Return one line of /proc/meminfo in bytes."""
    for line in text.splitlines():
        label, _, rest = line.partition(":")
        words = rest.split()
        if label == name and words and words[0].isdecimal():
            return int(words[0]) * 1024
    return None


def _shared(door: Door) -> list[Fact]:
    keys = ("system.shm", "system.shm_free")
    try:
        space = door.disk("/dev/shm") or {}
    except Blind as blind:
        return gaps(keys, str(blind), "/dev/shm")
    return [Fact(keys[0], space.get("total"), "/dev/shm"), Fact(keys[1], space.get("free"), "/dev/shm")]


def _limits(door: Door) -> list[Fact]:
    keys = [f"limit.{name}" for name in LIMITS]
    try:
        found = door.limits()
    except Blind as blind:
        return gaps(keys, str(blind), "getrlimit")
    return [Fact(f"limit.{name}", found.get(name), "getrlimit") for name in LIMITS]
