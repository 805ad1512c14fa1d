"""Resolve a plan: ask uv for the whole stack, and accept its result only if it satisfies the contract."""

from __future__ import annotations

from gpuready import held, versions
from gpuready.apply import answers, proof, uv
from gpuready.apply.question import FOLDER, Question, ask, default_index, exact_torch
from gpuready.catalog import indexes, packages
from gpuready.model import Need
from gpuready.planned import Conflict, Locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuready.model import Contract
    from gpuready.planned import Plan
    from gpuready.system import Door

ROUNDS = 8
"""How often a request is repeated with more pins before giving up."""


def resolve(
    door: Door,
    plan: Plan,
    contract: Contract,
    *,
    find_links: tuple[str, ...] = (),
    offline: bool = False,
    source: str | None = None,
    note: Callable[[str], None] = lambda line: None,
    deadline: float = uv.DEADLINE,
) -> Plan:
    """Return the plan with every package locked; or impossible, with both sides; or unresolved, with the reason.

    ValueError, in a sentence, if something that the user named cannot be used.
    """
    if plan.verdict != "plan":
        return plan
    return _Resolution(door, plan, contract, find_links, offline, source, note, deadline).settle()


class _Resolution:
    def __init__(
        self,
        door: Door,
        plan: Plan,
        contract: Contract,
        find_links: tuple[str, ...],
        offline: bool,
        source: str | None,
        note: Callable[[str], None],
        deadline: float,
    ):
        self.door, self.plan, self.contract, self.note = door, plan, contract, note
        self.until = door.now() + deadline
        self.path = uv.find(door)
        self.version = uv.version(door, self.path)
        self.told = uv.settings(door, find_links, offline)
        self.notes = list(self.told.notes)
        self.sources: tuple[str, ...] = ()
        if source is not None:
            from gpuready.apply.source import requirements

            self.sources, notes = requirements(door, source, contract)
            self.notes += notes
        self.folders = folders_with(door, plan, self.told.folders)
        self.direct: set[str] = set()
        self.avoid: dict[str, tuple[str, ...]] = {}
        self.extra: dict[str, int] = {}  # package -> number of the pip extra index used for it

    def settle(self) -> Plan:
        against = contradiction(self.question(), self.contract)
        if against:
            return self.impossible(against)
        for _ in range(ROUNDS):
            question = self.question()
            found = self.answer(question)
            if isinstance(found, proof.Unreachable):
                if self.elsewhere(found.missing):
                    continue
                return self.unresolved(found.why)
            if isinstance(found, Conflict):
                return self.impossible(found)
            if self.pin_more(found):
                continue
            wrong = judge(self.plan, question, found)
            return self.impossible(wrong) if wrong else self.resolved(found, question)
        return self.unresolved("uv's answers keep leaving the index that torch comes from")

    # ---- one round

    def question(self) -> Question:
        return ask(
            self.plan,
            self.contract,
            sources=self.sources,
            folders=self.folders,
            direct=sorted(self.direct),
            avoid=self.avoid,
            extra={name: f"pip-{at}" for name, at in self.extra.items()},
            addresses={f"pip-{at}": self.extras()[at][0] for at in self.extra.values()},
        )

    def extras(self) -> list[tuple[str, dict[str, str | None]]]:
        """pip's extra indexes: the address without its password, and the variables that pass it to uv."""
        return [parted(url, f"PIP_{at}") for at, url in enumerate(self.told.extra)]

    def answer(self, question: Question) -> tuple[Locked, ...] | Conflict | proof.Unreachable:
        text = (question.project(), question.overrides(), *question.flags(), self.version)
        name = answers.key(self.door, text, self.told)
        kept = _revived(answers.known(self.door, name))
        if kept is not None:
            return kept
        found = self.asked(question)
        if isinstance(found, Conflict):
            answers.keep(self.door, name, {"conflict": found.to_json()})
        elif not isinstance(found, proof.Unreachable):
            answers.keep(self.door, name, {"rows": [row.to_json() for row in found]})
        return found

    def asked(self, question: Question) -> tuple[Locked, ...] | Conflict | proof.Unreachable:
        from gpuready.system import save
        from gpuready.system.follow import variables
        from gpuready.system.scratch import Scratch

        names = {url: name for name, url in question.addresses.items()}
        with Scratch(variables(self.door)) as folder:
            save(f"{folder}/pyproject.toml", question.project())
            save(f"{folder}/overrides.txt", question.overrides())
            argv = [self.path, "pip", "compile", f"{folder}/pyproject.toml", *question.flags()]
            argv += ["--overrides", f"{folder}/overrides.txt"] if question.without else []
            argv += ["--python", self.door.interpreter()["executable"]]
            left = max(self.until - self.door.now(), 1.0)
            ran = uv.run(self.door, argv, self.told, _counted(self.note, self.door), left, self.env())
        if ran.end == "deadline":
            return proof.Unreachable(f"uv gave no answer in {left:.0f} s")
        if ran.rc != 0:
            return proof.failure(ran.err or ran.end, self.plan.framework, names, _exact(question))
        try:
            found = proof.rows(ran.out, proof.origins(question.addresses, self.told.folders))
        except ValueError as bad:
            return proof.Unreachable(str(bad))
        return found or proof.Unreachable("uv ended well and named no package")

    def env(self) -> dict[str, str | None]:
        found: dict[str, str | None] = {"RUST_LOG": "uv_resolver::resolver=debug"}
        for at in set(self.extra.values()):
            found |= self.extras()[at][1]
        return found

    # ---- reasons for another round

    def elsewhere(self, missing: tuple[str, ...]) -> bool:
        """Use pip's next extra index for missing packages; False if none is left."""
        more = {name: self.extra.get(name, -1) + 1 for name in missing if not self.placed(name)}
        more = {name: at for name, at in more.items() if at < len(self.told.extra)}
        self.extra |= more
        return bool(more)

    def placed(self, name: str) -> bool:
        """Whether a package already has the only index that may supply it."""
        return name == "torch" or (name in indexes.family() and not default_index(self.plan.index))

    def pin_more(self, rows: tuple[Locked, ...]) -> bool:
        """Pin packages from another index than torch's, or of another build, for the next round."""
        strays: set[str] = set()
        for row in rows:
            if row.name == "torch" and row.version != exact_torch(self.plan):
                known = self.avoid.get("torch", ())
                if row.version in known:
                    return False
                self.avoid["torch"] = (*known, row.version)
                return True
            if row.name in indexes.family() and row.name not in self.direct and self.stray(row):
                strays.add(row.name)
        self.direct |= strays
        return bool(strays)

    def stray(self, row: Locked) -> bool:
        return not default_index(self.plan.index) and row.index not in (self.plan.index, FOLDER)

    # ---- the three outcomes

    def unresolved(self, why: str) -> Plan:
        return self.plan.but(resolved=f"not resolved here: {why}", notes=_added(self.plan.notes, *self.notes))

    def impossible(self, conflict: Conflict) -> Plan:
        return self.plan.but(
            verdict="impossible",
            conflicts=(*self.plan.conflicts, _cited(conflict, self.contract)),
            resolved="resolved",
            notes=_added(self.plan.notes, *self.notes),
        )

    def resolved(self, rows: tuple[Locked, ...], question: Question) -> Plan:
        return self.plan.but(
            lock=rows,
            packages=dict(self.plan.packages) | {row.name: row.version for row in rows if row.version},
            resolved="resolved",
            notes=_added(self.plan.notes, *self.notes, *question.notes),
        )


