"""Cache of uv's resolutions in the user's cache folder.

The key covers everything that decides the result: the request, flags, uv's version and configuration, and the
wheels in local folders. An entry is valid for a day; then uv is asked again, whose own cache makes that cheap.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from gpuready.apply.uv import UvSettings
from gpuready.apply.uv_config import read_uv_configs
from gpuready.model import validation
from gpuready.model.plan import LockedPackage, PlanConflict
from gpuready.system import AccessError, HostAccess, save_atomically
from gpuready.system.durable_files import unlink_quietly
from gpuready.system.own_folders import files_beyond_newest, make_cache_folder
from gpuready.system.process.runner import unredacted_variables

MAX_AGE = 24 * 3600.0
MAX_ANSWERS = 200
"""How many results are kept."""

_SCHEMA = 2


def resolution_cache_key(host: HostAccess, request: Sequence[str], settings: UvSettings) -> str:
    """Return the digest of everything that decides a result. Secrets in it cannot be recovered."""
    environment = unredacted_variables(host)
    uv_variables = sorted(
        f"{name}={value}" for name, value in environment.items() if name.startswith(("UV_", "SSL_", "MACOSX_"))
    )
    env = sorted(f"{name}={value}" for name, value in settings.env.items())
    parts = [
        *request,
        *settings.flags,
        *env,
        *uv_variables,
        *settings.extra,
        *read_uv_configs(host, settings.use_project),
        *_list_local_wheels(host, settings.folders),
    ]
    return sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _list_local_wheels(host: HostAccess, folders: Sequence[str]) -> list[str]:
    wheels = []
    for folder in folders:
        for name in host.list_directory(folder) or ():
            if name.endswith((".whl", ".tar.gz", ".zip")):
                status = host.stat_path(f"{folder}/{name}") or {}
                wheels.append(f"{folder}/{name} {status.get('size')} {status.get('mtime')}")
    return wheels


def load_cached_answer(host: HostAccess, name: str) -> dict[str, Any] | None:
    """Return the cached result if it is intact and younger than a day. A damaged one is removed."""
    try:
        path = f"{make_cache_folder(unredacted_variables(host), 'answers')}/{name}.json"
        text = host.read_text(path, 64 << 20)
    except AccessError:
        return None
    if text is None:
        return None
    entry = _decode_answer(text)
    if entry is None:
        unlink_quietly(path)
        return None
    age = host.get_wall_time() - entry["at"]
    return entry["answer"] if 0 <= age < MAX_AGE else None


def _decode_answer(text: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
        whole = entry["schema"] == _SCHEMA and entry["digest"] == _answer_digest(entry["answer"])
        return entry if whole and isinstance(entry["at"], (int, float)) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def store_answer(host: HostAccess, name: str, answer: dict[str, Any]) -> None:
    """Store a result. If that fails, the next request only takes longer."""
    try:
        folder = make_cache_folder(unredacted_variables(host), "answers")
        body = {"schema": _SCHEMA, "at": host.get_wall_time(), "digest": _answer_digest(answer), "answer": answer}
        save_atomically(f"{folder}/{name}.json", json.dumps(body))
    except AccessError:
        return
    for path in files_beyond_newest(folder, MAX_ANSWERS):
        unlink_quietly(path)


def _answer_digest(answer: object) -> str:
    return sha256(json.dumps(answer, sort_keys=True).encode()).hexdigest()


def decode_answer(cached: dict[str, Any] | None) -> tuple[LockedPackage, ...] | PlanConflict | None:
    """Return a kept answer of uv; None where there is none, or not one of ours."""
    if cached is None:
        return None
    try:
        if "conflict" in cached:
            return validation.parse_record(PlanConflict, cached["conflict"])
        return tuple(validation.parse_record(LockedPackage, row) for row in cached["rows"])
    except (ValueError, KeyError, TypeError):
        return None
