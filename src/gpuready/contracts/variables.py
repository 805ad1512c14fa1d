"""The environment variables that a framework sets, under the name that this torch reads, without overriding the user's.

Used by ``gpuready env``, which adds what the machine needs, and by ``gpuready.configure`` inside the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuready.catalog import torch as catalogue
from gpuready.catalog import variables as processes
from gpuready.contracts import foreign_note, is_borrowed, is_made_from_release
from gpuready.contracts import when as conditions
from gpuready.model import Contract, ContractVariable, Fact, Facts, Record, UnknownFactError, versions
from gpuready.model.facts import describe_gap
from gpuready.model.plan import EnvironmentSettings, VariableConflict, VariableSetting

OLD_ALLOC_CONF, NEW_ALLOC_CONF = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
RENDEZVOUS_VARIABLES = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Set by the launcher for each process; set in a shell, every process would start with the same rank."""


class WantedVariable(Record):
    """A wanted variable, before it is compared with the user's environment."""

    name: str
    value: str
    by: str
    why: str
    cite: str
    then: str  # the consequence where the user has set another value
    open: str = ""  # why it could not be decided
    left: str = ""  # why it cannot be set in a shell
    own: bool = False  # the framework's command chooses a value itself where it is unset


def choose_role(contract: Contract, role: str | None) -> str:
    """Return the process role; ValueError, with a sentence, where the framework has no such role."""
    known = processes.list_roles(contract.framework)
    if role is None:
        return known[0] if known else ""
    if role in known:
        return role
    if not known:
        raise ValueError(f"--role {role}: all processes of {contract.framework} are alike; leave it out")
    raise ValueError(f"--role {role}: {contract.framework} has {', '.join(known)}")


def framework_settings(
    facts: Facts,
    contract: Contract,
    role: str | None,
    environment: Mapping[str, str],
    more: Sequence[WantedVariable] = (),
    in_process: bool = False,
) -> EnvironmentSettings:
    """Return what to set, what is set already, and where the user's value conflicts. Pure.

    ``in_process``: for this very process, which is not the framework's command, and gets none of its own defaults.
    """
    chosen = choose_role(contract, role)
    facts = _add_condition_facts(facts, contract, chosen)
    torches = _possible_torches(facts, contract)
    found = _wanted_variables(facts, contract, chosen, torches)
    found = found if in_process else [_leave_own_default(wish, contract, environment) for wish in found]
    wishes = _unique_by_name([*found, *more])
    wanted = [w for w in wishes if not (w.open or w.left)]
    known = torches[0] if facts.value_if_known("package.torch") else ""
    return EnvironmentSettings(
        contract.framework,
        contract.version,
        contract.variant,
        chosen,
        tuple(processes.list_roles(contract.framework)),
        facts.host,
        known,
        tuple(s for w in wanted if (s := _make_setting(w, environment))),
        tuple(c for w in wanted if (c := _make_clash(w, environment))),
        tuple(VariableSetting(w.name, w.value, w.by, w.left, w.cite, "left") for w in wishes if w.left),
        tuple(f"{w.name} is left open: {w.open}" for w in wishes if w.open),
        foreign_note(contract),
    )


# -- the contract's variables ----------------------------------------------------------------------------


def _add_condition_facts(facts: Facts, contract: Contract, role: str) -> Facts:
    """Add the facts that conditions read: a job of this role, on the framework's platform."""
    words = tuple(facts.value_if_known("job.wants") or ()) if "job.wants" in facts else ()
    more = [Fact("job.wants", tuple(dict.fromkeys((*words, role))) if role else words, "role", "stated")]
    if facts.value_if_known("platform.name") in (None, "cpu") and contract.platforms:
        # A login node without a GPU sets variables for nodes that have one.
        more.append(Fact("platform.name", contract.platforms[0], "contract", "stated"))
    return facts.with_facts(*more)


