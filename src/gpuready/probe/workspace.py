"""The folders that a job works in, the clock, and torch's caches of compiled code: what builds, compilers and downloads need later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gpuready.model import Fact
from gpuready.probe import hub
from gpuready.probe.fact_helpers import CACHES, WORKSPACE, gap_facts, read_fact, read_if_present
from gpuready.probe.target_environment import TargetEnvironment, parse_pyvenv_config
from gpuready.system import AccessError, HostAccess

KEYS = (*WORKSPACE, *CACHES)

ROOT_SQUASH_TYPES = ("nfs", "nfs4")
"""File systems that may map root to nobody."""


def probe_workspace(host: HostAccess, target: TargetEnvironment) -> list[Fact]:
    """Return Python headers, temporary folder, model disk, PATH, year and user."""
    mounts = MountTable(host)
    return [
        _python_headers_fact(host, target),
        *_temporary_folder_facts(host, mounts),
        *_model_disk_facts(host, mounts),
        read_fact("path.unsafe", "PATH", _unsafe_path_entries, host),
        read_fact("clock.year", "the clock", _current_year, host),
        read_fact("user.root", "geteuid", _is_root, host),
    ]


def _is_root(host: HostAccess) -> bool:
    """Whether we are root, who can open and write what the job's user may not."""
    uid = host.get_user().get("uid")
    if uid is None:
        raise AccessError("the user cannot be determined")
    return bool(uid == 0)


# -- Python's headers ---------------------------------------------------------------------------------


def _python_headers_fact(host: HostAccess, target: TargetEnvironment) -> Fact:
    """Whether Python.h is where the environment's compiler flags point: below its base Python."""
    minor = ".".join((target.version or "").split(".")[:2])
    if not minor:
        return Fact("python.headers", None, target.prefix, gap=target.gap or "the version of Python is unknown")
    paths: list[str] = []
    try:
        paths += (f"{base}/include/python{minor}/Python.h" for base in _base_prefixes(host, target))
        header = next((path for path in paths if host.stat_path(path)), None)
    except AccessError as error:
        return Fact("python.headers", None, ", ".join(paths) or target.prefix, gap=str(error))
    return Fact("python.headers", header is not None, header or ", ".join(paths))


def _base_prefixes(host: HostAccess, target: TargetEnvironment) -> list[str]:
    """Prefixes of the base Python of a virtual environment: as configured, and by its real path."""
    home = parse_pyvenv_config(host.read_text(f"{target.prefix}/pyvenv.cfg") or "").get("home", "")
    if not home:
        return [target.prefix]
    real = read_if_present(host.resolve_path, f"{home}/python3", default="")
    bases = (home.rpartition("/")[0] or "/usr", real.rpartition("/bin/")[0] if "/bin/" in real else "")
    return list(dict.fromkeys(base for base in bases if base))


# -- the temporary folder -----------------------------------------------------------------------------


def _temporary_folder_facts(host: HostAccess, mounts: MountTable) -> list[Fact]:
    keys = ("tmp.path", "tmp.exists", "tmp.noexec", "tmp.free")
    try:
        configured = host.get_env_var("TMPDIR")
        path, source = configured or "/tmp", "TMPDIR" if configured else "TMPDIR is not set"
        status = host.stat_path(path)
    except AccessError as error:
        return gap_facts(keys, str(error), "TMPDIR")
    exists = status is not None and status["kind"] == "dir"
    facts = [Fact("tmp.path", path, source), Fact("tmp.exists", exists, path)]
    if not exists:
        return [*facts, Fact("tmp.noexec", None, path), Fact("tmp.free", None, path)]
    free = read_fact("tmp.free", path, lambda: (host.get_disk_space(path) or {}).get("free"))
    noexec = read_fact("tmp.noexec", hub.MOUNTINFO_FILE, lambda: "noexec" in mounts.find_mount(path)["options"])
    return [*facts, noexec, free]


class MountTable:
    """The mounted file systems, read once."""

    def __init__(self, host: HostAccess):
        self.host = host
        self._text: str | None = None

    def find_mount(self, path: str) -> dict[str, Any]:
        """Return ``type`` and ``options`` of the file system of a path; AccessError if unknown."""
        if self._text is None:
            self._text = self.host.read_text(hub.MOUNTINFO_FILE, 1 << 20) or ""
        mount = hub.find_mount(self._text, self.host.resolve_path(path))
        if mount is None:
            absent = f"{hub.MOUNTINFO_FILE} does not have it" if self._text else f"there is no {hub.MOUNTINFO_FILE}"
            raise AccessError(absent)
        return mount


# -- the model disk -----------------------------------------------------------------------------------


def _model_disk_facts(host: HostAccess, mounts: MountTable) -> list[Fact]:
    keys = ("disk.kind", "hub.writable")
    try:
        folder = hub.find_hub_cache(host)
        path, status = hub.find_existing_parent(host, folder, host.stat_path)
    except AccessError as error:
        return gap_facts(keys, str(error), hub.CACHE_VARIABLES)
    return [
        read_fact("disk.kind", hub.MOUNTINFO_FILE, lambda: mounts.find_mount(path)["type"]),
        read_fact(
            "hub.writable",
            path,
            lambda: _is_folder_writable(host.get_user().get("uid"), status, mounts.find_mount(path)),
        ),
    ]


