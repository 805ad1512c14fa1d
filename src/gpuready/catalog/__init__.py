"""Known data about GPUs, CUDA releases, torch builds, packages, features and facts.

The TOML files beside this module are edited by hand; the build compiles them (``tools/compile_catalog.py``) to the
modules in ``data/`` that are loaded here. Rows are plain dicts with the keys of the TOML; they are shared, so
callers must not change them.
"""

from functools import cache
from importlib import import_module
from typing import Any


class MissingTableError(RuntimeError):
    """A compiled table is missing: the package was not built."""


@cache
def load_table(package: str, name: str) -> Any:
    """Load a table that was compiled into ``gpuready.PACKAGE.data``."""
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