def _possible_torches(facts: Facts, contract: Contract) -> list[str]:
    """Return the installed or stated torch; else every one that the contract accepts."""
    here = facts.value_if_known("package.torch")
    if here:
        return [str(here)]
    specifiers = [n.want for n in contract.requirements_for("package.torch") if n.level == "required" and not n.when]
    fits = [
        v
        for v in catalogue.list_torch_releases()
        if all(w == "*" or versions.satisfies_specifier(v, w) for w in specifiers)
    ]
    return fits or catalogue.list_torch_releases()


def _wanted_variables(facts: Facts, contract: Contract, role: str, torches: Sequence[str]) -> list[WantedVariable]:
    found = []
    for variable in contract.variables:
        if "set" not in variable.access or variable.name in RENDEZVOUS_VARIABLES:
            continue
        if not processes.role_uses_variable(contract.framework, role, variable.name):
            continue
        found += _wanted_variable(facts, contract, variable, role, torches)
    return found


def _wanted_variable(
    facts: Facts, contract: Contract, variable: ContractVariable, role: str, torches: Sequence[str]
) -> list[WantedVariable]:
    made = WantedVariable(
        variable.name,
        ("" if _is_emptied(variable, role) else variable.value),
        contract.name,
        _variable_reason(contract, variable, role),
        variable.cite,
        _override_consequence(contract, variable),
    )
    passing = processes.why_not_in_shell(contract.framework, variable.name)
    is_ours = not passing and _is_same_everywhere(contract, variable)
    made = made.replace(own="own-default" in variable.traits)
    applies, unclear_reason = _applies_with_torches(facts, variable, torches)
    if not applies:
        return [made.replace(open=unclear_reason)] if unclear_reason and is_ours else []
    if is_ours and _is_value_of_another_version(contract, variable):
        return [made.replace(left=_own_choice(contract))]
    if not is_ours:
        return [made.replace(left=passing or variable.note or "it differs from process to process")]
    return _apply_hardware_gate(facts, _use_torch_name(made, torches))


def _is_emptied(variable: ContractVariable, role: str) -> bool:
    return "emptied-for-vllm" in variable.traits and role == "vllm"


def _variable_reason(contract: Contract, variable: ContractVariable, role: str) -> str:
    """Say what the variable does, and what the contract notes about it."""
    if _is_emptied(variable, role):
        return f"vLLM sleeps with a memory pool of its own, which does not go with {variable.value}"
    sentences = [processes.variable_meaning(variable.name), variable.note]
    return "; ".join(part for part in sentences if part) or f"{contract.framework} sets it"


def _is_same_everywhere(contract: Contract, variable: ContractVariable) -> bool:
    """Return whether all processes get the same value, so that it can be written down."""
    return bool(variable.value) or processes.is_emptied_variable(contract.framework, variable.name)


def _is_value_of_another_version(contract: Contract, variable: ContractVariable) -> bool:
    """Return whether the code has a default of its own that only a contract of another version tells."""
    if is_borrowed(contract):
        return "own-default" in variable.traits or "read" in variable.access
    return "own-default" in variable.traits and is_made_from_release(contract)


def _leave_own_default(wish: WantedVariable, contract: Contract, environment: Mapping[str, str]) -> WantedVariable:
    """Leave an unset variable to the framework's command where its code computes the value: it can know better."""
    if not wish.own or wish.left or (not wish.open and _current_value(wish, environment) is not None):
        return wish
    return wish.replace(open="", left=_own_choice(contract))


def _own_choice(contract: Contract) -> str:
    return f"{contract.framework} chooses its value itself where it is unset"


def _override_consequence(contract: Contract, variable: ContractVariable) -> str:
    if "forced" in variable.traits:
        return f"{contract.framework} sets its own value all the same"
    if "read" in variable.access or "yields" in variable.traits:
        return f"{contract.framework} leaves yours"
    return f"{contract.framework} may set its own value over it"


