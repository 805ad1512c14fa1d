"""gpuready's own folders and files: the user's cache, temporary folders, removal of old files."""

import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence

from gpuready.system.files import error_reason
from gpuready.system.host_access import AccessError
from gpuready.system.private_files import make_private_folder, require_own_folder
from gpuready.system.process.isolation import call_within

DISK_SECONDS = 5.0
"""How long the disk of the user's cache may take to answer."""
TEMPORARY_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")


def make_cache_folder(variables: Mapping[str, str], *subfolders: str) -> str:
    """Make a folder in the user's cache. AccessError where there is no place for one, or its disk does not answer."""
    return call_within(lambda: _make_writable_folder(variables, subfolders), DISK_SECONDS, "the disk of the cache")


def _make_writable_folder(variables: Mapping[str, str], subfolders: Sequence[str]) -> str:
    path = _make_own_folders(variables, "XDG_CACHE_HOME", ".cache", subfolders)
    trial = f"{path}/.{os.urandom(8).hex()}"
    try:  # a frozen disk can be read, and stops at the first write
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        os.unlink(trial)
    except OSError as error:
        raise AccessError(f"{path}: {error_reason(error)}") from None
    return path


def make_state_folder(variables: Mapping[str, str], *subfolders: str) -> str:
    """Make a folder for what must outlast a cache, in the user's state folder. AccessError where there is no place for one."""
    return _make_own_folders(variables, "XDG_STATE_HOME", ".local/state", subfolders)


def find_state_folder(variables: Mapping[str, str], name: str) -> str:
    """The path of a folder in the user's state folder; AccessError where it is not there or others may write to it. Nothing is made."""
    path = f"{_own_home(variables, 'XDG_STATE_HOME', '.local/state')}/gpuready"
    require_own_folder(path)
    require_own_folder(f"{path}/{name}")
    return f"{path}/{name}"


def _make_own_folders(variables: Mapping[str, str], variable: str, below_home: str, subfolders: Sequence[str]) -> str:
    path = make_private_folder(f"{_own_home(variables, variable, below_home)}/gpuready")
    for name in subfolders:
        path = make_private_folder(f"{path}/{name}")
    return path


def _own_home(variables: Mapping[str, str], variable: str, below_home: str) -> str:
    home = variables.get(variable, "")
    if not home.startswith("/"):
        home = variables.get("HOME", "")
        if not home.startswith("/"):
            raise AccessError(f"neither {variable} nor HOME names a folder")
        if not os.path.isdir(home):  # do not create a missing home
            raise AccessError(f"HOME is {home}, which is not there")
        home += f"/{below_home}"
    return home


class TemporaryFolder:
    """A private temporary folder, removed afterwards: in ``parent``, else in TMPDIR, /tmp or the like."""

    def __init__(self, variables: Mapping[str, str], parent: str = ""):
        named = [path for path in (variables.get("TMPDIR", ""), *TEMPORARY_PARENTS) if path.startswith("/")]
        self._parents = [parent] if parent else named
        self.path = ""

    def __enter__(self) -> str:
        import tempfile

        faults = []
        for parent in self._parents:
            try:
                self.path = tempfile.mkdtemp(prefix="gpuready-", dir=parent)
                return self.path
            except OSError as error:
                faults.append(f"no folder can be made in {parent}: {error_reason(error)}")
        raise AccessError("; ".join(faults))

    def __exit__(self, *_: object) -> None:
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)


def find_disk_fault(parents: Iterable[str] = ("/tmp", "/var/tmp")) -> str:
    """Why nothing can be written in a folder that every job writes in: full, read-only or failing; empty if it can be."""
    import tempfile

    for parent in parents:
        try:
            with tempfile.TemporaryFile(dir=parent) as file:
                file.write(bytes(4096))
                file.flush()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EROFS, errno.EIO):
                return f"nothing can be written in {parent}: {error_reason(error)}"
    return ""


def list_log_folders(variables: Mapping[str, str]) -> list[str]:
    """Where logs may go: the user's state folder, if there is a home, and a temporary one: others can foresee its name, so it must be ours."""
    home, state = variables.get("HOME", ""), variables.get("XDG_STATE_HOME", "")
    if not state and os.path.isdir(home):
        state = os.path.join(home, ".local", "state")
    temporary = os.path.join(variables.get("TMPDIR") or "/tmp", f"gpuready-{variables.get('USER') or os.getuid()}")
    return [*([os.path.join(state, "gpuready", "runs")] if state else []), temporary]


def write_scratch_file(path: str, data: bytes) -> str:
    """Write a file in a temporary folder of ours; return its path."""
    with open(path, "wb") as file:
        file.write(data)
    return path


def seconds_since_change(path: str) -> float:
    """Seconds since a file or folder was last changed; 0 where it is gone."""
    try:
        return max(0.0, time.time() - os.lstat(path).st_mtime)
    except OSError:
        return 0.0


def files_beyond_newest(folder: str, keep: int) -> list[str]:
    """The files of a folder except the newest ``keep``."""
    try:
        found = [(entry.stat().st_mtime, entry.path) for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)[keep:]]


def prune_old_folders(folder: str, keep: int, idle_seconds: float) -> None:
    """Remove all but the last ``keep`` subfolders by name, if nothing in them changed for ``idle_seconds``."""
    import shutil

    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names[: max(0, len(names) - keep)]:
        path = f"{folder}/{name}"
        try:
            inside = [entry.path for entry in os.scandir(path)]
        except OSError:
            continue
        if all(seconds_since_change(one) > idle_seconds for one in (path, *inside)):
            shutil.rmtree(path, ignore_errors=True)
