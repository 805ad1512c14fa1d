"""The declared facts: each key once, with its type, unit and meaning."""

from functools import cache
from typing import Any

from gpuready.catalog import load_catalog

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


def value_matches_type(key: str, value: object) -> bool:
    """Return whether a value has the declared type of its key; None always has."""
    row = find_declaration(key)
    if row is None or value is None:
        return True
    kind = str(row["type"])
    if kind in LISTS:
        each = KINDS[LISTS[kind]]
        return isinstance(value, (list, tuple)) and all(item is None or isinstance(item, each) for item in value)
    return isinstance(value, KINDS[kind]) and (kind == "bool" or not isinstance(value, bool))


def list_fact_keys() -> list[str]:
    """Return every declared key; families end in ``.*``."""
    return list(_fact_rows())


@cache
def _fact_rows() -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in load_catalog("facts")["fact"]}


def find_declaration(key: str) -> dict[str, Any] | None:
    """Return the declaration of a key or of its family (``package.torch`` by ``package.*``)."""
    own = _fact_rows().get(key)
    if own is not None:
        return own
    family, dot, tail = key.partition(".")
    return _fact_rows().get(f"{family}.*") if dot and tail else None
