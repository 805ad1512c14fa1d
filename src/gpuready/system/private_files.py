"""Write files atomically, and make folders only the user can access."""

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISLNK, S_ISREG

from gpuready.system.durable_files import write_then_rename
from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError


def save_atomically(path: str, text: str, private: bool = True) -> None:
    """Write a file so that a reader sees the old text or the new one; AccessError: nothing was changed.

    It is for its owner alone (0600), also where it replaces one that was open to others, unless nothing of a machine is in it.
    """
    save_bytes_atomically(path, text.encode("utf-8", "backslashreplace"), private)


def save_bytes_atomically(path: str, data: bytes, private: bool = True) -> None:
    """Write a file of bytes, as save_atomically writes one of text."""
    folder, name = os.path.split(path)
    try:
        # The folder stays open: replacing one of its parents meanwhile cannot redirect the write.
        folder_fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise AccessError(_failure_reason(error)) from None
    try:
        replaced_mode = _replaceable_mode(name, folder_fd)
        mode = 0o600 if private else replaced_mode
        draft = f".{name[:100]}.{os.urandom(8).hex()}"  # nobody can foresee it
        write_then_rename(draft, name, data, 0o600 if private else 0o644, folder_fd, exact_mode=mode)
        os.fsync(folder_fd)
    except (OSError, ValueError) as error:
        raise AccessError(_failure_reason(error)) from None
    finally:
        os.close(folder_fd)


def require_writable(path: str) -> None:
    """AccessError, with the reason, where save_atomically could not write a file here. Writes nothing."""
    folder, name = os.path.split(path)
    try:
        folder_fd = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _replaceable_mode(name, folder_fd)
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=folder_fd):
                raise AccessError("permission denied")
        finally:
            os.close(folder_fd)
    except (OSError, ValueError) as error:
        raise AccessError(_failure_reason(error)) from None


def _failure_reason(error: Exception) -> str:
    return error_reason(error) if isinstance(error, OSError) else "not a path"


def _replaceable_mode(name: str, folder_fd: int) -> int | None:
    """The mode of the existing file, None where there is none; AccessError where it must not be replaced."""
    if not name or name in (".", ".."):
        raise AccessError("is a directory")
    try:
        mode = os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if S_ISLNK(mode):
        raise AccessError("is a symbolic link")
    if not S_ISREG(mode):
        raise AccessError("is a directory" if S_ISDIR(mode) else "not a regular file")
    return S_IMODE(mode)


def make_private_folder(path: str) -> str:
    """Make, or accept, a folder of our own (0700); AccessError says what is wrong and how to fix it."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if not os.path.lexists(path):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        raise AccessError(_failure_reason(error)) from None
    if S_ISLNK(found.st_mode):
        raise AccessError("is a symbolic link")
    if not S_ISDIR(found.st_mode):
        raise AccessError("not a directory")
    if found.st_uid != os.geteuid():
        raise AccessError(f"belongs to uid {found.st_uid}")
    if found.st_mode & 0o077:
        raise AccessError(f"open to others; chmod 700 {path}")
    return path


def require_own_folder(path: str) -> None:
    """AccessError where a path is no folder of this user's, or others may write to it. Nothing is made."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise AccessError(_failure_reason(error)) from None
    if not S_ISDIR(found.st_mode):
        raise AccessError("is a symbolic link" if S_ISLNK(found.st_mode) else "is not a folder")
    if found.st_uid != os.geteuid():
        raise AccessError(f"belongs to uid {found.st_uid}")
    if found.st_mode & 0o022:
        raise AccessError("can be written by other users")


def open_to_append(path: str) -> int:
    """Open a regular file to append to it, or make it (0600); OSError where it is a link, a pipe or a device."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    if S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a regular file", path)


def set_file_aside(path: str) -> None:
    """Rename a file that is there to PATH.1, or the next number that is free."""
    if not os.path.lexists(path):
        return
    number = 1
    while os.path.lexists(f"{path}.{number}"):
        number += 1
    os.rename(path, f"{path}.{number}")


def refuse_links_below_here(path: str) -> None:
    """OSError where a folder below the current one is a link: one of a checkout belongs to this user, and may lead anywhere."""
    here, inside = os.getcwd(), os.path.abspath(path)
    while inside != here and inside.startswith(f"{here.rstrip('/')}/"):
        if os.path.islink(inside):
            raise OSError(errno.ELOOP, f"{inside} is a link; name the folder that it leads to", inside)
        inside = os.path.dirname(inside)


def find_foreign_owner(path: str) -> int | None:
    """Return the uid of a file's owner where that is another user; None if it is ours, missing, or we are root."""
    try:
        owner = os.stat(path).st_uid
    except OSError:
        return None
    return None if os.geteuid() in (0, owner) else owner


def may_be_of_another_user(path: str) -> bool:
    """Whether a file that is here, or its folder, belongs to somebody who is neither root nor this user."""
    for place in (path, os.path.dirname(path)):
        try:
            if os.stat(place).st_uid not in (0, os.geteuid()):
                return True
        except OSError:
            continue
    return False
