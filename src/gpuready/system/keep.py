"""Write files atomically, and make folders only the user can access."""

from __future__ import annotations

import os
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from gpuready.system.door import Blind
from gpuready.system.files import why

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def save(path: str, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one; AccessError: nothing was changed."""
    folder, name = os.path.split(path)
    try:
        # The folder stays open: replacing one of its parents meanwhile cannot redirect the write.
        into = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise Blind(_reason(error)) from None
    try:
        mode = _replaceable(name, into)
        _write_then_rename(name, into, text.encode("utf-8", "backslashreplace"), mode)
    except (OSError, ValueError) as error:
        raise Blind(_reason(error)) from None
    finally:
        os.close(into)


def _reason(error: Exception) -> str:
    return why(error) if isinstance(error, OSError) else "not a path"


def _replaceable(name: str, into: int) -> int | None:
    """The mode of the existing file, None where there is none; AccessError where it must not be replaced."""
    if not name or name in (".", ".."):
        raise Blind("is a directory")
    try:
        mode = os.stat(name, dir_fd=into, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if S_ISLNK(mode):
        raise Blind("is a symbolic link")
    if not S_ISREG(mode):
        raise Blind("is a directory" if S_ISDIR(mode) else "not a regular file")
    return S_IMODE(mode)


def _write_then_rename(name: str, into: int, data: bytes, mode: int | None) -> None:
    # The name is unpredictable, and O_EXCL refuses one that exists anyway.
    draft = f".{name[:100]}.{os.urandom(8).hex()}"
    fd = os.open(draft, _NEW, 0o644, dir_fd=into)
    try:
        try:
            if mode is not None:
                os.fchmod(fd, mode)
            _write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(draft, name, src_dir_fd=into, dst_dir_fd=into)
    except BaseException:
        os.unlink(draft, dir_fd=into)
        raise
    os.fsync(into)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def private(path: str) -> str:
    """Make, or accept, a folder of our own (0700); AccessError says what is wrong and how to fix it."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if not os.path.lexists(path):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise Blind(_reason(error)) from None
    if S_ISLNK(found.st_mode):
        raise Blind("is a symbolic link")
    if not S_ISDIR(found.st_mode):
        raise Blind("not a directory")
    if found.st_uid != os.geteuid():
        raise Blind(f"belongs to uid {found.st_uid}")
    if found.st_mode & 0o077:
        raise Blind(f"open to others; chmod 700 {path}")
    return path
