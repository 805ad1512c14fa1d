"""The platform of a plan: the machine's facts combined with one torch build and one Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gpuready.catalog import torch as torches
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Record, Requirement, UnknownFactError, versions
from gpuready.model.record import field
from gpuready.plan.candidates import make_build_facts

LimitCheck = Callable[[TorchBuild, str], str]


CHOSEN_FACTS = (
    "package.torch", "torch.cuda", "torch.build", "torch.hip", "cudnn.version", "nccl.version",
    "package.torchvision", "package.torchaudio", "package.triton", "python.version",
)  # fmt: skip
"""Facts that the choice decides."""

ENVIRONMENT_PREFIXES = ("package.", "torch.", "python.", "cudnn.", "nccl.", "extension.", "library.")
"""Prefixes of facts of an environment; a plan creates a new one."""


class PlanRequest(Record):
    """What the user requested: torch, Python and other command-line options."""

    torch: str = ""
    python: str = ""
    torch_source: str = "--as torch"
    python_source: str = "--as python-version"
    why: str = ""  # why torch and Python are fixed, if not by the user
    prefer: str = ""  # the installed Python
    on: str = ""
    wants: str = ""
    what_if: Mapping[str, str] = field(default_factory=dict)
    contract: str = ""
    target_python: str = ""  # --python
    version: str = ""  # the requested version
    extras: tuple[str, ...] = ()  # trl[peft]

    def make_fact(self, key: str, value: str, source: str) -> Fact:
        return Fact(key, value, source, "stated")


def machine_facts_only(facts: Facts) -> Facts:
    """Return the machine's facts without any environment, with defaults for an unstated system."""
    kept = [f for f in facts if not f.key.startswith(ENVIRONMENT_PREFIXES)]
    known = {f.key for f in kept if not f.gap}
    usual = {"os.system": "linux", "os.arch": "x86_64"}
    taken = [Fact(k, v, "taken, as nothing else is stated", "stated") for k, v in usual.items() if k not in known]
    return Facts([*kept, *taken], facts.host, facts.otherwise)


def visible_gpu_values(facts: Facts, key: str) -> tuple[Any, ...]:
    """Return one fact's value for each visible GPU; empty if it is unknown."""
    value = facts.value_if_known(key)
    if not isinstance(value, (tuple, list)):
        return () if value is None else (value,)
    visible = facts.value_if_known("gpu.visible")
    if not isinstance(visible, (tuple, list)):
        return tuple(value)
    return tuple(value[i] for i in visible if isinstance(i, int) and 0 <= i < len(value))


def plan_device(facts: Facts, contract: Contract) -> str:
    """Return what the environment is for: cuda, rocm, mps or cpu."""
    here = str(facts.value_if_known("platform.name") or "cuda")
    if "cpu" in {str(word).casefold() for word in facts.value_if_known("job.wants") or ()}:
        return "cpu"
    return here if here in ("cpu", "rocm", "mps") and here in (contract.platforms or (here,)) else "cuda"


def lacks_catalogued_torch(facts: Facts, contract: Contract) -> bool:
    """Whether the framework runs on this platform, and the catalogue has no torch for it: nothing is known then."""
    here = facts.value_if_known("platform.name")
    return here in contract.platforms and here not in ("cuda", "cpu", "rocm", "mps")


class Limit:
    """One condition on a choice: ``fails`` returns why it is not met, or an empty string."""

    __slots__ = ("axes", "cite", "facts", "fails", "name", "needs", "says")

    def __init__(
        self,
        name: str,
        says: str,
        fails: LimitCheck,
        facts: tuple[Fact, ...] = (),
        needs: tuple[Requirement, ...] = (),
        cite: str = "",
        axes: str = "torch",
    ):
        self.axes = axes  # what it depends on: torch, python, or both
        self.name, self.says, self.fails, self.facts, self.needs = name, says, fails, facts, needs
        self.cite = cite or (needs[0].cite if needs else facts[0].source if facts else "")