def _added(notes: tuple[str, ...], *more: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*notes, *more)))


def judge(plan: Plan, question: Question, rows: tuple[Locked, ...]) -> Conflict | None:
    """Return what is wrong with uv's result; None if it satisfies the contract."""
    for row in rows:
        seems = packages.lookalike(row.name)
        if seems is not None and row.name not in question.allowed:
            via = f", which {' and '.join(row.via)} brings in" if row.via else ""
            return Conflict(f"{row.name} on the index is not {seems['wanted']}{via}: {seems['why']}")
        for want in question.wants.get(row.name, ()):
            if row.version and not versions.satisfies(row.version, want):
                needs = (Need(f"package.{row.name}", want, cite=plan.framework),)
                says = f"uv could only take {row.name} {row.version}, and {plan.framework} needs {want}"
                return Conflict(says, needs=needs)
        if row.name in question.sources and row.index not in (question.sources[row.name], FOLDER):
            return Conflict(f"{row.name} came from another index than {question.sources[row.name]}")
        if not row.hashes and not row.origin:
            return Conflict(
                f"{row.name} {row.version} has no hash on its index: nothing could prove what comes"
            )
    if plan.torch and not any(row.name == "torch" and row.version == exact_torch(plan) for row in rows):
        return Conflict(f"uv could not take torch {exact_torch(plan)}, which the plan stands on")
    return None


