"""Where the facts come from: this machine, a recording, or a named machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuready import contracts, system
from gpuready import probe as looking
from gpuready.contracts.when import wanted_words
from gpuready.model import SCHEMA, Contract, Fact, Facts
from gpuready.probe.fact_helpers import is_driver_loaded
from gpuready.system.imports import survey_cache
from gpuready.system.imports.real_import import read_time_limit
from gpuready.system.private_files import may_be_of_another_user
from gpuready.system.process.runner import unredacted_variables
from gpuready.system.redaction.text import may_contain_secret, redact_json, redact_value
from gpuready.workflow.refusal import Refused, call_or_refuse, host_for_named_files, read_named_file

if TYPE_CHECKING:
    from gpuready.jobs.job_files import JobFile


NOT_IMPORTED = (
    "files differ and nothing was imported: only `gpuready check --import` tells whether the framework still starts"
)
_PACKAGE_PREFIXES = ("python.", "package.", "torch.")
"""Prefixes of facts that belong to the environment, not the machine."""

Probing = tuple[Callable[[], Facts], Callable[[], bool], Callable[[], object]]
"""Functions to collect the facts, to tell whether they are ready, and to stop."""


def start_probing(
    on: str | None,
    python: str | None,
    what_if: Mapping[str, str],
    seconds: dict[str, float] | None,
    distributions: Sequence[str] = (),
    variables: Sequence[str] = (),
    run_python: bool = False,
    deep: bool = False,
    imports: str = "never",
    note: Callable[[str], object] = lambda text: None,
    look_beside: bool = False,
) -> Probing:
    """Start probing. Return functions to collect the facts, to tell whether they are ready, and to stop.

    ``run_python``: programs of the environment may be started, where its files do not tell. ``deep``: the contents of every
    installed file are compared with its RECORD. ``imports``: whether torch and the frameworks are really imported: ``always``;
    ``asked``, which refuses where there is neither; ``never``; or as ``needed``, where files differ or do not tell, and the
    environment is the user's by his own word. ``look_beside``: the active environment, or the folder's, is judged for a named machine.
    """
    if on is not None and (deep or imports == "asked"):
        raise Refused("--deep and --import look at an environment of this machine, and --on names another machine")
    if on is not None and not is_machine_file(on):
        return (
            lambda: named_machine_facts(on, python, what_if, distributions, run_python, look_beside),
            _always_ready,
            _always_ready,
        )
    if on is not None:
        recorded = read_recording(on)
        if python is not None:
            recorded = _replace_package_facts(recorded, python, distributions, run_python)
        return lambda: _apply_what_if(recorded, what_if), _always_ready, _always_ready
    host = choose_probed_host(run_python)
    started = system.start_probes(host, call_or_refuse(looking.list_probes, host, python, distributions, variables))

    def collect_probed_facts() -> Facts:
        facts = call_or_refuse(looking.assemble_host_facts, host, started.collect_facts(), python)
        if seconds is not None:
            seconds.update(started.seconds)
        if deep:
            facts = facts.with_facts(*looking.survey_environment(host, python, distributions, deep=True))
        return _apply_what_if(add_import_result(facts, python, imports, note), what_if)

    def stop_probes() -> None:
        """End what runs; what is collected then is what is known, and no import or comparison begins for it."""
        nonlocal deep, imports
        deep, imports = False, "never" if imports == "never" else "stopped"
        started.stop_probes()

    return collect_probed_facts, started.all_ready, stop_probes


def add_import_result(
    facts: Facts, python: str | None, imports: str, note: Callable[[str], object] = lambda text: None
) -> Facts:
    """Add what importing torch and the frameworks gave, where it is asked for; else why it was not tried, where that matters."""
    looked = facts.value_if_known("import.looked") or {}
    modules = looked.get("modules") or {}
    if imports == "asked" and not modules:
        gap = "the environment has neither torch nor a framework that gpuready knows"
        return facts.with_facts(Fact("import.result", None, "", gap=gap))
    differs = any(facts.value_if_known(key) for key in ("import.damage", "import.hidden"))
    is_asked = imports in ("asked", "always")
    is_unjudged = bool(looked.get("unjudged") or facts.value_if_known("library.shadowed"))
    if not modules or not (is_asked or differs or is_unjudged):
        return facts
    if imports == "stopped":
        return facts.with_facts(Fact("import.result", None, "", gap="interrupted"))
    host = system.LiveHost()
    if is_asked or (imports == "needed" and looking.is_users_own(host, python)):
        interpreter = require_interpreter(facts)
        variables, kept = unredacted_variables(host), str(looked.get("kept") or "")
        asked = [interpreter, *(name for names in modules.values() for name in names)]
        known = None if is_asked else survey_cache.recall_imports(variables, kept, asked)
        if known is not None:
            return facts.with_facts(Fact("import.result", known, interpreter, "run"))
        note(f"importing {', '.join(modules)}, at most {read_time_limit(host):.0f} s each")
        result = looking.run_imports(host, python, modules)
        survey_cache.keep_imports(variables, kept, asked, result.value)
        return facts.with_facts(result)
    return facts.with_facts(Fact("import.result", None, "", gap=NOT_IMPORTED)) if differs else facts


def choose_probed_host(run_python: bool = False) -> system.LiveHost:
    """Return the access to this machine for probes; read-only unless programs of the environment may be started."""
    return system.LiveHost() if run_python else system.ReadOnlyHost()


def start_container_facts(file: str, on: str | None, python: str | None, what_if: Mapping[str, str]) -> Probing:
    """Return the same functions for a container file, on a host that is recorded, named, or not stated."""
    from gpuready.workflow import container_file

    if python is not None:
        raise Refused("--dockerfile and --python cannot be combined: a container has its own environment")
    host = None if on is None else read_recording(on) if is_machine_file(on) else named_machine_facts(on, None, what_if)
    return lambda: container_file.container_facts(file, host, what_if), _always_ready, _always_ready


def require_interpreter(facts: Facts) -> str:
    """Return the Python of the environment that was examined, to run something in it; Refused where there is none."""
    fact = facts.fact("python.path")
    if not fact.value:
        raise Refused(fact.gap or "there is no Python environment: name one with --python PATH")
    path, is_only_found = str(fact.value), fact.source.startswith("/")  # named by the folder that it lies in
    if is_only_found and may_be_of_another_user(path):
        raise Refused(
            f"{path} belongs to another user, and would be run as you: if you trust it, name it with --python"
        )
    return path


def has_gpu_driver() -> bool:
    return is_driver_loaded(system.LiveHost())


def _always_ready() -> bool:
    return True


def metadata_to_read(
    specs: Sequence[tuple[str, str | None, str | None]], own_contract: Contract | None
) -> tuple[list[str], list[str]]:
    """Return what is probed on demand: the metadata of named frameworks, and the variables of a user's contract."""
    distributions = [contracts.distribution_name(framework) for framework, _, _ in specs]
    if own_contract and own_contract.distribution:
        distributions.append(own_contract.distribution)
    return distributions, [variable.name for variable in own_contract.variables] if own_contract else []


