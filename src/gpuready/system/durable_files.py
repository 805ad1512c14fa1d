"""Changes to a folder that survive a crash: each complete or not at all, in the order made. Kernel locks on files.

Every call that changes an environment is in this file, so that a test can stop the machine at each.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from stat import S_ISDIR, S_ISLNK, S_ISREG

_APPEND_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: str, mode: int = 0o755) -> bool:
    """Make a folder and its parents; False where it exists."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return False
    except FileNotFoundError:
        make_folder(os.path.dirname(path), mode)
        return make_folder(path, mode)
    sync_folder(os.path.dirname(path))
    return True


def replace_file(path: str, text: str, mode: int = 0o644) -> None:
    """Replace a file atomically: readers see the old text or the new one, also after a power failure."""
    draft = f"{path}.{os.urandom(6).hex()}.draft"
    write_then_rename(draft, path, text.encode("utf-8", "surrogateescape"), mode)
    sync_folder(os.path.dirname(path))


def write_then_rename(draft: str, path: str, data: bytes, mode: int = 0o644, folder_fd: int | None = None,
                      exact_mode: int | None = None) -> None:  # fmt: skip
    """Write a draft, sync it and rename it to its path; names are relative to an open folder where there is one.

    The draft must not exist, not even as a link. It is removed where the rest fails.
    """
    try:
        create_synced_file(draft, data, mode, folder_fd, exact_mode)
    except FileExistsError:
        raise
    except BaseException:
        unlink_quietly(draft, folder_fd)
        raise
    _rename_or_unlink(draft, path, folder_fd)


def create_synced_file(
    path: str, data: bytes, mode: int = 0o644, folder_fd: int | None = None, exact_mode: int | None = None
) -> None:
    """Create a file that must not exist, write it and sync it to disk; `exact_mode` ignores the umask."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode, dir_fd=folder_fd)) as file:
        if exact_mode is not None:
            os.fchmod(file.fileno(), exact_mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _rename_or_unlink(draft: str, path: str, folder_fd: int | None = None) -> None:
    try:
        os.rename(draft, path, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        unlink_quietly(draft, folder_fd)
        raise


def unlink_quietly(path: str, folder_fd: int | None = None) -> None:
    """Remove a file if that is possible."""
    try:
        os.unlink(path, dir_fd=folder_fd)
    except OSError:
        return


def append_line(path: str, line: str) -> None:
    """Append one line and sync it to disk. An incomplete last line is ended first."""
    with open(os.open(path, _APPEND_FLAGS, 0o600), "r+b", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        rest = (b"\n" if torn else b"") + line.encode("utf-8", "surrogateescape") + b"\n"
        while rest:
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def copy_program(source: str, path: str) -> None:
    """Replace a file or a link by a copy of a program, in one step."""
    with open(source, "rb") as file:
        write_then_rename(f"{path}.{os.urandom(6).hex()}.draft", path, file.read(), exact_mode=0o755)
    sync_folder(os.path.dirname(path))


def replace_link(path: str, target: str) -> None:
    """Create or replace a symbolic link by one rename: readers see the old or the new one."""
    draft = f"{path}.{os.urandom(6).hex()}.draft"
    os.symlink(target, draft)
    _rename_or_unlink(draft, path)
    sync_folder(os.path.dirname(path))


def rename_path(path: str, to: str) -> bool:
    """Rename; False where there is nothing to rename."""
    try:
        os.rename(path, to)
    except FileNotFoundError:
        return False
    return True


def exchange_paths(first: str, second: str) -> bool:
    """Exchange two paths in one step (renameat2); False where this file system or kernel cannot."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if libc.renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange) != 0:
        number = ctypes.get_errno()
        if number in (16, 18, 22, 38, 95):  # EBUSY (a mount), EXDEV (a container's layer), EINVAL, ENOSYS, ENOTSUP
            return False
        raise OSError(number, os.strerror(number), first)
    sync_folder(os.path.dirname(first))
    sync_folder(os.path.dirname(second))
    return True


