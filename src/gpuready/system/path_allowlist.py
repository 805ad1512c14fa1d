"""Which files may be read for an untrusted caller: only below named folders. Links cannot lead out; no devices, no /proc."""

import fcntl
import os
from collections.abc import Sequence
from stat import S_ISDIR, S_ISREG
from typing import Any

from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError
from gpuready.system.live_host import LiveHost

KERNEL_FOLDERS, SHARED_MEMORY = ("/proc", "/sys", "/dev"), "/dev/shm"
"""Kernel file systems are never readable, whichever folder is named; /dev/shm may be."""
OUTSIDE_REASON = "leads outside the folders that may be read"
MAX_FILE_BYTES = 64 << 20
MAX_LOG_BYTES = 512 << 20


class PathAllowlist:
    """The folders that may be read. AccessError says, in words that follow a path, why one may not."""

    def __init__(self, roots: Sequence[str]):
        self.roots = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        for root in self.roots:
            if not os.path.isdir(root):
                raise AccessError(f"{root} is not a folder")

    def check_file(self, path: str, largest: int = MAX_FILE_BYTES) -> str:
        """The path, where it is a regular file that may be read."""
        return self._check_readable(path, largest, folders=False)

    def check_log(self, path: str) -> str:
        """The path, where it is a file or folder that may be read; its contents are never followed out of it."""
        return self._check_readable(path, MAX_LOG_BYTES, folders=True)

    def check_folder(self, path: str) -> str:
        """The path, where it is, or could become, a folder inside."""
        real = self._resolve_inside(path)
        if os.path.lexists(real) and not os.path.isdir(real):
            raise AccessError("is not a folder")
        return path

    def allows_path(self, path: str) -> bool:
        """Whether the path leads inside, existing or not."""
        try:
            self._resolve_inside(path)
        except AccessError:
            return False
        return True

    def _check_readable(self, path: str, largest: int, folders: bool) -> str:
        real = self._resolve_inside(path)
        try:
            status = os.stat(real)
        except OSError as error:
            raise AccessError(f"cannot be read: {error_reason(error)}") from None
        if folders and S_ISDIR(status.st_mode):
            return path
        if not S_ISREG(status.st_mode):
            raise AccessError("is not a regular file")
        if status.st_size > largest:
            raise AccessError(f"has {status.st_size:,} bytes, and {largest:,} are read at most")
        return path

    def _resolve_inside(self, path: str) -> str:
        """The resolved path. A path outside is refused before revealing whether it exists."""
        if not path or "\0" in path or len(path) > 4096:
            raise AccessError("is not a path")
        try:
            real = os.path.realpath(path)
        except OSError:  # a kernel link that may not be followed
            raise AccessError(OUTSIDE_REASON) from None
        return self._require_inside(real)

    def _require_inside(self, real: str) -> str:
        inside = any(_is_under(real, root) for root in self.roots)
        if not inside or (
            any(_is_under(real, kernel) for kernel in KERNEL_FOLDERS) and not _is_under(real, SHARED_MEMORY)
        ):
            raise AccessError(OUTSIDE_REASON)
        return real

    def check_opened(self, fd: int) -> None:
        """AccessError where what was opened is outside: a link may have changed since its path was checked."""
        self._require_inside(_opened_path(fd))


def _opened_path(fd: int) -> str:
    """Where an open file is, as the kernel knows it."""
    try:
        if hasattr(fcntl, "F_GETPATH"):  # macOS
            return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        raise AccessError(OUTSIDE_REASON) from None


def _is_under(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


class RestrictedHost(LiveHost):
    """Host access for named files: what is outside the allowlist does not exist."""

    def __init__(self, allowlist: PathAllowlist):
        super().__init__()
        self.allowlist = allowlist

    def answer_query(self, verb: str, *args: Any) -> Any:
        if verb in ("read", "stat", "list", "lines") and not self.allowlist.allows_path(args[0]):
            return None
        if verb in ("read", "list", "lines") and hasattr(os, "O_PATH"):
            return self._answer_opened(verb, *args)
        return super().answer_query(verb, *args)

    def _answer_opened(self, verb: str, path: str, *more: Any) -> Any:
        """Answer of the very file that was checked, whatever its path leads to meanwhile."""
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return super().answer_query(verb, path, *more)  # its own words for what cannot be opened
        try:
            self.allowlist.check_opened(fd)
            return super().answer_query(verb, f"/proc/self/fd/{fd}", *more)
        except AccessError as error:
            if str(error) == OUTSIDE_REASON:
                return None
            raise
        finally:
            os.close(fd)
