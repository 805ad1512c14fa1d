"""Contracts: what a version of a framework requires, and the steps of a fix."""

from __future__ import annotations

from gpuready.model.record import Record

BORROWED_NEED = "of another version"
"""What a need says of its source where another version requires it: whether this one does is not known."""


class Requirement(Record):
    """What a contract requires of one fact."""

    key: str
    want: str
    when: str = ""
    level: str = "required"  # required, recommended, optional
    cite: str = ""


class Capability(Record):
    """A feature the framework has on suitable hardware; ``gate`` names the catalogue's feature."""

    name: str
    level: str = "optional"
    gate: str = ""
    when: str = ""
    cite: str = ""
    note: str = ""
    traits: tuple[str, ...] = ()  # falls-back, moe-by-block


class ContractVariable(Record):
    """An environment variable that the framework reads or sets."""

    name: str
    access: str  # read, set, or read and set
    value: str = ""
    when: str = ""
    allowed: tuple[str, ...] = ()
    required: bool = False
    cite: str = ""
    note: str = ""
    traits: tuple[str, ...] = ()  # forced, yields (set only where it is unset), emptied-for-vllm, own-default


class KnownError(Record):
    """An error the framework raises, with cause and fix."""

    message: str
    cause: str
    fix: str
    code: str = ""
    cite: str = ""


class FixStep(Record):
    """Something to do. ``run`` is an argument list, never a shell line; empty when only a person can do it."""

    does: str
    run: tuple[str, ...] = ()
    safety: str = (
        "manual"  # safe, ask, manual; elsewhere: it leads to another machine or environment, and fixes nothing here
    )
    undo: tuple[str, ...] = ()
    note: str = ""


class Contract(Record):
    """What one version of one framework requires, with citations."""

    framework: str
    version: str
    variant: str = ""
    distribution: str = ""
    title: str = ""
    origin: str = ""
    says: str = ""
    basis: str = (
        ""  # release: read from the files of one; borrowed: of another version; foreign: a file that is not ours
    )
    platforms: tuple[str, ...] = ("cuda",)
    needs: tuple[Requirement, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    variables: tuple[ContractVariable, ...] = ()
    errors: tuple[KnownError, ...] = ()
    steps: tuple[FixStep, ...] = ()
    notes: tuple[str, ...] = ()
    released: str = ""  # the day of its release on the index, where that was asked
    other_variables: tuple[str, ...] = ()  # what its code uses and no row has: NAME read path:line
    read_from: str = ""  # the version that these requirements are of, where it is not the one that is judged

    @property
    def name(self) -> str:
        return f"{self.framework} {self.version}".rstrip() + (f":{self.variant}" if self.variant else "")

    @property
    def judged_name(self) -> str:
        """``trl 1.19 (requirements of 1.16)``: the name, and what it is judged by where that is of another version."""
        return self.name + (f" (requirements of {self.read_from})" if self.read_from else "")

    @property
    def pinned_torch(self) -> str:
        """The one torch that it runs with, as its kernels are compiled for it: ``2.13.0``; empty where it takes several."""
        needs = [n for n in self.requirements_for("package.torch") if n.level == "required" and not n.when]
        pins = [n.want[2:] for n in needs if n.want.startswith("==") and "|" not in n.want]
        return pins[0] if pins else ""

    def requirements_for(self, key: str) -> tuple[Requirement, ...]:
        """Requirements on one fact, or on a family of facts (``package.*``)."""
        if key.endswith("*"):
            return tuple(n for n in self.needs if n.key.startswith(key[:-1]))
        return tuple(n for n in self.needs if n.key == key)


class ContractCheck(Record):
    """A contract file that was judged: its contract, where it has one, and its faults, a sentence each."""

    file: str
    contract: Contract | None = None
    faults: tuple[str, ...] = ()

    @property
    def exit(self) -> int:
        return 1 if self.faults else 0


def describe_want(want: str) -> str:
    """``>=2.2,<=2.5.1`` -> ``>= 2.2, <= 2.5.1``; ``==2.6|==2.8`` -> ``2.6 or 2.8``; ``*`` -> ``present``."""
    if want.strip() == "*":
        return "present"
    choices = [[clause.strip() for clause in choice.split(",")] for choice in want.split("|")]
    is_list = len(choices) > 1 and all(len(clauses) == 1 for clauses in choices)
    return " or ".join(", ".join(_format_clause(clause, is_list) for clause in clauses) for clauses in choices)


def _format_clause(clause: str, is_list: bool) -> str:
    bound = clause.lstrip("<>=!~")
    operator, bound = clause[: len(clause) - len(bound)], bound.strip()
    number = bound.rstrip("KMGTiB")
    if number != bound and number[-1:].isdigit():
        bound = f"{number} {bound[len(number) :]}"
    return f"{operator} {bound}" if operator and not (is_list and operator == "==") else bound
