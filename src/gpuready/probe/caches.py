"""torch's caches of compiled code: folders, owners, and stale locks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuready.model import Fact
from gpuready.probe.fact_helpers import CACHES as KEYS
from gpuready.probe.fact_helpers import read_fact
from gpuready.system import AccessError, HostAccess

__all__ = ["KEYS", "probe_caches"]

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