def _applies_with_torches(facts: Facts, variable: ContractVariable, torches: Sequence[str]) -> tuple[bool, str]:
    """Return whether a condition holds with every possible torch; and why that is undecided."""
    results = set()
    try:
        for version in torches if "torch" in variable.when else torches[:1]:
            stated = Fact("package.torch", version, "catalogue", "stated")
            results.add(conditions.condition_applies(variable.when, facts.with_facts(stated)))
    except UnknownFactError as error:
        return False, f"it depends on {error.fact.key} ({describe_gap(error.fact.gap)})"
    if len(results) > 1:
        return False, f"it depends on torch ({variable.when}), which is not known: say --as torch=VERSION"
    return results == {True}, ""


def _use_torch_name(wish: WantedVariable, torches: Sequence[str]) -> WantedVariable:
    """Rename the allocator's variable to the name that this torch reads."""
    if wish.name not in (OLD_ALLOC_CONF, NEW_ALLOC_CONF):
        return wish
    names = {catalogue.allocator_variable(version) for version in torches}
    if len(names) > 1:
        return wish.replace(
            open=f"torch is not known: {OLD_ALLOC_CONF} before 2.9, {NEW_ALLOC_CONF} from 2.9 on; say --as torch=VERSION"
        )
    name = names.pop()
    if name == wish.name:
        return wish
    return wish.replace(name=name, why=f"{wish.why}; this torch reads {name}, which the requirements call {wish.name}")


def _apply_hardware_gate(facts: Facts, wish: WantedVariable) -> list[WantedVariable]:
    """Keep a wanted variable that only some hardware needs, where that hardware is present."""
    gate = processes.variable_hardware_gate(wish.name)
    if gate is None:
        return [wish]
    names, driver = facts.value_if_known("gpu.name") or (), facts.value_if_known("driver.version")
    if len(names) < gate["least"] or not any(gate["gpu"] in str(name) for name in names):
        return []
    if driver is None:
        return [wish.replace(open=f"it depends on the driver, which is not known: {gate['says']}")]
    if versions.compare_versions(str(driver), gate["driver_below"]) >= 0:
        return []
    return [wish.replace(why=f"{gate['says']}: this is {driver}", cite=f"{wish.cite}; {gate['source']}")]


def _unique_by_name(wishes: Iterable[WantedVariable]) -> list[WantedVariable]:
    """Keep one per name: the first that is decided, else the first."""
    found: dict[str, WantedVariable] = {}
    for wish in wishes:
        before = found.get(wish.name)
        if before is None or ((before.open or before.left) and not (wish.open or wish.left)):
            found[wish.name] = wish
    return list(found.values())


# -- the user's environment ----------------------------------------------------------------------------------


def _current_value(wish: WantedVariable, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and value that are set; None where unset. An empty value counts as set."""
    if wish.name in environment:
        return wish.name, environment[wish.name]
    # From 2.9 on torch reads the allocator's old variable where the new one is not set.
    if wish.name == NEW_ALLOC_CONF and OLD_ALLOC_CONF in environment:
        return OLD_ALLOC_CONF, environment[OLD_ALLOC_CONF]
    return None


def _make_setting(wish: WantedVariable, environment: Mapping[str, str]) -> VariableSetting | None:
    current = _current_value(wish, environment)
    if current is None:
        return VariableSetting(wish.name, wish.value, wish.by, wish.why, wish.cite)
    name, value = current
    return VariableSetting(name, value, wish.by, wish.why, wish.cite, "held") if value == wish.value else None


def _make_clash(wish: WantedVariable, environment: Mapping[str, str]) -> VariableConflict | None:
    current = _current_value(wish, environment)
    if current is None or current[1] == wish.value:
        return None
    return VariableConflict(
        current[0], _hide_secret_value(*current), wish.value, wish.by, wish.then, wish.why, wish.cite
    )


def _hide_secret_value(name: str, value: str) -> str:
    """Hide a user's value whose name marks it as secret."""
    secret = any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL"))
    return "(not shown)" if secret and name != "TOKENIZERS_PARALLELISM" else value
