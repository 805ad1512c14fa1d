"""The screen of ``gpuready prove``: each proof with its number and bound, failures, verdict."""

from collections.abc import Sequence
from typing import Any

from gpuready.model import Report
from gpuready.model.facts import verdict_words
from gpuready.model.proof import NO_PROOF, PASSED, SKIPPED, ProofRecord, ProofResult
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import check_report, problem_list, units
from gpuready.render import finding as findings
from gpuready.render.layout import Screen, display_width, join_sections, pad_text

_PROOF_MARKS = {PASSED: "ok", SKIPPED: "undecided", "absent": "undecided", "unsupported": "undecided"}
_BOUND_OPERATORS = {"most": "<=", "least": ">=", "equal": "="}
_MAX_NAMES = 12
"""Names of proofs that did not run for one reason; where there are more, how many."""
_MAX_OUTPUT_LINES = 6
"""Output lines shown for a failure."""


def render_proof_screen(
    reports: Sequence[Report],
    evidence: ProofRecord,
    screen: Screen,
    *,
    elapsed: float | None = None,
    verbose: bool = False,
    saved_path: str = "",
    note: str = "",
    commands: Sequence[tuple[str, tuple[str, ...]]] = (),
) -> str:
    verdicts = [line for report in reports for line in _format_proof_verdict(report, evidence, screen)]
    sections = [[*verdicts, *check_report.format_header_rows(reports[0], screen)]]
    sections.append(_format_proof_rows(evidence.proofs, screen, verbose))
    sections += [format_proof_failure(p, screen, verbose) for p in evidence.proofs if _has_failed(p)]
    shown: set[str] = set()
    for report in reports:
        new = [f for f in report.findings if f.severity != "info" and f"{f.code} {f.says}" not in shown]
        shown |= {f"{finding.code} {finding.says}" for finding in new}
        sections += _format_proof_findings(report.replace(findings=tuple(new)), screen, verbose)
    sections.append(_format_unproved_names(reports, screen))
    sections.append(_format_evidence_footer(evidence, screen, elapsed, saved_path, note))
    return join_sections([*sections, [] if verbose else screen.format_labelled_commands(commands)])


def _format_proof_findings(report: Report, screen: Screen, verbose: bool) -> list[list[str]]:
    """What is wrong, as a check lists it; with ``verbose`` the evidence."""
    if not verbose:
        return [problem_list.format_problem_list(report, screen)]
    groups = findings.group_undecided(report)
    undecided = [problem_list.format_open_question(several, screen, True) for several in groups]
    evidence = [findings.format_finding(finding, screen) for finding in report.findings]
    return [*evidence, [line for lines in undecided for line in lines]]


# -- rows ---------------------------------------------------------------------------------------------------


def _format_proof_rows(proofs: Sequence[ProofResult], screen: Screen, verbose: bool) -> list[str]:
    together = {} if verbose else _group_not_run(proofs)
    alone = [p for p in proofs if (p.verdict, p.why) not in together or p.steps]
    names = min(30, max((display_width(escape_unprintable(p.name)) for p in alone), default=0)) + 2
    lines = [line for proof in alone for line in _format_proof_row(proof, names, screen, verbose)]
    return lines + [line for key, several in together.items() for line in _format_not_run_group(*key, several, screen)]


def _group_not_run(proofs: Sequence[ProofResult]) -> dict[tuple[str, str], list[ProofResult]]:
    """Proofs that did not run for the same reason, where there are more than two."""
    groups: dict[tuple[str, str], list[ProofResult]] = {}
    for proof in proofs:
        if not proof.steps and not _has_failed(proof):
            groups.setdefault((proof.verdict, proof.why), []).append(proof)
    return {key: several for key, several in groups.items() if len(several) > 2}


def _format_not_run_group(verdict: str, why: str, several: list[ProofResult], screen: Screen) -> list[str]:
    first, *rest = screen.align_ends(f"{len(several)} {verdict}: {why}", "not run", 4)
    mark = screen.status_mark(_PROOF_MARKS.get(verdict, "error"))
    names = [proof.name for proof in several]
    if len(names) > _MAX_NAMES and verdict != "absent":
        names = [*names[: _MAX_NAMES - 1], f"{len(names) - _MAX_NAMES + 1} more (-v)"]
    name_lines = screen.format_paragraph(", ".join(names), 6)
    return [f"  {mark} {first}", *("    " + line for line in rest), *name_lines]


def _format_proof_row(proof: ProofResult, names: int, screen: Screen, verbose: bool) -> list[str]:
    start = 2 + (2 if screen.ascii else 1) + 1 + names
    name = screen.truncate_text(proof.name, names - 2)
    first, *rest = screen.align_ends(_describe_proof_outcome(proof), _proof_device_and_time(proof), start)
    mark = screen.status_mark(_PROOF_MARKS.get(proof.verdict, "error"))
    lines = [f"  {mark} {pad_text(name, names)}{first}", *(" " * start + line for line in rest)]
    return lines + (screen.format_paragraphs(_list_proof_numbers(proof), start) if verbose else [])


def _proof_device_and_time(proof: ProofResult) -> str:
    return f"{proof.device}  {units.format_seconds(proof.seconds)}" if proof.steps else "not run"


def _describe_proof_outcome(proof: ProofResult) -> str:
    """``error 6e-07 <= 2e-06``; for a proof that did not pass, why."""
    if proof.verdict == PASSED:
        executed = "" if executed_before(proof) else "not tested before"
        return "; ".join(part for part in (format_key_number(proof), _describe_proof_backend(proof), executed) if part)
    if _has_failed(proof):
        return proof.verdict + (f" in: {proof.last_step}" if proof.last_step else "")
    return f"{proof.verdict}: {proof.why}"


