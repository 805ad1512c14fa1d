"""The screen of ``gpuready check``: one row per rule family, findings, undecided rules, verdict."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import finding as findings
from gpuready.render import summary, units
from gpuready.render.escape import visible
from gpuready.render.layout import Screen, columns, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.model import Contract, Judged, Report, Undecided

FAMILIES = {
    "GPU": "gpu",
    "DRV": "driver",
    "BLD": "toolchain",
    "PKG": "packages",
    "MEM": "memory",
    "CAP": "capability",
    "SYS": "system",
    "NET": "network",
    "FLT": "fleet",
    "RUN": "run",
}
"""Rows in order, by the letters of their codes."""

_GRAVITY = ("error", "warning")


def render(
    report: Report,
    screen: Screen | None = None,
    *,
    elapsed: float | None = None,
    verbose: bool = False,
    seconds: Mapping[str, float] | None = None,
) -> str:
    on = screen or Screen()
    sections = [_header(report, on), _rows(report, on)]
    sections += [findings.block(f, on) for f in report.findings if f.severity != "info"]
    sections.append([line for f in report.findings if f.severity == "info" for line in findings.block(f, on)])
    sections.append([line for several in _by_reason(report) for line in findings.undecided(several, on)])
    if report.unstated:
        sections.append(findings.unstated(report, on, _plan_for(report)))
    sections.append([line for i in report.ignored for line in findings.ignored(i, on)])
    if verbose:
        sections += [_held(report, on), _timings(seconds or {}, on)]
    sections += [_verdict(report, on, elapsed, verbose), _next(report, on)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _by_reason(report: Report) -> list[list[Undecided]]:
    """The undecided rules, grouped by the reason."""
    found: dict[str, list[Undecided]] = {}
    for item in report.undecided:
        found.setdefault("; ".join(fact.gap for fact in item.missing), []).append(item)
    return list(found.values())


def line(report: Report) -> str:
    """``transformers 5.22: not ready (GPU001, PKG002)``"""
    grave = _GRAVITY if report.strict else ("error",)
    codes = [f.code for f in report.findings if f.severity in grave]
    if report.verdict == "undecided":
        codes = [u.code for u in report.undecided if u.severity == "error" or report.strict]
    behind = f" ({', '.join(visible(c) for c in codes)})" if codes else ""
    return f"{visible(report.contract.name)}: {word(report)}{behind}\n"


# -- header and rows ------------------------------------------------------------------------------------


def _header(report: Report, screen: Screen) -> list[str]:
    host = visible(report.facts.host)
    left = visible(report.contract.name) + (f" on {host}" if host else "")
    first, *rest = screen.ends(left, summary.machine(report.facts))
    if screen.colour and first.startswith(left):
        first = screen.paint(left, "bold") + first[len(left) :]
    says = screen.paragraph(visible(report.contract.says), 2) if report.contract.says else []
    return [first, *rest, *says]


def ladder(report: Report) -> list[tuple[str, str, str, str]]:
    """One row per family and one for proofs: mark, name, summary, rule counts."""
    rows = []
    for letters, name in FAMILIES.items():
        tally = _tally(report, letters)
        if any(tally.values()):
            text = summary.family(name, report.facts, report.contract)
            rows.append((_mark(tally, text), name, text, _count(tally)))
    return [*rows, _proof(report)]


def _rows(report: Report, screen: Screen) -> list[str]:
    rows = ladder(report)
    names = max(9, *(len(name) for _, name, _, _ in rows)) + 2
    return [line for row in rows for line in _row(*row, names, screen)]


def _tally(report: Report, letters: str) -> dict[str, int]:
    """The rules of one family by outcome."""
    found = [f.severity for f in report.findings if f.code.startswith(letters)]
    return {
        "error": found.count("error"),
        "warning": found.count("warning"),
        "info": found.count("info"),
        "undecided": sum(u.code.startswith(letters) for u in report.undecided),
        "unstated": sum(u.code.startswith(letters) for u in report.unstated),
        "ignored": sum(i.finding.code.startswith(letters) for i in report.ignored),
        "holds": sum(j.code.startswith(letters) for j in report.judged),
    }


def _mark(tally: dict[str, int], text: str) -> str:
    for kind in ("error", "warning", "undecided"):
        if tally[kind]:
            return kind
    # A family with nothing stated is not ok, even if a few of its rules hold.
    open_ = tally["unstated"] and (text == NOT_STATED or not (tally["holds"] or tally["info"]))
    return "undecided" if open_ else "ok"


def _count(tally: dict[str, int]) -> str:
    """``1 error, 5 rules``: problems first, then all judged rules of the family."""
    rules = sum(count for kind, count in tally.items() if kind != "unstated")
    parts = [units.counted(tally[kind], kind) for kind in _GRAVITY if tally[kind]]
    words = {"undecided": "undecided", "unstated": "not stated", "ignored": "ignored"}
    parts += [f"{tally[kind]} {word}" for kind, word in words.items() if tally[kind]]
    return ", ".join([*parts, units.counted(rules, "rule")] if rules else parts)


def _row(mark: str, name: str, text: str, right: str, names: int, screen: Screen) -> list[str]:
    start = 2 + (2 if screen.ascii else 1) + 1 + names
    first, *rest = screen.ends(text, right, start)
    return [f"  {screen.mark(mark)} {pad(name, names)}{first}", *(" " * start + line for line in rest)]


def _proof(report: Report) -> tuple[str, str, str, str]:
    """The row of executed proofs: facts whose keys begin with ``can.``. A rule decides how serious a failure is."""
    ran = [f for f in report.facts if f.key.startswith("can.")]
    if ran:
        failed = any(f.value is not True and not f.gap for f in ran)
        mark = "warning" if failed else "undecided" if any(f.gap for f in ran) else "ok"
        return mark, "proof", summary.proof(ran), f"{len(ran)} executed"
    if report.facts.otherwise == NOT_STATED:
        return "undecided", "proof", "nothing is executed on a machine that is only stated", ""
    return "undecided", "proof", "nothing executed yet", visible(f"gpuready prove {_spec(report.contract)}")


# -- passed rules ---------------------------------------------------------------------------------------


def _held(report: Report, screen: Screen) -> list[str]:
    rows = [row for judged in report.judged for row in _evidence(report, judged)]
    if not rows:
        return []
    table = screen.table(rows, 2)
    return ["rules that hold, and what they read", *("  " + line for row in table for line in row)]


def _evidence(report: Report, judged: Judged) -> list[tuple[str, str, str, str]]:
    facts = [report.facts.fact(key) for key in judged.read]
    cells = [(visible(f.key), visible(units.value(f)), visible(f.gap or f.source)) for f in facts]
    return [(visible(judged.code) if i == 0 else "", *row) for i, row in enumerate(cells)]


def _timings(seconds: Mapping[str, float], screen: Screen) -> list[str]:
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    told = ", ".join(f"{visible(name)} {units.seconds(count, exact=True)}" for name, count in slowest)
    return screen.led("timings:", told, "dim") if told else []


# -- verdict --------------------------------------------------------------------------------------------


def word(report: Report) -> str:
    return report.verdict.replace("-", " ")


def _verdict(report: Report, screen: Screen, elapsed: float | None, verbose: bool) -> list[str]:
    left = f"{word(report)}: {', '.join(counts(report))}"
    right = "" if elapsed is None else units.seconds(elapsed, exact=verbose)
    first, *rest = screen.ends(left, right)
    role = {"not-ready": "error", "undecided": "undecided"}.get(report.verdict, "ok")
    end = len(word(report))
    return [screen.paint(first[:end], role) + first[end:], *rest]


def counts(report: Report) -> list[str]:
    found = [f.severity for f in report.findings]
    parts = [units.counted(found.count(kind), kind) for kind in _GRAVITY if found.count(kind)]
    parts += [units.counted(len(report.judged), "rule") + (" holds" if len(report.judged) == 1 else " hold")]
    parts += [f"{len(report.undecided)} undecided"]
    parts += [f"{len(report.unstated)} not stated"] if report.unstated else []
    parts += [f"{len(report.ignored)} ignored"] if report.ignored else []
    return [*parts, "strict"] if report.strict else parts


def ways_on(report: Report) -> list[tuple[str, str]]:
    """Suggested next commands, each with its purpose."""
    rows = []
    codes = [f.code for f in report.findings if f.severity != "info"] or [u.code for u in report.undecided]
    if any(f.severity == "error" for f in report.findings):
        file = _of_a_file(report)
        rows.append(
            (_plan_for(report), "one that fits" if file else "put the fixes in order; changes nothing")
        )
    if codes:
        rows.append((f"gpuready explain {visible(codes[0])}", "the long story"))
    return rows


def _next(report: Report, screen: Screen) -> list[str]:
    """The next commands, and the catalogue date."""
    rows = ways_on(report)
    width = max([columns(command) for command, _ in rows], default=0) + 4
    lines = [line for row in rows for line in _suggestion(row, width, screen)]
    if report.catalog:
        lines += screen.paragraph(f"judged by the catalogue of {visible(report.catalog)}", 2)
    if report.facts.known("user.root"):
        lines += screen.paragraph(
            "looked at as root: what another user may not open or write was not seen", 2
        )
    return lines


def _plan_for(report: Report) -> str:
    """The plan command for this framework and machine, as far as the Report knows how they were named."""
    name = _spec(report.contract)
    if _of_a_file(report):
        return visible(f"gpuready plan {name} --format dockerfile")
    on = f" --on {report.facts.host}" if report.facts.otherwise == NOT_STATED and report.facts.host else ""
    return visible(f"gpuready plan {name}{on}")


def _of_a_file(report: Report) -> bool:
    """Whether a container file was judged: nothing else states ``os.container``."""
    return report.facts.fact("os.container").how == "stated"


def _spec(contract: Contract) -> str:
    """``FRAMEWORK:VARIANT``, as a command takes it."""
    return contract.framework + (f":{contract.variant}" if contract.variant else "")


def _suggestion(row: tuple[str, str], width: int, screen: Screen) -> list[str]:
    command, why = row
    if 2 + width + columns(why) > screen.width:
        return screen.paragraph(f"{command}  {why}", 2, 4)
    return ["  " + pad(command, width) + screen.paint(why, "dim")]
