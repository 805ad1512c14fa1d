"""The screen of ``gpuready prove``: each proof with its number and bound, failures, verdict."""

from __future__ import annotations

from gpuready.proven import PASSED, SKIPPED
from gpuready.render import finding as findings
from gpuready.render import summary, text, units
from gpuready.render.escape import visible
from gpuready.render.layout import Screen, columns, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.model import Report
    from gpuready.proven import Evidence, Proof

_MARKS = {PASSED: "ok", SKIPPED: "undecided", "absent": "undecided", "unsupported": "undecided"}
_SIGNS = {"most": "<=", "least": ">=", "equal": "="}
_LAST = 6
"""Output lines shown for a failure."""


def page(
    reports: Sequence[Report],
    evidence: Evidence,
    screen: Screen,
    *,
    elapsed: float | None = None,
    verbose: bool = False,
    kept: str = "",
    note: str = "",
) -> str:
    sections = [_head(reports, evidence, screen), _rows(evidence.proofs, screen, verbose)]
    sections += [failure(p, screen, verbose) for p in evidence.proofs if _broken(p)]
    seen: set[str] = set()
    for report in reports:
        for found in report.findings:
            told = f"{found.code} {found.says}"
            if found.severity != "info" and told not in seen:
                seen.add(told)
                sections.append(findings.block(found, screen))
        sections.append(
            [line for several in text._by_reason(report) for line in findings.undecided(several, screen)]
        )
    sections.append(_unproved(reports, screen))
    sections.append([line for report in reports for line in _verdict(report, evidence, screen, elapsed)])
    sections.append(_foot(evidence, screen, kept, note))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _head(reports: Sequence[Report], evidence: Evidence, screen: Screen) -> list[str]:
    names = ", ".join(visible(report.contract.name) for report in reports)
    facts = reports[0].facts
    left = f"{names} on {visible(evidence.host)}" if evidence.host else names
    return screen.ends(left, summary.machine(facts))


# -- rows ---------------------------------------------------------------------------------------------------


def _rows(proofs: Sequence[Proof], screen: Screen, verbose: bool) -> list[str]:
    together = {} if verbose else _left_out(proofs)
    alone = [p for p in proofs if (p.verdict, p.why) not in together or p.steps]
    names = min(30, max((columns(visible(p.name)) for p in alone), default=0)) + 2
    lines = [line for proof in alone for line in _row(proof, names, screen, verbose)]
    return lines + [line for key, several in together.items() for line in _group(*key, several, screen)]


def _left_out(proofs: Sequence[Proof]) -> dict[tuple[str, str], list[Proof]]:
    """Proofs that did not run for the same reason, where there are more than two."""
    found: dict[tuple[str, str], list[Proof]] = {}
    for proof in proofs:
        if not proof.steps and not _broken(proof):
            found.setdefault((proof.verdict, proof.why), []).append(proof)
    return {key: several for key, several in found.items() if len(several) > 2}


def _group(verdict: str, why: str, several: list[Proof], screen: Screen) -> list[str]:
    first, *rest = screen.ends(f"{len(several)} {visible(verdict)}: {visible(why)}", "not run", 4)
    told = screen.paragraph(visible(", ".join(proof.name for proof in several)), 6)
    mark = screen.mark(_MARKS.get(verdict, "error"))
    return [f"  {mark} {first}", *("    " + line for line in rest), *told]


def _row(proof: Proof, names: int, screen: Screen, verbose: bool) -> list[str]:
    start = 2 + (2 if screen.ascii else 1) + 1 + names
    name = screen.cut(visible(proof.name), names - 2)
    first, *rest = screen.ends(_what(proof), _right(proof), start)
    lines = [
        f"  {screen.mark(_mark(proof))} {pad(name, names)}{first}",
        *(" " * start + line for line in rest),
    ]
    if verbose:
        lines += [line for each in _numbers(proof) for line in screen.paragraph(each, start)]
    return lines


def _mark(proof: Proof) -> str:
    return _MARKS.get(proof.verdict, "error")


def _right(proof: Proof) -> str:
    device = visible(proof.device)
    if not proof.steps:
        return "not run"
    return f"{device}  {units.seconds(proof.seconds)}"


def _what(proof: Proof) -> str:
    """``error 6e-07 <= 2e-06``; for a proof that did not pass, why."""
    if proof.verdict == PASSED:
        told = [key_number(proof), _way(proof), "" if known(proof) else "never executed by us before"]
        return "; ".join(part for part in told if part)
    if _broken(proof):
        return visible(proof.verdict) + (f" in: {visible(proof.where)}" if proof.where else "")
    return visible(f"{proof.verdict}: {proof.why}")


def _way(proof: Proof) -> str:
    """The attention backend, precision or rank count, where a proof reports them."""
    told = [visible(str(proof.hardware[key])) for key in ("backend", "precision") if key in proof.hardware]
    ranks = proof.hardware.get("ranks")
    return ", ".join([*told, *([f"{ranks} ranks"] if ranks else [])])


def known(proof: Proof) -> bool:
    """Whether we have executed it on this kind of hardware before and kept the record."""
    places = set(proof.executed.replace(",", " ").split())
    return "cpu" in places if proof.device == "cpu" else bool(places - {"cpu"})


