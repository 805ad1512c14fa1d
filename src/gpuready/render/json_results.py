"""The JSON text of each command's result: the same bytes from the command line, Python, MCP and the web.

Each interface calls a workflow and passes what it returned to the function of that command here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.model import Contract, Facts
from gpuready.model.bench import BenchResult, JobBench
from gpuready.model.contract import ContractCheck
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.fit import FitResult
from gpuready.model.fleet import FleetReport
from gpuready.model.plan import EnvironmentSettings, FixOutcome, InstallResult
from gpuready.model.report_document import ReportDocument
from gpuready.render import bench, diagnosis, fit, fix, install, plan, report
from gpuready.render.json_document import check_report_fields, facts_json_fields, format_json_document
from gpuready.render.plan import PlanSet

ResultRows = Sequence[Mapping[str, Any]]


def render_prove_json(proved: Any) -> str:
    """The Reports after the proofs (``proved.reports``), the evidence, and the file it was saved to."""
    fields = check_report_fields(proved.reports, len(proved.reports) == 1)
    return format_json_document(fields | {"evidence": proved.evidence.to_json(), "saved": proved.saved})


def render_proofs_json(rows: Sequence[Any]) -> str:
    """All known proofs."""
    return format_json_document({"proofs": [row.to_json() for row in rows]})


def render_plan_json(result: PlanSet, single_framework: bool = True) -> str:
    """One plan as itself, several as a list; ``single_framework=False`` makes a list of one too."""
    is_single = single_framework and len(result.plans) == 1
    return format_json_document(
        plan.plan_json_fields(result.plans[0]) if is_single else plan.plan_set_json_fields(result)
    )


def render_install_json(done: InstallResult) -> str:
    """What was installed, rolled back or verified."""
    return format_json_document(install.install_json_fields(done))


def render_fix_json(outcome: FixOutcome) -> str:
    """What was changed, by whom, and what is left."""
    return format_json_document(fix.fix_json_fields(outcome))


def render_fit_json(result: FitResult) -> str:
    """The memory of a job, and what makes it fit."""
    return format_json_document(fit.fit_json_fields(result))


def render_env_json(result: EnvironmentSettings) -> str:
    """The variables a framework wants, with the reason for each."""
    return format_json_document(result.to_json())


def render_diagnose_json(diagnosis_result: Diagnosis) -> str:
    return format_json_document(diagnosis.diagnosis_json_fields(diagnosis_result))


def render_bench_json(result: BenchResult) -> str:
    """Measured values against expected ones."""
    return format_json_document(bench.bench_json_fields(result))


def render_job_bench_json(result: JobBench) -> str:
    """Real steps of a job beside their prediction."""
    return format_json_document(bench.job_bench_fields(result))


def render_measures_json(rows: ResultRows) -> str:
    """All known measures."""
    return format_json_document({"measures": rows})


def render_explain_json(rule_page: Mapping[str, Any]) -> str:
    """The documentation of one rule."""
    return format_json_document(rule_page)


def render_codes_json(items: ResultRows) -> str:
    """All rule codes with their titles."""
    return format_json_document({"rules": items})


def render_probe_json(known: Facts) -> str:
    """The facts of a machine."""
    return format_json_document(facts_json_fields(known))


def render_recording_json(fields: Mapping[str, Any]) -> str:
    """A recorded machine, for ``--on``."""
    return format_json_document(fields)


def render_diff_json(a: str, b: str, changes: Sequence[Any]) -> str:
    """The differences between two machines."""
    return format_json_document({"a": a, "b": b, "changes": [c.to_json() | {"worse": c.is_worse} for c in changes]})


def render_contract_json(one: Contract) -> str:
    """The requirements of one framework."""
    return format_json_document(one.to_json())


def render_contracts_json(rows: ResultRows) -> str:
    """All known frameworks and versions."""
    return format_json_document({"contracts": rows})


def render_contract_diff_json(a: str, b: str, rows: Sequence[Any]) -> str:
    """The differences between two contracts."""
    return format_json_document({"a": a, "b": b, "changes": rows})


def render_contract_check_json(checked: ContractCheck) -> str:
    """A contract file and its faults."""
    return format_json_document(checked.to_json() | {"exit": checked.exit})


def render_fleet_json(report: FleetReport) -> str:
    """All nodes, judged and compared."""
    return format_json_document(report.fields())


def render_report_json(result: ReportDocument) -> str:
    """A whole report: each part as its own command writes it."""
    return format_json_document(report.report_document_fields(result))


def render_start_json(plan: Mapping[str, Any]) -> str:
    """What ``run --dry-run`` would start, and where."""
    return format_json_document(plan)


def render_refused_json(code: int, preflight: Sequence[Any]) -> str:
    """Why ``run`` did not start."""
    return format_json_document({"verdict": "refused", "exit": code, "sights": [s.to_json() for s in preflight]})


def render_run_json(outcome: Any, diagnosis_result: Diagnosis | None) -> str:
    """How a run ended, and why."""
    fields = outcome.to_json() | {"exit": outcome.code}
    return format_json_document(
        fields | ({"diagnosis": diagnosis.diagnosis_json_fields(diagnosis_result)} if diagnosis_result else {})
    )


def render_names_json(kind: str, items: Sequence[str]) -> str:
    """All names of a kind, for shell completion."""
    return format_json_document({"kind": kind, "names": list(items)})
