"""Reports as JUnit XML for CI services: one suite per framework, one case per rule."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpuready.model import Finding, Report
from gpuready.model.facts import UNSTATED_TEXT
from gpuready.model.visible_text import escape_lines


def render_junit_xml(reports: Sequence[Report]) -> str:
    suites = "".join(_junit_test_suite(report) for report in reports)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="gpuready">\n{suites}</testsuites>\n'


def _junit_test_suite(report: Report) -> str:
    results = [(rule.code, "") for rule in report.judged]
    for finding in report.findings:
        fails = finding.severity == "error" or (report.strict and finding.severity == "warning")
        tag = "failure" if fails else "system-out"
        results.append((finding.code, _junit_result_element(tag, finding.says, _finding_details(finding))))
    for item in report.undecided:
        why = "; ".join(f"{fact.key} is unknown: {fact.gap}" for fact in item.missing)
        # Undecided never passes: it fails where it affects the verdict, else it is skipped.
        tag = "failure" if report.strict or item.severity == "error" else "skipped"
        results.append((item.code, _junit_result_element(tag, item.says, why)))
    for one in report.ignored:
        results.append((one.finding.code, _junit_result_element("skipped", one.finding.says, one.reason)))
    for item in report.unstated:
        results.append((item.code, _junit_result_element("skipped", item.says, UNSTATED_TEXT)))
    cases = [_junit_test_case(report, code, inside) for code, inside in results]
    failures = sum(inside.startswith("<failure") for _, inside in results)
    skipped = sum(inside.startswith("<skipped") for _, inside in results)
    head = f'name="{escape_xml(report.contract.name)}" tests="{len(cases)}" failures="{failures}" skipped="{skipped}"'
    return f"  <testsuite {head}>\n{_junit_catalog_property(report)}{''.join(cases)}  </testsuite>\n"


def _junit_catalog_property(report: Report) -> str:
    """The catalogue date that the suite was judged by."""
    if not report.catalog:
        return ""
    return f'    <properties><property name="catalog" value="{escape_xml(report.catalog)}"/></properties>\n'


def _junit_test_case(report: Report, code: str, inside: str) -> str:
    name = f'    <testcase classname="gpuready.{escape_xml(report.contract.framework)}" name="{escape_xml(code)}"'
    return f"{name}>{inside}</testcase>\n" if inside else f"{name}/>\n"


def _junit_result_element(tag: str, message: str, body: str) -> str:
    if tag == "system-out":
        return f"<system-out>{escape_xml(message)}\n{escape_xml(body)}</system-out>"
    return f'<{tag} message="{escape_xml(message)}">{escape_xml(body)}</{tag}>'


def _finding_details(finding: Finding) -> str:
    lines = [f"found {f.key}: {f.gap or f.value} ({f.source})" for f in finding.found]
    lines += [f"needs {n.key}: {n.want} ({n.cite})" for n in finding.needs]
    lines += [f"so {finding.so}"] + [f"fix {step.does}" for step in finding.fix]
    return "\n".join(lines)


def escape_xml(text: str) -> str:
    """Escape markup; what XML 1.0 does not allow cannot be seen either, and is written out."""
    return escape(escape_lines(text), quote=False).replace('"', "&quot;").replace("'", "&apos;")
