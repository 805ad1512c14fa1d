"""Reports as JUnit XML for CI services: one suite per framework, one case per rule."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gpuready.model import Finding, Report
from gpuready.model.facts import UNSTATED_TEXT
from gpuready.model.visible_text import escape_lines


def render_junit_xml(reports: Sequence[Report]) -> str:
    root = Element("testsuites", name="gpuready")
    root.extend(map(_make_test_suite, reports))
    indent(root)
    return f"{tostring(root, 'utf-8', xml_declaration=True).decode()}\n"


def _make_test_suite(report: Report) -> Element:
    """The cases of a report; what XML 1.0 does not allow cannot be seen either, and is written out."""
    suite = Element("testsuite", name=escape_lines(report.contract.name))
    if report.catalog:  # the date that it was judged by
        SubElement(SubElement(suite, "properties"), "property", name="catalog", value=escape_lines(report.catalog))
    tags = []
    for code, tag, message, body in _list_results(report):
        tags.append(tag)
        case = SubElement(suite, "testcase", classname=escape_lines(f"gpuready.{report.contract.framework}"), name=code)
        if tag == "system-out":
            SubElement(case, tag).text = escape_lines(f"{message}\n{body}")
        elif tag:
            SubElement(case, tag, message=escape_lines(message)).text = escape_lines(body)
    counts = {"tests": len(tags), "failures": tags.count("failure"), "skipped": tags.count("skipped")}
    suite.attrib |= {name: str(count) for name, count in counts.items()}
    return suite


def _list_results(report: Report) -> Iterator[tuple[str, str, str, str]]:
    """Code, element, message and details of each rule; undecided never passes: it fails where it affects the verdict."""
    yield from ((rule.code, "", "", "") for rule in report.judged)
    for finding in report.findings:
        fails = finding.severity == "error" or (report.strict and finding.severity == "warning")
        yield finding.code, "failure" if fails else "system-out", finding.says, _finding_details(finding)
    for item in report.undecided:
        why = "; ".join(f"{fact.key} is unknown: {fact.gap}" for fact in item.missing)
        yield item.code, "failure" if report.strict or item.severity == "error" else "skipped", item.says, why
    yield from ((one.finding.code, "skipped", one.finding.says, one.reason) for one in report.ignored)
    yield from ((item.code, "skipped", item.says, UNSTATED_TEXT) for item in report.unstated)


def _finding_details(finding: Finding) -> str:
    lines = [f"found {f.key}: {f.gap or f.value} ({f.source})" for f in finding.found]
    lines += [f"needs {n.key}: {n.want} ({n.cite})" for n in finding.needs]
    return "\n".join([*lines, f"so {finding.so}", *(f"fix {step.does}" for step in finding.fix)])
