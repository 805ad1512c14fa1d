"""The environment variables that a framework sets, under the name that this torch reads, without overriding the user's.

Used by ``gpuready env``, which adds what the machine needs, and by ``gpuready.configure`` inside the job.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import roles as processes
from gpuready.catalog import torch as catalogue
from gpuready.contracts import when as conditions
from gpuready.model import Fact, Noun, Unknown
from gpuready.planned import Clash, Setting, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuready.model import Contract, Facts, Variable

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
RENDEZVOUS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Set by the launcher for each process; set in a shell, every process would start with the same rank."""


class Wish(Noun):
    """A wanted variable, before it is compared with the user's environment."""

    name: str
    value: str
    by: str
    why: str
    cite: str
    then: str  # the consequence where the user has set another value
    open: str = ""  # why it could not be decided
    left: str = ""  # why it cannot be set in a shell


def role_of(contract: Contract, role: str | None) -> str:
    """Return the process role; ValueError, with a sentence, where the framework has no such role."""
    known = processes.roles(contract.framework)
    if role is None:
        return known[0] if known else ""
    if role in known:
        return role
    if not known:
        raise ValueError(f"--role {role}: all processes of {contract.framework} are alike; leave it out")
    raise ValueError(f"--role {role}: {contract.framework} has {', '.join(known)}")


def settings(
    facts: Facts,
    contract: Contract,
    role: str | None,
    environment: Mapping[str, str],
    more: Sequence[Wish] = (),
) -> Settings:
    """Return what to set, what is set already, and where the user's value conflicts. Pure."""
    chosen = role_of(contract, role)
    facts = _ready(facts, contract, chosen)
    torches = _torches(facts, contract)
    wishes = _unique([*_wishes(facts, contract, chosen, torches), *more])
    wanted = [w for w in wishes if not (w.open or w.left)]
    known = torches[0] if facts.known("package.torch") else ""
    return Settings(
        contract.framework,
        contract.version,
        contract.variant,
        chosen,
        tuple(processes.roles(contract.framework)),
        facts.host,
        known,
        tuple(s for w in wanted if (s := _setting(w, environment))),
        tuple(c for w in wanted if (c := _clash(w, environment))),
        tuple(Setting(w.name, w.value, w.by, w.left, w.cite, "left") for w in wishes if w.left),
        tuple(f"{w.name} is left open: {w.open}" for w in wishes if w.open),
    )


# -- the contract's variables ----------------------------------------------------------------------------


def _ready(facts: Facts, contract: Contract, role: str) -> Facts:
    """Add the facts that conditions read: a job of this role, on the framework's platform."""
    words = tuple(facts.known("job.wants") or ()) if "job.wants" in facts else ()
    more = [Fact("job.wants", tuple(dict.fromkeys((*words, role))) if role else words, "role", "stated")]
    if facts.known("platform.name") in (None, "cpu") and contract.platforms:
        # A login node without a GPU sets variables for nodes that have one.
        more.append(Fact("platform.name", contract.platforms[0], "contract", "stated"))
    return facts.also(*more)


def _torches(facts: Facts, contract: Contract) -> list[str]:
    """Return the installed or stated torch; else every one that the contract accepts."""
    here = facts.known("package.torch")
    if here:
        return [str(here)]
    specifiers = [n.want for n in contract.wants("package.torch") if n.level == "required" and not n.when]
    fits = [v for v in catalogue.releases() if all(w == "*" or versions.satisfies(v, w) for w in specifiers)]
    return fits or catalogue.releases()


def _wishes(facts: Facts, contract: Contract, role: str, torches: Sequence[str]) -> list[Wish]:
    found = []
    for variable in contract.variables:
        if "set" not in variable.access or variable.name in RENDEZVOUS:
            continue
        if not processes.concerns(contract.framework, role, variable.name):
            continue
        found += _wish(facts, contract, variable, role, torches)
    return found


def _wish(
    facts: Facts, contract: Contract, variable: Variable, role: str, torches: Sequence[str]
) -> list[Wish]:
    made = Wish(
        variable.name,
        _value(variable, role),
        contract.name,
        _why(contract, variable, role),
        variable.cite,
        _then(contract, variable),
    )
    passing = processes.passing(contract.framework, variable.name)
    ours = not passing and _shared(contract, variable)
    held, unclear = _applies(facts, variable, torches)
    if not held:
        return [made.but(open=unclear)] if unclear and ours else []
    if not ours:
        return [made.but(left=passing or variable.note or "it differs from process to process")]
    return _gated(facts, _named(made, torches))


def _value(variable: Variable, role: str) -> str:
    return "" if _emptied(variable, role) else variable.value


