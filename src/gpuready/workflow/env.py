"""``gpuready env``: choose the variables that the framework wants on this machine."""

from collections.abc import Collection, Mapping

from gpuready import contracts, system, workflow
from gpuready.model import Facts
from gpuready.model.plan import EnvironmentSettings
from gpuready.plan.variables import recommend_variables
from gpuready.system.redaction.text import redact_value
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.refusal import Refused, call_or_refuse


def framework_variables(
    framework: str,
    *,
    on: str | None = None,
    python: str | None = None,
    role: str | None = None,
    wants: str | None = None,
    contract: str | None = None,
    what_if: Mapping[str, str] | None = None,
    run_python: bool = False,
    in_process: bool = False,
    allow_variable: Collection[str] = (),
) -> EnvironmentSettings:
    """Return the variables for a framework, by the contract of its installed version, or by a contract file.

    ``allow_variable``: what a contract file may set by the user's word. ``in_process``: for a script of the user, which gets no defaults from the framework's own command.
    """
    own_contract = None if contract is None else contract_choice.read_named_contract(contract, allow_variable)
    spec = call_or_refuse(contracts.parse_contract_spec, framework)
    if own_contract is not None and spec[0] != own_contract.framework:
        raise Refused(f"{contract} has the requirements of {own_contract.framework}, not of {spec[0]}")
    specs = (
        []
        if own_contract
        else [contract_choice.parse_framework_spec(framework, machine_facts.sees_packages(on, python))]
    )
    facts = workflow.collect_facts(on, python, what_if or {}, specs, own_contract, wants=wants, run_python=run_python)
    chosen = (
        contract_choice.note_version_mismatch(facts, own_contract)
        if own_contract
        else contract_choice.choose_contract(facts, *specs[0], allow_variable)
    )
    recorded = on is not None and machine_facts.sees_packages(on, None)
    settings = call_or_refuse(recommend_variables, facts, chosen, role, _current_variables(facts, recorded), in_process)
    return settings.replace(conflicts=tuple(c.replace(have=redact_value(c.name, c.have)) for c in settings.conflicts))


def _current_variables(facts: Facts, recording: bool) -> dict[str, str]:
    """Return what is set where the job would start: the recording's variables, else this shell's.

    A named machine has no variables of its own, and the user's must be respected there too.
    """
    # Facts have only variables that rules read, redacted; here every name counts.
    if not recording:
        return dict(system.LiveHost().get_environment())
    return {
        fact.key.removeprefix("env."): str(fact.value)
        for fact in facts
        if fact.key.startswith("env.") and fact.key != "env.names" and fact.value is not None and not fact.gap
    }