def remove_file(path: str) -> bool:
    """Remove a file or a link; False where there is none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_folder(os.path.dirname(path))
    return True


def remove_tree(path: str, should_continue: Callable[[], bool] = lambda: True) -> bool:
    """Remove a folder and its contents as far as possible; False where something is left."""
    try:
        found = os.lstat(path)
    except OSError:
        return not os.path.lexists(path)
    if not S_ISDIR(found.st_mode) or S_ISLNK(found.st_mode):
        unlink_quietly(path)
        return not os.path.lexists(path)
    if found.st_mode & 0o700 != 0o700:
        _try_call(os.chmod, path, 0o700)
    for below, is_folder in _list_entries(path):
        if not should_continue():
            return False
        if is_folder:
            remove_tree(below, should_continue)
        else:
            unlink_quietly(below)
    return _try_call(os.rmdir, path)


def _list_entries(path: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(path) as found:
            return [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
    except OSError:
        return []


def _try_call(do: Callable[..., object], *args: object) -> bool:
    try:
        do(*args)
    except OSError:
        return False
    return True


def sync_folder(path: str) -> None:
    """Sync a folder's entries to disk. Network disks that do not support this are ignored."""
    try:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (22, 95):  # EINVAL, ENOTSUP
            raise
    finally:
        os.close(fd)


def sync_disk(path: str) -> None:
    """Sync the file system of a path to disk; OSError where that fails."""
    import ctypes

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):
            os.sync()
        elif libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)


def walk_files(path: str) -> Iterator[str]:
    """Every file and link below a folder; links to folders are not followed."""
    stack = [path]
    while stack:
        for below, is_folder in _list_entries(stack.pop()):
            if is_folder:
                stack.append(below)
            else:
                yield below


def own_edited_files(path: str) -> None:
    """Give each file that shares its contents its own, but for those that only programs make, which replace them: libraries and byte-code."""
    import shutil

    for file in walk_files(path):
        seen = os.lstat(file)
        if S_ISREG(seen.st_mode) and seen.st_nlink > 1 and ".so" not in os.path.basename(file) and file[-4:] != ".pyc":
            draft = f"{file}.draft"
            shutil.copy2(file, draft)
            os.chown(draft, seen.st_uid, seen.st_gid)
            os.rename(draft, file)


def measure_tree(path: str) -> tuple[int, int]:
    """Bytes of all files, and of those that no other name on the disk shares."""
    found = [os.lstat(file) for file in walk_files(path)]
    return sum(one.st_size for one in found), sum(one.st_size for one in found if one.st_nlink == 1)


def fingerprint_environment(path: str) -> str:
    """A hash of the names, kinds, sizes and times of all files but byte-code; of an environment of ours, where ``current`` leads."""
    import hashlib

    found = hashlib.sha256()
    for file in [f"{path}/current"] if os.path.islink(f"{path}/current") else sorted(walk_files(path)):
        if "/__pycache__/" not in file:
            seen = os.lstat(file)
            target = os.readlink(file) if S_ISLNK(seen.st_mode) else seen.st_mtime_ns
            found.update(
                f"{file[len(path) :]} {seen.st_mode} {seen.st_size} {target}\n".encode("utf-8", "surrogateescape")
            )
    return found.hexdigest()


_UNSUPPORTED = (38, 95, 37, 22)
"""ENOSYS, ENOTSUP, ENOLCK, EINVAL: a disk (Lustre without flock, some network disks) without locks."""


class LocksUnsupported(Exception):
    """The disk does not support locks."""


def take_lock(path: str) -> int | None:
    """Descriptor of the lock, or None where another process has it. LocksUnsupported where there are none."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno in _UNSUPPORTED:
            raise LocksUnsupported(os.strerror(error.errno)) from None
        if error.errno in (11, 13):  # EAGAIN, EACCES: locked by another
            return None
        raise
    return fd


def create_lock(path: str) -> int | None:
    """Descriptor of a file that stands for a lock on a disk without them; None where it is there already."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return None


def name_holder(fd: int, text: str) -> None:
    """Write who has a lock into its file."""
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def release_lock(fd: int) -> None:
    os.close(fd)


def is_locked(path: str) -> bool | None:
    """Whether a process has a lock on a file; None where that is unknown."""
    try:
        fd = take_lock(path)
    except (LocksUnsupported, OSError):
        return None
    if fd is None:
        return True
    release_lock(fd)
    return False
