"""Environments of one machine as the nodes of a fleet: which of them break, as by another driver."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpuready import workflow
from gpuready.model import worst_verdict
from gpuready.model.fleet import ANSWERED, ENVIRONMENTS, FleetReport
from gpuready.model.node_names import fold_node_names
from gpuready.workflow.fleet import rule_meaning
from gpuready.workflow.fleet_node import verdict_codes
from gpuready.workflow.fleet_run import FleetTask, ShowProgress
from gpuready.workflow.refusal import Refused


def check_environments(
    task: FleetTask, environments: Sequence[str], recordings: Sequence[str], show_progress: ShowProgress
) -> FleetReport:
    """Check each environment on this machine, or on the recorded one, as if it had another driver."""
    what_if = task.options.get("what_if") or {}
    if len(recordings) > 1:
        raise Refused("environments are checked for one machine: name one recording")
    started, gpus = time.monotonic(), 0
    verdicts: dict[str, list[str]] = {}
    codes: dict[str, list[str]] = {}
    judged: dict[str, None] = {}
    for number, path in enumerate(environments):
        show_progress("checking environments", number, len(environments))
        reports = workflow.check_machine(
            task.frameworks,
            on=next(iter(recordings), None),
            python=path,
            what_if=what_if,
            wants=task.options.get("wants"),
            strict=task.strict,
        )
        verdict = worst_verdict(report.verdict for report in reports)
        verdicts.setdefault(verdict, []).append(path)
        for code in dict.fromkeys(verdict_codes(reports, verdict)):
            codes.setdefault(code, []).append(path)
        judged |= dict.fromkeys(report.contract.judged_name for report in reports)
        gpus = reports[0].facts.value_if_known("gpu.count") or 0
    return FleetReport(
        "check",
        ENVIRONMENTS,
        len(environments),
        verdicts={verdict: fold_node_names(paths) for verdict, paths in verdicts.items()},
        states={ANSWERED: fold_node_names(environments)},
        codes={code: fold_node_names(paths) for code, paths in codes.items()},
        meanings={code: rule_meaning(code) for code in codes},
        seconds=time.monotonic() - started,
        strict=task.strict,
        gpus=gpus,
        judged=tuple(judged),
        environment="each environment",
        notes=tuple(f"as if: {name} {value}" for name, value in what_if.items()),
    )
