"""The facts that gpuready may know: each key is declared once, with its type, unit and meaning."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TYPES = (
    "version", "text", "int", "float", "bytes", "seconds", "bool",
    "versions", "texts", "ints", "bytes_list", "table",
)  # fmt: skip


KINDS: dict[str, tuple[type, ...]] = {
    "version": (str,),
    "text": (str,),
    "int": (int,),
    "bytes": (int,),
    "float": (int, float),
    "seconds": (int, float),
    "bool": (bool,),
    "table": (dict, list, tuple),
}
LISTS = {"versions": "version", "texts": "text", "ints": "float", "bytes_list": "bytes"}


def fits(key: str, value: object) -> bool:
    """Whether a value is of the kind that its key is declared to have; what is absent always is."""
    row = declared(key)
    if row is None or value is None:
        return True
    kind = str(row["type"])
    if kind in LISTS:
        each = KINDS[LISTS[kind]]
        return isinstance(value, (list, tuple)) and all(
            item is None or isinstance(item, each) for item in value
        )
    return isinstance(value, KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))


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
