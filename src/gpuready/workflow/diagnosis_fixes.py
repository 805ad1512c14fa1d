"""How to fix a cause: the catalogue's text, the rule's fix for this machine, and the framework's contract."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from gpuready import contracts, rules, system
from gpuready.catalog import causes, cuda, load_catalog
from gpuready.catalog.packages import canonical_package_name, list_packages
from gpuready.check.evaluate import judge
from gpuready.contracts.foreign import read_packaged_contract
from gpuready.diagnose.failure_facts import MAX_MESSAGE
from gpuready.diagnose.logged_system import detect_systems, find_logged_versions
from gpuready.diagnose.origin import USER, package_of_frame
from gpuready.diagnose.stated_release import find_stated_release
from gpuready.logs.log_summary import LogSummary
from gpuready.logs.logged_exception import StackFrame
from gpuready.model import Contract, Fact, Facts, Finding, FixStep
from gpuready.model.diagnosis import NOT_ENVIRONMENT, VERSION_CONFLICT, AlternativeCause, Diagnosis
from gpuready.probe.packages import read_package_metadata
from gpuready.rules import log_rules
from gpuready.rules.log_rules import cause_fix_steps
from gpuready.system.imports.undeclared_needs import USUAL_MODULES
from gpuready.system.private_files import may_be_of_another_user
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.fix_commands import InstallTarget, make_step_runnable
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest


def add_fixes(diagnosis: Diagnosis, summary: LogSummary, on: str | None, look: bool) -> Diagnosis:
    """Add the cause's sentence, its fixes, and what the machine adds to it; keep what fits the system of the log."""
    recorded = read_log_machine(on)
    diagnosis = _read_narrowed_view(_judge_architecture(_name_hidden_module(diagnosis, summary), summary), summary)
    diagnosis = diagnosis.replace(alternatives=tuple(_title_alternative(a) for a in diagnosis.alternatives))
    remedy = _stated_release_step(diagnosis) or find_remedy(diagnosis, _other_text(diagnosis, summary))
    contract = _try_load_contract(diagnosis.framework, summary)
    if diagnosis.verdict != "cause":
        return diagnosis.replace(fix=((remedy,) if remedy else ()) + tuple(_known_error_steps(contract, summary)))
    diagnosis = _add_conflict_steps(_add_cause_text(diagnosis))
    here = on is None and look and _ran_on_this_host(summary)
    if recorded is not None or here:
        facts = recorded if recorded is not None else _probe_this_machine()
        diagnosis = _judge_on_machine(diagnosis, facts, contract, here)
    if diagnosis.confidence < MIN_SURE:  # what to look at, and no remedy of a cause that it may not be
        diagnosis = _add_decision(diagnosis.replace(fix=()))
    steps = dict.fromkeys((*diagnosis.fix, *_known_error_steps(contract, summary)))
    target = InstallTarget(find_logged_python(summary))
    runnable = list(dict.fromkeys(make_step_runnable(step, target) for step in steps))
    runnable.sort(key=lambda step: step.safety == "safe")  # what only looks comes after what helps
    at = bool(runnable and remedy and remedy.does.startswith(_QUOTED))  # a stated release comes before what is usual
    kept = [*runnable[:at], make_step_runnable(remedy, target), *runnable[at:]] if remedy else runnable
    return _fit_to_system(diagnosis.replace(fix=tuple(kept)), summary)


MIN_SURE = 0.8
"""Below this confidence no fix is advised but what the message itself states."""

