"""The JSON text of each command's result: the same bytes from the command line, Python, MCP and the web.

Each interface calls a workflow and passes what it returned to ``render_json`` with the name of the document.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import methodcaller
from typing import Any

from gpuready.model import Record
from gpuready.model.diagnosis import Diagnosis
from gpuready.render import bench, diagnosis, fit, fix, install, plan, report
from gpuready.render.json_document import check_report_fields, facts_json_fields, format_json_document
from gpuready.render.plan import PlanSet


def render_json(document: str, *found: Any) -> str:
    return format_json_document(FIELDS[document](*found))


def renderer(document: str) -> Callable[[Any], str]:
    """Return what renders a document of this name."""
    return partial(render_json, document)


def _prove_fields(proved: Any) -> dict[str, Any]:
    """The Reports after the proofs (``proved.reports``), the evidence, and the file it was saved to."""
    fields = check_report_fields(proved.reports, len(proved.reports) == 1)
    return fields | {"evidence": proved.evidence.to_json(), "saved": proved.saved}


def _plan_fields(result: PlanSet) -> dict[str, Any]:
    """One plan as itself, several as a list."""
    return plan.plan_json_fields(result.plans[0]) if len(result.plans) == 1 else plan.plan_set_json_fields(result)


def _run_fields(outcome: Any, found: Diagnosis | None) -> dict[str, Any]:
    fields: dict[str, Any] = outcome.to_json() | {"exit": outcome.code}
    return fields | ({"diagnosis": diagnosis.diagnosis_json_fields(found)} if found else {})


def _refused_fields(code: int, preflight: Sequence[Record]) -> dict[str, Any]:
    """Why ``run`` did not start."""
    return {"verdict": "refused", "exit": code, "sights": [one.to_json() for one in preflight]}


def _as_it_is(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields


FIELDS: dict[str, Callable[..., Mapping[str, Any]]] = {
    "prove": _prove_fields,
    "proofs": lambda rows: {"proofs": [row.to_json() for row in rows]},
    "plan": _plan_fields,
    "install": install.install_json_fields,
    "fix": fix.fix_json_fields,
    "fit": fit.fit_json_fields,
    "env": methodcaller("to_json"),
    "diagnose": diagnosis.diagnosis_json_fields,
    "bench": bench.bench_json_fields,
    "job_bench": bench.job_bench_fields,
    "measures": lambda rows: {"measures": rows},
    "explain": _as_it_is,
    "codes": lambda rows: {"rules": rows},
    "probe": facts_json_fields,
    "recording": _as_it_is,
    "diff": lambda a, b, rows: {"a": a, "b": b, "changes": [c.to_json() | {"worse": c.is_worse} for c in rows]},
    "contract": methodcaller("to_json"),
    "contracts": lambda rows: {"contracts": rows},
    "contract_diff": lambda a, b, rows: {"a": a, "b": b, "changes": rows},
    "contract_check": lambda checked: checked.to_json() | {"exit": checked.exit},
    "fleet": methodcaller("fields"),
    "report": report.report_document_fields,
    "start": _as_it_is,
    "refused": _refused_fields,
    "run": _run_fields,
    "names": lambda kind, names: {"kind": kind, "names": list(names)},
}
"""The fields of each document by its name, which is also its name in the published schema."""
