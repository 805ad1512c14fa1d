"""One function per command: collect facts, judge them, act."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuready import __version__, contracts, rules, system
from gpuready import probe as probes
from gpuready.catalog import packages, variables
from gpuready.model import NOT_STATED, SCHEMA, Contract, Fact, Facts, Report
from gpuready.model.report import days_since
from gpuready.system import file_contents, private_files
from gpuready.system.redaction.home_folders import hide_home_folders
from gpuready.workflow import contract_choice, fix_commands, machine_facts
from gpuready.workflow.judge import judge_contract as judge_contract
from gpuready.workflow.judge import judge_with_plan
from gpuready.workflow.refusal import Refused as Refused
from gpuready.workflow.refusal import call_or_refuse, suggest_nearest
from gpuready.workflow.settings import Settings

if TYPE_CHECKING:
    from gpuready.check.changes import FactChange
    from gpuready.jobs.job_files import JobFile


FILE_SUFFIXES = (".txt", ".in", ".toml", ".lock", ".json", ".py", ".sh", ".yml", ".yaml", ".log")
PRECISION_KEYS = ("bf16", "fp16", "mixed_precision", "torch_dtype", "dtype")
"""Keys of a job's file whose value ``auto`` lets the framework choose the precision."""


def check_machine(
    frameworks: Sequence[str] = (),
    *,
    on: str | None = None,
    python: str | None = None,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    contract: str | None = None,
    ignore: Mapping[str, str] | None = None,
    strict: bool = False,
    what_if: Mapping[str, str] | None = None,
    seconds: dict[str, float] | None = None,
    dockerfile: str | None = None,
    packages: str | None = None,
    image: str | None = None,
    partial: bool = False,
    settings: Settings | None = None,
    run_python: bool = False,
    deep: bool = False,
    imports: str = "never",
    note: Callable[[str], object] = lambda text: None,
    ask_index: bool = False,
    look_beside: bool = False,
) -> list[Report]:
    """Check a machine (this one, a recorded or a named one, a container file, or inside an image) for these frameworks.

    With ``partial``, a termination signal during probing is answered with the facts collected so far. Without
    ``run_python`` no program of the environment is started, but for ``imports``: torch and the frameworks are imported
    ``always``, ``never`` or as ``needed`` (machine_facts.start_probing). ``deep`` compares the contents of installed files.
    ``ask_index``: what a package without a contract requires is read from the user's index; a server asks none.
    ``look_beside``: for a machine that is only named, the active environment or the folder's is judged.
    """
    with_reasons = _check_ignored_codes(ignore or {})
    specs = [contract_choice.parse_framework_spec(spec, True) for spec in frameworks]
    own_contract = None if contract is None else contract_choice.read_named_contract(contract)
    metadata = machine_facts.metadata_to_read(specs, own_contract)
    if dockerfile is not None:
        if image is not None or deep or imports == "asked":
            raise Refused(
                "--dockerfile cannot be combined with --image, --deep or --import, which look at what is installed"
            )
        collect, ready, stop = machine_facts.start_container_facts(dockerfile, on, python, what_if or {})
    elif image is not None:
        from gpuready.workflow.image_facts import start_image_facts

        words = _words_inside_image(frameworks, python, deep, imports == "asked")
        collect, ready, stop = start_image_facts(image, on, what_if or {}, words)
    else:
        collect, ready, stop = machine_facts.start_probing(
            on, python, what_if or {}, seconds, *metadata, run_python, deep, imports, note, look_beside
        )
    try:
        rules.preload_rules(ready, gpu=machine_facts.has_gpu_driver())  # while the probes run
        file = machine_facts.load_job_file(config)
        job = machine_facts.job_facts(wants, model, file, own_contract)
        extras = [extra for spec in frameworks for extra in contracts.parse_extras(spec)]
        found = contract_choice.add_extras(collect().with_facts(*job), extras)
        facts = machine_facts.add_environment_purpose(add_fit_facts(found, file, on))
    except BaseException as end:  # a refusal or a signal: stop probes that still run
        stop()
        if not partial or isinstance(end, (Exception, KeyboardInterrupt)):
            raise
        # A scheduler's SIGTERM. Stopped probes return what they had, and a gap for the rest.
        file = machine_facts.load_job_file(config)
        job = machine_facts.job_facts(wants, model, file, own_contract)
        facts = _collect_partial_facts(collect, end).with_facts(*job)
    if settings is not None and settings.applied:
        facts = facts.with_facts(*settings.to_facts())
    try:
        chosen = []
        if packages is not None or dockerfile is not None:
            from gpuready.workflow import asked_file
        if packages is not None:
            package_file = asked_file.read_package_file(packages, facts, what_if or {})
            facts = asked_file.add_packages(facts, package_file)
            facts = asked_file.resolve_file(facts, package_file, note) if ask_index else facts
            chosen = [] if specs or own_contract else asked_file.choose_file_contracts(facts, package_file, ask_index)
        if dockerfile is not None:
            facts = asked_file.resolve_container_file(facts, dockerfile, note) if ask_index else facts
            facts = asked_file.add_builds(facts, dockerfile)
        chosen = chosen or _choose_contracts(facts, specs, own_contract, frameworks, dockerfile, ask_index)
        if dockerfile is not None and "python.packages" in facts:
            chosen = [asked_file.without_unlocked(one, facts) for one in chosen]
        if packages is not None:
            chosen = [asked_file.add_ranges(one, package_file) for one in chosen]
        is_named = packages is None and dockerfile is None and facts.otherwise == NOT_STATED
        if ask_index and is_named and any(version or not contracts.has_contract(name) for name, version, _ in specs):
            from gpuready.workflow import asked_file

            facts = asked_file.state_releases(facts, chosen)
        reports = _judge_contracts(facts, chosen, file, with_reasons, strict)
        if ask_index and is_named and (held := _judge_releases(facts, specs, reports, note)):
            reports = _judge_contracts(facts.with_facts(*held), chosen, file, with_reasons, strict)
    except (TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
        stranger = image if on is None or not machine_facts.is_machine_file(on) else on
        if stranger is None:
            raise
        # GPUREADY_DEBUG=1 shows it: it may be our own bug
        raise Refused(_malformed_recording_message(stranger, error)) from error
    given = {"on": on, "python": python, "config": config, "contract": contract}
    asked = tuple(word for name, value in given.items() if value for word in (f"--{name}", str(value)))
    reports = [report.replace(asked=asked) for report in reports]
    return reports if on else _add_knowledge_age(reports)


def _judge_releases(
    facts: Facts, specs: list[contract_choice.FrameworkSpec], reports: Sequence[Report], note: Callable[[str], object]
) -> list[Fact]:
    """Return what uv proves against named releases, where nothing else speaks against them, and the partners that decide and are not stated.

    What it would take for them today is not what is there: where an error would follow from it, it is a gap.
    """
    asked = [spec for spec in specs if spec[1] or not contracts.has_contract(spec[0])]
    if not asked or any(finding.severity == "error" for report in reports for finding in report.findings):
        return []
    from gpuready.workflow import asked_file

    held = asked_file.resolve_releases(facts, asked, note)
    if "requirements.conflict" in {one.key for one in held}:
        return held
    judged = [judge_contract(facts.with_facts(*held), report.contract, {}, False) for report in reports]
    errors = [one for report in judged for one in report.findings if one.severity == "error" and one.code[:3] == "PKG"]
    return [
        found.replace(value=None, gap=f"not given, and uv takes {found.value}: {error.says}")
        for error in errors
        for found in error.found
        if found.value and found.key.startswith("package.") and found.key not in facts and found.key != "package.torch"
    ]


def _words_inside_image(frameworks: Sequence[str], python: str | None, deep: bool, run_import: bool) -> list[str]:
    """Return the words of the check that collects facts inside an image."""
    named = [f"--python={python}"] if python is not None else []
    return [*frameworks, *named, *(["--deep"] if deep else []), *(["--import"] if run_import else [])]


def _add_knowledge_age(reports: list[Report]) -> list[Report]:
    """Say how old the knowledge is; not of a recording, which is judged the same on every day."""
    now = system.LiveHost().get_wall_time()
    return [report.replace(catalog_days=days_since(report.catalog, now)) for report in reports]


def make_fixes_runnable(reports: list[Report], here: bool) -> list[Report]:
    """Return reports whose fixes use programs that are there; ``here``: it is this machine that was examined."""
    if not any(step.run for report in reports for finding in report.findings for step in finding.fix):
        return reports
    uv = fix_commands.look_for_uv(system.LiveHost()) if here else None
    return [fix_commands.make_fixes_runnable(report, uv) for report in reports]


def _choose_contracts(
    facts: Facts,
    specs: list[contract_choice.FrameworkSpec],
    own_contract: Contract | None,
    words: Sequence[str],
    dockerfile: str | None,
    ask_index: bool,
) -> list[Contract]:
    """Return the contracts to judge by: of the named frameworks, of the user's file, or of what is installed."""
    chosen_specs = specs or ([] if own_contract else contract_choice.installed_frameworks(facts))
    if not specs and (named := facts.value_if_known("container.requests")):  # not what these bring along
        names = {packages.canonical_package_name(packages.split_requirement(word)[0]) for word in named}
        chosen_specs = [spec for spec in chosen_specs if contracts.distribution_name(spec[0]) in names] or chosen_specs
    extras = [contracts.parse_extras(word) for word in words] if specs else [()] * len(chosen_specs)
    if (
        dockerfile is not None
        and not specs
        and chosen_specs
        and not facts.value_if_known(f"package.{chosen_specs[0][0]}")
    ):
        from gpuready.contracts.catalogued_release import make_torch_contract

        return [make_torch_contract(str(facts.value_if_known("package.torch") or ""), dockerfile)]
    chosen = [
        *(_choose_contract(facts, spec, one, ask_index) for spec, one in zip(chosen_specs, extras, strict=True)),
        *([contract_choice.note_version_mismatch(facts, own_contract)] if own_contract else []),
    ]
    return [contract_choice.add_job_needs(contract, facts) for contract in chosen]


def _choose_contract(
    facts: Facts, spec: contract_choice.FrameworkSpec, extras: Sequence[str], ask_index: bool
) -> Contract:
    """Return the contract of a framework; of a package that has none, by its installed metadata or its release on the index."""
    requires = facts.value_if_known("python.requires") or {}
    stated = facts.fact(f"package.{contracts.distribution_name(spec[0])}")
    if ask_index and stated.how == "stated" and stated.value:  # a container file's version, say
        spec = (spec[0], spec[1] or str(stated.value), spec[2])
    is_known = contracts.has_contract(spec[0]) and not (ask_index and spec[1])
    if not extras and (is_known or contracts.distribution_name(spec[0]) in requires):
        return contract_choice.choose_contract(facts, *spec)
    from gpuready.workflow import index_contract

    return index_contract.choose_contract_by_index(facts, spec, extras, ask_index)


def sort_asked_files(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the frameworks among the words of a check, and its files by the option that takes each."""
    marks = ("/", "dockerfile", "containerfile", *FILE_SUFFIXES)
    if not any(mark in word.lower() for word in words for mark in marks):
        return list(words), {}
    from gpuready.workflow import asked_file

    return asked_file.sort_asked_files(words)


def _judge_contracts(
    facts: Facts, contracts_used: list[Contract], file: JobFile | None, ignored: Mapping[str, str], strict: bool
) -> list[Report]:
    """Judge the facts by each contract, which sees the others unless a resolver has looked at them together."""
    others = [] if "requirements.conflict" in facts else contracts_used
    return [
        judge_with_plan(_add_job_placement(add_other_contracts(facts, c, others), c, file), c, ignored, strict)
        for c in contracts_used
    ]


def _malformed_recording_message(path: str, error: BaseException) -> str:
    """Explain that a rule cannot read a recording: it may be forged, and only the rules know the fields of its tables."""
    frame_at = error.__traceback__
    while frame_at is not None and frame_at.tb_next is not None:
        frame_at = frame_at.tb_next
    where = frame_at.tb_frame.f_code.co_filename.rpartition("/")[2].removesuffix(".py") if frame_at else "a rule"
    return (
        f"{path} has a fact of a shape that gpuready does not record ({where} cannot read it): record the machine again "
        "with `gpuready probe -o FILE`"
    )


def _collect_partial_facts(collect: Callable[[], Facts], signal_error: BaseException) -> Facts:
    """Collect what stopped probes returned; re-raise the signal where it hit their bookkeeping."""
    try:
        return collect()
    except Exception:
        raise signal_error from None


def collect_facts(
    on: str | None,
    python: str | None,
    what_if: Mapping[str, str],
    specs: Sequence[contract_choice.FrameworkSpec],
    own_contract: Contract | None,
    *,
    wants: str | None = None,
    model: str | None = None,
    config: str | None = None,
    run_python: bool = False,
    imports: str = "never",
) -> Facts:
    """Probe a machine and read the job's flags at the same time; a refusal or a signal stops the probes."""
    collect, _, stop = machine_facts.start_probing(
        on, python, what_if, None, *machine_facts.metadata_to_read(specs, own_contract), run_python, imports=imports
    )
    try:
        file = machine_facts.load_job_file(config)
        job = machine_facts.job_facts(wants, model, file, own_contract)
        return add_fit_facts(collect().with_facts(*job), file)
    except BaseException:
        stop()
        raise


def add_fit_facts(facts: Facts, file: JobFile | None, on: str | None = None) -> Facts:
    """Add what the job of a configuration file needs of the GPUs; free where there is none."""
    if file is None:
        return facts
    from gpuready.workflow.fit import fit_facts

    return facts.with_facts(*fit_facts(file, facts, on))


def _add_job_placement(facts: Facts, contract: Contract, file: JobFile | None) -> Facts:
    """Add where and in which precision the framework will run the job of a configuration file."""
    if file is None:
        return facts
    from gpuready.jobs.job_facts import walk_pairs
    from gpuready.runtime.job_placement import predict_job_placement

    pairs = list(walk_pairs(file.config))
    options = {
        "device_map": next((value for key, value in pairs if key == "device_map" and value), None),
        "auto_precision": any(key in PRECISION_KEYS and value == "auto" for key, value in pairs),
        "half_eval": any(key in ("fp16_full_eval", "bf16_full_eval") and value is True for key, value in pairs),
    }
    return facts.with_facts(*predict_job_placement(facts, contract, options))


def add_other_contracts(facts: Facts, contract: Contract, every: list[Contract]) -> Facts:
    """Add what the other requested frameworks would do to this one's environment."""
    if len(every) < 2:
        return facts
    from gpuready.rules.pkg.contracts_cannot_share_environment import pins_of_others
    from gpuready.rules.sys.variables_two_frameworks_differ import variables_of_others

    other_names = ", ".join(c.name for c in every if c is not contract)
    return facts.with_facts(
        Fact("requirements.others", pins_of_others(contract, every), other_names, "stated"),
        Fact("requirements.variables", variables_of_others(contract, every), other_names, "stated"),
    )


def diff_machines(a: str, b: str, framework: str | None = None) -> list[FactChange]:
    """List what changed from one machine (a recording or a name) to another, and which rules that flips."""
    before, after = (
        check_machine([framework] if framework else [contract_choice.DEFAULT_FRAMEWORK], on=machine)[0]
        for machine in (a, b)
    )
    return _list_report_changes(before, after)


def changes_since_recording(path: str, now: Report) -> list[FactChange]:
    """List what changed since a recording was made, under the contract of a current Report."""
    job = [f for f in now.facts if f.key.startswith("job.")]
    before = judge_contract(machine_facts.read_recording(path).with_facts(*job), now.contract, {}, now.strict)
    return _list_report_changes(before, now)


def _list_report_changes(before: Report, after: Report) -> list[FactChange]:
    from gpuready.catalog.facts import find_declaration
    from gpuready.check.changes import compare_reports

    return compare_reports(before, after, lambda key: bool((find_declaration(key) or {}).get("volatile")))


def probe_machine(
    python: str | None = None, on: str | None = None, what_if: Mapping[str, str] | None = None, run_python: bool = False
) -> Facts:
    """Collect everything gpuready can see of a machine without running anything heavy on it."""
    return machine_facts.start_probing(on, python, what_if or {}, None, run_python=run_python)[0]()


def record_machine(python: str | None = None, run_python: bool = False) -> dict[str, Any]:
    """Return this machine as a recording: its facts, and the redacted host replies that they were read from."""
    host = system.RecordingHost(machine_facts.choose_probed_host(run_python), variables.is_asked_variable)
    facts = call_or_refuse(
        probes.probe, host, python, packages.list_packages()
    )  # its reader may need the metadata of any of them
    return {
        "schema": SCHEMA,
        "kind": "recording",
        "gpuready": __version__,
        "host": facts.host,
        "facts": facts.to_json(),
        "tape": host.recording,
    }


def redact_shown_text(text: str) -> str:
    """Hide the secrets, and whose machine it is, in a text that is made to be sent elsewhere."""
    return hide_home_folders(system.redact_text(text), system.LiveHost().variables.get("HOME", ""))


def save_text_file(path: str, text: str, private: bool = True) -> None:
    """Write a file atomically, for its owner alone unless it holds nothing of a machine."""
    try:
        system.save_atomically(path, text, private)
    except system.AccessError as error:
        raise Refused(f"cannot write {path}: {error}") from None


def require_new_file(path: str) -> None:
    """Refused where a file is there already, or cannot be written."""
    if file_contents.file_size(path) is not None:
        raise Refused(f"{path} is there already: name another file, or remove it")
    require_writable(path)


def require_writable(path: str | None) -> None:
    """Refused where a file that is named for the answer cannot be written: said before the work, not after it."""
    try:
        if path is not None and path != "-":
            private_files.require_writable(path)
    except system.AccessError as error:
        raise Refused(f"cannot write {path}: {error}") from None


def utc_timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def explain_rule(code: str) -> dict[str, Any]:
    """Return the explanation of a rule, by its code or its name."""
    from gpuready.catalog.causes import list_patterns
    from gpuready.logs.log_patterns import pattern_text

    query = code.strip()
    codes = rules.list_codes()
    by_name = {rules.rule_name(c): c for c in codes}
    rule_code = by_name.get(query.lower(), query.upper())
    if rule_code not in codes:
        hint = suggest_nearest(query, [*codes, *by_name])
        raise Refused(f"no rule is called {code!r}{hint}; `gpuready explain` alone lists them all")
    rule = rules.load_rule(rule_code)
    title, _, text = (rule.__doc__ or "").strip().partition("\n")
    return {
        "schema": SCHEMA,
        "code": rule_code,
        "name": rules.rule_name(rule_code),
        "severity": rule.SEVERITY,
        "title": title,
        "text": text.strip(),
        "reads": list(rule.READS),
        "signs": [pattern_text(pattern) for pattern in list_patterns(rule_code)],
    }


def list_rule_codes() -> list[str]:
    return rules.list_codes()


def explain_all_rules() -> list[dict[str, Any]]:
    return [{k: v for k, v in explain_rule(code).items() if k != "text"} for code in rules.list_codes()]


def contract_list() -> list[dict[str, Any]]:
    return list(contracts.list_contract_rows())


def contract_show(spec: str, file: str | None = None) -> Contract:
    if file is not None:
        return call_or_refuse(contracts.read_contract_file, file)
    return call_or_refuse(contracts.load_contract, *contract_choice.parse_framework_spec(spec))


def contract_diff(a: str, b: str, files: bool = False) -> list[Any]:
    """List what changed between two contracts. With ``files``, a word with a slash or ``.toml`` names a contract file."""
    from gpuready.contracts.diff import diff_contract_rows

    def load_operand(spec: str) -> Contract:
        return contract_show(spec, spec if files and ("/" in spec or spec.endswith(".toml")) else None)

    return diff_contract_rows(load_operand(a), load_operand(b))


def _check_ignored_codes(ignore: Mapping[str, str]) -> Mapping[str, str]:
    if ignore:
        codes = rules.list_codes()
        for code in ignore:
            if code not in codes:
                raise Refused(f"--ignore {code}: no rule has that code{suggest_nearest(code, codes)}")
    return ignore
