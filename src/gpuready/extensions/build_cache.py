"""The cache of built extensions: a private folder with one folder per entry, published by a single rename.

If several processes want the same entry, one builds and the others wait. The kernel releases the lock when its
process ends; a process that waits too long builds for itself, which does no harm.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from gpuready.extensions.recipe import CannotBuild
from gpuready.model import Record
from gpuready.system import (
    AccessError,
    durable_files,
    fatbin,
    file_contents,
    native_library,
    own_folders,
    private_files,
)

FOLDER_VARIABLE = "GPUREADY_EXTENSIONS_DIR"
LIBRARY_NAME, MANIFEST_NAME = "library.so", "entry.json"
LOCK_TIMEOUT = 900.0
DRAFT_MAX_AGE = 3600.0
"""Age in seconds after which an unpublished draft is removed."""


class BuiltLibrary(Record):
    """One built library: its path, its inputs, and what was read back from it."""

    path: str
    digest: str
    inputs: Mapping[str, Any]
    targets: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    seconds: float = 0.0


def cache_folder(variables: Mapping[str, str]) -> str:
    """Return the private cache folder. CannotBuild says what is wrong with it."""
    named = variables.get(FOLDER_VARIABLE, "")
    try:
        if named:
            if not named.startswith("/"):
                raise AccessError("not an absolute path")
            return private_files.make_private_folder(named.rstrip("/"))
        return own_folders.make_cache_folder(variables, "extensions")
    except AccessError as error:
        where = f"{FOLDER_VARIABLE}={named}" if named else "the user's cache"
        raise CannotBuild(
            f"extensions cannot be kept in {where}: {error}; set {FOLDER_VARIABLE} to a folder of your own"
        ) from None


def get_or_build(
    home: str, key: str, inputs: Mapping[str, Any], build: Callable[[str], BuiltLibrary]
) -> tuple[BuiltLibrary, str]:
    """Return the entry of a key, and "cached" or "built". ``build`` fills the folder that it receives."""
    entry_path = f"{home}/{inputs['name']}-{key}"
    entry = read_manifest(entry_path, inputs)
    if entry is not None:
        return entry, "cached"
    lock = _wait_for_lock(entry_path, inputs)
    try:
        entry = read_manifest(entry_path, inputs)
        return (entry, "cached") if entry is not None else (_build_entry(home, entry_path, inputs, build), "built")
    finally:
        if lock is not None:
            durable_files.release_lock(lock)


def _wait_for_lock(entry_path: str, inputs: Mapping[str, Any]) -> int | None:
    """Return the lock; None if the disk has no locks, on timeout, or if the entry has appeared meanwhile."""
    until, pause = time.monotonic() + LOCK_TIMEOUT, 0.01
    while time.monotonic() < until:
        try:
            lock = durable_files.take_lock(f"{entry_path}.lock")
        except (durable_files.LocksUnsupported, OSError):
            return None
        if lock is not None or (
            file_contents.file_size(f"{entry_path}/{MANIFEST_NAME}") and read_manifest(entry_path, inputs)
        ):
            return lock
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return None


def _build_entry(
    home: str, entry_path: str, inputs: Mapping[str, Any], build: Callable[[str], BuiltLibrary]
) -> BuiltLibrary:
    _remove_old_drafts(home, f"{inputs['name']}-")
    with own_folders.TemporaryFolder({}, home) as draft:
        made = build(draft)
        write_manifest(draft, made)
        if not _publish_draft(draft, entry_path):
            # Another process was first, or the existing entry is damaged.
            entry = read_manifest(entry_path, inputs)
            if entry is not None:
                return entry
            durable_files.rename_path(entry_path, f"{draft}.old")
            durable_files.remove_tree(f"{draft}.old")
            if not _publish_draft(draft, entry_path):
                raise CannotBuild(f"{entry_path} can be neither used nor replaced: remove it")
    return made.replace(path=f"{entry_path}/{LIBRARY_NAME}")


def _publish_draft(draft: str, entry_path: str) -> bool:
    try:
        return durable_files.rename_path(draft, entry_path)
    except OSError:
        return False


def _remove_old_drafts(home: str, prefix: str) -> None:
    """Remove drafts of builds that were killed long ago."""
    for name in file_contents.list_names_or_empty(home):
        if name.startswith("gpuready-") and own_folders.seconds_since_change(f"{home}/{name}") > DRAFT_MAX_AGE:
            durable_files.remove_tree(f"{home}/{name}")


def describe_library(path: str, inputs: Mapping[str, Any], argv: tuple[str, ...], seconds: float) -> BuiltLibrary:
    """Seal and hash a library that was just compiled, and read back its GPU targets."""
    digest = native_library.seal_file(path)
    return BuiltLibrary(path, digest, inputs, fatbin.list_gpu_targets(path), argv, seconds)


def write_manifest(entry_path: str, entry: BuiltLibrary) -> None:
    durable_files.replace_file(
        f"{entry_path}/{MANIFEST_NAME}", json.dumps(entry.to_json(), indent=1, sort_keys=True), 0o600
    )


def read_manifest(
    entry_path: str, inputs: Mapping[str, Any] | None = None, name: str = MANIFEST_NAME, library: str = LIBRARY_NAME
) -> BuiltLibrary | None:
    """Return an entry whose manifest is complete, matches the inputs, and whose library matches its digest;
    else None.
    """
    text = file_contents.read_text_file(f"{entry_path}/{name}", 1 << 20)
    try:
        entry = BuiltLibrary.from_json(json.loads(text or "")).replace(path=f"{entry_path}/{library}")
        if inputs is not None and json.dumps(entry.inputs, sort_keys=True) != json.dumps(inputs, sort_keys=True):
            return None
        return entry if file_contents.hash_file_contents(entry.path) == entry.digest else None
    except (ValueError, TypeError, OSError, RecursionError):
        return None
