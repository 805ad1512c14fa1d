"""The verdict on what was stated: a driver or torch that a test leaves out is no fault."""

from __future__ import annotations

from gpuready.model.report import Report


def found_wrong(report: Report) -> str:
    """The verdict, *clear* where only what was not given leaves it open."""
    is_open = report.verdict == "undecided" and report.lacking and all(u.severity != "error" for u in report.undecided)
    return "clear" if is_open else report.verdict
