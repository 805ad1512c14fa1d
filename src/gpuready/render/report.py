"""A whole report as the fields of one JSON document: each part as its own command writes it."""

from __future__ import annotations

from gpuready.render import bench, fit, json, plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.reported import Reported


def fields(found: Reported) -> dict[str, Any]:
    """The verdict first; a part that was not requested is null."""
    return {
        "kind": "report",
        "verdict": found.verdict,
        "exit": found.exit,
        "made": found.made,
        "reports": [json.report(one) for one in found.reports],
        "proofs": found.proofs.to_json() if found.proofs else None,
        "bench": bench.fields(found.bench) if found.bench else None,
        "fit": fit.fields(found.fit) if found.fit else None,
        "plan": _plan(found),
        "fleet": found.fleet.fields() if found.fleet else None,
        "notes": list(found.notes),
    }


def _plan(found: Reported) -> dict[str, Any] | None:
    if not found.plans:
        return None
    if len(found.plans) == 1:
        return plan.one(found.plans[0])
    verdict = "plan" if all(one.verdict == "plan" for one in found.plans) else "impossible"
    return {
        "verdict": verdict,
        "exit": max(one.exit for one in found.plans),
        "plans": [plan.one(one) for one in found.plans],
        "environments": [list(names) for names in found.environments],
        "conflicts": [conflict.to_json() for conflict in found.conflicts],
    }


def lines(found: Reported) -> str:
    """One line for each framework and for the fleet."""
    from gpuready.render import fleet, text

    told = [text.line(one) for one in found.reports]
    return "".join([*told, *([fleet.line(found.fleet)] if found.fleet else [])])
