"""Load native libraries into this process, after checking exactly the file that is loaded.

Whoever can write to a library, or to its folder, can run code as the user who loads it. So a library is opened once,
checked through the descriptor, and loaded from it: replacing the file or a parent folder changes nothing.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from stat import S_IMODE, S_ISREG
from typing import Any

from gpuready.system.file_contents import hash_descriptor
from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError

OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class NativeLibrary:
    """One loaded library; its functions are called with the GIL released."""

    def __init__(self, handle: Any, path: str, fd: int):
        self._handle, self.path = handle, path
        # Never closed: the loader identifies the library by this descriptor's number.
        self._fd = fd

    def bind_function(self, name: str, takes: str, gives: str = "i") -> Callable[..., Any]:
        """One function. Letters: i int, q 64-bit integer, d double, f float, p an address, s text."""
        types = {
            "i": ctypes.c_int,
            "q": ctypes.c_int64,
            "d": ctypes.c_double,
            "f": ctypes.c_float,
            "p": ctypes.c_void_p,
            "s": ctypes.c_char_p,
        }
        try:
            found = self._handle[name]
        except AttributeError:
            raise AccessError(f"{self.path} has no function {name}") from None
        found.argtypes = [types[letter] for letter in takes]
        found.restype = types[gives] if gives else None
        return found  # type: ignore[no-any-return]


def load_checked_library(path: str, digest: str, owners: Sequence[int]) -> NativeLibrary:
    """Load a library that has this SHA-256, belongs to one of the owners, and is not writable by others.

    AccessError says what is wrong; then nothing has been executed.
    """
    fd = _open_checked(path, digest, owners)
    try:
        import ctypes

        handle = ctypes.CDLL(_loadable_path(path, fd), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        os.close(fd)
        raise AccessError(_explain_load_error(str(error), path)) from None
    return NativeLibrary(handle, path, fd)


def _open_checked(path: str, digest: str, owners: Sequence[int]) -> int:
    try:
        fd = os.open(path, OPEN_FLAGS)
    except OSError as error:
        raise AccessError("is a symbolic link" if error.errno == 40 else error_reason(error)) from None
    try:
        wrong = _rejection_reason(fd, digest, owners)
    except OSError as error:
        os.close(fd)
        raise AccessError(error_reason(error)) from None
    if wrong:
        os.close(fd)
        raise AccessError(wrong)
    return fd


def _rejection_reason(fd: int, digest: str, owners: Sequence[int]) -> str:
    found = os.fstat(fd)
    if not S_ISREG(found.st_mode):
        return "not a regular file"
    if found.st_uid not in owners:
        return f"belongs to uid {found.st_uid}"
    if S_IMODE(found.st_mode) & 0o022:
        return "others can write to it"
    return "" if hash_descriptor(fd) == digest else "its content is not what was built"


def _loadable_path(path: str, fd: int) -> str:
    """Path to the opened file itself; without /proc, its ordinary path."""
    opened = f"/proc/self/fd/{fd}"
    return opened if os.path.exists(opened) else path


def _explain_load_error(error: str, path: str) -> str:
    message = error.rpartition("/proc/self/fd/")[2].partition(": ")[2] or error
    if "failed to map segment" in message or "Operation not permitted" in message:
        return f"{message}: the disk below {os.path.dirname(path)} may be mounted noexec"
    return message


def untrusted_reason(folder: str, owners: Sequence[int]) -> str:
    """Why a folder must not be loaded from: others can change it or a parent. Empty where it is safe."""
    real = os.path.realpath(folder)
    while True:
        try:
            found = os.stat(real, follow_symlinks=False)
        except OSError as error:
            return f"{real}: {error_reason(error)}"
        if found.st_uid not in owners:
            return f"{real} belongs to uid {found.st_uid}"
        if found.st_mode & 0o022 and not found.st_mode & 0o1000:
            return f"others can write to {real}"
        if real == "/":
            return ""
        real = os.path.dirname(real)


def seal_file(path: str) -> str:
    """Make a new file writable only by its owner, and return its SHA-256."""
    fd = os.open(path, OPEN_FLAGS)
    try:
        os.fchmod(fd, 0o700)
        os.fsync(fd)
        return hash_descriptor(fd)
    finally:
        os.close(fd)


def effective_uid() -> int:
    return os.geteuid()
