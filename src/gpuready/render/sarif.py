"""Reports as SARIF 2.1.0 for code-scanning services."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gpuready import __version__
from gpuready.model import Fact, Finding, Report, UndecidedRule
from gpuready.model.visible_text import escape_strings

SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def render_sarif(reports: Sequence[Report], rule_pages: Mapping[str, Mapping[str, Any]]) -> str:
    """One run with every finding; an undecided rule is a result of kind ``open``."""
    results = [result for report in reports for result in _sarif_results(report)]
    used = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "gpuready",
        "version": __version__,
        "rules": [_sarif_rule(rule_pages[code]) for code in used if code in rule_pages],
    }
    run: dict[str, Any] = {
        "tool": {"driver": driver},
        "results": escape_strings(results),
        "columnKind": "unicodeCodePoints",
    }
    days = sorted({report.catalog for report in reports if report.catalog})
    if days:  # catalogue dates the results were judged by
        run["properties"] = {"catalog": ", ".join(days)}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=2, default=str) + "\n"


def _sarif_rule(rule_page: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": rule_page["code"],
        "name": rule_page["name"],
        "shortDescription": {"text": rule_page["title"]},
        "fullDescription": {"text": rule_page["text"]},
        "defaultConfiguration": {"level": SARIF_LEVELS[rule_page["severity"]]},
    }


def _sarif_results(report: Report) -> list[dict[str, Any]]:
    results = [_sarif_finding_result(report, finding) for finding in report.findings]
    results += [_sarif_open_result(report, item) for item in report.undecided]
    for item in report.ignored:
        suppression = {"kind": "external", "justification": item.reason}
        results.append(_sarif_finding_result(report, item.finding) | {"suppressions": [suppression]})
    return results


def _sarif_finding_result(report: Report, finding: Finding) -> dict[str, Any]:
    steps = "; or ".join(step.does for step in finding.fix)
    message_text = f"{report.contract.name}: {finding.says}. So {finding.so}." + (f" Fix: {steps}." if steps else "")
    properties = {"found": [f.to_json() for f in finding.found], "needs": [n.to_json() for n in finding.needs]}
    return {
        "ruleId": finding.code,
        "level": SARIF_LEVELS[finding.severity],
        "message": {"text": message_text},
        "locations": [
            _sarif_location(fact) for fact in sorted(finding.found, key=lambda fact: _file_and_line(fact)[1] == 0)[:1]
        ],
        "partialFingerprints": {"gpuready/1": f"{report.contract.name}/{finding.code}"},
        "properties": properties,
    }


def _sarif_open_result(report: Report, item: UndecidedRule) -> dict[str, Any]:
    why = "; ".join(f"{fact.key} is unknown: {fact.gap}" for fact in item.missing)
    return {
        "ruleId": item.code,
        "kind": "open",
        "level": "none",
        "message": {"text": f"{report.contract.name}: cannot tell whether {item.says}: {why}."},
    }


def _file_and_line(fact: Fact) -> tuple[str, int]:
    """The file and line that a container file's fact names, such as ``Dockerfile:8``; line 0 for other facts."""
    path, _, rest = fact.source.rpartition(":")
    number = rest.partition(" ")[0]
    is_line = fact.how == "stated" and bool(path) and number.isdigit() and len(number) < 8
    return (path, int(number)) if is_line else (fact.source, 0)


def _sarif_location(fact: Fact) -> dict[str, Any]:
    """The location of the evidence: a file, with its line where known, else a logical name."""
    path, line = _file_and_line(fact)
    if not line and not path.startswith("/"):
        return {"logicalLocations": [{"name": path or "unknown"}]}
    scheme = "file://" if path.startswith("/") else ""  # else relative to the working folder, the repository
    location: dict[str, Any] = {"artifactLocation": {"uri": scheme + quote(path, errors="replace")}}
    return {"physicalLocation": location | ({"region": {"startLine": line}} if line else {})}