_SENTENCE_END = re.compile(r"(?<=[.!;?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)\s|(\n)(?!\s{0,8}[a-z(`])")
_QUOTED = "the message itself says: "
_CLOSED = re.compile(r"[.!;?)\]>`'\"]$")
_UNFINISHED = re.compile(
    r"(?:[,:(\[{=\u2026/\\-]|\.\.\.|\b(?:an?|and|as|at|by|e\.g\.|for|from|i\.e\.|if|in|into|is|like|of|on|or|than|that|the|this|to|using|via|when|with|you|your))$"
)
_REMEDY = re.compile(
    r"(?i)(?:to (?:fix|resolve|solve|avoid|enable|disable|use) |please|try|use|set|install|run|call|export|provide|enable|disable|change|upgrade|downgrade|reduce"
    r"|increase|decrease|lower|make sure|consider|pass|add|remove|specify|log ?in|either (?!the\b|an?\b|your\b|of\b)|you (?:can|may want to|need to|have to|(?:must|should)(?! be| have| not))(?!['n])"
    r"|if you [^,]{3,80}, (?:please|use|set|install|run|try))\b"
)
_REMEDY_WITHIN = re.compile(
    r"(?i)\b(?:pip3? install|re-?running .{1,60} will|conda install|auth login|cli login|wandb[. ]login|set it to|must be (?:set|specified|provided)|(?:by|or) setting|(?:or|and) (?:set|pass|use|increase|decrease|reduce) |(?:[,;:] |\bor |\band |\bto )(?:please )?(?:set|setting|export|define) [^.]{0,60}environment variables?)\b"
)
_NO_REMEDY = re.compile(
    r"(?i)bug report|own risk|an issue|report this|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|stack ?trace|NCCL_DEBUG|NCCL INFO|TORCHDYNAMO|TORCH_LOGS|more information|for details|^use of |^run (?:failed|id)|^set of |^call (?:to|of) "
    r"|^please (?:check|note|see|refer|consult|contact|be aware)\b|expandable_segments|max_split_size|^(?:install|call|change|pass|run|use|add|set|export)\w* (?:is|was|are|has|had|cannot|did|does)\b"
)


def _stated_release_step(diagnosis: Diagnosis) -> FixStep | None:
    """To install the release that the message itself asks for."""
    found = (find_stated_release(one.type.rpartition(".")[2], one.message) for one in diagnosis.exceptions)
    stated = next((one for one in found if one is not None), None)
    if stated is None:
        return None
    words = stated.requirement  # a log is anybody's words: no command installs a name that only it knows
    run = ("uv", "pip", "install", words) if stated.is_known else ()
    return FixStep(f"install {words}, for which the message asks", run, safety="ask" if run else "manual")


def _other_text(diagnosis: Diagnosis, summary: LogSummary) -> str:
    """What the log says besides the messages of the error."""
    quoted = [part for one in diagnosis.exceptions for part in one.message.splitlines() if len(part) > MIN_QUOTED]
    lines = (line.text for line in summary.lines)
    return "\n".join((*summary.commands, *(text for text in lines if not any(part in text for part in quoted))))


MIN_QUOTED = 8
"""Letters by which a line is known to be one of the message."""

_UNFILLED = re.compile(r"[:,]? ?\{\w+\}")
_SETTING = re.compile(
    r"\b[A-Z][A-Z0-9_]{3,60}=[^\s`'\",;)]{1,80}|--[a-z][\w-]{2,60}(?:[= ](?:\d[\w.]{0,20}|[Tt]rue|[Ff]alse))?"
)


def _is_given(remedy: str, text: str) -> bool:
    """Whether every setting that a remedy names is one that the log shows as given."""
    named = [one.rstrip(".") for one in _SETTING.findall(remedy)]
    return bool(named) and all(one in text for one in named)


def find_remedy(diagnosis: Diagnosis, log_text: str = "") -> FixStep | None:
    """What the message of the exception says that one should do, in whole sentences: ``To fix: pip install transformers<4.46``.

    None that ``log_text`` shows as done already.
    """
    whole = (
        one.message if len(one.message) < MAX_MESSAGE else one.message[: max(map(one.message.rfind, ".!;\n")) + 1]
        for one in diagnosis.exceptions
    )
    found = (text for message in whole for text in _split_sentences(message))
    advice = (text for text in found if 12 <= len(text) <= 300 and (_REMEDY.match(text) or _REMEDY_WITHIN.search(text)))
    kept = (text for text in advice if not _UNFINISHED.search(text) and _is_closed(text))
    text = next((text for text in kept if not _NO_REMEDY.search(text) and not _is_given(text, log_text)), "")
    return FixStep(f"{_QUOTED}{text}") if text else None


