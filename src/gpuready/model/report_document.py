"""The document of ``gpuready report``, and how it is parsed from JSON.

A document may come from a file, so its parts are validated before they are rendered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from gpuready.model import (
    EXIT_CODES,
    NOT_STATED,
    Contract,
    Fact,
    Facts,
    Finding,
    IgnoredFinding,
    PassedRule,
    Record,
    Report,
    UndecidedRule,
    worst_verdict,
)
from gpuready.model.bench import BenchResult
from gpuready.model.fit import FitResult
from gpuready.model.fleet import FleetReport
from gpuready.model.plan import Plan, PlanConflict
from gpuready.model.proof import ProofRecord
from gpuready.model.validation import parse_record

AnyRecord = TypeVar("AnyRecord", bound=Record)


DOCUMENT_KIND = "report"


class ReportDocument(Record):
    """Everything one report shows about a machine or a fleet; each part comes from its own command."""

    reports: tuple[Report, ...] = ()
    proofs: ProofRecord | None = None
    bench: BenchResult | None = None
    fit: FitResult | None = None
    plans: tuple[Plan, ...] = ()
    environments: tuple[tuple[str, ...], ...] = ()
    conflicts: tuple[PlanConflict, ...] = ()
    fleet: FleetReport | None = None
    made: str = ""  # UTC
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The worst verdict of the frameworks and the fleet; the other parts do not judge the machine."""
        verdicts = [one.verdict for one in self.reports] + ([self.fleet.verdict] if self.fleet else [])
        return worst_verdict(verdicts)

    @property
    def exit(self) -> int:
        return EXIT_CODES[self.verdict]


def parse_report_document(document: object) -> ReportDocument:
    """Parse a report document. ValueError names the invalid part."""
    if not isinstance(document, dict) or document.get("kind", DOCUMENT_KIND) != DOCUMENT_KIND:
        raise ValueError("this is not a document of gpuready report")
    plan = _get_object_field(document, "plan")
    plans = (plan.get("plans") or [plan]) if plan else []
    bench = _get_object_field(document, "bench")
    return ReportDocument(
        tuple(parse_check_report(item) for item in _get_list_field(document, "reports")),
        _parse_optional_record(ProofRecord, document, "proofs"),
        parse_bench_result(bench) if bench else None,
        _parse_optional_record(FitResult, document, "fit"),
        tuple(parse_record(Plan, item) for item in plans),
        tuple(tuple(map(str, names)) for names in _get_list_field(plan or {}, "environments")),
        _parse_record_list(PlanConflict, plan or {}, "conflicts") if len(plans) > 1 else (),
        _parse_optional_record(FleetReport, document, "fleet"),
        str(document.get("made", "")),
        tuple(str(note) for note in _get_list_field(document, "notes")),
    )


def parse_check_report(data: object) -> Report:
    if not isinstance(data, dict):
        raise ValueError("a report must be an object")
    facts = _parse_record_list(Fact, data, "facts")
    stated = any(fact.how == "stated" and fact.key.startswith("gpu.") for fact in facts)
    return Report(
        parse_record(Contract, data.get("requirements", data.get("contract"))),
        Facts(facts, str(data.get("host", "")), NOT_STATED if stated else "nothing looked for it"),
        _parse_record_list(Finding, data, "findings"),
        _parse_record_list(UndecidedRule, data, "undecided"),
        _parse_record_list(UndecidedRule, data, "unstated"),
        _parse_record_list(PassedRule, data, "judged"),
        _parse_record_list(IgnoredFinding, data, "ignored"),
        data.get("strict") is True,
        str(data.get("catalog", "")),
        days if isinstance(days := data.get("catalog_days"), int) and not isinstance(days, bool) else None,
        tuple(str(word) for word in _get_list_field(data, "asked")),
    )


def parse_bench_result(data: Mapping[str, Any]) -> BenchResult:
    """Parse the JSON of ``gpuready bench``."""
    return parse_record(BenchResult, {**data, "report": parse_check_report(data.get("report"))})


def _get_object_field(document: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name!r} must be an object")
    return value or None


def _get_list_field(document: Mapping[str, Any], name: str) -> list[Any]:
    value = document.get(name) or []
    if not isinstance(value, list):
        raise ValueError(f"{name!r} must be a list")
    return value


def _parse_optional_record(record_type: type[AnyRecord], document: Mapping[str, Any], name: str) -> AnyRecord | None:
    value = _get_object_field(document, name)
    return parse_record(record_type, value) if value else None


def _parse_record_list(record_type: type[AnyRecord], document: Mapping[str, Any], name: str) -> tuple[AnyRecord, ...]:
    return tuple(parse_record(record_type, item) for item in _get_list_field(document, name))
