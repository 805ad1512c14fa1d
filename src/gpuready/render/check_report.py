"""The screen of ``gpuready check``: the verdict, the machine, what is wrong, what to do; with ``-v`` all the evidence."""

from collections.abc import Mapping, Sequence

from gpuready.model import NOT_STATED, Contract, PassedRule, Report
from gpuready.model.facts import UNSTATED_TEXT, verdict_words
from gpuready.model.report import old_knowledge_note
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import facts_summary, problem_list, units
from gpuready.render import finding as findings
from gpuready.render.layout import PLAIN_SCREEN, Screen, join_sections

NextCommands = Sequence[tuple[str, tuple[str, ...]]]


FAMILY_NAMES = {
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

UNDECIDED = verdict_words("undecided")
_SERIOUS_SEVERITIES = ("error", "warning")
_NEXT_STEPS = {"not-ready": ("fix it", "fix"), "clear": ("prove it", "prove")}
VERDICT_ROLES = {"not-ready": "error", "undecided": "undecided", "ready": "ok", "clear": "ok"}


def render_check_screen(
    report: Report,
    screen: Screen = PLAIN_SCREEN,
    *,
    elapsed: float | None = None,
    verbose: bool = False,
    seconds: Mapping[str, float] | None = None,
    commands: NextCommands | None = None,
) -> str:
    """The answer, the machine, what is wrong and what to do next; with ``verbose`` all the evidence."""
    sections = [_format_check_header(report, screen, verbose)]
    if verbose:
        sections += _format_details(report, screen)
        sections += [_format_counts(report, screen, elapsed), _format_timings(seconds or {}, screen)]
    else:
        sections.append(problem_list.format_problem_list(report, screen))
    old = old_knowledge_note(report.catalog_days or 0)
    sections.append(screen.format_paragraph(old, 2) if old else [])
    rows = list_next_commands(report) if commands is None else commands
    sections.append(screen.format_labelled_commands([row for row in rows if not (verbose and row[0] == "details")]))
    return join_sections([*sections, _format_footer(report, screen) if verbose else []])


def format_check_line(report: Report) -> str:
    """``transformers 5.22: not ready (GPU001, PKG002)``"""
    serious = _SERIOUS_SEVERITIES if report.strict else ("error",)
    codes = [f.code for f in report.findings if f.severity in serious]
    if report.verdict == "undecided":
        codes = [u.code for u in report.undecided if u.severity == "error" or report.strict]
    code_suffix = f" ({', '.join(codes)})" if codes else ""
    scope = _describe_scope(report) if report.verdict == "clear" else ""
    ignored = f", {len(report.ignored)} ignored" if report.ignored else ""
    lacking = f" ({report.open_words})" if report.verdict == "undecided" and report.lacking else ""
    words = f"{verdict_words(report.verdict)}{scope}{lacking}{code_suffix}{ignored}"
    return escape_unprintable(f"{report.contract.judged_name}: {words}") + "\n"


# -- header ---------------------------------------------------------------------------------------------


def _format_check_header(report: Report, screen: Screen, verbose: bool) -> list[str]:
    """The verdict, the framework at the right, and below the machine and the environment."""
    words = verdict_words(report.verdict)
    lines = screen.format_header(
        describe_verdict(report), describe_subject(report), VERDICT_ROLES[report.verdict], words
    )
    return [*lines, *format_header_rows(report, screen, verbose)]


def format_header_rows(report: Report, screen: Screen, verbose: bool = False) -> list[str]:
    """The lines under a verdict: the environment and the machine that it holds for, and by what it was judged."""
    lines: list[str] = []
    for label, text in list_header_rows(report, verbose):
        lines += screen.label_lines(f"  {label}", screen.wrap_text(text, screen.width - 15), -13)
    return lines


def describe_subject(report: Report) -> str:
    """``trl 1.16 on node7, 8 GPUs``: the release, whose requirements, the machine; a named machine says itself how many."""
    host, gpus = report.facts.host, report.facts.fact("gpu.count")
    is_counted = host and isinstance(gpus.value, int) and gpus.how != "stated"
    counted = f", {units.format_count(gpus.value, 'GPU') if gpus.value else 'no GPU'}" if is_counted else ""
    return report.contract.judged_name + (f" on {host}" if host else "") + counted


def describe_verdict(report: Report) -> str:
    """``not ready: 2 problems, 1 warning``; what makes the verdict first."""
    words, severities = verdict_words(report.verdict), [f.severity for f in report.findings]
    counts = {"problem": severities.count("error"), "warning": severities.count("warning")}
    parts = [units.format_count(count, word) for word, count in counts.items() if count]
    parts += [f"{len(report.ignored)} ignored"] if report.ignored else []
    if report.verdict == "clear":
        return ", ".join([words + _describe_scope(report), *parts])
    if report.verdict == "undecided":
        left = "" if is_imported(report) or report.facts.otherwise == NOT_STATED else " (nothing imported)"
        open_count = len(report.undecided)
        parts[:0] = [f"{units.format_count(open_count, 'check')} could not be made{left}"] if open_count else []
        parts[:0] = [report.open_words] if report.lacking else []
    strict = " (strict)" if report.strict else ""
    return f"{words}: {', '.join(parts)}{strict}" if parts else words + strict


def _describe_scope(report: Report) -> str:
    """What the words ``no problems found`` hold for."""
    if report.unstated:
        return " in what was given"
    if any(fact.key.startswith("can.") for fact in report.facts):
        return ""
    return " (not run yet)" if is_imported(report) else " (nothing imported)"


def is_imported(report: Report) -> bool:
    """Whether torch and the framework were imported for this report."""
    return report.facts.value_if_known("import.result") is not None


def list_header_rows(report: Report, verbose: bool = False) -> list[tuple[str, str]]:
    """Label and text of each line under the verdict."""
    facts, says, environment = report.facts, report.contract.says, facts_summary.summarize_environment(report.facts)
    if report.contract.pinned_torch and environment == "none looked at" and report.contract.framework != "torch":
        environment += f"; torch {report.contract.pinned_torch}, to which {report.contract.name} is pinned"
    rows = {
        "environment": environment,
        "machine": facts_summary.summarize_hardware(facts),
        "files": facts_summary.summarize_looked(facts),
        "not read": facts_summary.summarize_unread(facts),
        "settings": facts_summary.summarize_settings(facts),
        "judged by": says if verbose else "" if report.contract.basis == "release" else says.partition(";")[0],
    }
    return [(label, text) for label, text in rows.items() if text]


# -- all the evidence -----------------------------------------------------------------------------------


def _format_details(report: Report, screen: Screen) -> list[list[str]]:
    """Every finding with its evidence, what is open, and the rules by family."""
    sections = [findings.format_finding(f, screen) for f in report.findings if f.severity != "info"]
    infos = [f for f in report.findings if f.severity == "info"]
    sections.append([line for f in infos for line in findings.format_finding(f, screen)])
    undecided = findings.group_undecided(report)
    sections.append([line for each in undecided for line in problem_list.format_open_question(each, screen, True)])
    sections.append(findings.format_unstated(report, screen) if report.unstated else [])
    sections.append([line for i in report.ignored for line in findings.format_ignored(i, screen)])
    sections += [_format_family_rows(report, screen), _format_job_placement(report, screen)]
    return [*sections, _format_passed_rules(report, screen)]


def build_family_rows(report: Report) -> list[tuple[str, str, str]]:
    """One row per family and one for proofs: mark, name, and how many checks ended how."""
    tallies = {name: _count_family_results(report, letters) for letters, name in FAMILY_NAMES.items()}
    rows = [
        (_family_mark(tally), name, _format_family_counts(tally))
        for name, tally in tallies.items()
        if any(tally.values())
    ]
    return [*rows, _proof_family_row(report)]


def _format_family_rows(report: Report, screen: Screen) -> list[str]:
    rows = build_family_rows(report)
    return [line for mark, name, text in rows for line in screen.mark_paragraph(mark, f"{name}: {text}")]


def _count_family_results(report: Report, letters: str) -> dict[str, int]:
    """The rules of one family by outcome."""
    severities = [f.severity for f in report.findings if f.code.startswith(letters)]
    return {
        "error": severities.count("error"),
        "warning": severities.count("warning"),
        "info": severities.count("info"),
        "undecided": sum(u.code.startswith(letters) for u in report.undecided),
        "unstated": sum(u.code.startswith(letters) for u in report.unstated),
        "ignored": sum(i.finding.code.startswith(letters) for i in report.ignored),
        "holds": sum(j.code.startswith(letters) for j in report.judged),
    }


def _family_mark(tally: dict[str, int]) -> str:
    for kind in ("error", "warning", "undecided"):
        if tally[kind]:
            return kind
    # A family of which little is stated is not ok, even if a few of its rules hold.
    return "undecided" if tally["unstated"] > tally["holds"] + tally["info"] else "ok"


def _format_family_counts(tally: dict[str, int]) -> str:
    """``1 error, 5 checks``: problems first, then all judged rules of the family."""
    rules = sum(count for kind, count in tally.items() if kind != "unstated")
    parts = [units.format_count(tally[kind], kind) for kind in _SERIOUS_SEVERITIES if tally[kind]]
    words = {"undecided": UNDECIDED, "unstated": UNSTATED_TEXT, "ignored": "ignored"}
    parts += [f"{tally[kind]} {word}" for kind, word in words.items() if tally[kind]]
    return ", ".join([*parts, units.format_count(rules, "check")] if rules else parts)


def _proof_family_row(report: Report) -> tuple[str, str, str]:
    """The row of executed proofs: facts whose keys begin with ``can.``. A rule decides how serious a failure is."""
    ran = [f for f in report.facts if f.key.startswith("can.")]
    if ran:
        failed = any(f.value is not True and not f.gap for f in ran)
        mark = "warning" if failed else "undecided" if any(f.gap for f in ran) else "ok"
        return mark, "proof", f"{len(ran)} executed: {facts_summary.summarize_proofs(ran)}"
    if report.facts.otherwise == NOT_STATED:
        return "undecided", "proof", "nothing can be executed on a machine that is only named"
    return "undecided", "proof", f"nothing executed yet: gpuready prove {contract_spec(report.contract)}"


# -- passed rules ---------------------------------------------------------------------------------------


def _format_job_placement(report: Report, screen: Screen) -> list[str]:
    """Where and in which precision the framework will run the job of a configuration file, and why."""
    lines: list[str] = []
    for key in ("job.device", "job.precision", "job.attention"):
        if key in report.facts:
            fact = report.facts.fact(key)
            text = f"not known ({fact.gap})" if fact.gap else f"{fact.value} ({fact.source})"
            lines += screen.lead_paragraph(f"{key.removeprefix('job.')}:", escape_unprintable(text), "dim")
    return lines


def _format_passed_rules(report: Report, screen: Screen) -> list[str]:
    rows = [row for judged in report.judged for row in _passed_rule_rows(report, judged)]
    return ["checks that passed, and what they read", *screen.indent_table(rows)] if rows else []


def _passed_rule_rows(report: Report, judged: PassedRule) -> list[tuple[str, str, str, str]]:
    facts = [report.facts.fact(key) for key in judged.read]
    return [
        ("" if i else judged.code, f.key, units.format_fact_value(f), f.gap or f.source) for i, f in enumerate(facts)
    ]


def _format_timings(seconds: Mapping[str, float], screen: Screen) -> list[str]:
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    timings = ", ".join(f"{name} {units.format_seconds(count, exact=True)}" for name, count in slowest)
    return screen.lead_paragraph("timings:", timings, "dim") if timings else []


# -- counts and commands --------------------------------------------------------------------------------------------


def _format_counts(report: Report, screen: Screen, elapsed: float | None) -> list[str]:
    right = "" if elapsed is None else units.format_seconds(elapsed, exact=True)
    return screen.align_ends(", ".join(count_phrases(report)), right)


def count_phrases(report: Report) -> list[str]:
    severities = [f.severity for f in report.findings]
    parts = [units.format_count(severities.count(kind), kind) for kind in _SERIOUS_SEVERITIES if severities.count(kind)]
    parts += [f"{units.format_count(len(report.judged), 'check')} passed"]
    parts += [f"{len(report.undecided)} {UNDECIDED}"] if report.undecided else []
    parts += [f"{len(report.unstated)} {UNSTATED_TEXT}"] if report.unstated else []
    parts += [f"{len(report.ignored)} ignored"] if report.ignored else []
    return [*parts, "strict"] if report.strict else parts


def list_next_commands(
    report: Report,
    flags: Mapping[str, tuple[str, ...]] | None = None,
    name: str = "",
    is_elsewhere: bool = False,
    together: Sequence[str] = (),
) -> list[tuple[str, tuple[str, ...]]]:
    """Label and words of the commands that come next.

    ``flags``: those of each command, as the user gave them. ``together``: all frameworks of the call, if several.
    """
    is_stated = report.facts.otherwise == NOT_STATED
    is_elsewhere = is_elsewhere or "--on" in report.asked
    flags = _keep_asked_options(report) if flags is None else flags
    of_file = () if name else {"--contract", "--packages", "--dockerfile"}.intersection(flags.get("check", ()))
    name = name or contract_spec(report.contract) + (_version_in_file(report) if "--packages" in of_file else "")

    def words(command: str, *more: str) -> tuple[str, ...]:
        takes_several = command == "check" or (command == "plan" and "--format" not in more)
        named = tuple(together) if together and takes_several else (name,)
        is_of_file = "--contract" in flags.get(command, ()) or (command == "check" and of_file)
        return ("gpuready", command, *(() if is_of_file and not together else named), *more, *flags.get(command, ()))

    rows = [("details", words("check"))]
    if report.verdict == "not-ready" and _judges_container_file(report):
        rows.insert(0, ("one that fits", words("plan", "--format", "dockerfile")))
    elif is_stated or is_elsewhere:
        of_own = {"--contract", "--packages"}.intersection(flags.get("check", ()))  # a plan knows neither
        needs_plan = (report.verdict == "not-ready" or report.unstated) and not of_own
        rows[:0] = [("plan", words("plan"))] if needs_plan and not _judges_container_file(report) else []
    elif report.verdict == "not-ready" and report.is_system_python and not report.lacks_gpus:
        rows.insert(0, ("fix it", words("install", "-e", ".venv")))  # fix changes no Python of the system
    elif report.verdict in _NEXT_STEPS:
        label, command = _NEXT_STEPS[report.verdict]
        elsewhere = [("elsewhere", words("plan", "--on", "h100x8"))] if report.lacks_gpus else []
        rows[:0] = [(label, words(command)), *elsewhere]
    return rows


_KEPT_OPTIONS = {
    "fix": ("--python", "--contract", "--config"),
    "install": ("--contract", "--config"),
    "prove": ("--python", "--config"),
    "plan": ("--on", "--python", "--contract", "--config"),
}


def _keep_asked_options(report: Report) -> dict[str, tuple[str, ...]]:
    """The options of each next command, of those that the report was asked for with."""
    asked = report.asked
    if not asked and report.facts.otherwise == NOT_STATED and report.facts.host:
        asked = ("--on", report.facts.host)
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    kept = {name: tuple(w for pair in pairs if pair[0] in known for w in pair) for name, known in _KEPT_OPTIONS.items()}
    return {**kept, "check": (*asked, "-v")}


def _format_footer(report: Report, screen: Screen) -> list[str]:
    codes = [f.code for f in report.findings if f.severity != "info"] or [u.code for u in report.undecided]
    lines = screen.format_paragraph(f"what a code means: gpuready explain {codes[0]}", 2) if codes else []
    if report.catalog:
        age = "" if report.catalog_days is None else f", {units.format_count(report.catalog_days, 'day')} old"
        lines += screen.format_paragraph(f"judged by the catalogue of {report.catalog}{age}", 2)
    if report.facts.value_if_known("user.root"):
        lines += screen.format_paragraph("ran as root; permissions of other users not checked", 2)
    return lines


def _version_in_file(report: Report) -> str:
    """``==4.57.0`` where the file that was judged pins the framework: a plan is then for that release."""
    version = report.facts.value_if_known(f"package.{report.contract.distribution or report.contract.framework}")
    return f"=={version}" if version else ""


def _judges_container_file(report: Report) -> bool:
    """Whether a container file was judged: nothing else states ``os.container``."""
    return report.facts.fact("os.container").how == "stated"


def contract_spec(contract: Contract) -> str:
    """``FRAMEWORK:VARIANT``, as a command takes it."""
    return contract.framework + (f":{contract.variant}" if contract.variant else "")
