"""What uv is asked for a plan: requirements, where each may come from, and what is left out. Pure.

Every framework is pinned, because a resolver that cannot have the version that is meant quietly takes an
ancient one. Torch and what is built beside it come from one index that is explicit, so that nothing else can
supply them, and nothing else comes from there.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import indexes, packages
from gpuready.contracts import when
from gpuready.model import Fact, Facts, Noun, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuready.model import Contract, Need
    from gpuready.planned import Plan

PROJECT = "gpuready-question"
"""The name of the project that the question is written as; uv's proofs speak of it."""

FOLDER = "find-links"
"""What a lock calls the folders of wheels that the user named."""


class Question(Noun):
    """What uv is asked, whole: the same question has the same answer for as long as the indexes stand still."""

    requires: tuple[str, ...]  # requirements, in order
    sources: dict[str, str]  # a package -> the name of the index that alone may supply it
    addresses: dict[str, str]  # the name of an index -> its address, or a folder
    without: tuple[str, ...]  # packages that are left out wherever they are asked for
    python: str
    platform: str
    wants: dict[str, tuple[str, ...]] = {}  # a package -> the ranges it must be inside
    allowed: tuple[str, ...] = ()  # look-alikes that the contract itself requires
    notes: tuple[str, ...] = ()

    def project(self) -> str:
        """The question as a project file."""
        lines = ["[project]", f"name = {_quoted(PROJECT)}", 'version = "0"']
        lines += [f"requires-python = {_quoted('>=' + self.python)}", "dependencies = ["]
        lines += [f"  {_quoted(one)}," for one in self.requires] + ["]", "", "[tool.uv.sources]"]
        lines += [
            f"{_quoted(name)} = {{ index = {_quoted(at)} }}" for name, at in sorted(self.sources.items())
        ]
        for name, address in sorted(self.addresses.items()):
            lines += ["", "[[tool.uv.index]]", f"name = {_quoted(name)}", f"url = {_quoted(address)}"]
            lines += ["explicit = true"] + (['format = "flat"'] if address.startswith("/") else [])
        return "\n".join(lines) + "\n"

    def overrides(self) -> str:
        """What is left out, in the words that every uv understands: needed on no Python that there is."""
        return "".join(f"{name}; python_version < '0'\n" for name in self.without)

    def flags(self) -> tuple[str, ...]:
        flags = [
            "--python-version",
            self.python,
            "--generate-hashes",
            "--no-header",
            "--emit-index-annotation",
        ]
        flags += ["--index-strategy", "first-index"]
        if self.platform:
            flags += ["--python-platform", self.platform]
        return tuple(flags)


def _quoted(text: str) -> str:
    """A basic string of TOML. What JSON escapes, TOML does too."""
    import json

    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