def _split_sentences(message: str) -> Iterator[str]:
    """The whole sentences of a message: of one that a line break ends, nobody knows whether it goes on."""
    parts = _SENTENCE_END.split(message)
    for text, line_break in zip(parts[::2], [*parts[1::2], None], strict=True):
        folded = " ".join(text.split())
        if not line_break or _CLOSED.search(folded):
            yield folded


def _is_closed(text: str) -> bool:
    """Whether no quotation or bracket of a sentence is left open: else it is cut."""
    return text.count("`") % 2 == 0 and text.count('"') % 2 == 0 and text.count("(") == text.count(")")


_STANDARD = re.compile(r"(?:[Mm]odule|from|named) '([A-Za-z_]\w*)")
_IMPORTS = re.compile(r"(?:from|import) (\w+)")
_PATHS = re.compile(r"[('\"]([^()'\"\n]{1,400}\.py)[)'\"]")


def _name_hidden_module(diagnosis: Diagnosis, summary: LogSummary) -> Diagnosis:
    """A local file in place of two packages: one that has the name of a module of Python's own, or that an installed package got for a module."""
    one = diagnosis.exceptions[0] if diagnosis.exceptions else None
    kinds = ("ImportError", "ModuleNotFoundError", "AttributeError")
    match = _STANDARD.search(one.message) if one is not None and one.type in kinds else None
    standard = match[1] if match and match[1] in sys.stdlib_module_names else ""
    paths = [*_PATHS.findall(one.message), one.file] if one is not None and standard else ()
    found = [(standard, path) for path in paths]
    for stack in (failure.frames for failure in summary.failures if one is not None and failure.at == one.line):
        imports = (
            (_IMPORTS.match(caller.code), called.file) for caller, called in pairwise(stack) if caller.is_library
        )
        found += [(imported[1], path) for imported, path in imports if imported]
    for module, path in found:
        is_local = path.endswith(".py") and package_of_frame(StackFrame(path, 0)) == USER
        if is_local and f"/{path}".endswith((f"/{module}.py", f"/{module}/__init__.py")):
            hidden = diagnosis.replace(verdict="cause", cause="local-file-hides-module", code="PKG020", conflict={})
            return hidden.replace(captures={"module": module, "path": path}, confidence=0.8)
    return diagnosis


_NVCC = re.compile(r"release (\d{1,2}\.\d{1,2}), V\d|/cuda-(\d{1,2}\.\d{1,2})/bin/nvcc\b")
_ARCHITECTURE = re.compile(r"(?:compute|sm)_(\d{1,2})(\d)[af]?")
DROPPED_ARCHITECTURE = "arch-dropped-by-toolkit"


def _judge_architecture(diagnosis: Diagnosis, summary: LogSummary) -> Diagnosis:
    """Whether nvcc has dropped an architecture or does not know it yet, by the table of CUDA releases; else both."""
    arch = _ARCHITECTURE.fullmatch(diagnosis.captures.get("arch", ""))
    if diagnosis.cause != "toolkit-too-old-for-arch" or arch is None:
        return diagnosis
    found = {match[1] or match[2] for line in summary.lines for match in _NVCC.finditer(line.text[:MAX_MESSAGE])}
    release = found.pop() if len(found) == 1 else ""
    why = cuda.judge_missing_target(f"{arch[1]}.{arch[2]}", release)
    if why and release:
        sure = max(diagnosis.confidence, MIN_SURE)
        cause = DROPPED_ARCHITECTURE if why == "dropped" else diagnosis.cause
        return diagnosis.replace(cause=cause, confidence=sure, captures=diagnosis.captures | {"release": release})
    if why:
        return diagnosis
    row = causes.find_cause(DROPPED_ARCHITECTURE) or {}
    other = AlternativeCause(DROPPED_ARCHITECTURE, diagnosis.code, "", 0.25, decide=str(row.get("decide", "")))
    sure = min(diagnosis.confidence, 0.65)
    return diagnosis.replace(confidence=sure, alternatives=(other, *diagnosis.alternatives))