def sees_packages(on: str | None, python: str | None) -> bool:
    """Return whether an environment is probed: a named machine has none, unless --python gives one."""
    return on is None or python is not None or is_machine_file(on)


def is_machine_file(on: str) -> bool:
    return "/" in on or on.endswith(".json") or system.LiveHost().stat_path(on) is not None


def read_recording(path: str) -> Facts:
    """Read the facts of a recording; Refused for another tool's file or a newer schema."""
    return parse_recording(read_named_file(path), path)


def parse_recording(text: str, path: str) -> Facts:
    """Parse the text of a recording; ``path`` is its name in refusals."""
    import json

    from gpuready.catalog import facts as catalogue

    if not text.strip():
        raise Refused(f"{path} is empty; record a machine with `gpuready probe -o FILE`")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise Refused(f"{path} is not JSON: {error}; record a machine with `gpuready probe -o FILE`") from None
    except RecursionError:
        raise Refused(f"{path} is nested too deeply for a recording") from None
    if not isinstance(data, dict) or not isinstance(data.get("facts"), list):
        raise Refused(f"{path} is not a recording: it has no list of facts; make one with `gpuready probe -o FILE`")
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise Refused(f"{path} has schema {schema!r}, which no gpuready wrote; record it with `gpuready probe -o FILE`")
    if schema > SCHEMA:
        raise Refused(f"{path} has schema {schema!r} and this gpuready reads {SCHEMA}: upgrade gpuready")
    try:
        facts = [Fact.from_json(item) for item in _redact_recorded_facts(data["facts"])]
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None
    for fact in facts:
        if not catalogue.value_matches_type(fact.key, fact.value):
            kind = (catalogue.find_declaration(fact.key) or {})["type"]
            raise Refused(f"{path}: the fact {fact.key!r} must be of type {kind}, and is {str(fact.value)[:60]!r}")
    return Facts(facts, system.redact_text(str(data.get("host", ""))), "not recorded")


