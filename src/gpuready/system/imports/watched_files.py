"""How a survey of imports looks at files. Each path is noted with its status, so that the answer can be kept until one of them changes.

Modules of this package touch files through these functions alone (tests/imports/test_survey_cache.py holds it).
"""

from __future__ import annotations

import os
from stat import S_ISDIR

from gpuready.system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Status = tuple[int, int, int] | list[str] | None

_notes: dict[str, Status] | None = None
_compared_by_names = ""


def start_notes(folder: str = "") -> dict[str, Status]:
    """Start to note paths. ``folder`` is compared by the names in it: other programs may write there all the time."""
    global _notes, _compared_by_names
    _notes, _compared_by_names = {}, folder
    return _notes


def stop_notes() -> None:
    global _notes
    _notes = None


def summarize_status(status: os.stat_result) -> tuple[int, int, int]:
    """What changes with a file: ctime moves with contents, mode and name, and no program can set it."""
    return status.st_ino, status.st_size, status.st_ctime_ns


def read_status(path: str) -> os.stat_result:
    """The status of a path, as os.stat has it."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        if _notes is not None:
            _notes.setdefault(path, None)
        raise
    if _notes is not None and path not in _notes and path != _compared_by_names:
        _notes[path] = summarize_status(status)
    return status


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


def get_size(path: str) -> int:
    return read_status(path).st_size


def is_readable(path: str) -> bool:
    return note_path(path) and os.access(path, os.R_OK)


def list_names(folder: str) -> list[str]:
    """The names in a folder; OSError where it cannot be listed."""
    note_path(folder)
    names = os.listdir(folder)
    if _notes is not None and folder == _compared_by_names:
        _notes[folder] = sorted(names)
    return names


def walk_folder(path: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below a path with the names of its folders and files, as os.walk does."""
    for folder, folders, names in os.walk(path):
        note_path(folder)
        yield folder, folders, names


def open_regular(path: str, flags: int) -> int:
    """An ``opener`` for open(); OSError for what is no regular file."""
    note_path(path)
    return files.open_regular(path, flags)


def resolve_path(path: str) -> str:
    """The path without symbolic links."""
    note_path(path)
    return os.path.realpath(path)
