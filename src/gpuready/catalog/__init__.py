"""Known data about GPUs, CUDA releases, torch builds, packages, features and facts.

The TOML files beside this module are edited by hand; the build compiles them (``tools/compile_catalog.py``) to the
modules in ``data/`` that are loaded here. Rows are plain dicts with the keys of the TOML; they are shared, so
callers must not change them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


class MissingTableError(RuntimeError):
    """A compiled table is missing: the package was not built."""


_REPLACED: dict[tuple[str, str], Any] = {}
"""Tables of a knowledge file, by package and name."""


def replace_tables(tables: dict[tuple[str, str], Any]) -> None:
    """Use these tables in the place of the compiled ones, before any of them is looked up; an empty dict undoes it."""
    _REPLACED.clear()
    _REPLACED.update(tables)


def load_table(package: str, name: str) -> Any:
    """Load a table that was compiled into ``gpuready.PACKAGE.data``, or its replacement."""
    return _REPLACED[package, name] if (package, name) in _REPLACED else _load_compiled_table(package, name)


@cache
def _load_compiled_table(package: str, name: str) -> Any:
    try:
        return import_module(f"gpuready.{package}.data.{name}").DATA
    except ModuleNotFoundError:
        raise MissingTableError(
            f"the table {name} of gpuready.{package} is not compiled: run python tools/compile_catalog.py in the source"
            " tree, or install gpuready again"
        ) from None


def load_catalog(name: str) -> dict[str, Any]:
    """Load one catalog file (``cuda``, ``torch``, ``gpus`` …)."""
    table: dict[str, Any] = load_table("catalog", name)
    return table


def catalog_date() -> str:
    """Return the date as of which the catalog is correct."""
    return str(load_catalog("cuda")["as_of"])
