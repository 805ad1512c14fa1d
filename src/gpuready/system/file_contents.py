"""Contents of files: sizes, hashes, links, members of wheels. Read only."""

import os
from collections.abc import Iterable, Sequence
from stat import S_ISDIR

from gpuready.system.files import open_regular

MAX_HASH_THREADS = 8
"""Threads that hash at once: more read faster than disks do."""
SMALL_READ, LARGE_READ = 1 << 16, 1 << 20


def file_size(path: str) -> int | None:
    """Size of a file, links followed; None where there is none, -1 for a folder."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return -1 if S_ISDIR(found.st_mode) else found.st_size


def leads_outside(path: str, root: str) -> bool:
    """Whether a path is a link to something that is not below a folder."""
    if not os.path.islink(path) or not os.path.exists(path):
        return False
    return not os.path.realpath(path).startswith(os.path.realpath(root) + "/")


def has_changed_since(path: str, time: float) -> bool:
    """Whether a file was written, moved or linked after a time, as only the kernel can say; also where there is none."""
    try:
        return get_change_time(path) >= time
    except (OSError, ValueError):
        return True


def get_change_time(path: str) -> float:
    """When a file was last written, moved or linked; OSError where there is none."""
    return os.lstat(path).st_ctime


def hash_file_contents(path: str) -> str:
    """SHA-256 of a file in hex; OSError where it cannot be read."""
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        return hash_descriptor(file.fileno())


def hash_as_recorded(path: str, kind: str = "sha256") -> str:
    """The hash of a file as a RECORD has it, base64 without padding; OSError where it cannot be read.

    For ``install --verify`` and ``check --deep`` alike.
    """
    import hashlib
    from base64 import urlsafe_b64encode

    digest = hashlib.new(kind)
    fd = open_regular(path, os.O_RDONLY)
    try:
        part = os.read(fd, SMALL_READ)  # most files are smaller, and a large buffer costs more than their hash
        while part:
            digest.update(part)
            part = os.read(fd, LARGE_READ) if len(part) >= SMALL_READ else b""
    finally:
        os.close(fd)
    return urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def hash_large_files(paths: Sequence[str]) -> dict[str, str]:
    """Hashes of files as a RECORD has them, several at once: hashing lets other threads run. Unreadable ones are left out."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found: dict[str, str] = {}
    if usable < 2 or len(paths) < 2:
        return found
    pool = ThreadPoolExecutor(min(usable, MAX_HASH_THREADS))
    try:
        running = {pool.submit(hash_as_recorded, path): path for path in paths}
        for future in as_completed(running):
            if not isinstance(future.exception(), OSError):
                found[running[future]] = future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return found


def hash_descriptor(fd: int) -> str:
    """SHA-256 of an open file in hex."""
    from hashlib import sha256

    digest, at = sha256(), 0
    while part := os.pread(fd, 1 << 20, at):
        digest.update(part)
        at += len(part)
    return digest.hexdigest()


def read_text_file(path: str, limit: int = 64 << 20) -> str | None:
    """Text of a file; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="", opener=open_regular) as file:
            return file.read(limit)
    except (OSError, ValueError):
        return None


def read_unlinked_text(path: str) -> str | None:
    """Text of a file that is no link; None where nothing is there, empty where it is a link or cannot be read."""
    if not os.path.lexists(path):
        return None
    return "" if os.path.islink(path) else read_text_file(path) or ""


def read_file_start(path: str, size: int) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            return file.read(size) or b""
    except (OSError, ValueError):
        return b""


def list_names_or_empty(folder: str) -> list[str]:
    """Names in a folder, sorted; empty where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def resolve_real_path(path: str) -> str:
    return os.path.realpath(path)


def resolve_folders(root: str, folders: Iterable[str]) -> dict[str, str]:
    """Real paths of many folders below a root, by their path: each part of a path is looked at once."""
    real = {"": os.path.realpath(root)}

    def resolve(folder: str) -> str:
        if folder not in real:
            above, _, name = folder.rpartition("/")
            at = f"{resolve(above)}/{name}"
            real[folder] = os.path.realpath(at) if os.path.islink(at) or name in ("", ".", "..") else at
        return real[folder]

    return {folder: resolve(folder) for folder in folders}


def free_disk_space(path: str) -> dict[str, int]:
    """Free bytes and inodes of the disk below a path (-1: not counted), and the disk's device number."""
    found = os.statvfs(path)
    inodes = found.f_favail if found.f_files else -1
    return {"free": found.f_bavail * found.f_frsize, "inodes": inodes, "disk": os.stat(path).st_dev}
