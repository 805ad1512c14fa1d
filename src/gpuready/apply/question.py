"""The request to uv for a plan: requirements, their sources, and exclusions. Pure functions.

Every framework is pinned, because a resolver that cannot use the intended version silently takes a very old
one. torch and packages built with it come from one explicit index, so that no other index supplies them and
nothing else comes from there.
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
"""The project name in the request; it appears in uv's messages."""

FOLDER = "find-links"
"""The index name in a lock for folders of wheels named by the user."""


class Question(Noun):
    """A complete request: the same one has the same result while the indexes do not change."""

    requires: tuple[str, ...]  # requirements, in order
    sources: dict[str, str]  # package -> name of the only index that may supply it
    addresses: dict[str, str]  # index name -> its address, or a folder
    without: tuple[str, ...]  # packages excluded wherever they are required
    python: str
    platform: str
    wants: dict[str, tuple[str, ...]] = {}  # package -> ranges it must satisfy
    allowed: tuple[str, ...] = ()  # lookalikes that the contract itself requires
    notes: tuple[str, ...] = ()

    def project(self) -> str:
        """Format the request as a pyproject.toml."""
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
        """Exclude packages in a form that every uv accepts: required on no existing Python."""
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
    """Format a basic TOML string. TOML has JSON's escapes."""
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
    """Make the request for a plan.

    ``sources``: requirements from the framework's own files. ``folders``: packages for which a folder of wheels
    has exactly the intended version. ``direct``: packages that must be requested by name, to pin them to torch's
    index. ``avoid``: versions to exclude. ``extra``: packages from an index of the user that supplies nothing
    else; ``addresses`` has the addresses of those indexes.
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
    """Give folders names: a uv index cannot be named after a path."""
    names = {
        path: f"{FOLDER}-{number}" for number, path in enumerate(sorted(n for n in named if n[0] == "/"))
    }
    return {p: names.get(i, i) for p, i in at.items()}, {names.get(i, i): url for i, url in named.items()}


def _with_extras(name: str, extras: Mapping[str, tuple[str, ...]]) -> str:
    return f"{name}[{','.join(extras[name])}]" if extras.get(name) else name


def versions_python(text: str) -> str:
    """Return the minor version of a Python: patch releases do not matter."""
    major, minor = versions.minor(text)
    return f"{major}.{minor}"


def pinned(version: str) -> str:
    """``5.22`` -> ``==5.22.*``; a full version is pinned exactly."""
    return f"=={version}" if len(versions.release(version)) > 2 or "+" in version else f"=={version}.*"


def default_index(name: str) -> bool:
    return name in ("", indexes.DEFAULT)


def exact_torch(plan: Plan) -> str:
    """Return torch's version as its index writes it: the default index omits the build."""
    return plan.torch.partition("+")[0] if default_index(plan.index) else plan.torch


def _from_where(
    plan: Plan, contract: Contract, pins: Mapping[str, str], folders: Mapping[str, str]
) -> dict[str, str]:
    at = {name: index for name, index in indexes.apart(plan.framework, plan.variant).items() if name in pins}
    if not default_index(plan.index):
        at |= {name: plan.index for name in indexes.family() if name in pins}
    return at | {name: folder for name, folder in folders.items() if name in pins}


class _Asked:
    """Collects the requirements of one plan."""

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
        """Whether the framework is on the default index, and not another package of that name."""
        return packages.lookalike(self.own) is None

    def needs(self) -> Iterator[tuple[str, Need]]:
        """Yield every package requirement of the contract that applies here, with the package name."""
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
        """Return the ranges that the result must satisfy, requested or not."""
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
        """Add pins that the plan has fixed. A local build tag counts only on an index that has builds."""
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
            return  # most plans have none, and the import is slower than Python's start
        from packaging.requirements import Requirement

        for text in self.sources:
            one = Requirement(text)
            name = packages.canonical(one.name)
            here = one.marker is None or one.marker.evaluate(_markers(self.plan))
            if here and self._askable(name, "recommended"):
                pins.setdefault(name, []).extend(str(clause) for clause in one.specifier)
                self.extras[name] = tuple(sorted(one.extras))


def _clauses(want: str, there: bool) -> list[str]:
    """Split a requirement into clauses. Of alternatives use the last (newest), if nothing else narrows it."""
    if want == "*":
        return []
    choices = [choice.strip() for choice in want.split("|")]
    if len(choices) > 1 and there:
        return []
    return [clause.strip() for clause in choices[-1].split(",")]


def _facts(plan: Plan) -> Facts:
    """Return what a plan states about its platform, for the conditions of a contract."""
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
