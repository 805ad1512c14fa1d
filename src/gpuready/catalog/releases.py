"""Releases of the frameworks: what each requires (``tools/list_releases.py``), and the command that starts a job."""

from functools import cache, lru_cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.catalog.packages import canonical_package_name


@cache
def _rows_by_version(name: str) -> dict[str, dict[str, Any]]:
    """The row of each release of a distribution, the oldest first; rows are shared by releases that say the same."""
    rows = [row for row in load_catalog("releases")["release"] if row["name"] == name]
    return {version: row for row in rows for version in row["versions"]}


def list_releases(name: str) -> list[str]:
    """Return the releases of a distribution that are not withdrawn, the oldest first; empty where they are not listed."""
    rows = _rows_by_version(canonical_package_name(name))
    return [version for version, row in rows.items() if not row.get("withdrawn")]


@lru_cache(256)  # a plan asks for the same few, hundreds of times
def find_release(name: str, version: str) -> tuple[str, dict[str, Any]] | None:
    """Return a release and its row, a withdrawn one too; of a version that leaves parts out (``0.8``) the newest patch, else None."""
    known = _rows_by_version(canonical_package_name(name))
    public = version.partition("+")[0]
    found = [one for one in known if one == public or _without_zeros(one) == _without_zeros(public)]
    found = found or [one for one in list_releases(name) if one.startswith((f"{public}.", f"{public}.post"))]
    return (found[-1], known[found[-1]]) if found else None


def _without_zeros(version: str) -> str:
    while version.endswith(".0"):
        version = version.removesuffix(".0")
    return version


def find_default(framework: str) -> dict[str, Any] | None:
    """Return the extra or the variant that a framework's guide installs, where it does not run without one."""
    return next((row for row in load_catalog("launch")["default"] if row["framework"] == framework), None)


SERVED_KINDS = ("model",)
"""Kinds of files that describe a model, not a job: no command starts them."""

SHARED_LAUNCHERS = ("python", "torchrun", "accelerate")
"""Programs that start a script of anybody: no framework's own command."""


def own_commands(framework: str) -> set[str]:
    """Return the names of a framework's own command and module, written with hyphens."""
    starts = [row["run"][0] for row in load_catalog("launch")["launch"] if row["framework"] == framework]
    named = {word for word in starts if word not in SHARED_LAUNCHERS}
    return {framework, *named, *(word.removesuffix("-cli") for word in named)}


def launch_command(framework: str, gpus: int = 1, file: str = "", kind: str = "") -> tuple[str, ...]:
    """Return the command that starts a job; without a file, with a name in its place. Empty if it is not known."""
    rows = [row for row in load_catalog("launch")["launch"] if row["framework"] == framework]
    if not rows:
        return ()
    row = next((row for row in rows if kind and row.get("takes") == kind), rows[0])
    path = file if file and kind not in SERVED_KINDS else str(row["file"])
    folder, _, name = path.rpartition("/")
    values = {
        "{file}": path,
        "{path}": folder or ".",
        "{folder}": folder.rpartition("/")[2] or ".",
        "{stem}": name.rpartition(".")[0] or name,
        "{gpus}": str(max(gpus, 1)),
    }
    return tuple(values.get(word, word) for word in row["run"])
