"""The folders that a job works in, and the clock: what builds, compilers and downloads need later."""

from __future__ import annotations

from gpuready.model import Fact
from gpuready.probe import hub
from gpuready.probe.keys import SURROUNDINGS as KEYS
from gpuready.probe.patient import config
from gpuready.probe.sight import gaps, glimpse, seen
from gpuready.system import Blind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.probe.patient import Patient
    from gpuready.system import Door

__all__ = ["KEYS", "look", "mount"]

ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))
SQUASHED = ("nfs", "nfs4")
"""File systems that may map root to nobody."""


def look(door: Door, who: Patient) -> list[Fact]:
    """Return Python headers, temporary folder, model disk, PATH, year and user."""
    mounts = Mounts(door)
    return [
        _headers(door, who),
        *_temporary(door, mounts),
        *_models(door, mounts),
        seen("path.unsafe", "PATH", _unsafe, door),
        seen("clock.year", "the clock", _year, door),
        seen("user.root", "geteuid", _root, door),
    ]


def _root(door: Door) -> bool:
    """Whether we are root, who can open and write what the job's user may not."""
    uid = door.user().get("uid")
    if uid is None:
        raise Blind("nobody says who this user is")
    return bool(uid == 0)


# -- Python's headers ---------------------------------------------------------------------------------


def _headers(door: Door, who: Patient) -> Fact:
    """Whether Python.h is where the environment's compiler flags point: below its base Python."""
    minor = ".".join((who.version or "").split(".")[:2])
    if not minor:
        return Fact("python.headers", None, who.prefix, gap=who.gap or "the version of Python is unknown")
    paths: list[str] = []
    try:
        paths += (f"{base}/include/python{minor}/Python.h" for base in _bases(door, who))
        found = next((path for path in paths if door.stat(path)), None)
    except Blind as blind:
        return Fact("python.headers", None, ", ".join(paths) or who.prefix, gap=str(blind))
    return Fact("python.headers", found is not None, found or ", ".join(paths))


def _bases(door: Door, who: Patient) -> list[str]:
    """Prefixes of the base Python of a virtual environment: as configured, and by its real path."""
    home = config(door.read(f"{who.prefix}/pyvenv.cfg") or "").get("home", "")
    if not home:
        return [who.prefix]
    real = glimpse(door.real, f"{home}/python3", otherwise="")
    bases = (home.rpartition("/")[0] or "/usr", real.rpartition("/bin/")[0] if "/bin/" in real else "")
    return list(dict.fromkeys(base for base in bases if base))


# -- the temporary folder -----------------------------------------------------------------------------


def _temporary(door: Door, mounts: Mounts) -> list[Fact]:
    keys = ("tmp.path", "tmp.exists", "tmp.noexec", "tmp.free")
    try:
        own = door.env("TMPDIR")
        path, source = own or "/tmp", "TMPDIR" if own else "TMPDIR is not set"
        status = door.stat(path)
    except Blind as blind:
        return gaps(keys, str(blind), "TMPDIR")
    there = status is not None and status["kind"] == "dir"
    facts = [Fact("tmp.path", path, source), Fact("tmp.exists", there, path)]
    if not there:
        return [*facts, Fact("tmp.noexec", None, path), Fact("tmp.free", None, path)]
    free = seen("tmp.free", path, lambda: (door.disk(path) or {}).get("free"))
    noexec = seen("tmp.noexec", hub.MOUNTS, lambda: "noexec" in mounts.holding(path)["options"])
    return [*facts, noexec, free]


class Mounts:
    """The mounted file systems, read once."""

    def __init__(self, door: Door):
        self.door = door
        self._text: str | None = None

    def holding(self, path: str) -> dict[str, Any]:
        """Return ``type`` and ``options`` of the file system of a path; AccessError if unknown."""
        if self._text is None:
            self._text = self.door.read(hub.MOUNTS, 1 << 20) or ""
        return mount(self._text, self.door.real(path))


def mount(text: str, real: str) -> dict[str, Any]:
    """Return type and options of the mountinfo line with the longest prefix of a path."""
    best, found = -1, None
    for line in text.splitlines():
        words, _, more = line.partition(" - ")[0].split(), *line.partition(" - ")[1:]
        if len(words) < 6 or not more.split():
            continue
        point = _plain(words[4]).rstrip("/")
        if len(point) >= best and (real == point or real.startswith(f"{point}/")):
            best, found = len(point), {"type": more.split()[0], "options": words[5].split(",")}
    if found is None:
        raise Blind(f"{hub.MOUNTS} does not have it" if text else f"there is no {hub.MOUNTS}")
    return found


def _plain(point: str) -> str:
    for escape, char in ESCAPES:
        point = point.replace(escape, char)
    return point


# -- the model disk -----------------------------------------------------------------------------------


def _models(door: Door, mounts: Mounts) -> list[Fact]:
    keys = ("disk.kind", "hub.writable")
    try:
        folder = hub.cache(door)
        path, status = hub.standing(door, folder, door.stat)
    except Blind as blind:
        return gaps(keys, str(blind), hub.PLACE)
    return [
        seen("disk.kind", hub.MOUNTS, lambda: mounts.holding(path)["type"]),
        seen("hub.writable", path, lambda: _writable(door.user().get("uid"), status, mounts.holding(path))),
    ]


def _writable(uid: int | None, status: dict[str, Any], held: dict[str, Any]) -> bool:
    """Whether a user may write to a folder; AccessError if that depends on a group or a server."""
    mode = status.get("mode")
    if status.get("kind") != "dir" or "ro" in held["options"]:
        return False
    if mode is None or uid is None:
        raise Blind("the owner or the user is not known")
    if uid == 0:
        if held["type"] in SQUASHED:
            raise Blind(f"root may be nobody on {held['type']}")
        return True
    if uid == status.get("uid"):
        return bool(mode & 0o200)
    if mode & 0o022 == 0o020:
        raise Blind("it is open to a group, and nobody says whether this user is in it")
    return bool(mode & 0o002)


# -- PATH and the clock -------------------------------------------------------------------------------


def _unsafe(door: Door) -> tuple[str, ...]:
    """Entries of PATH where anybody could put a program: relative ones, and world-writable folders."""
    path = door.env("PATH")
    entries = dict.fromkeys(path.split(":")) if path is not None else ()
    return tuple(entry for entry in entries if not entry.startswith("/") or _open(door, entry))


def _open(door: Door, folder: str) -> bool:
    status = glimpse(door.stat, folder) or {}
    return status.get("kind") == "dir" and status["mode"] & 0o1002 == 0o0002


def _year(door: Door) -> int:
    import time

    try:
        return time.gmtime(door.wall()).tm_year
    except (ValueError, OverflowError, OSError):
        raise Blind("the clock shows no date") from None