def limit_axes(key: str, *conditions_: str) -> str:
    """Return what a need on this fact under these conditions depends on."""
    asks = {ask for when in conditions_ for ask in conditions.condition_keys(when)} | {key}
    python = "python.version" in asks
    torch = any(ask.startswith(("package.", "torch.", "cudnn.", "nccl.")) for ask in asks)
    return "both" if python and torch else "python" if python else "torch"


@cache
def _condition_axes(when: str) -> tuple[bool, bool]:
    """Return whether a condition depends on the torch, and on the Python."""
    asks = conditions.condition_keys(when)
    return any(k.startswith(("package.", "torch.")) for k in asks), "python.version" in asks


class PlanPlatform:
    """Facts of the machine, alone and with each build and Python; each combination is made once."""

    NOT_KNOWN = object()  # the value of an unknown fact: it rules out nothing

    def __init__(self, facts: Facts, device: str):
        self.facts, self.device, self.cpu = facts, device, device != "cuda"
        self.unseen: dict[str, str] = {}
        self._build_facts: dict[tuple[str, str], Facts] = {}
        self._condition_cache: dict[tuple[str, str, str, str], bool] = {}

    def facts_with_build(self, build: TorchBuild) -> Facts:
        key = build.version, build.variant
        if key not in self._build_facts:
            self._build_facts[key] = self.facts.with_facts(*make_build_facts(build))
        return self._build_facts[key]

    def condition_holds(self, when: str, build: TorchBuild, python: str) -> bool:
        """Whether a condition is known to hold with this choice."""
        if not when:
            return True
        by_torch, by_python = _condition_axes(when)
        key = when, *((build.version, build.variant) if by_torch else ("", "")), python if by_python else ""
        if key not in self._condition_cache:
            facts = self.facts_with_build(build) if by_torch else self.facts
            facts = facts.with_facts(Fact("python.version", python, "the choice", "stated")) if by_python else facts
            self._condition_cache[key] = self._evaluate_condition(when, facts)
        return self._condition_cache[key]

    def _evaluate_condition(self, when: str, facts: Facts) -> bool:
        try:
            return conditions.condition_applies(when, facts)
        except UnknownFactError as unknown:
            self._note_unseen(unknown.fact)
            return False

    def fact_value(self, key: str, build: TorchBuild, python: str) -> Any:
        """Return a fact's value with this choice; ``NOT_KNOWN`` if it is not stated."""
        if key == "python.version":
            return python
        if key in ("cudnn.version", "nccl.version"):
            return (build.cudnn if key.startswith("cudnn") else build.nccl) or self.NOT_KNOWN
        if key == "package.triton":
            return (torches.find_torch_release(build.version) or {}).get("triton") or self.NOT_KNOWN
        if key in ("package.torchvision", "package.torchaudio"):
            return companion_version(build, key.removeprefix("package.")) or self.NOT_KNOWN
        if key.startswith(("torch.", "package.torch")):
            return self.facts_with_build(build).value(key) if key in self.facts_with_build(build) else self.NOT_KNOWN
        return self._machine_value(key)

    def _machine_value(self, key: str) -> Any:
        fact = self.facts.fact(key)
        if fact.gap:
            self._note_unseen(fact)
            return self.NOT_KNOWN
        return visible_gpu_values(self.facts, key) if isinstance(fact.value, (tuple, list)) else fact.value

    def _note_unseen(self, fact: Fact) -> None:
        if fact.gap != NOT_STATED and not fact.key.startswith("package."):  # the plan installs its own
            self.unseen[fact.key] = fact.gap


def companion_version(build: TorchBuild, package: str) -> str | None:
    """Return the torchvision, torchaudio or triton release for a torch, or None."""
    return _companion_version(build.version, package)


@cache
def _companion_version(torch: str, package: str) -> str | None:
    found = (torches.find_torch_release(torch) or {}).get(package)
    return str(found) if found and versions.parse_plain_release(str(found)) is not None else None
