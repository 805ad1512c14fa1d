"""The JSON text of each command's result: the same bytes from the command line, Python, MCP and the web.

Each interface calls a workflow and passes what it returned to the function of that command here.
"""

from __future__ import annotations

from gpuready.render import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.benched import Benched
    from gpuready.diagnosed import Diagnosis
    from gpuready.fitted import Fitted
    from gpuready.fleeted import FleetReport
    from gpuready.model import Contract, Facts, Report
    from gpuready.planned import Installed, Settings
    from gpuready.render.plan import Several
    from gpuready.reported import Reported

    Rows = Sequence[Mapping[str, Any]]


def check(reports: Sequence[Report], alone: bool) -> str:
    """``single_framework``: one framework was named, so the result is its Report; otherwise it is a list of any length."""
    return json.document(_judged(reports, alone))


def _judged(reports: Sequence[Report], alone: bool) -> dict[str, Any]:
    return json.report(reports[0]) if alone and len(reports) == 1 else json.reports(reports)


def prove(proved: Any) -> str:
    """The Reports after the proofs (``proved.reports``), the evidence, and the file it was saved to."""
    fields = _judged(proved.reports, len(proved.reports) == 1)
    return json.document(fields | {"evidence": proved.evidence.to_json(), "saved": proved.saved})


def proofs(rows: Sequence[Any]) -> str:
    """All known proofs."""
    return json.document({"proofs": [row.to_json() for row in rows]})


def plan(found: Several, alone: bool = True) -> str:
    """One plan as itself, several as a list; ``single_framework=False`` makes a list of one too."""
    from gpuready.render import plan

    single = alone and len(found.plans) == 1
    return json.document(plan.one(found.plans[0]) if single else plan.several(found))


def install(done: Installed) -> str:
    """What was installed, rolled back or verified."""
    from gpuready.render import install

    return json.document(install.fields(done))


def fit(found: Fitted) -> str:
    """The memory of a job, and what makes it fit."""
    from gpuready.render import fit

    return json.document(fit.fields(found))


def env(found: Settings) -> str:
    """The variables a framework wants, with the reason for each."""
    return json.document(found.to_json())


def diagnose(found: Diagnosis) -> str:
    from gpuready.render import diagnosis

    return json.document(diagnosis.fields(found))


def bench(found: Benched) -> str:
    """Measured values against expected ones."""
    from gpuready.render import bench

    return json.document(bench.fields(found))


def measures(rows: Rows) -> str:
    """All known measures."""
    return json.document({"measures": rows})


def explain(story: Mapping[str, Any]) -> str:
    """The documentation of one rule."""
    return json.document(story)


def codes(every: Rows) -> str:
    """All rule codes with their titles."""
    return json.document({"rules": every})


def probe(known: Facts) -> str:
    """The facts of a machine."""
    return json.document(json.facts(known))


def recording(fields: Mapping[str, Any]) -> str:
    """A recorded machine, for ``--on``."""
    return json.document(fields)


def diff(a: str, b: str, changes: Sequence[Any]) -> str:
    """The differences between two machines."""
    return json.document({"a": a, "b": b, "changes": [c.to_json() | {"worse": c.worse} for c in changes]})


def contract(one: Contract) -> str:
    """The requirements of one framework."""
    return json.document(one.to_json())


def contracts(rows: Rows) -> str:
    """All known frameworks and versions."""
    return json.document({"contracts": rows})


def contract_diff(a: str, b: str, rows: Sequence[Any]) -> str:
    """The differences between two contracts."""
    return json.document({"a": a, "b": b, "changes": rows})


def contract_import(imported: Contract, unplaced: Sequence[tuple[int, str]]) -> str:
    """An environment page as a contract, and the lines that could not be placed."""
    return json.document({"contract": imported.to_json(), "unplaced": unplaced})


def fleet(report: FleetReport) -> str:
    """All nodes, judged and compared."""
    return json.document(report.fields())


def report(found: Reported) -> str:
    """A whole report: each part as its own command writes it."""
    from gpuready.render import report

    return json.document(report.fields(found))


def search(query: str, rows: Rows) -> str:
    """Search hits over rules, contracts, facts and causes, best first."""
    return json.document({"query": query, "hits": rows})


def start(plan: Mapping[str, Any]) -> str:
    """What ``run --dry-run`` would start, and where."""
    return json.document(plan)


def refused(code: int, sights: Sequence[Any]) -> str:
    """Why ``run`` did not start."""
    return json.document({"verdict": "refused", "exit": code, "sights": [s.to_json() for s in sights]})


def run(outcome: Any, found: Diagnosis | None) -> str:
    """How a run ended, and why."""
    from gpuready.render import diagnosis

    fields = outcome.to_json() | {"exit": outcome.code}
    return json.document(fields | ({"diagnosis": diagnosis.fields(found)} if found else {}))


def names(kind: str, every: Sequence[str]) -> str:
    """All names of a kind, for shell completion."""
    return json.document({"kind": kind, "names": list(every)})