def _redact_recorded_facts(facts: list[Any]) -> list[Any]:
    """Redact the facts of a recording: its maker may not have removed secrets."""
    plain = redact_json(facts) if may_contain_secret(facts) else facts
    for fact in plain:
        if isinstance(fact, dict) and isinstance(fact.get("value"), str):
            name = str(fact.get("key", ""))
            if name.startswith("env."):
                fact["value"] = redact_value(name[4:], fact["value"])
    return plain


def named_machine_facts(
    on: str,
    python: str | None,
    what_if: Mapping[str, str],
    distributions: Sequence[str] = (),
    run_python: bool = False,
    look_beside: bool = False,
) -> Facts:
    from gpuready.probe import stated_machine

    facts = call_or_refuse(stated_machine.stated_machine_facts, on, what_if)
    call_or_refuse(stated_machine.require_possible, facts, what_if)
    if python is None and not (look_beside and looking.has_chosen_environment(choose_probed_host())):
        return facts
    return _apply_what_if(_replace_package_facts(facts, python, distributions, run_python), what_if)


def _replace_package_facts(facts: Facts, python: str | None, distributions: Sequence[str], run_python: bool) -> Facts:
    """Replace another machine's package facts with those of a local environment."""
    host = choose_probed_host(run_python)
    probe_looks = call_or_refuse(looking.list_probes, host, python, distributions)
    environment_facts = call_or_refuse(looking.assemble_host_facts, host, system.run_probes(host, probe_looks), python)
    kept = [f for f in facts if not f.key.startswith(_PACKAGE_PREFIXES)]
    return Facts(kept, facts.host, facts.otherwise).with_facts(
        *(f for f in environment_facts if f.key.startswith(_PACKAGE_PREFIXES))
    )


def _apply_what_if(facts: Facts, what_if: Mapping[str, str]) -> Facts:
    if not what_if:
        return facts
    from gpuready.probe import stated_machine

    changed: Facts = call_or_refuse(stated_machine.apply_what_if, facts, what_if)
    return changed


def load_job_file(config: str | None) -> JobFile | None:
    """Load the file of ``--config``, once for its facts and its fit."""
    if config is None:
        return None
    from gpuready.jobs import job_files

    return call_or_refuse(job_files.load_job_file, config, read_job_text, "--config")


def frameworks_of_file(config: str | None) -> list[str]:
    """Return the framework whose file ``--config`` is; none where several take such a file."""
    file = load_job_file(config)
    if file is None:
        return []
    from gpuready.jobs.job_files import find_framework

    return [name for name in [find_framework(file)] if name]


def read_job_text(path: str) -> str | None:
    """Return the text of a job's file, one byte more than is accepted; None if it does not exist."""
    from gpuready.jobs.job_files import MAX_FILE_BYTES

    return host_for_named_files().read_text(path, MAX_FILE_BYTES + 1)


def job_facts(
    wants: str | None, model: str | None, file: JobFile | None, own_contract: Contract | None = None
) -> list[Fact]:
    """Return the facts of the job's flags and file; a user's own contract may use words of its own."""
    from gpuready.probe import job as flags

    conditions: list[str] = []
    if own_contract is not None:
        conditions += [need.when for need in own_contract.needs]
        conditions += [row.when for row in own_contract.capabilities] + [row.when for row in own_contract.variables]
    extra_words = [word for condition in conditions for word in wanted_words(condition)]
    facts = call_or_refuse(flags.probe_job, host_for_named_files(), wants, model, file, extra_words)
    if file is not None and not file.kind and not any(file.path in fact.source for fact in facts):
        from gpuready.jobs.job_files import describe_unknown_kind

        raise Refused(f"--config {describe_unknown_kind(file)}")
    return facts


def add_environment_purpose(facts: Facts) -> Facts:
    """Add cpu to what the job asks for, where gpuready made the environment for the CPU and there is no GPU."""
    wants = facts.value_if_known("job.wants") or ()
    if facts.value_if_known("python.made_for") != "cpu" or "cpu" in wants or facts.value_if_known("gpu.count"):
        return facts
    return facts.with_facts(Fact("job.wants", (*wants, "cpu"), facts.fact("python.made_for").source, "read"))
