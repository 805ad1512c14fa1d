"""Reports as JUnit XML for CI services: one suite per framework, one case per rule."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Finding, Report


def document(reports: Sequence[Report]) -> str:
    suites = "".join(_suite(report) for report in reports)
    return f'<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="gpuready">\n{suites}</testsuites>\n'


def _suite(report: Report) -> str:
    cases = [_case(report, j.code, "") for j in report.judged]
    failures = 0
    for finding in report.findings:
        grave = finding.severity == "error" or (report.strict and finding.severity == "warning")
        failures += grave
        tag = "failure" if grave else "system-out"
        cases.append(_case(report, finding.code, _element(tag, finding.says, _story(finding))))
    for item in report.undecided:
        why = "; ".join(f"{fact.key} is unknown: {fact.gap}" for fact in item.missing)
        grave = report.strict or item.severity == "error"
        failures += grave
        # Undecided never passes: it fails where it affects the verdict, else it is skipped.
        cases.append(_case(report, item.code, _element("failure" if grave else "skipped", item.says, why)))
    for aside in report.ignored:
        cases.append(_case(report, aside.finding.code, _element("skipped", aside.finding.says, aside.reason)))
    for open_ in report.unstated:
        cases.append(_case(report, open_.code, _element("skipped", open_.says, "not stated")))
    skipped = sum("<skipped" in case for case in cases)
    head = f'name="{escaped(report.contract.name)}" tests="{len(cases)}" failures="{failures}" skipped="{skipped}"'
    return f"  <testsuite {head}>\n{_catalogue(report)}{''.join(cases)}  </testsuite>\n"


def _catalogue(report: Report) -> str:
    """The catalogue date that the suite was judged by."""
    if not report.catalog:
        return ""
    return f'    <properties><property name="catalog" value="{escaped(report.catalog)}"/></properties>\n'


def _case(report: Report, code: str, inside: str) -> str:
    name = f'    <testcase classname="gpuready.{escaped(report.contract.framework)}" name="{escaped(code)}"'
    return f"{name}>{inside}</testcase>\n" if inside else f"{name}/>\n"


def _element(tag: str, message: str, body: str) -> str:
    if tag == "system-out":
        return f"<system-out>{escaped(message)}\n{escaped(body)}</system-out>"
    return f'<{tag} message="{escaped(message)}">{escaped(body)}</{tag}>'


def _story(finding: Finding) -> str:
    lines = [f"found {f.key}: {f.gap or f.value} ({f.source})" for f in finding.found]
    lines += [f"needs {n.key}: {n.want} ({n.cite})" for n in finding.needs]
    lines += [f"so {finding.so}"] + [f"fix {step.does}" for step in finding.fix]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Escape markup, and write out characters that XML 1.0 does not allow."""
    out = []
    for letter in text:
        if letter in _MARKUP:
            out.append(_MARKUP[letter])
        elif (
            letter in "\t\n\r"
            or ("\x20" <= letter <= "\ud7ff")
            or "\ue000" <= letter <= "\ufffd"
            or letter > "\uffff"
        ):
            out.append(letter)
        else:
            out.append(f"\\x{ord(letter):02x}")
    return "".join(out)


_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
