"""The Hugging Face hub: its cache, the disk below it, offline mode and token."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe.sight import gaps, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.system import Door

KEYS = ("hub.cache", "hub.offline", "hub.token", "disk.path", "disk.total", "disk.free", "disk.rotational")
PLACE = "HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME"
MOUNTS, BLOCK = "/proc/self/mountinfo", "/sys/dev/block"
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
YES = ("1", "on", "yes", "true", "y", "t")


def look(door: Door) -> list[Fact]:
    """Return the cache and its disk, offline mode, and whether a token exists (it is never read)."""
    return [
        seen("hub.cache", PLACE, cache, door),
        seen("hub.offline", ", ".join(OFFLINE), _offline, door),
        seen("hub.token", f"{', '.join(TOKENS)}, the token file", _token, door),
        *_disk(door),
    ]


def cache(door: Door) -> str:
    """Return the model cache as huggingface_hub decides it; AccessError if HOME is not set either."""
    own = door.env("HF_HUB_CACHE") or door.env("HUGGINGFACE_HUB_CACHE")
    return _expanded(door, own) if own else f"{_home(door)}/hub"


def _home(door: Door) -> str:
    own = door.env("HF_HOME")
    if own:
        return _expanded(door, own.rstrip("/"))
    caches, user = door.env("XDG_CACHE_HOME"), door.env("HOME")
    if not caches and not user:
        raise Blind("neither HF_HOME nor HOME is set")
    return f"{caches or f'{user}/.cache'}/huggingface"


def _expanded(door: Door, path: str) -> str:
    return f"{door.env('HOME') or ''}{path[1:]}" if path.startswith("~/") else path


def _offline(door: Door) -> bool:
    return any((door.env(name) or "").strip().lower() in YES for name in OFFLINE)


def _token(door: Door) -> bool:
    if any(door.env(name) for name in TOKENS):
        return True
    return door.stat(door.env("HF_TOKEN_PATH") or f"{_home(door)}/token") is not None


def _disk(door: Door) -> list[Fact]:
    try:
        folder = cache(door)
        path, space = standing(door, folder, door.disk)
    except Blind as blind:
        return gaps(KEYS[3:], str(blind), PLACE)
    return [
        Fact("disk.path", path, folder),
        Fact("disk.total", space.get("total"), path),
        Fact("disk.free", space.get("free"), path),
        _rotational(door, path),
    ]


def standing(
    door: Door, folder: str, ask: Callable[[str], dict[str, Any] | None]
) -> tuple[str, dict[str, Any]]:
    """Return the folder or its nearest existing parent, and the query's result for it."""
    path = folder if folder.startswith("/") else f"{door.cwd()}/{folder}"
    while True:
        answer = ask(path)
        if answer is not None or path == "/":
            return path, answer or {}
        path = path.rstrip("/").rpartition("/")[0] or "/"


def _rotational(door: Door, path: str) -> Fact:
    """Whether the disk spins, as the kernel reports for the mounted device."""
    try:
        device, kind = mounted(door.read(MOUNTS, 1 << 20) or "", door.real(path))
        for file in (f"{BLOCK}/{device}/queue/rotational", f"{BLOCK}/{device}/../queue/rotational"):
            word = (door.read(file) or "").strip()
            if word in ("0", "1"):
                return Fact("disk.rotational", word == "1", file)
    except Blind as blind:
        return Fact("disk.rotational", None, MOUNTS, gap=str(blind))
    return Fact("disk.rotational", None, MOUNTS, gap=f"{kind or 'it'} lies on no disk of this machine")


def mounted(text: str, path: str) -> tuple[str, str]:
    """Return device number and file system type of a path, from /proc/self/mountinfo."""
    best, found = -1, ("", "")
    for line in text.splitlines():
        words = line.split()
        if len(words) < 7 or " - " not in line:
            continue
        point = words[4].replace("\\040", " ").rstrip("/")
        if len(point) >= best and (path == point or path.startswith(f"{point}/")):
            best, found = len(point), (words[2], line.partition(" - ")[2].split()[0])
    return found
