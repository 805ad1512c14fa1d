"""The cache of built extensions: a private folder with one folder per entry, published by a single rename.

If several processes want the same entry, one builds and the others wait. The kernel releases the lock when its
process ends; a process that waits too long builds for itself, which does no harm.
"""

from __future__ import annotations

import time

from gpuready.extensions.recipe import CannotBuild
from gpuready.model import Noun
from gpuready.system import Blind, contents, durable, fatbin, keep, locks, native, scratch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

FOLDER = "GPUREADY_EXTENSIONS_DIR"
LIBRARY, MANIFEST = "library.so", "entry.json"
PATIENCE = 900.0
ABANDONED = 3600.0
"""Age in seconds after which an unpublished draft is removed."""


class Entry(Noun):
    """One built library: its path, its inputs, and what was read back from it."""

    path: str
    digest: str
    inputs: Mapping[str, Any]
    targets: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    seconds: float = 0.0


def folder(variables: Mapping[str, str]) -> str:
    """Return the private cache folder. CannotBuild says what is wrong with it."""
    named = variables.get(FOLDER, "")
    try:
        if named:
            if not named.startswith("/"):
                raise Blind("not an absolute path")
            return keep.private(named.rstrip("/"))
        return scratch.cache(variables, "extensions")
    except Blind as blind:
        where = f"{FOLDER}={named}" if named else "the user's cache"
        raise CannotBuild(
            f"extensions cannot be kept in {where}: {blind}; set {FOLDER} to a folder of your own"
        ) from None


def get(home: str, key: str, told: Mapping[str, Any], build: Callable[[str], Entry]) -> tuple[Entry, str]:
    """Return the entry of a key, and "cached" or "built". ``build`` fills the folder that it receives."""
    at = f"{home}/{told['name']}-{key}"
    found = read(at, told)
    if found is not None:
        return found, "cached"
    lock = _wait(at, told)
    try:
        found = read(at, told)
        return (found, "cached") if found is not None else (_built(home, at, told, build), "built")
    finally:
        if lock is not None:
            locks.leave(lock)


def _wait(at: str, told: Mapping[str, Any]) -> int | None:
    """Return the lock; None if the disk has no locks, on timeout, or if the entry has appeared meanwhile."""
    until, pause = time.monotonic() + PATIENCE, 0.01
    while time.monotonic() < until:
        try:
            lock = locks.take(f"{at}.lock")
        except (locks.NoLocks, OSError):
            return None
        if lock is not None or (contents.size(f"{at}/{MANIFEST}") and read(at, told)):
            return lock
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return None


def _built(home: str, at: str, told: Mapping[str, Any], build: Callable[[str], Entry]) -> Entry:
    _sweep(home, f"{told['name']}-")
    with scratch.Scratch({"TMPDIR": home}) as draft:
        made = build(draft)
        write(draft, made)
        if not _published(draft, at):
            # Another process was first, or the existing entry is damaged.
            found = read(at, told)
            if found is not None:
                return found
            durable.move(at, f"{draft}.old")
            durable.remove_tree(f"{draft}.old")
            if not _published(draft, at):
                raise CannotBuild(f"{at} can be neither used nor replaced: remove it")
    return made.but(path=f"{at}/{LIBRARY}")


def _published(draft: str, at: str) -> bool:
    try:
        return durable.move(draft, at)
    except OSError:
        return False


def _sweep(home: str, prefix: str) -> None:
    """Remove drafts of builds that were killed long ago."""
    for name in contents.names(home):
        if name.startswith("gpuready-") and scratch.age(f"{home}/{name}") > ABANDONED:
            durable.remove_tree(f"{home}/{name}")


def describe(path: str, told: Mapping[str, Any], argv: tuple[str, ...], seconds: float) -> Entry:
    """Seal and hash a library that was just compiled, and read back its GPU targets."""
    digest = native.seal(path)
    return Entry(path, digest, told, fatbin.targets(path), argv, seconds)


def write(at: str, entry: Entry) -> None:
    import json

    durable.write(f"{at}/{MANIFEST}", json.dumps(entry.to_json(), indent=1, sort_keys=True), 0o600)


def read(
    at: str, told: Mapping[str, Any] | None = None, name: str = MANIFEST, library: str = LIBRARY
) -> Entry | None:
    """Return an entry whose manifest is complete, matches the inputs, and whose library matches its digest;
    else None.
    """
    import json

    text = contents.text(f"{at}/{name}", 1 << 20)
    try:
        found = Entry.from_json(json.loads(text or "")).but(path=f"{at}/{library}")
        if told is not None and json.dumps(found.inputs, sort_keys=True) != json.dumps(told, sort_keys=True):
            return None
        return found if contents.digest(found.path) == found.digest else None
    except (ValueError, TypeError, OSError, RecursionError):
        return None