def _is_folder_writable(uid: int | None, status: dict[str, Any], mount: dict[str, Any]) -> bool:
    """Whether a user may write to a folder; AccessError if that depends on a group or a server."""
    mode = status.get("mode")
    if status.get("kind") != "dir" or "ro" in mount["options"]:
        return False
    if mode is None or uid is None:
        raise AccessError("the owner or the user is not known")
    if uid == 0:
        if mount["type"] in ROOT_SQUASH_TYPES:
            raise AccessError(f"root may have no rights on {mount['type']}")
        return True
    if uid == status.get("uid"):
        return bool(mode & 0o200)
    if mode & 0o022 == 0o020:
        raise AccessError("it is open to a group, and the groups of this user are not known")
    return bool(mode & 0o002)


# -- PATH and the clock -------------------------------------------------------------------------------


def _unsafe_path_entries(host: HostAccess) -> tuple[str, ...]:
    """Entries of PATH where anybody could put a program: relative ones, and world-writable folders."""
    path = host.get_env_var("PATH")
    entries = dict.fromkeys(path.split(":")) if path is not None else ()
    return tuple(entry for entry in entries if not entry.startswith("/") or _is_world_writable(host, entry))


def _is_world_writable(host: HostAccess, folder: str) -> bool:
    status = read_if_present(host.stat_path, folder) or {}
    return status.get("kind") == "dir" and status["mode"] & 0o1002 == 0o0002


def _current_year(host: HostAccess) -> int:
    try:
        return time.gmtime(host.get_wall_time()).tm_year
    except (ValueError, OverflowError, OSError):
        raise AccessError("the clock shows no date") from None


LOCK_FILE = "lock"
"""torch creates this file while it builds an extension; other processes wait for it."""

MAX_FOLDERS = 200
"""How many folders are searched for locks."""

USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Variables that getpass.getuser() tries before the password file."""


def probe_caches(host: HostAccess) -> list[Fact]:
    """Return the extension cache with its locks, and the cache of torch.compile."""
    return [
        read_fact("cache.extensions", "TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME, HOME", _extensions_cache_folder, host),
        read_fact(
            "cache.locks", "the caches of torch and colossalai", lambda: tuple(_find_build_locks(host))[:MAX_FOLDERS]
        ),
        _inductor_cache_fact(host),
    ]


def _require_home(host: HostAccess) -> str:
    user = host.get_env_var("HOME")
    if not user:
        raise AccessError("HOME is not set")
    return user


def _extensions_cache_folder(host: HostAccess) -> str:
    configured = host.get_env_var("TORCH_EXTENSIONS_DIR")
    return configured or f"{host.get_env_var('XDG_CACHE_HOME') or f'{_require_home(host)}/.cache'}/torch_extensions"


def _find_build_locks(host: HostAccess) -> Iterator[str]:
    """Yield lock files one or two folders down: the default cache has a folder per Python and CUDA."""
    left = MAX_FOLDERS
    for root in (_extensions_cache_folder(host), f"{_require_home(host)}/.cache/colossalai/torch_extensions"):
        for name in host.list_directory(root) or ():
            inside = [f"{root}/{name}", *(f"{root}/{name}/{n}" for n in host.list_directory(f"{root}/{name}") or ())]
            for folder in inside[:left]:
                if host.stat_path(f"{folder}/{LOCK_FILE}"):
                    yield f"{folder}/{LOCK_FILE}"
            left -= min(left, len(inside))


def _inductor_cache_fact(host: HostAccess) -> Fact:
    """The cache of torch.compile. Its name in /tmp is predictable, so another user may own it."""
    try:
        path = host.get_env_var("TORCHINDUCTOR_CACHE_DIR") or _default_inductor_folder(host)
        status = host.stat_path(path)
        if status is None:
            return Fact("cache.inductor", None, path)
        return Fact("cache.inductor", _describe_owner(path, status, host.get_user().get("uid")), path)
    except AccessError as error:
        return Fact("cache.inductor", None, "TORCHINDUCTOR_CACHE_DIR, TMPDIR", gap=str(error))


def _default_inductor_folder(host: HostAccess) -> str:
    user = next((name for key in USER_VARIABLES if (name := host.get_env_var(key))), None) or host.get_user().get(
        "name"
    )
    if not user:
        raise AccessError("the name of the user cannot be determined")
    plain = "".join("_" if c in '\\/:*?"<>|' else c for c in user)
    return f"{(host.get_env_var('TMPDIR') or '/tmp').rstrip('/')}/torchinductor_{plain}"


def _describe_owner(path: str, status: dict[str, Any], uid: Any) -> dict[str, Any]:
    if uid is None:
        raise AccessError("the user cannot be determined")
    return {"path": path, "uid": status["uid"], "mine": status["uid"] == uid}
