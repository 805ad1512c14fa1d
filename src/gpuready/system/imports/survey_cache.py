"""Answers of surveys, kept in the user's cache until any path that they rest on changes.

An entry has the request, the answer, and the status of every path that was looked at, absent ones and gpuready's own modules
included. Whatever is wrong with an entry, the survey is made again: an entry can only save time.
"""

import marshal
import os
import sys
import time
from binascii import crc32
from collections.abc import Mapping, Sequence
from stat import S_ISREG
from typing import Any

from gpuready.system.durable_files import unlink_quietly
from gpuready.system.host_access import AccessError
from gpuready.system.imports import watched_files
from gpuready.system.imports.watched_files import Status
from gpuready.system.own_folders import files_beyond_newest, make_cache_folder
from gpuready.system.private_files import save_bytes_atomically
from gpuready.system.process.isolation import is_single_threaded

Request = dict[str, Any]
Answer = dict[str, Any]
NotedGroup = tuple[str, str, str, int]


MAX_ENTRIES, MAX_ENTRY_BYTES = 16, 32 << 20
IMPORTS_SECONDS = 7 * 86400.0
"""How long an import that ended well is not repeated: nobody watches all that it reads."""
OF_A_SHELL = ("_", "PWD", "OLDPWD", "SHLVL", "COLUMNS", "LINES", "VIRTUAL_ENV_PROMPT", "PS1")
"""Variables that differ between two commands of one shell and say nothing to a module."""
FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC  # O_PATH is Linux's
SEPARATOR, ABSENT, WITH_CTIME, WITH_MTIME = "\0", "absent", "ctime", "mtime"
OWN_MODULES = ("gpuready.system.", "gpuready.model.")
"""Those that a survey is made of."""
SETTLED_SECONDS = 2.0
"""What changed later than this before a survey may change again within the same tick of the file system's clock."""


def survey_imports(root: str, variables: Mapping[str, str], request: Request) -> Answer:
    """Answer a request: from the cache, or by a survey whose answer is kept. With a root, which only tests have, nothing is kept."""
    if (
        root or request.get("deep") or not is_single_threaded()
    ):  # contents may rot without a trace; notes are for one survey
        return _survey(root, request)
    key = _make_key(request)
    path = _entry_path(variables, key)
    loaded = _load_answer(path, key) if path else None
    if loaded is not None:
        return loaded[0] | {"kept": f"{os.path.basename(path)}-{loaded[1]:08x}"}
    if not _has_roots(request):
        return {"roots": []}
    settled = time.time() - SETTLED_SECONDS
    notes = watched_files.start_notes(str(request.get("cwd") or ""))
    try:
        answer = _survey("", request)
        _note_own_modules()
    finally:
        watched_files.stop_notes()
    if path and _are_settled(notes.statuses, settled):
        body = (key, answer, list(notes.names.items()), _group_by_folder(notes.statuses, request["sites"]))
        name, data = os.path.basename(path), marshal.dumps(body)
        _store_entry(variables, name, data)
        return answer | {"kept": f"{name}-{crc32(data):08x}"}
    return answer


def recall_imports(variables: Mapping[str, str], kept: str, asked: Sequence[str]) -> Answer | None:
    """The results of imports that all ended well beside an answer that is kept and still true; None after a week."""
    try:
        known, made, results = marshal.loads(_read_private_file(_imports_path(variables, kept))[0])
    except (OSError, ValueError, TypeError, EOFError):
        return None
    is_fresh = 0 <= time.time() - made < IMPORTS_SECONDS
    return results if is_fresh and known == _imports_key(variables, kept, asked) else None


def keep_imports(variables: Mapping[str, str], kept: str, asked: Sequence[str], results: Answer) -> None:
    """Keep the results of imports where all ended well: what fails is tried again each time."""
    path = _imports_path(variables, kept)
    if path and not any(one["error"] for one in results.values()):
        body = marshal.dumps((_imports_key(variables, kept, asked), time.time(), results))
        _store_entry(variables, os.path.basename(path), body)


def _imports_path(variables: Mapping[str, str], kept: str) -> str:
    folder = os.path.dirname(_entry_path(variables, b""))
    return f"{folder}/{kept.partition('-')[0]}-imported" if folder and kept else ""


def _imports_key(variables: Mapping[str, str], kept: str, asked: Sequence[str]) -> bytes:
    """The answer, what is imported, and the user's variables, which any module may read."""
    own = sorted(one for one in variables.items() if one[0] not in OF_A_SHELL)
    return repr((kept, list(asked), own)).encode("utf-8", "surrogatepass")


def _survey(root: str, request: Request) -> Answer:
    from gpuready.system.imports.damage import survey_below_root

    return survey_below_root(root, request)


def _has_roots(request: Request) -> bool:
    """Whether the environment has any distribution that is asked for; a survey of one that has none would find nothing."""
    from gpuready.system.imports.distributions import find_distributions
    from gpuready.system.imports.search_path import SearchPath

    found = find_distributions(SearchPath(request.get("first") or (), request["sites"]))
    return any(root in found for root in request["roots"])


def _make_key(request: Request) -> bytes:
    """The request, and what else an answer depends on: this Python, and the user, who may not read every file."""
    user = (os.geteuid(), os.getegid(), sorted(os.getgroups()))
    return repr((sorted(request.items()), sys.version, user)).encode("utf-8", "surrogatepass")


