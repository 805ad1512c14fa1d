"""The platform of a plan: the machine's facts combined with one torch build and one Python."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import remembered
from gpuready.catalog import torch as torches
from gpuready.contracts import when as conditions
from gpuready.model import NOT_STATED, Fact, Facts, Noun, Unknown
from gpuready.plan.candidates import build_facts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Need

    Test = Callable[[Build, str], str]

CHOSEN = (
    "package.torch", "torch.cuda", "torch.build", "torch.hip", "cudnn.version", "nccl.version",
    "package.torchvision", "package.torchaudio", "package.triton", "python.version",
)  # fmt: skip
"""Facts that the choice decides."""

PACKAGES = ("package.", "torch.", "python.", "cudnn.", "nccl.", "extension.", "library.")
"""Prefixes of facts of an environment; a plan creates a new one."""


class Asked(Noun):
    """What the user requested: torch, Python and other command-line options."""

    torch: str = ""
    python: str = ""
    python_source: str = "--python-version"
    why: str = ""  # why torch and Python are fixed, if not by the user
    prefer: str = ""  # the installed Python
    on: str = ""
    wants: str = ""
    what_if: Mapping[str, str] = {}
    contract: str = ""
    patient: str = ""  # --python
    version: str = ""  # the requested version

    def fact(self, key: str, value: str, source: str) -> Fact:
        return Fact(key, value, source, "stated")


def bare(facts: Facts) -> Facts:
    """Return the machine's facts without any environment, with defaults for an unstated system."""
    kept = [f for f in facts if not f.key.startswith(PACKAGES)]
    known = {f.key for f in kept if not f.gap}
    usual = {"os.system": "linux", "os.arch": "x86_64"}
    taken = [
        Fact(k, v, "taken, as nothing else is stated", "stated") for k, v in usual.items() if k not in known
    ]
    return Facts([*kept, *taken], facts.host, facts.otherwise)


def shown(facts: Facts, key: str) -> tuple[Any, ...]:
    """Return one fact's value for each visible GPU; empty if it is unknown."""
    value = facts.known(key)
    if not isinstance(value, (tuple, list)):
        return () if value is None else (value,)
    visible = facts.known("gpu.visible")
    if not isinstance(visible, (tuple, list)):
        return tuple(value)
    return tuple(value[i] for i in visible if isinstance(i, int) and 0 <= i < len(value))


def cpu_alone(facts: Facts) -> bool:
    """Whether the job asks to run on the CPU."""
    return "cpu" in {str(word).casefold() for word in facts.known("job.wants") or ()}


class Limit:
    """One condition on a choice: ``fails`` returns why it is not met, or an empty string."""

    __slots__ = ("axes", "cite", "facts", "fails", "name", "needs", "says")

    def __init__(
        self,
        name: str,
        says: str,
        fails: Test,
        facts: tuple[Fact, ...] = (),
        needs: tuple[Need, ...] = (),
        cite: str = "",
        axes: str = "torch",
    ):
        self.axes = axes  # what it depends on: torch, python, or both
        self.name, self.says, self.fails, self.facts, self.needs = name, says, fails, facts, needs
        self.cite = cite or (needs[0].cite if needs else facts[0].source if facts else "")


def axes(key: str, *conditions_: str) -> str:
    """Return what a need on this fact under these conditions depends on."""
    asks = {ask for when in conditions_ for ask in conditions.keys(when)} | {key}
    python = "python.version" in asks
    torch = any(ask.startswith(("package.", "torch.", "cudnn.", "nccl.")) for ask in asks)
    return "both" if python and torch else "python" if python else "torch"


class Ground:
    """Facts of the machine, alone and with each build and Python; each combination is made once."""

    open = object()  # the value of an unknown fact: it rules out nothing

    def __init__(self, facts: Facts, cpu: bool):
        self.facts, self.cpu = facts, cpu
        self.unseen: dict[str, str] = {}
        self._torch: dict[tuple[str, str], Facts] = {}
        self._applies: dict[tuple[str, str, str, str], bool] = {}

    def on(self, build: Build) -> Facts:
        key = build.version, build.variant
        if key not in self._torch:
            self._torch[key] = self.facts.also(*build_facts(build))
        return self._torch[key]

    def applies(self, when: str, build: Build, python: str) -> bool:
        """Whether a condition is known to hold with this choice."""
        if not when:
            return True
        asks = conditions.keys(when)
        by_torch = any(k.startswith(("package.", "torch.")) for k in asks)
        by_python = "python.version" in asks
        key = when, *((build.version, build.variant) if by_torch else ("", "")), python if by_python else ""
        if key not in self._applies:
            facts = self.on(build) if by_torch else self.facts
            facts = facts.also(Fact("python.version", python, "the choice", "stated")) if by_python else facts
            self._applies[key] = self._holds(when, facts)
        return self._applies[key]

    def _holds(self, when: str, facts: Facts) -> bool:
        try:
            return conditions.applies(when, facts)
        except Unknown as unknown:
            self._note(unknown.fact)
            return False

    def value(self, key: str, build: Build, python: str) -> Any:
        """Return a fact's value with this choice; ``NOT_KNOWN`` if it is not stated."""
        if key == "python.version":
            return python
        if key in ("cudnn.version", "nccl.version"):
            return (build.cudnn if key.startswith("cudnn") else build.nccl) or self.open
        if key in ("package.torchvision", "package.torchaudio", "package.triton"):
            return pair(build, key.removeprefix("package.")) or self.open
        if key.startswith(("torch.", "package.torch")):
            return self.on(build).value(key) if key in self.on(build) else self.open
        return self._machine(key)

    def _machine(self, key: str) -> Any:
        fact = self.facts.fact(key)
        if fact.gap:
            self._note(fact)
            return self.open
        return shown(self.facts, key) if isinstance(fact.value, (tuple, list)) else fact.value

    def _note(self, fact: Fact) -> None:
        if fact.gap != NOT_STATED:
            self.unseen[fact.key] = fact.gap


def pair(build: Build, package: str) -> str | None:
    """Return the torchvision, torchaudio or triton release for a torch, or None."""
    return _pair(build.version, package)


@remembered
def _pair(torch: str, package: str) -> str | None:
    found = (torches.release(torch) or {}).get(package)
    return str(found) if found and versions.plain(str(found)) is not None else None