_NARROWED = re.compile(r"--(?:gpus-per-task|gpu-bind)[= ]\S{1,40}|\bCUDA_VISIBLE_DEVICES=\d{1,3}(?![\d,])")


def _read_narrowed_view(diagnosis: Diagnosis, summary: LogSummary) -> Diagnosis:
    """Name the option of the launcher that shows each task only its own GPUs, where the program asked for another."""
    if diagnosis.cause != "invalid-device-ordinal":
        return diagnosis
    found = (match[0] for line in summary.lines if (match := _NARROWED.search(line.text[:MAX_MESSAGE])))
    narrowed = next(found, "")
    return diagnosis.replace(captures=diagnosis.captures | {"narrowed": narrowed}) if narrowed else diagnosis


def read_log_machine(on: str | None) -> Facts | None:
    """Return the facts of a recording; None for the name of a GPU, which serves --config. Refused where it is neither."""
    if on is None:
        return None
    if machine_facts.is_machine_file(on):
        return machine_facts.read_recording(on)
    machine_facts.named_machine_facts(on, None, {})
    return None


def _fit_to_system(diagnosis: Diagnosis, summary: LogSummary) -> Diagnosis:
    """Leave out what cannot be done on the system that the log shows."""
    systems = detect_systems(summary)
    others = tuple(
        other if fits_system(other.decide, systems) else other.replace(decide="") for other in diagnosis.alternatives
    )
    return diagnosis.replace(fix=fit_steps(diagnosis.fix, systems) or diagnosis.fix, alternatives=others)


def _add_cause_text(diagnosis: Diagnosis) -> Diagnosis:
    finding = log_rules.log_finding(
        Facts([log_match_fact(diagnosis)]), Contract("log", ""), diagnosis.code, "error", diagnosis.cause
    )
    if finding is None:
        return diagnosis.replace(says=diagnosis.says or rules.rule_name(diagnosis.code).replace("-", " "))
    return diagnosis.replace(says=_name_conflict(diagnosis) or finding.says, so=finding.so, fix=finding.fix)


def _name_conflict(diagnosis: Diagnosis) -> str:
    """The sentence with both names, for a cause that is the conflict of certain packages."""
    row, named = causes.find_cause(VERSION_CONFLICT), causes.find_cause(diagnosis.cause) or {}
    if row is None or not diagnosis.conflict or not named.get("pairs"):
        return ""
    return causes.fill_captures(str(row["says"]), diagnosis.conflict)


def _add_decision(diagnosis: Diagnosis) -> Diagnosis:
    """What decides whether it is this cause, where that is not sure and no alternative says it."""
    row = causes.find_cause(VERSION_CONFLICT if diagnosis.conflict else diagnosis.cause) or {}
    decide = causes.fill_captures(row.get("decide", ""), diagnosis.conflict)
    if not decide or diagnosis.cause == NOT_ENVIRONMENT:
        return diagnosis
    return diagnosis.replace(notes=(*diagnosis.notes, f"to find out whether it is this: {decide}"))


def _add_conflict_steps(diagnosis: Diagnosis) -> Diagnosis:
    """Where the table of symbols knows which package is too new or too old: those steps, after a change of the call itself."""
    conflict = diagnosis.conflict
    row = causes.find_cause(VERSION_CONFLICT)
    if row is None or not {"gone", "since", "came", "from"} & set(conflict):
        return diagnosis
    steps = [step for step in cause_fix_steps(row, conflict) if conflict["package"] in step.does]
    too_new = bool({"gone", "since"} & set(conflict))
    kept = [s for s in diagnosis.fix if not (too_new and "--upgrade" in s.run and conflict.get("dist") in s.run)]
    name = conflict["symbol"].rpartition("(")[2].rstrip(")")
    calls = [step for step in kept if not step.run and name in step.does]
    return diagnosis.replace(fix=tuple(dict.fromkeys((*calls, *steps, *kept))))