def contradiction(question: Question, contract: Contract) -> Conflict | None:
    """Find two requirements of the contract that no version satisfies; needs no index."""
    for name, wants in question.wants.items():
        needs = [n for n in contract.wants(f"package.{name}") if n.want in wants and "|" not in n.want]
        for at, one in enumerate(needs):
            for other in needs[at + 1 :]:
                if proof.disjoint(one.want, other.want):
                    says = f"{_who(one)} needs {name} {one.want}, {_who(other)} needs {name} {other.want}"
                    return Conflict(says, needs=(one, other))
    return None


def _who(need: Need) -> str:
    """Return the requirer in a citation such as ``vllm 0.8.4, which FILE:12 pins``."""
    return need.cite.partition(", which")[0].partition(";")[0] or "the contract"


def _cited(conflict: Conflict, contract: Contract) -> Conflict:
    """Use the contract's own citation where it is one of the sides."""
    told = {(need.key, need.want): need.cite for need in contract.needs}
    needs = tuple(need.but(cite=told.get((need.key, need.want), need.cite)) for need in conflict.needs)
    return conflict.but(needs=needs)


def _revived(kept: dict[str, Any] | None) -> tuple[Locked, ...] | Conflict | None:
    if kept is None:
        return None
    try:
        if "conflict" in kept:
            return held.of(Conflict, kept["conflict"])
        return tuple(held.of(Locked, row) for row in kept["rows"])
    except (ValueError, KeyError, TypeError):
        return None


def _exact(question: Question) -> dict[str, str]:
    """Packages requested in a single version."""
    pins = (one.partition("==") for one in question.requires)
    found = {packages.canonical(name.partition("[")[0]): version for name, _, version in pins if version}
    return {name: version for name, version in found.items() if versions.is_version(version)}


def _counted(note: Callable[[str], None], door: Door) -> Callable[[str], None]:
    """Report now and then how many packages uv has selected."""
    chosen: set[str] = set()
    told = [door.now(), 0.0]  # time and count of the last report

    def hear(line: str) -> None:
        if "Selecting: " not in line:
            return
        chosen.add(line.partition("Selecting: ")[2].partition("==")[0])
        if door.now() - told[0] > 1.0 and len(chosen) > told[1]:
            told[:] = [door.now(), float(len(chosen))]
            note(f"resolving: {len(chosen)} packages so far")

    return hear


def folders_with(door: Door, plan: Plan, folders: tuple[str, ...]) -> dict[str, str]:
    """Find builds of torch and its family in folders of wheels: they need no index."""
    found: dict[str, str] = {}
    if default_index(plan.index):
        return found
    build = plan.torch.partition("+")[2]
    tag = "cp" + "".join(map(str, versions.minor(plan.python)))
    for folder in folders:
        for file in door.list(folder) or ():
            parts = file.removesuffix(".whl").replace("%2B", "+").split("-")
            if not file.endswith(".whl") or len(parts) < 5:
                continue
            name, version = packages.canonical(parts[0]), parts[1]
            wanted = plan.torch if name == "torch" else plan.packages.get(name, "")
            fits = version == wanted if wanted and "+" in wanted else version.partition("+")[2] == build
            if name in indexes.family() and fits and parts[-3] in (tag, "py3", "cp3"):
                found.setdefault(name, folder)
    return found


def parted(url: str, name: str) -> tuple[str, dict[str, str | None]]:
    """Split an address from its password, which uv gets by variables."""
    scheme, sep, rest = url.partition("://")
    login, at, host = rest.partition("/")[0].rpartition("@")
    if not sep or not at:
        return url, {}
    user, _, password = login.partition(":")
    env: dict[str, str | None] = {f"UV_INDEX_{name}_USERNAME": user, f"UV_INDEX_{name}_PASSWORD": password}
    return f"{scheme}://{host}{rest[len(rest.partition('/')[0]) :]}", env
