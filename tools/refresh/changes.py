"""What the index says against what the catalogue says, and how that is put into the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from refresh.text import Document

NEW, FIELD, DIFFERS, UNSURE, TODO = "new", "field", "differs", "unsure", "to fill"
Edit = Callable[[Document], None]


@dataclass(frozen=True)
class Change:
    """One thing to add, to decide or to fill in by hand. ``key`` is what ``--accept`` takes."""

    kind: str
    key: str
    says: str
    edit: Edit | None = None

    @property
    def file(self) -> str:
        return self.key.partition("/")[0]

    def under(self, wanted: str) -> bool:
        return self.key == wanted or self.key.startswith(wanted.rstrip("/") + "/")

    def applies(self, accepted: list[str]) -> bool:
        """Additions go in by themselves; what contradicts a row, or is not certain, only when it is accepted."""
        if self.edit is None:
            return False
        return self.kind in (NEW, FIELD) or any(self.under(wanted) for wanted in accepted)


def touched(key: str, only: list[str]) -> bool:
    """Whether a key lies under one of those that were asked for, or above it; asked for none, all are."""
    return not only or any(f"{key}/".startswith(o.rstrip("/") + "/") or f"{o}/".startswith(key + "/") for o in only)


def compared(
    key: str, row: Mapping[str, Any], learned: Mapping[str, Any], source: str, place: Callable[[Document], int]
) -> list[Change]:
    """The fields of a known row that the index gives too: silent where both agree."""
    found = []
    for field, now in learned.items():
        if field in ("source", "confirmed", "unconfirmed_fields", "note") or same(row.get(field), now):
            continue
        if field not in row:
            says, kind = f"adds {brief(now)} ({source})", FIELD
        else:
            says = f"was {brief(row[field])} ({cited(row)}), index says {brief(now)} ({source})"
            kind = DIFFERS
        found.append(Change(kind, f"{key}/{field}", says, _setter(place, field, now, source)))
    return found


def _setter(place: Callable[[Document], int], field: str, value: Any, source: str) -> Edit:
    def edit(document: Document) -> None:
        block = document.blocks[place(document)]
        block.set(field, value)
        result = block.values.get("source")
        if isinstance(result, list) and source not in result:
            block.set("source", [*result, source])
        elif isinstance(result, str) and result != source:
            # A row of one source was read from one file: the new value comes from this one.
            block.set("source", [result, source])

    return edit


def same(was: Any, now: Any) -> bool:
    """Whether two values mean the same: the parts of a specifier have no order."""
    if was == now or not isinstance(was, str) or not isinstance(now, str):
        return bool(was == now)
    try:
        return bool(was) and bool(now) and SpecifierSet(was) == SpecifierSet(now)
    except InvalidSpecifier:
        return False


def cited(row: Mapping[str, Any]) -> str:
    """The source that a report cites: the first."""
    source = row.get("source", "")
    if isinstance(source, dict):
        source = list(source.values())
    return str(source[0]) if isinstance(source, list) and source else str(source or "no source")


def brief(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(brief(v) for v in value) or "nothing"
    if isinstance(value, dict):
        return ", ".join(f"{k} {brief(v)}" for k, v in value.items())
    return str(value) if value != "" else '""'