def log_match_fact(diagnosis: Diagnosis) -> Fact:
    """Return the matches of a log as a fact, for rules that read only logs."""
    name = diagnosis.framework.partition("=")[0].partition(":")[0]
    dists = [dist for dist, module in USUAL_MODULES.items() if module == diagnosis.captures.get("module")]
    captures = diagnosis.captures | ({"framework": name} if name else {}) | ({"dist": dists[0]} if dists else {})
    rows = [
        {"code": diagnosis.code, "cause": diagnosis.cause, "rank": e.rank, "host": e.host, "source": e.source, "line": e.line, "text": e.text,
         "captures": captures}
        for e in diagnosis.evidence
    ]  # fmt: skip
    return Fact("log.signs", tuple(rows), ", ".join(dict.fromkeys(e.source for e in diagnosis.evidence)), "log")


def _title_alternative(alternative: AlternativeCause) -> AlternativeCause:
    """Its sentences without what only the first cause is asked for: names, sizes."""
    says, decide = (
        _UNFILLED.sub("", causes.fill_captures(text, {})) for text in (alternative.says, alternative.decide)
    )
    return alternative.replace(says=says or rules.rule_name(alternative.code).replace("-", " "), decide=decide)


# -- the machine ------------------------------------------------------------------------------------


def _ran_on_this_host(summary: LogSummary) -> bool:
    """Return whether the log names this machine as one on which it ran."""
    name = system.LiveHost().get_hostname()
    hosts = {line.host for line in summary.lines if line.host}
    return bool(name) and any(host in (name, name.partition(".")[0]) for host in hosts)


def _probe_this_machine() -> Facts:
    return machine_facts.start_probing(None, None, {}, None)[0]()


def _judge_on_machine(diagnosis: Diagnosis, facts: Facts, contract: Contract | None, here: bool) -> Diagnosis:
    """Apply the rules to this machine now: a fix for it, and findings that support one cause or another."""
    if contract is None:
        contract = contracts.load_contract(contract_choice.DEFAULT_FRAMEWORK)
    findings = {
        code: finding
        for code in (diagnosis.code, *(a.code for a in diagnosis.alternatives))
        if (finding := _find_rule_finding(code, facts, contract))
    }
    if diagnosis.code in findings:
        finding = findings[diagnosis.code]
        note = f"the same is wrong on {'this machine' if here else 'that machine'} now: {finding.says}"
        return diagnosis.replace(
            here=here,
            fix=tuple(dict.fromkeys((*finding.fix, *diagnosis.fix))),
            confidence=0.99,
            notes=(*diagnosis.notes, note),
        )
    others = [f"{code}: {finding.says}" for code, finding in findings.items()]
    return diagnosis.replace(here=here, notes=(*diagnosis.notes, *(f"on the machine now, {text}" for text in others)))


def _find_rule_finding(code: str, facts: Facts, contract: Contract) -> Finding | None:
    if code not in rules.list_rule_modules():  # only a log can trigger it
        return None
    report = judge([rules.load_rule(code)], facts, contract)
    return report.findings[0] if report.findings else None


# -- the framework --------------------------------------------------------------------------------------------


def detect_framework(summary: LogSummary) -> str:
    """Return the framework whose files are most frequent in the tracebacks."""
    names = {name: name.replace("-", "").replace("_", "") for name in contracts.list_frameworks()}
    counts = dict.fromkeys(names, 0)
    for failure in summary.failures:
        for frame in failure.frames:
            parts = frame.file.replace("\\", "/").lower().replace("-", "").replace("_", "").split("/")
            for name, folded in names.items():
                counts[name] += folded in parts
    for name in ("torch", "transformers"):  # every framework uses these: they identify none
        counts.pop(name, None)
    best = max(counts, key=lambda name: counts[name], default="")
    return best if best and counts[best] else ""


