"""Which files may be read for an untrusted caller: only below named folders. Links cannot lead out; no devices, no /proc."""

from __future__ import annotations

import os
from stat import S_ISDIR, S_ISREG

from gpuready.system.door import Blind
from gpuready.system.files import why
from gpuready.system.live import Live

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

NEVER, MEMORY = ("/proc", "/sys", "/dev"), "/dev/shm"
"""Kernel file systems are never readable, whichever folder is named; /dev/shm may be."""
OUTSIDE = "leads outside the folders that may be read"
FILE = 64 << 20
LOG = 512 << 20


class Fence:
    """The folders that may be read. AccessError says, in words that follow a path, why one may not."""

    def __init__(self, roots: Sequence[str]):
        self.roots = tuple(dict.fromkeys(os.path.realpath(root) for root in roots))
        for root in self.roots:
            if not os.path.isdir(root):
                raise Blind(f"{root} is not a folder")

    def file(self, path: str, largest: int = FILE) -> str:
        """The path, where it is a regular file that may be read."""
        return self._seen(path, largest, folders=False)

    def log(self, path: str) -> str:
        """The path, where it is a file or folder that may be read; its contents are never followed out of it."""
        return self._seen(path, LOG, folders=True)

    def folder(self, path: str) -> str:
        """The path, where it is, or could become, a folder inside."""
        real = self._inside(path)
        if os.path.lexists(real) and not os.path.isdir(real):
            raise Blind("is not a folder")
        return path

    def allows(self, path: str) -> bool:
        """Whether the path leads inside, existing or not."""
        try:
            self._inside(path)
        except Blind:
            return False
        return True

    def _seen(self, path: str, largest: int, folders: bool) -> str:
        real = self._inside(path)
        try:
            status = os.stat(real)
        except OSError as error:
            raise Blind(f"cannot be read: {why(error)}") from None
        if folders and S_ISDIR(status.st_mode):
            return path
        if not S_ISREG(status.st_mode):
            raise Blind("is not a regular file")
        if status.st_size > largest:
            raise Blind(f"has {status.st_size:,} bytes, and {largest:,} are read at most")
        return path

    def _inside(self, path: str) -> str:
        """The resolved path. A path outside is refused before revealing whether it exists."""
        if not path or "\0" in path or len(path) > 4096:
            raise Blind("is not a path")
        try:
            real = os.path.realpath(path)
        except OSError:  # a kernel link that may not be followed
            raise Blind(OUTSIDE) from None
        inside = any(_under(real, root) for root in self.roots)
        if not inside or (any(_under(real, kernel) for kernel in NEVER) and not _under(real, MEMORY)):
            raise Blind(OUTSIDE)
        return real


def _under(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


class Fenced(Live):
    """Host access for named files: what is outside the allowlist does not exist."""

    def __init__(self, within: Fence):
        super().__init__()
        self.within = within

    def ask(self, verb: str, *args: Any) -> Any:
        if verb in ("read", "stat", "list", "lines") and not self.within.allows(args[0]):
            return None
        return super().ask(verb, *args)
