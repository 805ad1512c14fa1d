"""How each framework is started on one machine: its own command, for the user's file."""

from __future__ import annotations

from gpuready.catalog import load_catalog

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