def key_number(proof: Proof) -> str:
    """The error nearest to its bound; without errors, the last bounded number."""
    bounded = {n: row for n, row in proof.numbers.items() if row.get("bound")}
    if not bounded:
        return ""
    errors = [name for name in bounded if name.endswith("_error")]
    name = max(errors, key=lambda n: _share(bounded[n])) if errors else list(bounded)[-1]
    more = len(bounded) - 1
    return _number(name, bounded[name]) + (f", {units.counted(more, 'more number')}" if more else "")


def _share(row: dict[str, Any]) -> float:
    """The fraction of its bound that a number uses."""
    value, limit = row["value"], row["limit"]
    return -1.0 if isinstance(value, str) or isinstance(limit, str) or not limit else abs(value / limit)


def _number(name: str, row: dict[str, Any]) -> str:
    value = row["value"] if isinstance(row["value"], str) else f"{row['value']:.3g}"
    bound = f" {_SIGNS[row['bound']]} {row['limit']:.3g}" if row.get("bound") else ""
    unit = f" {visible(row['unit'])}" if row.get("unit") else ""
    return f"{visible(name).replace('_', ' ')} {value}{unit}{bound}"


def _numbers(proof: Proof) -> list[str]:
    told = [_number(name, row) for name, row in proof.numbers.items()]
    versions = ", ".join(f"{visible(k)} {visible(v)}" for k, v in proof.versions.items() if v)
    return [*told, *([versions] if versions else [])]


# -- failures -----------------------------------------------------------------------------------------------


def _broken(proof: Proof) -> bool:
    return proof.verdict in ("failed", "crashed", "hung")


def failure(proof: Proof, screen: Screen, verbose: bool = False) -> list[str]:
    """Where it ended, and the last lines of its output."""
    lines = screen.led(f"{visible(proof.name)}:", visible(f"{proof.verdict}: {proof.why}"), "error")
    if proof.steps:
        lines += screen.paragraph("steps: " + visible(", ".join(proof.steps)), 2, 2)
    if proof.cause:
        lines += screen.paragraph(visible(f"cause: {proof.cause['code']}: {proof.cause['says']}"), 2, 2)
    said = [line for line in proof.output.splitlines() if line.strip()]
    shown = said if verbose else said[-_LAST:]
    if len(shown) < len(said):
        lines.append(f"  {len(said) - len(shown)} lines, then")
    return [*lines, *("  | " + screen.cut(visible(line), screen.width - 4) for line in shown)]


def _unproved(reports: Sequence[Report], screen: Screen) -> list[str]:
    names = [
        fact.key.removeprefix("can.")
        for fact in reports[0].facts
        if fact.key.startswith("can.") and fact.gap == "gpuready has no proof of it"
    ]
    return screen.paragraph("no proof yet for: " + visible(", ".join(names)), 0, 2) if names else []


# -- verdict ------------------------------------------------------------------------------------------------


def _verdict(report: Report, evidence: Evidence, screen: Screen, elapsed: float | None) -> list[str]:
    counts: dict[str, int] = {}
    for proof in evidence.proofs:
        counts[proof.verdict] = counts.get(proof.verdict, 0) + 1
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    codes = [f.code for f in report.findings if f.severity == "error"]
    word = report.verdict.replace("-", " ")
    behind = f" ({', '.join(dict.fromkeys(codes))})" if codes else ""
    right = "" if elapsed is None else units.seconds(elapsed)
    first, *rest = screen.ends(f"{word}: {visible(report.contract.name)}: {told}{behind}", right)
    role = {"not-ready": "error", "undecided": "undecided"}.get(report.verdict, "ok")
    return [screen.paint(first[: len(word)], role) + first[len(word) :], *rest]


def _foot(evidence: Evidence, screen: Screen, kept: str, note: str) -> list[str]:
    lines = screen.paragraph(f"evidence {visible(evidence.digest[:23])}, made {visible(evidence.made)}", 2, 2)
    if kept:
        lines += screen.paragraph(f"kept in {visible(kept)}", 2, 2)
    return lines + (screen.paragraph(visible(note), 2, 2) if note else [])


def progress(proof: Proof, done: int, count: int, screen: Screen) -> str:
    """One line when a proof ends."""
    what = f"{visible(proof.verdict)}" + ("" if proof.verdict == PASSED else f": {visible(proof.why)}")
    return screen.cut(
        f"[{done}/{count}] {visible(proof.name)}  {what}  {units.seconds(proof.seconds)}", screen.width - 1
    )


def listing(rows: Sequence[Any], screen: Screen) -> str:
    """All proofs: name, device, what each shows, and where we have executed it."""
    cells = [
        (
            visible(row.name),
            visible(row.device) + (f", {row.gpus} GPUs" if row.gpus > 1 else ""),
            visible(row.says + (f" ({row.package})" if row.package else "")),
            visible(row.executed) or "never executed by us",
        )
        for row in rows
    ]
    head = ("proof", "runs on", "shows", "executed by us on")
    return "\n".join(line for lines in screen.table([head, *cells]) for line in lines) + "\n"