def _emptied(variable: Variable, role: str) -> bool:
    return "emptied-for-vllm" in variable.traits and role == "vllm"


def _why(contract: Contract, variable: Variable, role: str) -> str:
    """Say what the variable does, and what the contract notes about it."""
    if _emptied(variable, role):
        return f"vLLM sleeps with a memory pool of its own, which does not go with {variable.value}"
    said = [processes.meaning(variable.name), variable.note]
    return "; ".join(part for part in said if part) or f"{contract.framework} sets it"


def _shared(contract: Contract, variable: Variable) -> bool:
    """Return whether all processes get the same value, so that it can be written down."""
    return bool(variable.value) or processes.emptied(contract.framework, variable.name)


def _then(contract: Contract, variable: Variable) -> str:
    if "forced" in variable.traits:
        return f"{contract.framework} sets its own value all the same"
    if (
        "read" in variable.access
        or "only where it is unset" in variable.note
        or "where it is unset" in variable.note
    ):
        return f"{contract.framework} leaves yours"
    return f"{contract.framework} may set its own value over it"


def _applies(facts: Facts, variable: Variable, torches: Sequence[str]) -> tuple[bool, str]:
    """Return whether a condition holds with every possible torch; and why that is undecided."""
    answers = set()
    try:
        for version in torches if "torch" in variable.when else torches[:1]:
            stated = Fact("package.torch", version, "catalogue", "stated")
            answers.add(conditions.applies(variable.when, facts.also(stated)))
    except Unknown as unseen:
        return False, f"it depends on {unseen.fact.key} ({unseen.fact.gap})"
    if len(answers) > 1:
        return False, f"it depends on torch ({variable.when}), which is not known: say --torch VERSION"
    return answers == {True}, ""


def _named(wish: Wish, torches: Sequence[str]) -> Wish:
    """Rename the allocator's variable to the name that this torch reads."""
    if wish.name not in (OLD, NEW):
        return wish
    names = {catalogue.allocator_variable(version) for version in torches}
    if len(names) > 1:
        return wish.but(open=f"torch is not known: {OLD} before 2.9, {NEW} from 2.9 on; say --torch VERSION")
    name = names.pop()
    if name == wish.name:
        return wish
    return wish.but(
        name=name, why=f"{wish.why}; this torch reads {name}, which the contract calls {wish.name}"
    )


def _gated(facts: Facts, wish: Wish) -> list[Wish]:
    """Keep a wanted variable that only some hardware needs, where that hardware is present."""
    gate = processes.gated(wish.name)
    if gate is None:
        return [wish]
    names, driver = facts.known("gpu.name") or (), facts.known("driver.version")
    if len(names) < gate["least"] or not any(gate["gpu"] in str(name) for name in names):
        return []
    if driver is None:
        return [wish.but(open=f"it depends on the driver, which is not known: {gate['says']}")]
    if versions.compare(str(driver), gate["driver_below"]) >= 0:
        return []
    return [wish.but(why=f"{gate['says']}: this is {driver}", cite=f"{wish.cite}; {gate['source']}")]


def _unique(wishes: Iterable[Wish]) -> list[Wish]:
    """Keep one per name: the first that is decided, else the first."""
    found: dict[str, Wish] = {}
    for wish in wishes:
        before = found.get(wish.name)
        if before is None or ((before.open or before.left) and not (wish.open or wish.left)):
            found[wish.name] = wish
    return list(found.values())


# -- the user's environment ----------------------------------------------------------------------------------


def _standing(wish: Wish, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the name and value that are set; None where unset. An empty value counts as set."""
    if wish.name in environment:
        return wish.name, environment[wish.name]
    # From 2.9 on torch reads the allocator's old variable where the new one is not set.
    if wish.name == NEW and OLD in environment:
        return OLD, environment[OLD]
    return None


def _setting(wish: Wish, environment: Mapping[str, str]) -> Setting | None:
    found = _standing(wish, environment)
    if found is None:
        return Setting(wish.name, wish.value, wish.by, wish.why, wish.cite)
    name, value = found
    return Setting(name, value, wish.by, wish.why, wish.cite, "held") if value == wish.value else None


def _clash(wish: Wish, environment: Mapping[str, str]) -> Clash | None:
    found = _standing(wish, environment)
    if found is None or found[1] == wish.value:
        return None
    return Clash(found[0], _shown(*found), wish.value, wish.by, wish.then, wish.why, wish.cite)


def _shown(name: str, value: str) -> str:
    """Hide a user's value whose name marks it as secret."""
    secret = any(word in name.upper() for word in ("TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL"))
    return "(not shown)" if secret and name != "TOKENIZERS_PARALLELISM" else value
