"""Shared by the fleet rules: rows of facts about sets of nodes, and how to describe them."""

from __future__ import annotations

from gpuready.model import Finding, Need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.model import Facts, Step

    Row = dict[str, Any]

ROOM = 48
"""The columns that a set of nodes may take in a sentence; the report contains it whole."""
CITE = "gpuready fleet: equal nodes of one fleet are compared with each other"


def rows(facts: Facts, key: str) -> list[Row]:
    return list(facts.value(key) or ())


def drifting(facts: Facts, facets: Iterable[str], split: bool = False) -> list[Row]:
    """Return the differences in some facets, those that affect most nodes first."""
    wanted = tuple(facets)
    found = [row for row in rows(facts, "fleet.drift") if row["facet"] in wanted and row["split"] is split]
    return sorted(found, key=lambda row: -sum(group["count"] for group in row["groups"]))


def drift(
    facts: Facts,
    code: str,
    severity: str,
    facets: tuple[str, ...],
    *,
    so: str,
    fix: tuple[Step, ...],
    grave: tuple[str, ...] = (),
) -> Finding | None:
    """Return the finding of a rule about some facets; only a warning if none of ``error_facets`` differs."""
    found = drifting(facts, facets)
    if not found:
        return None
    light = grave and not any(row["facet"] in grave for row in found)
    return Finding(
        code,
        "warning" if light else severity,
        differ(found[0], len(found) - 1),
        found=(facts.fact("fleet.drift"),),
        needs=(Need("fleet.drift", "none of " + ", ".join(facets), cite=CITE),),
        so=so,
        fix=fix,
    )


def suspects(facts: Facts, kinds: tuple[str, ...]) -> tuple[Row, int, str] | None:
    """Return the first confirmed suspect of some kinds, its number of tests, and a note about further suspects."""
    found = [row for row in rows(facts, "fleet.suspects") if row["confirmed"] and row["kind"] in kinds]
    if not found:
        return None
    more = f", and {len(found) - 1:,} more" if len(found) > 1 else ""
    return found[0], found[0]["failed"] + found[0]["passed"], more


def differ(row: Row, more: int = 0) -> str:
    """Return ``3 of 1,024 nodes differ: driver.version 550.54.15 instead of 580.95.05: n[0017,0412,0998]``."""
    group, *others = row["groups"]
    of, count = row["of"], sum(one["count"] for one in row["groups"])
    verb = "differs" if count == 1 else "differ"
    values = f"{row['key']} {short(group['value'])} instead of {short(row['want'])}"
    tail = f", and {more} more difference{'s' if more > 1 else ''}" if more else ""
    where = f"{nodes(group['nodes'])}{' and others' if others else ''}"
    return f"{count:,} of {of:,} nodes {verb}: {values}: {where}{tail}"


def nodes(text: str, room: int = ROOM) -> str:
    """Cut a set of nodes that is too long for a sentence."""
    return text if len(text) <= room else text[: room - 3].rstrip(",-") + "..."


def short(value: object, room: int = 20) -> str:
    text = str(value)
    return text if len(text) <= room else f"{text[: room - 3]}..."


def total(found: Iterable[Row]) -> int:
    return sum(row["count"] for row in found)


def plural(count: int, word: str = "node") -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