def find_logged_python(summary: LogSummary) -> str:
    """Return the Python whose packages are most frequent in the tracebacks: /opt/venv/lib/python3.12/site-packages/...

    None of another user: a log is anybody's words, and the advised command would start it.
    """
    counts: dict[str, int] = {}
    for failure in summary.failures:
        for frame in failure.frames:
            prefix, lib, rest = frame.file.partition("/lib/python3")
            if (
                lib
                and prefix.startswith("/")
                and rest.partition("/")[2].startswith(("site-packages/", "dist-packages/"))
            ):
                counts[prefix] = counts.get(prefix, 0) + 1
    best = max(counts, key=lambda name: counts[name], default="")
    if not best or may_be_of_another_user(f"{best}/bin/python"):
        return ""
    return "/usr/bin/python3" if best in ("/usr", "/usr/local") else f"{best}/bin/python"


def _try_load_contract(framework: str, summary: LogSummary) -> Contract | None:
    """The contract of the version that the log states, else of the newest: citations name its version."""
    if not framework:
        return None
    try:
        name, version, variant = contract_choice.parse_framework_spec(framework)
    except Exception:  # what has no requirements of ours may ship its own
        return _read_shipped_requirements(framework)
    logged = find_logged_versions(summary).get(name.replace("-", "_"))
    for installed in (logged, None):
        try:
            return contracts.load_contract(name, version, variant, installed)
        except Exception:  # older than every contract
            continue
    return None


def require_framework(framework: str) -> None:
    """Refused where ``--for`` names neither a framework or package that is known nor one that is installed here."""
    name = call_or_refuse(contracts.parse_contract_spec, framework)[0]
    known = {*contracts.list_frameworks(), *list_packages(), "torch"}
    if name not in known and not read_package_metadata(system.ReadOnlyHost(), name):
        raise Refused(
            f"--for {name}: no framework has that name, and it is not installed here{suggest_nearest(name, known)}"
        )


def _read_shipped_requirements(framework: str) -> Contract | None:
    """The requirements that a package of the environment here ships; None where it has none that can be read."""
    name = canonical_package_name(framework)
    shipped = read_package_metadata(system.ReadOnlyHost(), name) or {}
    try:
        return read_packaged_contract(name, shipped["contract"], shipped["contract_file"])
    except (KeyError, contracts.BadContract):
        return None


def _known_error_steps(contract: Contract | None, summary: LogSummary) -> Sequence[FixStep]:
    """Return the steps that the framework's documentation gives for an error in the log."""
    if contract is None:
        return ()
    texts = [f"{failure.type}: {failure.message}" for failure in summary.failures]
    known = [
        error for error in contract.errors if len(error.message) > 15 and any(error.message in text for text in texts)
    ]
    return [
        FixStep(error.fix, note=f"{contract.name}, {error.cite}" if error.cite else contract.name)
        for error in known[:2]
    ]


def fit_steps(steps: Iterable[FixStep], systems: frozenset[str]) -> tuple[FixStep, ...]:
    """The steps that can be done there, with the programs that are there. A log that shows no system keeps them all."""
    if not systems:
        return tuple(steps)
    kept = (_fit_step(step, systems) for step in steps)
    return tuple(dict.fromkeys(step for step in kept if step is not None))


def _fit_step(step: FixStep, systems: frozenset[str]) -> FixStep | None:
    if not fits_system(step.does, systems):
        return None
    row = _program_row(step.run)
    if row is None or systems & set(row["on"]):
        return step
    other = next((one for one in row.get("instead", ()) if one["on"] in systems), None)
    if other is not None:
        return step.replace(run=_replace_command(step.run, other))
    return None if step.safety == "safe" else step.replace(run=(), safety="manual")


def fits_system(text: str, systems: frozenset[str]) -> bool:
    """Whether a sentence names nothing that only another system has."""
    rows = load_catalog("programs")["words"]
    return not systems or all(systems & set(row["on"]) or not any(word in text for word in row["any"]) for row in rows)


def _program_row(run: Sequence[str]) -> Mapping[str, Any] | None:
    rows: list[dict[str, Any]] = load_catalog("programs")["program"]
    return next((row for row in rows if run and row["name"] == run[0]), None)


def _replace_command(run: Sequence[str], other: Mapping[str, Any]) -> tuple[str, ...]:
    if "run" in other:
        return tuple(other["run"])
    words = other.get("words", {})
    return (str(other["program"]), *(str(words.get(word, word)) for word in run[1:]))
