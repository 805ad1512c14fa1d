"""What files hold: sizes, hashes, links, and the members of wheels. Only read, never changed."""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISLNK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def size(path: str) -> int | None:
    """The size of a file, links followed; None where there is none, -1 for a folder."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return -1 if S_ISDIR(found.st_mode) else found.st_size


def outside(path: str, root: str) -> bool:
    """Whether a path is a link that leads out of a folder."""
    try:
        if not S_ISLNK(os.lstat(path).st_mode):
            return False
    except OSError:
        return False
    return not os.path.realpath(path).startswith(os.path.realpath(root) + "/")


def digest(path: str, beat: Callable[[], None] = lambda: None) -> str:
    """``sha256:`` of a file; OSError where it cannot be read."""
    from hashlib import sha256

    found = sha256()
    with open(path, "rb", buffering=0) as file:
        while part := file.read(1 << 20):
            found.update(part)
            beat()
    return found.hexdigest()


def text(path: str, limit: int = 64 << 20) -> str | None:
    """The text of a file; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read(limit)
    except (OSError, ValueError):
        return None


def names(folder: str) -> list[str]:
    """The names in a folder, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def real(path: str) -> str:
    return os.path.realpath(path)


def unpacked(wheel: str) -> tuple[int, int] | None:
    """How many bytes and files a wheel unpacks to; None where it is no zip file."""
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(wheel) as file:
            members = file.infolist()
    except (OSError, BadZipFile, ValueError):
        return None
    return sum(member.file_size for member in members), len(members)


def room(path: str) -> dict[str, int]:
    """Free bytes and inodes of the disk below a path (-1: it does not count them), and which disk it is."""
    found = os.statvfs(path)
    inodes = found.f_favail if found.f_files else -1
    return {"free": found.f_bavail * found.f_frsize, "inodes": inodes, "disk": os.stat(path).st_dev}
