"""NVIDIA GPUs by name, forgiving about how the name is written."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BRANDS = ("nvidia", "geforce", "tesla")


def names() -> list[str]:
    """The full name of every GPU of the catalogue, once each."""
    return list(dict.fromkeys(row["name"] for row in load("gpus")["gpu"]))


def find(name: str, memory: int | None = None) -> dict[str, Any] | None:
    """The GPU of this name: as nvidia-smi prints it, or as people do (``h100``, ``RTX 4090``, ``a100-80gb``).

    Where two cards share a name, ``memory`` in bytes tells them apart. A MIG instance is found by its GPU.
    """
    row = _index().get(_key(name.partition(" MIG ")[0]))
    if row is None or memory is None:
        return row
    same: list[dict[str, Any]] = [one for one in load("gpus")["gpu"] if one["name"] == row["name"]]
    return min(same, key=lambda one: abs(one["vram_gib"] * 2**30 - memory))


@remembered
def _index() -> dict[str, dict[str, Any]]:
    """Every spelling and its row. What the data gives a name to comes before the full names."""
    rows = load("gpus")["gpu"]
    index: dict[str, dict[str, Any]] = {}
    for field in ("default_for", "short", "aliases"):
        for row in rows:
            for name in row.get(field, ()):
                index.setdefault(_key(name), row)
    for row in rows:
        index.setdefault(_key(row["name"]), row)
    return index


def _key(name: str) -> str:
    """Upper case, blanks, hyphens and brands do not count."""
    key = "".join(c for c in name.casefold() if c.isalnum())
    for brand in BRANDS:
        key = key.removeprefix(brand)
    return key


def parse_machine(text: str) -> tuple[dict[str, Any], int] | None:
    """``h100x8``, ``8xh100`` or ``h100`` -> the GPU and how many; None where no GPU has that name."""
    import re

    row = find(text)
    if row is not None:
        return row, 1
    # The x of rtx is no multiplication sign: only a reading whose other half names a GPU counts.
    for pattern, name, count in (
        (r"(.{1,80}?)\s{0,8}[x*×]\s{0,8}(\d{1,9})", 1, 2),
        (r"(\d{1,9})\s{0,8}[x*×]\s{0,8}(.{1,80})", 2, 1),
    ):
        match = re.fullmatch(pattern, text.strip().lower())
        row = find(match[name]) if match else None
        if match and row is not None:
            return row, int(match[count])
    return None


def suggest(name: str, count: int = 3) -> list[str]:
    """The nearest names that ``find`` takes, at most one for each GPU."""
    from difflib import get_close_matches

    index = _index()
    near: dict[int, str] = {}
    for key in get_close_matches(_key(name), list(index), count * 3, 0.5):
        near.setdefault(id(index[key]), key)
    return list(near.values())[:count]
