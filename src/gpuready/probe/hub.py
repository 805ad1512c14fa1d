"""The Hugging Face hub: its cache, the disk below it, offline mode and token."""

from collections.abc import Callable
from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import gap_facts, read_fact
from gpuready.system import AccessError, HostAccess

KEYS = ("hub.cache", "hub.offline", "hub.token", "disk.path", "disk.total", "disk.free", "disk.rotational")
CACHE_VARIABLES = "HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME"
MOUNTINFO_FILE, BLOCK_DEVICES = "/proc/self/mountinfo", "/sys/dev/block"
MOUNT_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
OFFLINE_VARIABLES = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
TRUE_WORDS = ("1", "on", "yes", "true", "y", "t")


def probe_hub(host: HostAccess) -> list[Fact]:
    """Return the cache and its disk, offline mode, and whether a token exists (it is never read)."""
    return [
        read_fact("hub.cache", CACHE_VARIABLES, find_hub_cache, host),
        read_fact("hub.offline", ", ".join(OFFLINE_VARIABLES), _is_hub_offline, host),
        read_fact("hub.token", f"{', '.join(TOKEN_VARIABLES)}, the token file", _has_hub_token, host),
        *_cache_disk_facts(host),
    ]


def find_hub_cache(host: HostAccess) -> str:
    """Return the model cache as huggingface_hub decides it; AccessError if HOME is not set either."""
    configured = host.get_env_var("HF_HUB_CACHE") or host.get_env_var("HUGGINGFACE_HUB_CACHE")
    return _expand_home(host, configured) if configured else f"{_hub_home(host)}/hub"


def _hub_home(host: HostAccess) -> str:
    configured = host.get_env_var("HF_HOME")
    if configured:
        return _expand_home(host, configured.rstrip("/"))
    caches, user = host.get_env_var("XDG_CACHE_HOME"), host.get_env_var("HOME")
    if not caches and not user:
        raise AccessError("neither HF_HOME nor HOME is set")
    return f"{caches or f'{user}/.cache'}/huggingface"


def _expand_home(host: HostAccess, path: str) -> str:
    return f"{host.get_env_var('HOME') or ''}{path[1:]}" if path.startswith("~/") else path


def _is_hub_offline(host: HostAccess) -> bool:
    return any((host.get_env_var(name) or "").strip().lower() in TRUE_WORDS for name in OFFLINE_VARIABLES)


def _has_hub_token(host: HostAccess) -> bool:
    if any(host.get_env_var(name) for name in TOKEN_VARIABLES):
        return True
    return host.stat_path(host.get_env_var("HF_TOKEN_PATH") or f"{_hub_home(host)}/token") is not None


def _cache_disk_facts(host: HostAccess) -> list[Fact]:
    try:
        folder = find_hub_cache(host)
        path, space = find_existing_parent(host, folder, host.get_disk_space)
    except AccessError as error:
        return gap_facts(KEYS[3:], str(error), CACHE_VARIABLES)
    return [
        Fact("disk.path", path, folder),
        Fact("disk.total", space.get("total"), path),
        Fact("disk.free", space.get("free"), path),
        _rotational_disk_fact(host, path),
    ]


def find_existing_parent(
    host: HostAccess, folder: str, query: Callable[[str], dict[str, Any] | None]
) -> tuple[str, dict[str, Any]]:
    """Return the folder or its nearest existing parent, and the query's result for it."""
    path = folder if folder.startswith("/") else f"{host.get_cwd()}/{folder}"
    while True:
        result = query(path)
        if result is not None or path == "/":
            return path, result or {}
        path = path.rstrip("/").rpartition("/")[0] or "/"


def _rotational_disk_fact(host: HostAccess, path: str) -> Fact:
    """Whether the disk spins, as the kernel reports for the mounted device."""
    try:
        mount = find_mount(host.read_text(MOUNTINFO_FILE, 1 << 20) or "", host.resolve_path(path)) or {}
        device, kind = mount.get("device", ""), mount.get("type", "")
        for file in (f"{BLOCK_DEVICES}/{device}/queue/rotational", f"{BLOCK_DEVICES}/{device}/../queue/rotational"):
            word = (host.read_text(file) or "").strip()
            if word in ("0", "1"):
                return Fact("disk.rotational", word == "1", file)
    except AccessError as error:
        return Fact("disk.rotational", None, MOUNTINFO_FILE, gap=str(error))
    return Fact("disk.rotational", None, MOUNTINFO_FILE, gap=f"{kind or 'it'} lies on no disk of this machine")


def find_mount(text: str, path: str) -> dict[str, Any] | None:
    """Return ``device``, ``type`` and ``options`` of the line of mountinfo with the longest prefix of a path.

    ``36 35 98:0 /mnt1 /mnt/two\\040words rw,noatime master:1 - ext3 /dev/root rw``
    """
    best, mount = -1, None
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()[:1]
        if len(words) < 6 or not kind:
            continue
        point = words[4].rstrip("/")
        for escape, character in MOUNT_ESCAPES:
            point = point.replace(escape, character)
        if len(point) >= best and (path == point or path.startswith(f"{point}/")):
            best, mount = len(point), {"device": words[2], "type": kind[0], "options": words[5].split(",")}
    return mount
