"""Every column of the compiled catalogue is read by some code; what is only evidence stays in the TOML."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuready import catalog
from tools import compile_catalog

HOME = Path(catalog.__file__).resolve().parents[3]
TABLES = sorted(path.stem for path in (HOME / "src/gpuready/catalog").glob("*.toml"))
OPEN = {
    "architectures": ("defaults",),
    "systems": ("glibc", "python", "codenames"),
    "images": ("cudas", "tags"),
    "kernels": ("cuda", "built"),
    "models": ("config",),
    "programs": ("words",),
}
"""Columns whose keys are data themselves: versions, words, settings of a model."""

EVIDENCE = {"source", "note", "schema", "as_of"}


def columns(value: object, path: tuple[str, ...], open_names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            if name not in open_names and name != "source":
                yield from columns(inner, (*path, name), open_names)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from columns(inner, path, open_names)


def words_in_code() -> set[str]:
    files = [*(HOME / "src/gpuready").rglob("*.py"), *(HOME / "tools").rglob("*.py")]
    texts = [path.read_text() for path in files if "data" not in path.parts and path.name != "compile_catalog.py"]
    return {word for text in texts for word in re.findall(r"""["'.]([A-Za-z_][\w-]*)""", text)}


MEASURES = {row["figure"] for row in catalog.load_catalog("bands")["measure"] if row.get("figure")}
"""A measure names the column of a GPU that it is held against."""


@functools.cache
def known_words() -> set[str]:
    return words_in_code() | MEASURES | EVIDENCE


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_read(table):
    drop = compile_catalog.EVERYWHERE | compile_catalog.DROP.get(table, set())
    rows = compile_catalog.compact(compile_catalog.read(HOME / f"src/gpuready/catalog/{table}.toml"), drop)
    unread = {path for path in columns(rows, (), OPEN.get(table, ())) if path[-1] not in known_words()}
    assert not unread, f"no code reads {sorted('.'.join(path) for path in unread)}: read it, or drop it"
