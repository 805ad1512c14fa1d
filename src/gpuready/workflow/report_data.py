"""``gpuready report``: gather the results of other commands, run now or saved in files, for one page."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuready import system, workflow
from gpuready.model import SCHEMA, Facts, Report, report_document, validation
from gpuready.model.fit import FitResult
from gpuready.model.fleet import FleetReport
from gpuready.model.proof import ProofRecord
from gpuready.model.report_document import ReportDocument
from gpuready.prove import selection
from gpuready.workflow import fit, plan, prove
from gpuready.workflow.fit_time import RunClock
from gpuready.workflow.refusal import Refused, read_named_file

GENERATOR_TAG = '<meta name="generator" content="gpuready report'
"""The tag that identifies our pages: only a file with it is overwritten."""
HEAD_BYTES = 1024


def gather_report(
    frameworks: Sequence[str] = (),
    *,
    on: str | None = None,
    python: str | None = None,
    what_if: Mapping[str, str] | None = None,
    proofs: str | None = None,
    bench: str | None = None,
    fit: Sequence[str] = (),
    plan: bool = False,
    fleet: str | None = None,
    run_python: bool = False,
    imports: str = "never",
) -> ReportDocument:
    """Check this machine, and read saved results. With only a fleet file nothing is checked here: this may be no node of it."""
    fleet_report = None if fleet is None else read_fleet_report(fleet)
    benched = (
        None
        if bench is None
        else _read_kept_answer(bench, "gpuready bench -o FILE", report_document.parse_bench_result)
    )
    looks_here = not (fleet_report and not (frameworks or on or python or what_if))
    here: dict[str, Any] = {"on": on, "python": python, "what_if": what_if, "run_python": run_python}
    reports = workflow.check_machine(frameworks, **here, imports=imports) if looks_here else []
    report = ReportDocument(tuple(reports), bench=benched, fleet=fleet_report, made=workflow.utc_timestamp())
    if proofs is not None:
        report = _add_proofs(report, proofs)
    if fit:
        report = report.replace(fit=_read_or_fit(fit, on))
    return _add_plan(report, here) if plan else report


# -- saved results --------------------------------------------------------------------------------------


def read_json_object(path: str, make: str) -> dict[str, Any]:
    """Read a JSON object of this schema from a file."""
    try:
        data = json.loads(read_named_file(path))
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {error}; make it with {make}") from None
    if not isinstance(data, dict):
        raise Refused(f"{path} is no JSON object; make it with {make}")
    schema = data.get("schema", 1)
    if not isinstance(schema, int) or schema > SCHEMA:
        raise Refused(f"{path} has schema {schema!r} and this gpuready reads {SCHEMA}: upgrade gpuready")
    return data


def _read_kept_answer(path: str, make: str, reader: Any) -> Any:
    data = read_json_object(path, make)
    try:
        return reader(data)
    except (ValueError, TypeError, AttributeError) as error:
        raise Refused(f"{path} is not what {make} writes: {error}") from None


def read_fleet_report(path: str) -> FleetReport:
    """Read a fleet report from a file."""
    report: FleetReport = _read_kept_answer(
        path, "gpuready fleet check -o FILE.json", lambda data: validation.parse_record(FleetReport, data)
    )
    return report


def _read_or_fit(words: Sequence[str], on: str | None) -> FitResult:
    """Return a saved result of ``gpuready fit --json``, or fit the named model and job files."""
    if len(words) == 1 and words[0].endswith(".json"):
        data = read_json_object(words[0], "gpuready fit --json")
        if "peak_allocated" in data and "job" in data:
            kept: FitResult = _read_kept_answer(
                words[0], "gpuready fit --json", lambda d: validation.parse_record(FitResult, d)
            )
            return kept
    return fit.fit_job(list(words), on=on, clock=RunClock())


# -- proofs and the plan ----------------------------------------------------------------------------------------


def _add_proofs(report: ReportDocument, path: str) -> ReportDocument:
    """Add the proofs; where they are of this machine, judge the Reports with them: only then can one be *ready*."""
    evidence = prove.read_evidence(path)
    report = report.replace(proofs=evidence)
    if not report.reports:
        return report
    difference = _machine_difference(evidence, report.reports[0].facts)
    if difference:
        note = f"the proofs are not counted: they are of another machine or environment ({difference})"
        return report.replace(notes=(*report.notes, note))
    return report.replace(reports=tuple(_judge_with_proofs(one, evidence) for one in report.reports))


def _machine_difference(evidence: ProofRecord, facts: Facts) -> str:
    """Return the first difference between the evidence's machine and this one; empty where they match."""
    for key, value in evidence.machine.items():
        here = facts.value_if_known(key)
        if _tuples_to_lists(here) != _tuples_to_lists(value):
            return f"{key} is {_short_text(here)} here and {_short_text(value)} there"
    if not evidence.machine:
        return "the evidence does not say what it was made on"
    return ""


def _tuples_to_lists(value: Any) -> Any:
    return [_tuples_to_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


def _short_text(value: Any) -> str:
    return "not known" if value is None else str(value)[:60]


def _judge_with_proofs(report: Report, evidence: ProofRecord) -> Report:
    needed = selection.select_capabilities(report.contract, report.facts)
    seen = prove.add_proof_facts(report.facts, evidence.proofs, needed, selection.list_needed_proofs(needed))
    return workflow.judge_contract(seen, needed, {}, report.strict)


def _add_plan(found: ReportDocument, here: Mapping[str, Any]) -> ReportDocument:
    """Add the plan for the judged frameworks, chosen without asking an index."""
    names = [_framework_spec(report) for report in found.reports]
    if not names:
        raise Refused("--plan plans for a framework: name one, as in gpuready report transformers --plan")
    planned = plan.plan_frameworks(names, **here, resolve=False)
    return found.replace(plans=planned.plans, environments=planned.environments, conflicts=planned.conflicts)


def _framework_spec(report: Report) -> str:
    contract = report.contract
    return contract.framework + (f":{contract.variant}" if contract.variant else "")


# -- the file ---------------------------------------------------------------------------------------------------


def check_overwrite(path: str) -> None:
    """Refuse to overwrite a file that is not a gpuready report."""
    try:
        text = system.LiveHost().read_text(path, HEAD_BYTES)
    except system.AccessError as error:
        raise Refused(f"{path} cannot be written over: {error}; name another file with -o") from None
    if text and GENERATOR_TAG not in text[:HEAD_BYTES]:
        raise Refused(f"{path} exists and is not a report of gpuready: remove it, or name another file with -o")
