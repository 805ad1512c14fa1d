"""JSON documents: record fields are the keys, and the schema comes first."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuready import __version__
from gpuready.model import EXIT_CODES, SCHEMA, Facts, Report, worst_verdict
from gpuready.model.facts import verdict_words

RENAMED = {"contract": "requirements", "contract_note": "requirements_note"}
FROM_MACHINES = ("value", "tape")
"""What a machine said, whose names are its own."""


def format_json_document(fields: Mapping[str, Any]) -> str:
    """Format fields as ASCII JSON text, with the schema and the gpuready version first."""
    content = {"schema": SCHEMA, "gpuready": __version__, **fields}
    return json.dumps(_to_document(content), indent=2, default=str) + "\n"


def report_json_fields(one: Report) -> dict[str, Any]:
    """A Report with its verdict; ``host`` is the machine of its facts."""
    fields = {
        "verdict": one.verdict,
        "exit": one.exit,
        "host": one.facts.host,
        "judged_by": one.judged_by,
        "lacking": one.lacking,
    }
    return fields | one.to_json()


def reports_json_fields(several: Sequence[Report]) -> dict[str, Any]:
    """Several Reports, each judged alone, under the worst of their verdicts."""
    verdict = worst_verdict(r.verdict for r in several)
    return {"verdict": verdict, "exit": EXIT_CODES[verdict], "reports": [report_json_fields(r) for r in several]}


def render_check_json(reports: Sequence[Report], single_framework: bool) -> str:
    """``single_framework``: one framework was named, so the result is its Report; otherwise it is a list of any length."""
    return format_json_document(check_report_fields(reports, single_framework))


def render_error_json(kind: str, message: str, exit: int) -> str:
    """Why there is no result: refused, failed, timeout or interrupted; the sentence; the exit code."""
    return format_json_document({"error": {"kind": kind, "message": message, "exit": exit}})


def check_report_fields(reports: Sequence[Report], single_framework: bool) -> dict[str, Any]:
    is_single = single_framework and len(reports) == 1
    return report_json_fields(reports[0]) if is_single else reports_json_fields(reports)


def facts_json_fields(facts: Facts) -> dict[str, Any]:
    return {"host": facts.host, "facts": facts.to_json()}


def _to_document(value: Any, name: str = "") -> Any:
    """Write both spellings of what was renamed, and turn infinity and NaN, which JSON lacks but a recording may contain, into text."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        fields = value.items() if name in FROM_MACHINES else _iter_both_spellings(value)
        return {str(k): _to_document(v, name if name in FROM_MACHINES else str(k)) for k, v in fields}
    if isinstance(value, (list, tuple)):
        return [_to_document(v, name) for v in value]
    return value


def _iter_both_spellings(fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """``verdict`` and its words as ``answer``, ``contract`` and ``requirements``: in this release a document has both."""
    for name, value in fields.items():
        yield name, value
        if name == "verdict" and isinstance(value, str) and value:
            yield "answer", verdict_words(value)
        elif name in RENAMED and RENAMED[name] not in fields:
            yield RENAMED[name], value
