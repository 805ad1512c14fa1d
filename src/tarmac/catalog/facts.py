"""The facts that tarmac may know: each key is declared once, with its type, unit and meaning."""

from __future__ import annotations

from tarmac.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPES = (
    "version", "text", "int", "float", "bytes", "seconds", "bool",
    "versions", "texts", "ints", "bytes_list", "table",
)  # fmt: skip


def keys() -> list[str]:
    """Every declared key; families end in ``.*``."""
    return list(_rows())


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in load("facts")["fact"]}


def declared(key: str) -> dict[str, Any] | None:
    """The declaration of a key, its own or that of its family (``package.torch`` by ``package.*``)."""
    own = _rows().get(key)
    if own is not None:
        return own
    family, dot, tail = key.partition(".")
    return _rows().get(f"{family}.*") if dot and tail else None
