"""How a survey of imports looks at files. Each path is noted with its status, so that the answer can be kept until one of them changes.

Modules of this package touch files through these functions alone (tests/imports/test_survey_cache.py holds it).
"""

import os
from stat import S_ISDIR

from gpuready.system import files

Status = tuple[int, ...] | None


MODULE_ENDINGS = ("py", "pyc", "so")
OTHER_ENDINGS = (".dist-info", ".egg-info", ".egg-link", ".egg", ".pth")


class Notes:
    """The status of each path when it was first looked at, None where there was none; and the names of modules in ``listed``.

    That folder is compared by these names: other programs may write files there all the time.
    """

    def __init__(self, listed: str):
        self.listed = listed
        self.statuses: dict[str, Status] = {}
        self.names: dict[str, list[str]] = {}


_notes: Notes | None = None


def start_notes(listed: str = "") -> Notes:
    global _notes
    _notes = Notes(listed)
    return _notes


def stop_notes() -> None:
    global _notes
    _notes = None


def read_status(path: str) -> os.stat_result:
    """The status of a path, as os.stat has it."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        if _notes is not None:
            _notes.statuses.setdefault(path, None)
        raise
    if _notes is not None and path not in _notes.statuses and path != _notes.listed:
        _notes.statuses[path] = summarize_status(status)
    return status


def summarize_status(status: os.stat_result) -> tuple[int, ...]:
    """Numbers of which one changes with a path, the third of them a time.

    ctime moves with contents, mode and name, and no program can set it. It also moves with each further link to a file, of which uv makes one
    for every environment: of files with several links mtime and mode are compared, which a program that rewrites them in place can put back.
    """
    if status.st_nlink == 1 or S_ISDIR(status.st_mode):
        return status.st_ino, status.st_size, status.st_ctime_ns
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def note_path(path: str) -> bool:
    """Note a path that somebody else reads; return whether it is there."""
    try:
        read_status(path)
    except (OSError, ValueError):
        return False
    return True


def path_exists(path: str) -> bool:
    return note_path(path)


def is_folder(path: str) -> bool:
    try:
        return S_ISDIR(read_status(path).st_mode)
    except (OSError, ValueError):
        return False


def get_write_time(path: str) -> float:
    """When a file was last written; 0 where it cannot be seen."""
    try:
        return read_status(path).st_mtime
    except (OSError, ValueError):
        return 0.0


def get_size(path: str) -> int:
    return read_status(path).st_size


def is_readable(path: str) -> bool:
    return note_path(path) and os.access(path, os.R_OK)


def list_names(folder: str) -> list[str]:
    """The names in a folder; OSError where it cannot be listed."""
    note_path(folder)
    if _notes is None or folder != _notes.listed:
        return os.listdir(folder)
    _notes.statuses[folder] = None  # an answer that rests on a folder which cannot be listed is never kept
    names = os.listdir(folder)
    del _notes.statuses[folder]
    _notes.names[folder] = select_importable(names)
    return names


def select_importable(names: list[str]) -> list[str]:
    """The names that matter to an import: ``torch``, ``torch.abi3.so``, ``torch-2.9.0.dist-info``, ``libX.so.1``; no log file.

    The current folder may be one of sys.path or LD_LIBRARY_PATH as well.
    """
    return sorted(name for name in names if _matters_to_imports(name))


def _matters_to_imports(name: str) -> bool:
    stem, _, end = name.partition(".")
    is_module = stem.isidentifier() and (not end or end.endswith(MODULE_ENDINGS))
    return is_module or name.endswith(OTHER_ENDINGS) or ".so." in name or name.endswith(".so")


def open_regular(path: str, flags: int) -> int:
    """An ``opener`` for open(); OSError for what is no regular file."""
    note_path(path)
    return files.open_regular(path, flags)


def resolve_path(path: str) -> str:
    """The path without symbolic links."""
    note_path(path)
    return os.path.realpath(path)
