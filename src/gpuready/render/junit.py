"""Reports as JUnit XML for CI services: one suite per framework, one case per rule."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Finding, Report


def render_junit_xml(reports: Sequence[Report]) -> str:
    suites = "".join(_junit_test_suite(report) for report in reports)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="gpuready">\n{suites}</testsuites>\n'


def _junit_test_suite(report: Report) -> str:
    cases = [_junit_test_case(report, j.code, "") for j in report.judged]
    failures = 0
    for finding in report.findings:
        is_failure = finding.severity == "error" or (report.strict and finding.severity == "warning")
        failures += is_failure
        tag = "failure" if is_failure else "system-out"
        cases.append(
            _junit_test_case(report, finding.code, _junit_result_element(tag, finding.says, _finding_details(finding)))
        )
    for item in report.undecided:
        why = "; ".join(f"{fact.key} is unknown: {fact.gap}" for fact in item.missing)
        is_failure = report.strict or item.severity == "error"
        failures += is_failure
        # Undecided never passes: it fails where it affects the verdict, else it is skipped.
        cases.append(
            _junit_test_case(
                report, item.code, _junit_result_element("failure" if is_failure else "skipped", item.says, why)
            )
        )
    for ignored in report.ignored:
        cases.append(
            _junit_test_case(
                report, ignored.finding.code, _junit_result_element("skipped", ignored.finding.says, ignored.reason)
            )
        )
    for unstated in report.unstated:
        cases.append(
            _junit_test_case(report, unstated.code, _junit_result_element("skipped", unstated.says, "not stated"))
        )
    skipped = sum("<skipped" in case for case in cases)
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
    """Escape markup, and write out characters that XML 1.0 does not allow."""
    out = []
    for letter in text:
        if letter in _XML_ENTITIES:
            out.append(_XML_ENTITIES[letter])
        elif (
            letter in "\t\n\r" or ("\x20" <= letter <= "\ud7ff") or "\ue000" <= letter <= "\ufffd" or letter > "\uffff"
        ):
            out.append(letter)
        else:
            out.append(f"\\x{ord(letter):02x}")
    return "".join(out)


_XML_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