def _describe_proof_backend(proof: ProofResult) -> str:
    """The attention backend, precision or rank count, where a proof reports them."""
    backends = [str(proof.hardware[key]) for key in ("backend", "precision") if key in proof.hardware]
    ranks = proof.hardware.get("ranks")
    return ", ".join([*backends, *([f"{ranks} ranks"] if ranks else [])])


def executed_before(proof: ProofResult) -> bool:
    """Whether we have executed it on this kind of hardware before and kept the record."""
    places = set(proof.executed.replace(",", " ").split())
    return "cpu" in places if proof.device == "cpu" else bool(places - {"cpu"})


def format_key_number(proof: ProofResult) -> str:
    """The error nearest to its bound; without errors, the last bounded number."""
    bounded = {n: row for n, row in proof.numbers.items() if row.get("bound")}
    if not bounded:
        return ""
    errors = [name for name in bounded if name.endswith("_error")]
    name = max(errors, key=lambda n: _bound_share(bounded[n])) if errors else list(bounded)[-1]
    more = f", {units.format_count(len(bounded) - 1, 'more number')}" if len(bounded) > 1 else ""
    return _format_bounded_number(name, bounded[name]) + more


def _bound_share(row: dict[str, Any]) -> float:
    """The fraction of its bound that a number uses."""
    value, limit = row["value"], row["limit"]
    return -1.0 if isinstance(value, str) or isinstance(limit, str) or not limit else abs(value / limit)


def _format_bounded_number(name: str, row: dict[str, Any]) -> str:
    value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.3g}"
    bound = f" {_BOUND_OPERATORS[row['bound']]} {row['limit']:.3g}" if row.get("bound") else ""
    unit = f" {row['unit']}" if row.get("unit") else ""
    return f"{name.replace('_', ' ')} {value}{unit}{bound}"


def _list_proof_numbers(proof: ProofResult) -> list[str]:
    numbers = [_format_bounded_number(name, row) for name, row in proof.numbers.items()]
    versions = ", ".join(f"{name} {version}" for name, version in proof.versions.items() if version)
    return [*numbers, *([versions] if versions else [])]


# -- failures -----------------------------------------------------------------------------------------------


def _has_failed(proof: ProofResult) -> bool:
    return proof.verdict in ("failed", "crashed", "hung")


def format_proof_failure(proof: ProofResult, screen: Screen, verbose: bool = False) -> list[str]:
    """Where it ended, and the last lines of its output."""
    lines = screen.lead_paragraph(f"{proof.name}:", f"{proof.verdict}: {proof.why}", "error")
    if proof.steps:
        lines += screen.format_paragraph(f"steps: {', '.join(proof.steps)}", 2, 2)
    if proof.cause:
        lines += screen.format_paragraph(f"cause: {proof.cause['code']}: {proof.cause['says']}", 2, 2)
    output_lines = [line for line in proof.output.splitlines() if line.strip()]
    shown = output_lines if verbose else output_lines[-_MAX_OUTPUT_LINES:]
    if len(shown) < len(output_lines):
        lines.append(f"  ({len(output_lines) - len(shown)} lines before: -v)")
    return [*lines, *("  | " + screen.truncate_text(line, screen.width - 4) for line in shown)]


def _format_unproved_names(reports: Sequence[Report], screen: Screen) -> list[str]:
    proofs = [fact for fact in reports[0].facts if fact.key.startswith("can.")]
    names = [fact.key.removeprefix("can.") for fact in proofs if fact.gap == NO_PROOF]
    return screen.format_paragraph(f"no proof yet for: {', '.join(names)}", 0, 2) if names else []


# -- verdict ------------------------------------------------------------------------------------------------


_FAILED_BEYOND_NEED = "some proofs failed"
"""In the place of a good verdict: the framework does not require what failed, but nobody would call that no problem."""


def _format_proof_verdict(report: Report, evidence: ProofRecord, screen: Screen) -> list[str]:
    codes = dict.fromkeys(f.code for f in report.findings if f.severity == "error")
    word, role = verdict_words(report.verdict), check_report.VERDICT_ROLES[report.verdict]
    if role == "ok" and any(_has_failed(proof) for proof in evidence.proofs):
        word, role = _FAILED_BEYOND_NEED, "undecided"
    behind = f" ({', '.join(codes)})" if codes else ""
    counts = units.count_words(proof.verdict for proof in evidence.proofs)
    return screen.format_header(f"{word}: {counts}{behind}", check_report.describe_subject(report), role, word)


def _format_evidence_footer(
    evidence: ProofRecord, screen: Screen, elapsed: float | None, saved_path: str, note: str
) -> list[str]:
    took = "" if elapsed is None else f" in {units.format_seconds(elapsed)}"
    texts = [f"evidence {evidence.digest[:23]}, made {evidence.made}{took}"]
    texts += [f"saved in {saved_path}"] if saved_path else []
    return screen.format_paragraphs([*texts, *([note] if note else [])], 2, 2)


def render_proof_list(rows: Sequence[Any], screen: Screen) -> str:
    """All proofs: name, device, what each shows, and where we have executed it."""
    cells = [
        (
            row.name,
            row.device + (f", {row.gpus} GPUs" if row.gpus > 1 else ""),
            row.says + (f" ({row.package})" if row.package else ""),
            row.executed or "not tested",
        )
        for row in rows
    ]
    head = ("proof", "runs on", "what it proves", "tested on")
    return "\n".join(line for lines in screen.format_table([head, *cells]) for line in lines) + "\n"
