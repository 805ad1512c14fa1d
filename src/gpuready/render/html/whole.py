"""The view of a whole report for its template: one part for each requested thing."""

from __future__ import annotations

from gpuready import __version__
from gpuready.proven import PASSED
from gpuready.render import again, prove
from gpuready.render import plan as planning
from gpuready.render.escape import command
from gpuready.render.html import charts, fleet, topology
from gpuready.render.html.judged import ROLES, mark, step, table
from gpuready.render.html.judged import view as judged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.planned import Plan
    from gpuready.proven import Evidence, Proof
    from gpuready.reported import Reported

_PROOF = {"passed": "ok", "failed": "error", "crashed": "error", "hung": "error"}


def view(found: Reported) -> dict[str, Any]:
    reports = [judged(one) for one in found.reports]
    facts = found.reports[0].facts if found.reports else None
    parts: dict[str, Any] = {
        "machine": topology.view(facts) if facts is not None else None,
        "reports": reports,
        "proofs": _proofs(found.proofs) if found.proofs else None,
        "bench": charts.bench(found.bench) if found.bench else None,
        "memory": charts.memory(found.fit) if found.fit else None,
        "plans": [_plan(one) for one in found.plans],
        "environments": found.environments,
        "conflicts": found.conflicts,
        "facts": table(facts) if facts is not None else [],
        "fleet": fleet.view(found.fleet) if found.fleet else None,
    }
    return parts | {
        "title": _title(found),
        "verdict": found.verdict.replace("-", " "),
        "mark": mark(ROLES[found.verdict]),
        "host": facts.host if facts is not None else "",
        "summary": reports[0]["machine"] if reports else "",
        "made": found.made,
        "notes": found.notes,
        "version": __version__,
        "sections": [(anchor, name) for anchor, name, part in _sections(parts) if part],
    }


def _title(found: Reported) -> str:
    if found.fleet and not found.reports:
        return f"fleet of {found.fleet.nodes:,} nodes"
    host = found.reports[0].facts.host if found.reports else ""
    return ", ".join(one.contract.name for one in found.reports) + (f" on {host}" if host else "")


def _sections(parts: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [
        ("fleet", "Fleet", parts["fleet"]),
        ("machine", "Machine", parts["machine"]),
        ("ladder", "Ladder", parts["reports"]),
        ("findings", "Findings", parts["reports"]),
        ("proofs", "Proofs", parts["proofs"]),
        ("bench", "Bench", parts["bench"]),
        ("memory", "Memory", parts["memory"]),
        ("plan", "Plan", parts["plans"]),
        ("facts", "Facts", parts["facts"]),
    ]


# -- proofs -----------------------------------------------------------------------------------------------------


def _proofs(evidence: Evidence) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for one in evidence.proofs:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    return {
        "evidence": evidence,
        "counts": ", ".join(f"{count} {verdict}" for verdict, count in counts.items()),
        "rows": [_proof(one) for one in evidence.proofs],
    }


def _proof(one: Proof) -> dict[str, Any]:
    return {
        "one": one,
        "mark": mark(_PROOF.get(one.verdict, "undecided")),
        "numbers": [_number(name, row) for name, row in one.numbers.items()],
        "versions": ", ".join(f"{name} {version}" for name, version in one.versions.items() if version),
        "known": prove.known(one) if one.verdict == PASSED else True,
        "cause": {"code": one.cause.get("code", ""), "says": one.cause.get("says", "")}
        if one.cause
        else None,
    }


def _number(name: str, row: dict[str, Any]) -> dict[str, str]:
    """A number with its unit and its bound."""
    value, limit = row.get("value"), row.get("limit")
    bound = {"most": "at most", "least": "at least", "equal": "equal to"}.get(str(row.get("bound") or ""), "")
    return {
        "name": name.replace("_", " "),
        "value": _plain(value),
        "unit": str(row.get("unit") or ""),
        "bound": f"{bound} {_plain(limit)}" if bound else "",
    }


def _plain(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:.3g}" if number else str(value)


# -- plan -------------------------------------------------------------------------------------------------------


def _plan(one: Plan) -> dict[str, Any]:
    own = one.packages.get(one.framework, one.version)
    chosen = [("Python", one.python, ""), ("torch", one.torch, _torch(one)), (one.framework, own, "")]
    return {
        "one": one,
        "name": planning._name(one),
        "mark": mark("ok" if one.verdict == "plan" else "error"),
        "chosen": [row for row in chosen if row[1]] if one.verdict == "plan" else [],
        "kernels": [(kernel, planning._how(kernel)) for kernel in one.kernels],
        "steps": [step(each) for each in one.steps],
        "install": " ".join(command(again.installing(one))) if one.lock else "",
    }


def _torch(one: Plan) -> str:
    return f"{f'CUDA {one.cuda}' if one.cuda else 'no CUDA'}, from {planning._where(one)}"