def _entry_path(variables: Mapping[str, str], key: bytes) -> str:
    home, parent = variables.get("XDG_CACHE_HOME", ""), variables.get("HOME", "")
    if not home.startswith("/"):
        home = f"{parent}/.cache" if parent.startswith("/") else ""
    return f"{home}/gpuready/imports/{crc32(key):08x}" if home else ""


# -- reading ------------------------------------------------------------------------------------------


def _load_answer(path: str, key: bytes) -> tuple[Answer, int] | None:
    """The answer of an entry that is whole, ours, for this request, and still true; and the entry's checksum."""
    try:
        data, checksum = _read_private_file(path)
        found, answer, listed, folders = marshal.loads(data)
        is_true = (
            found == key and all(_has_names(*one) for one in listed) and all(_is_unchanged(*one) for one in folders)
        )
        return (answer, checksum) if is_true and isinstance(answer, dict) else None
    except (OSError, ValueError, TypeError, EOFError):
        return None


def _read_private_file(path: str) -> tuple[bytes, int]:
    """The contents of a file that nobody but this user can have written, and their checksum: its first four bytes."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        is_ours = S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
        if not is_ours or status.st_size > MAX_ENTRY_BYTES:
            raise ValueError("not an entry of ours")
        data = os.read(fd, status.st_size + 1)
    finally:
        os.close(fd)
    checksum = int.from_bytes(data[:4], "little")
    if len(data) != status.st_size or crc32(data[4:]) != checksum:
        raise ValueError("a damaged entry")
    return data[4:], checksum


def _has_names(folder: str, names: list[str]) -> bool:
    return watched_files.select_importable(os.listdir(folder)) == names


def _is_unchanged(folder: str, kind: str, names: str, digest: int) -> bool:
    """Whether every noted name below a folder has the status it had; paths from an open folder are short, which saves time."""
    try:
        fd = os.open(folder or "/", FOLDER_FLAGS)
    except OSError:
        return kind == ABSENT
    try:
        if kind == ABSENT:
            return not any(_is_there(name, fd) for name in names.split(SEPARATOR))
        return _digest_statuses(kind, names.split(SEPARATOR), fd) == digest
    finally:
        os.close(fd)


def _is_there(name: str, folder_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=folder_fd)
    except (OSError, ValueError):
        return False
    return True


def _digest_statuses(kind: str, names: list[str], folder_fd: int) -> int:
    """The digest of thousands of statuses, without a call for each but the kernel's; OSError where one is gone."""
    stat, fd = os.stat, folder_fd
    if kind == WITH_CTIME:
        found = [(s.st_ino, s.st_size, s.st_ctime_ns) for name in names for s in [stat(name, dir_fd=fd)]]
        return hash(tuple(found))
    several = [(s.st_ino, s.st_size, s.st_mtime_ns, s.st_mode) for name in names for s in [stat(name, dir_fd=fd)]]
    return hash(tuple(several))


# -- writing ------------------------------------------------------------------------------------------


def _are_settled(notes: Mapping[str, Status], limit: float) -> bool:
    """Whether nothing that was looked at has changed since a time: clocks of file systems tick in milliseconds, of some in seconds.

    A file system without ctime has zeros, and tells nothing.
    """
    return all(status is None or 0 < status[2] < limit * 1e9 for status in notes.values())


def _group_by_folder(notes: Mapping[str, Status], sites: Sequence[str]) -> list[NotedGroup]:
    """Return the noted paths by folder and by what is noted of them, with a digest of their statuses.

    All of a package are one group: thousands would cost time. The digest is the hash of a tuple of numbers, which is the same in every
    process of one Python.
    """
    groups: dict[tuple[str, str], dict[str, Status]] = {}
    for path, status in notes.items():
        folder = _choose_group(path, sites)
        kind = ABSENT if status is None else WITH_CTIME if len(status) == 3 else WITH_MTIME
        groups.setdefault((folder, kind), {})[path[len(folder) + 1 :]] = status
    return [(*group, SEPARATOR.join(found), hash(tuple(found.values()))) for group, found in groups.items()]


def _choose_group(path: str, sites: Sequence[str]) -> str:
    """The package that a path is in: ``…/site-packages/torch``; its folder, where it is in none."""
    for site in sites:
        if path.startswith(f"{site}/"):
            top, _, rest = path[len(site) + 1 :].partition("/")
            return f"{site}/{top}" if rest else site
    return path.rpartition("/")[0]


def _note_own_modules() -> None:
    """Note gpuready's own modules, which made the answer."""
    for name, module in list(sys.modules.items()):
        if name.startswith(OWN_MODULES) and (path := getattr(module, "__file__", None)):
            watched_files.note_path(path)


def _store_entry(variables: Mapping[str, str], name: str, body: bytes) -> None:
    """Write an entry, and remove the oldest; where that fails, the next check only takes longer."""
    if len(body) + 4 > MAX_ENTRY_BYTES:
        return
    try:
        folder = make_cache_folder(variables, "imports")
        save_bytes_atomically(f"{folder}/{name}", crc32(body).to_bytes(4, "little") + body)
    except (AccessError, OSError):
        return
    for path in files_beyond_newest(folder, MAX_ENTRIES):
        unlink_quietly(path)
