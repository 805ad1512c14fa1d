"""The JSON text of each command's answer: what the command line, Python, MCP and the web all give, byte for byte.

No face has a rule of its own: each calls a workflow, and hands what it found to the function of that name here.
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
    """``alone``: one framework was named, and the answer is its Report. Anything else is a list, however long."""
    return json.document(_judged(reports, alone))


def _judged(reports: Sequence[Report], alone: bool) -> dict[str, Any]:
    return json.report(reports[0]) if alone and len(reports) == 1 else json.reports(reports)


def prove(proved: Any) -> str:
    """The Reports after the proofs (``proved.reports``), the evidence, and the file that it is kept in."""
    fields = _judged(proved.reports, len(proved.reports) == 1)
    return json.document(fields | {"evidence": proved.evidence.to_json(), "saved": proved.saved})


def proofs(rows: Sequence[Any]) -> str:
    """Every proof there is."""
    return json.document({"proofs": [row.to_json() for row in rows]})


def plan(found: Several, alone: bool = True) -> str:
    """One plan as itself, several as a list; ``alone=False`` makes a list of one as well."""
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
    """The variables that a framework wants, with the reason for each."""
    return json.document(found.to_json())


def diagnose(found: Diagnosis) -> str:
    """Why a run died."""
    from gpuready.render import diagnosis

    return json.document(diagnosis.fields(found))


def bench(found: Benched) -> str:
    """What was measured, against what is expected."""
    from gpuready.render import bench

    return json.document(bench.fields(found))


def measures(rows: Rows) -> str:
    """Every measure there is."""
    return json.document({"measures": rows})


def explain(story: Mapping[str, Any]) -> str:
    """The long story of one code."""
    return json.document(story)


def codes(every: Rows) -> str:
    """Every code with its title."""
    return json.document({"rules": every})


def probe(known: Facts) -> str:
    """What is seen of a machine."""
    return json.document(json.facts(known))


def recording(fields: Mapping[str, Any]) -> str:
    """A machine in a file, for ``--on``."""
    return json.document(fields)


def diff(a: str, b: str, changes: Sequence[Any]) -> str:
    """What changed between two machines."""
    return json.document({"a": a, "b": b, "changes": [c.to_json() | {"worse": c.worse} for c in changes]})


def contract(one: Contract) -> str:
    """What a framework asks for."""
    return json.document(one.to_json())


def contracts(rows: Rows) -> str:
    """The frameworks and versions that gpuready knows."""
    return json.document({"contracts": rows})


def contract_diff(a: str, b: str, rows: Sequence[Any]) -> str:
    """What changed between two contracts."""
    return json.document({"a": a, "b": b, "changes": rows})


def contract_import(imported: Contract, unplaced: Sequence[tuple[int, str]]) -> str:
    """An environment page as a contract, and what found no place in it."""
    return json.document({"contract": imported.to_json(), "unplaced": unplaced})


def fleet(report: FleetReport) -> str:
    """Every node, judged and compared."""
    return json.document(report.fields())


def report(found: Reported) -> str:
    """A whole report: each part as its own command would write it."""
    from gpuready.render import report

    return json.document(report.fields(found))


def search(query: str, rows: Rows) -> str:
    """What a search over rules, contracts, facts and causes found, best first."""
    return json.document({"query": query, "hits": rows})


def start(plan: Mapping[str, Any]) -> str:
    """What ``run --dry-run`` would start where."""
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
    """Every name of a kind, for a shell that completes it."""
    return json.document({"kind": kind, "names": list(every)})
