"""Shared by the fleet rules: rows of facts about sets of nodes, and how to describe them."""

from collections.abc import Iterable
from typing import Any

from gpuready.model import Facts, Finding, FixStep, Requirement, make_finding

FleetRow = dict[str, Any]


NODE_SET_WIDTH = 48
"""The columns that a set of nodes may take in a sentence; the report contains it whole."""
CITE = "gpuready fleet: nodes of one kind are compared with each other"


def drift_examples(area: str, key: str, want: str, value: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the broken example of a drift rule, 3 of 1,024 nodes with another value, and the healthy one."""
    group = {"value": value, "nodes": "n[0017,0412,0998]", "count": 3}
    row = {"area": area, "key": key, "want": want, "of": 1024, "peers": "all", "against": "majority"}
    return {"fleet.drift": (row | {"split": False, "groups": (group,)},)}, {"fleet.drift": ()}


def fleet_rows(facts: Facts, key: str) -> list[FleetRow]:
    return list(facts.value(key) or ())


def select_drift(facts: Facts, areas: Iterable[str]) -> list[FleetRow]:
    """Return the differences in some areas, those that affect most nodes first."""
    wanted = tuple(areas)
    differences = [row for row in fleet_rows(facts, "fleet.drift") if row["area"] in wanted and not row["split"]]
    return sorted(differences, key=lambda row: -sum(group["count"] for group in row["groups"]))


def drift_finding(
    facts: Facts, areas: tuple[str, ...], *, so: str, fix: tuple[FixStep, ...], error_areas: tuple[str, ...] = ()
) -> Finding | None:
    """Return the finding of a rule about some areas; only a warning if none of ``error_areas`` differs."""
    differences = select_drift(facts, areas)
    if not differences:
        return None
    is_warning = error_areas and not any(row["area"] in error_areas for row in differences)
    return make_finding(
        describe_drift(differences[0], len(differences) - 1),
        found=(facts.fact("fleet.drift"),),
        needs=(Requirement("fleet.drift", "none of " + ", ".join(areas), cite=CITE),),
        so=so,
        fix=fix,
        severity="warning" if is_warning else "",
    )


def first_suspect(facts: Facts, kinds: tuple[str, ...]) -> tuple[FleetRow, int, str] | None:
    """Return the first confirmed suspect of some kinds, its number of tests, and a note about further suspects."""
    confirmed = [row for row in fleet_rows(facts, "fleet.suspects") if row["confirmed"] and row["kind"] in kinds]
    if not confirmed:
        return None
    more = f", and {len(confirmed) - 1:,} more" if len(confirmed) > 1 else ""
    return confirmed[0], confirmed[0]["failed"] + confirmed[0]["passed"], more


def describe_drift(row: FleetRow, more: int = 0) -> str:
    """Return ``driver.version 550.54.15 instead of 580.95.05: 3 of 1,024 nodes differ: n[0017,0412,0998]``."""
    group, *others = row["groups"]
    of, count = row["of"], sum(one["count"] for one in row["groups"])
    verb = "differs" if count == 1 else "differ"
    values = f"{row['key']} {shorten_value(group['value'])} instead of {shorten_value(row['want'])}"
    tail = f", and {more} more difference{'s' if more > 1 else ''}" if more else ""
    where = f"{shorten_node_set(group['nodes'])}{' and others' if others else ''}"
    return f"{values}: {count:,} of {of:,} nodes {verb}: {where}{tail}"


def shorten_node_set(text: str, width: int = NODE_SET_WIDTH) -> str:
    """Cut a set of nodes that is too long for a sentence."""
    return text if len(text) <= width else text[: width - 3].rstrip(",-") + "..."


def shorten_value(value: object, width: int = 20) -> str:
    text = str(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def total_nodes(found: Iterable[FleetRow]) -> int:
    return sum(row["count"] for row in found)


def format_count(count: int, word: str = "node") -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