def ask(
    plan: Plan,
    contract: Contract,
    *,
    sources: Iterable[str] = (),
    folders: Mapping[str, str] | None = None,
    direct: Iterable[str] = (),
    avoid: Mapping[str, tuple[str, ...]] | None = None,
    extra: Mapping[str, str] | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Question:
    """The question for a plan.

    ``sources``: requirements of the framework's own files. ``folders``: packages that a folder of wheels has in
    just the version that is meant. ``direct``: packages that must be asked for by name, to be pinned to torch's
    index. ``avoid``: versions not to take. ``extra``: packages of an index of the user's own that is asked for
    nothing else; ``addresses`` has where those are.
    """
    asked = _Asked(plan, contract, tuple(sources))
    pins, notes = asked.pins(), asked.notes
    for name in (*direct, *(extra or ())):
        pins.setdefault(name, "")
    for name, bad in (avoid or {}).items():
        one = pins.get(name, "")
        pins[name] = ",".join([*([one] if one else []), *(f"!={version}" for version in bad)])
    at = _from_where(plan, contract, pins, folders or {}) | dict(extra or {})
    named = {index: indexes.url(index) for index in at.values() if index in indexes.names()}
    named |= {index: index for index in at.values() if index.startswith("/")} | dict(addresses or {})
    at, named = _short(at, named)
    return Question(
        requires=tuple(f"{_with_extras(name, asked.extras)}{spec}" for name, spec in sorted(pins.items())),
        sources=at,
        addresses=named,
        without=tuple(sorted(asked.without)),
        python=versions_python(plan.python),
        platform=plan.platform,
        wants=asked.wants(),
        allowed=tuple(sorted(asked.required_names())),
        notes=tuple(notes),
    )


def _short(at: dict[str, str], named: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Folders under names: an index of uv cannot be called after a path."""
    names = {
        path: f"{FOLDER}-{number}" for number, path in enumerate(sorted(n for n in named if n[0] == "/"))
    }
    return {p: names.get(i, i) for p, i in at.items()}, {names.get(i, i): url for i, url in named.items()}


def _with_extras(name: str, extras: Mapping[str, tuple[str, ...]]) -> str:
    return f"{name}[{','.join(extras[name])}]" if extras.get(name) else name


def versions_python(text: str) -> str:
    """The minor of a Python: a patch release decides nothing."""
    major, minor = versions.minor(text)
    return f"{major}.{minor}"


def pinned(version: str) -> str:
    """``5.22`` -> ``==5.22.*``; a version that is written out is taken exactly."""
    return f"=={version}" if len(versions.release(version)) > 2 or "+" in version else f"=={version}.*"


def default_index(name: str) -> bool:
    return name in ("", indexes.DEFAULT)


def exact_torch(plan: Plan) -> str:
    """The version of torch as its index writes it: the default one leaves the build out."""
    return plan.torch.partition("+")[0] if default_index(plan.index) else plan.torch


def _from_where(
    plan: Plan, contract: Contract, pins: Mapping[str, str], folders: Mapping[str, str]
) -> dict[str, str]:
    at = {name: index for name, index in indexes.apart(plan.framework, plan.variant).items() if name in pins}
    if not default_index(plan.index):
        at |= {name: plan.index for name in indexes.family() if name in pins}
    return at | {name: folder for name, folder in folders.items() if name in pins}


class _Asked:
    """The requirements of one plan, put together."""

    def __init__(self, plan: Plan, contract: Contract, sources: tuple[str, ...]):
        self.plan, self.contract, self.sources = plan, contract, sources
        self.notes: list[str] = []
        self.extras: dict[str, tuple[str, ...]] = {}
        self.own = packages.canonical(contract.distribution or contract.framework)
        ready = {packages.canonical(k.package) for k in plan.kernels if k.how == "index"}
        kernels = {packages.canonical(k.package) for k in plan.kernels if k.how != "index"}
        self.without = (set(indexes.asking_torch()) | kernels) - ready - {"torch", self.own}
        self.facts = _facts(plan)

    def on_index(self) -> bool:
        """Whether the framework itself is on the default index, and is not another's package of that name."""
        return packages.lookalike(self.own) is None

    def needs(self) -> Iterator[tuple[str, Need]]:
        """Every need of a package that the contract asks for here, with the name of the package."""
        for need in self.contract.wants("package.*"):
            name = packages.canonical(need.key.removeprefix("package."))
            if need.level == "required" or (need.level == "recommended" and not self.on_index()):
                try:
                    applies = when.applies(need.when, self.facts)
                except (Unknown, ValueError):
                    applies = False
                if applies:
                    yield name, need

    def required_names(self) -> set[str]:
        return {name for name, need in self.needs() if need.level == "required"}

    def wants(self) -> dict[str, tuple[str, ...]]:
        """The ranges that the answer must be inside, asked for or not."""
        found: dict[str, tuple[str, ...]] = {}
        for name, need in self.needs():
            if need.want != "*" and need.level == "required":
                found[name] = (*found.get(name, ()), need.want)
        return found

    def pins(self) -> dict[str, str]:
        pins: dict[str, list[str]] = {}
        self._read_sources(pins)
        for name, need in self.needs():
            if self._askable(name, need.level):
                pins.setdefault(name, []).extend(_clauses(need.want, name in pins and bool(pins[name])))
        self._decided(pins)
        if self.on_index():
            version = self.plan.packages.get(self.own) or self.plan.version
            pins[self.own] = [pinned(version)]
        else:
            self.notes.append(
                f"{self.own} itself is not resolved here: it is on no index and comes from its sources (--source DIR)"
            )
        if self.plan.torch:
            pins["torch"] = [f"=={exact_torch(self.plan)}"]
        return {name: ",".join(dict.fromkeys(spec)) for name, spec in pins.items()}

    def _askable(self, name: str, level: str) -> bool:
        if name in ("torch", self.own):
            return False
        if name in self.without:
            note = (
                f"{name} is not resolved: it is built, or taken ready-made, against the torch that is there"
            )
            if note not in self.notes:
                self.notes.append(note)
            return False
        known = packages.lookalike(name)
        return known is None or level == "required"

    def _decided(self, pins: dict[str, list[str]]) -> None:
        """What the choice has fixed already. A build in a version counts only on the index that has builds."""
        for given, version in self.plan.packages.items():
            name = packages.canonical(given)
            if name in ("torch", self.own, "python") or not self._askable(name, "recommended"):
                continue
            bare = default_index(self.plan.index) or name not in indexes.family()
            exact = version.partition("+")[0] if bare else version
            if versions.is_version(exact):
                pins.setdefault(name, []).append(f"=={exact}")

    def _read_sources(self, pins: dict[str, list[str]]) -> None:
        if not self.sources:
            return  # most plans have none, and the import costs more than the start of Python
        from packaging.requirements import Requirement

        for text in self.sources:
            one = Requirement(text)
            name = packages.canonical(one.name)
            here = one.marker is None or one.marker.evaluate(_markers(self.plan))
            if here and self._askable(name, "recommended"):
                pins.setdefault(name, []).extend(str(clause) for clause in one.specifier)
                self.extras[name] = tuple(sorted(one.extras))


def _clauses(want: str, there: bool) -> list[str]:
    """A want as clauses. Of alternatives the last, the newest, is asked for where nothing else narrows it down."""
    if want == "*":
        return []
    choices = [choice.strip() for choice in want.split("|")]
    if len(choices) > 1 and there:
        return []
    return [clause.strip() for clause in choices[-1].split(",")]


def _facts(plan: Plan) -> Facts:
    """What a plan says of the ground that it stands on, for the conditions of a contract."""
    machine = plan.platform.partition("-")[0] or "x86_64"
    wants = plan.options.get("wants") or ()
    stated = {
        "os.system": "linux",
        "os.arch": machine,
        "platform.name": "cuda" if plan.cuda else "cpu",
        "python.version": plan.python,
        "package.torch": plan.torch or None,
        "torch.version": plan.torch or None,
        "torch.cuda": plan.cuda or None,
        "job.wants": tuple(wants.split(",")) if isinstance(wants, str) else tuple(wants),
    }
    facts = [Fact(key, value, "plan", "stated") for key, value in stated.items()]
    capability = plan.options.get("capability")
    return Facts([*facts, Fact("gpu.capability", capability, "plan", "stated")] if capability else facts)


def _markers(plan: Plan) -> dict[str, str]:
    python = versions_python(plan.python)
    machine = plan.platform.partition("-")[0] or "x86_64"
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
