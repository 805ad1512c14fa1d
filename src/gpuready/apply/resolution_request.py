"""The request to uv for a plan: requirements, their sources, and exclusions. Pure functions.

Every framework is pinned, because a resolver that cannot use the intended version silently takes a very old
one. torch and packages built with it come from one explicit index, so that no other index supplies them and
nothing else comes from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpuready.catalog import indexes, kernels, packages
from gpuready.contracts import when
from gpuready.contracts.pins import MARKER_SYSTEMS
from gpuready.model import Contract, Fact, Facts, Record, Requirement, UnknownFactError, versions
from gpuready.model.plan import Plan
from gpuready.model.record import field

PROJECT_NAME = "gpuready-question"
"""The project name in the request; it appears in uv's messages."""

FOLDER_INDEX = "find-links"
"""The index name in a lock for folders of wheels named by the user."""


class ResolutionRequest(Record):
    """A complete request: the same one has the same result while the indexes do not change."""

    requires: tuple[str, ...]  # requirements, in order
    sources: dict[str, str]  # package -> name of the only index that may supply it
    addresses: dict[str, str]  # index name -> its address, or a folder
    without: tuple[str, ...]  # packages excluded wherever they are required
    python: str
    platform: str
    wants: dict[str, tuple[str, ...]] = field(default_factory=dict)  # package -> ranges it must satisfy
    allowed: tuple[str, ...] = ()  # lookalikes that the contract itself requires
    notes: tuple[str, ...] = ()
    until: str = ""  # no release after this day, but of packages that have an index of their own
    ageless: tuple[str, ...] = ()  # nor of these

    def format_project(self) -> str:
        """Format the request as a pyproject.toml."""
        lines = ["[project]", f"name = {_quote_toml(PROJECT_NAME)}", 'version = "0"']
        lines += [f"requires-python = {_quote_toml('>=' + self.python)}", "dependencies = ["]
        lines += [f"  {_quote_toml(one)}," for one in self.requires] + ["]", "", "[tool.uv.sources]"]
        lines += [f"{_quote_toml(name)} = {{ index = {_quote_toml(at)} }}" for name, at in sorted(self.sources.items())]
        for name, address in sorted(self.addresses.items()):
            lines += ["", "[[tool.uv.index]]", f"name = {_quote_toml(name)}", f"url = {_quote_toml(address)}"]
            lines += ["explicit = true"] + (['format = "flat"'] if address.startswith("/") else [])
        lines += ["", "[tool.uv.workspace]"]  # the root of its own, whatever lies above a temporary folder
        return "\n".join(lines) + "\n"

    def specifier_of(self, package: str) -> str:
        """Return what the request demands of a package; empty if it does not name it."""
        pairs = [packages.split_requirement(one) for one in self.requires]
        return next((specifier.rpartition("]")[2] for name, specifier in pairs if name == package), "")

    def format_overrides(self) -> str:
        """Exclude packages in a form that every uv accepts: required on no existing Python."""
        return "".join(f"{name}; python_version < '0'\n" for name in self.without)

    def uv_flags(self, allow_build: bool = False, annotate: bool = True) -> tuple[str, ...]:
        """Return the flags of a resolution. A build would run a package's code, so it has to be allowed."""
        flags = [] if allow_build else ["--only-binary", ":all:"]
        flags += ["--python-version", self.python, "--generate-hashes", "--no-header"]
        flags += ["--emit-index-annotation"] if annotate else []  # a pylock.toml has the addresses
        flags += ["--index-strategy", "first-index"]
        if self.platform:
            flags += ["--python-platform", self.platform]
        if self.until:
            flags += ["--exclude-newer", self.until]
            of_any_day = sorted({*self.sources, *self.ageless})
            flags += [word for name in of_any_day for word in ("--exclude-newer-package", f"{name}=false")]
        return tuple(flags)


def replaced_packages(plan: Plan) -> dict[str, str]:
    """Return the packages that the index resolves, with what they require, and whose wheel comes from a release page."""
    chosen = [kernel for kernel in plan.kernels if kernel.how == "release"]
    return {
        kernel.package: kernel.version for kernel in chosen if "beside" in (kernels.find_kernel(kernel.package) or {})
    }


def format_stated_metadata(names: Iterable[str], known: Mapping[str, Mapping[str, Any]]) -> str:
    """Format uv's configuration that states what packages require, so that none is built to learn it.

    That is what is known of them, else nothing. No version is named: of none may uv run the code.
    """
    tables = []
    for name in names:
        requires = ", ".join(_quote_toml(one) for one in known.get(name, {}).get("requires", ()))
        tables.append(f"[[dependency-metadata]]\nname = {_quote_toml(name)}\nrequires-dist = [{requires}]\n")
    return "\n".join(tables)


def _quote_toml(text: str) -> str:
    """Format a basic TOML string. TOML has JSON's escapes."""
    return json.dumps(text, ensure_ascii=True).replace("\x7f", "\\u007f")


def make_resolution_request(
    plan: Plan,
    contract: Contract,
    *,
    sources: Iterable[str] = (),
    folders: Mapping[str, str] | None = None,
    direct: Iterable[str] = (),
    limits: Mapping[str, tuple[str, ...]] | None = None,
    extra: Mapping[str, str] | None = None,
    addresses: Mapping[str, str] | None = None,
) -> ResolutionRequest:
    """Make the request for a plan.

    ``sources``: requirements from the framework's own files. ``folders``: packages for which a folder of wheels
    has exactly the intended version. ``direct``: packages that must be requested by name, to pin them to torch's
    index. ``limits``: what else is asked of versions. ``extra``: packages from an index of the user that supplies nothing else; ``addresses`` has the addresses of those indexes.
    """
    collector = _RequirementCollector(plan, contract, tuple(sources))
    pins, notes = collector.collect_pins(), collector.notes
    for name in (*direct, *(extra or ())):
        pins.setdefault(name, "")
    for name, more in (limits or {}).items():
        pins[name] = ",".join([*([pins[name]] if pins.get(name) else []), *more])
    origins = _choose_sources(plan, contract, pins, folders or {}) | dict(extra or {})
    index_addresses = {index: indexes.index_url(index) for index in origins.values() if index in indexes.list_indexes()}
    index_addresses |= {index: index for index in origins.values() if index.startswith("/")} | dict(addresses or {})
    origins, index_addresses = _name_folders(origins, index_addresses)
    return ResolutionRequest(
        requires=tuple(f"{_with_extras(name, collector.extras)}{spec}" for name, spec in sorted(pins.items())),
        sources=origins,
        addresses=index_addresses,
        without=tuple(sorted(collector.without)),
        python=python_minor_version(plan.python),
        platform=plan.platform,
        wants=collector.required_ranges(),
        allowed=tuple(sorted(collector.required_names())),
        notes=tuple(notes),
        until=str(plan.options.get("until") or ""),
        ageless=tuple(plan.options.get("ageless") or ()),
    )


def _name_folders(origins: dict[str, str], index_addresses: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Give folders names: a uv index cannot be named after a path."""
    names = {
        path: f"{FOLDER_INDEX}-{number}"
        for number, path in enumerate(sorted(n for n in index_addresses if n[0] == "/"))
    }
    return {p: names.get(i, i) for p, i in origins.items()}, {
        names.get(i, i): url for i, url in index_addresses.items()
    }


def _with_extras(name: str, extras: Mapping[str, tuple[str, ...]]) -> str:
    return f"{name}[{','.join(extras[name])}]" if extras.get(name) else name


def python_minor_version(text: str) -> str:
    """Return the minor version of a Python: patch releases do not matter."""
    major, minor = versions.major_minor(text)
    return f"{major}.{minor}"


def exact_specifier(version: str) -> str:
    """``5.22`` -> ``==5.22.*``; a full version is pinned exactly."""
    return f"=={version}" if len(versions.parse_release(version)) > 2 or "+" in version else f"=={version}.*"


def is_default_index(name: str) -> bool:
    return name in ("", indexes.DEFAULT_INDEX)


def exact_torch_version(plan: Plan) -> str:
    """Return torch's version as its index writes it: the default index omits the build."""
    return plan.torch.partition("+")[0] if is_default_index(plan.index) else plan.torch


def _choose_sources(
    plan: Plan, contract: Contract, pins: Mapping[str, str], folders: Mapping[str, str]
) -> dict[str, str]:
    origins = {
        name: index
        for name, index in indexes.packages_with_own_index(plan.framework, plan.variant).items()
        if name in pins
    }
    if not is_default_index(plan.index):
        origins |= {name: plan.index for name in indexes.torch_index_packages() if name in pins}
    return origins | {name: folder for name, folder in folders.items() if name in pins}


class _RequirementCollector:
    """Collects the requirements of one plan."""

    def __init__(self, plan: Plan, contract: Contract, sources: tuple[str, ...]):
        self.plan, self.contract, self.sources = plan, contract, sources
        self.notes: list[str] = []
        self.distribution = packages.canonical_package_name(contract.distribution or contract.framework)
        own = str(plan.options.get("extras") or "")
        self.extras: dict[str, tuple[str, ...]] = {self.distribution: tuple(own.split(","))} if own else {}
        from_index = [
            k for k in plan.kernels if k.how in ("index", "jit")
        ]  # what compiles on first use is an ordinary package
        ready = {packages.canonical_package_name(k.package) for k in from_index}
        compiled = {packages.canonical_package_name(k.package) for k in plan.kernels} - ready
        self.beside = replaced_packages(plan)
        self.without = set(indexes.packages_needing_torch()) | compiled
        self.without -= {*ready, *self.beside, "torch", self.distribution}
        self.facts = _facts_from_plan(plan)

    def is_on_index(self) -> bool:
        """Whether the framework is on the default index, and not another package of that name."""
        return packages.find_lookalike(self.distribution) is None

    def applicable_needs(self) -> Iterator[tuple[str, Requirement]]:
        """Yield every package requirement of the contract that applies here, with the package name."""
        for need in self.contract.requirements_for("package.*"):
            name = packages.canonical_package_name(need.key.removeprefix("package."))
            if need.level == "required" or (need.level == "recommended" and not self.is_on_index()):
                try:
                    applies = when.condition_applies(need.when, self.facts)
                except (UnknownFactError, ValueError):
                    applies = False
                if applies:
                    yield name, need

    def required_names(self) -> set[str]:
        return {name for name, need in self.applicable_needs() if need.level == "required"}

    def required_ranges(self) -> dict[str, tuple[str, ...]]:
        """Return the ranges that the result must satisfy, requested or not."""
        ranges: dict[str, tuple[str, ...]] = {}
        for name, need in self.applicable_needs():
            if need.want != "*" and need.level == "required":
                ranges[name] = (*ranges.get(name, ()), need.want)
        return ranges

    def collect_pins(self) -> dict[str, str]:
        pins: dict[str, list[str]] = {}
        self._add_source_pins(pins)
        for name, need in self.applicable_needs():
            if self._can_request(name, need.level):
                pins.setdefault(name, []).extend(_split_want(need.want, name in pins and bool(pins[name])))
        self._add_decided_pins(pins)
        self._add_kernel_extras(pins)
        if self.is_on_index():
            version = self.plan.packages.get(self.distribution) or self.plan.version
            pins[self.distribution] = [exact_specifier(version)]
        else:
            self.notes.append(
                f"{self.distribution} itself is not resolved here: it is on no index and comes from its sources (--source DIR)"
            )
        if self.plan.torch:
            pins["torch"] = [f"=={exact_torch_version(self.plan)}"]
        return {name: ",".join(dict.fromkeys(spec)) for name, spec in pins.items()}

    def _can_request(self, name: str, level: str) -> bool:
        if name in ("torch", self.distribution):
            return False
        if name in self.without:
            note = f"{name} is not resolved: it is built, or taken ready-made, against the torch that is there"
            if note not in self.notes:
                self.notes.append(note)
            return False
        known = packages.find_lookalike(name)
        return known is None or level == "required"

    def _add_decided_pins(self, pins: dict[str, list[str]]) -> None:
        """Add pins that the plan has fixed. A local build tag counts only on an index that has builds."""
        for package, version in self.plan.packages.items():
            name = packages.canonical_package_name(package)
            if name in ("torch", self.distribution, "python") or not self._can_request(name, "recommended"):
                continue
            bare = is_default_index(self.plan.index) or name not in indexes.torch_index_packages()
            exact = version.partition("+")[0] if bare else version
            if versions.is_version(exact):
                pins.setdefault(name, []).append(f"=={exact}")
        for name, version in self.beside.items():
            pins.setdefault(name, []).append(f"=={version}")

    def _add_kernel_extras(self, pins: dict[str, list[str]]) -> None:
        """Ask for the extras of kernels that compile on first use, such as ``flash-attn-4[cu13]``."""
        for step in (step for kernel in self.plan.kernels if kernel.how == "jit" for step in kernel.steps[-1:]):
            name, specifier = packages.split_requirement(step.run[-1] if step.run else "")
            if name in pins and specifier.startswith("["):
                self.extras[name] = tuple(specifier[1:].partition("]")[0].split(","))

    def _add_source_pins(self, pins: dict[str, list[str]]) -> None:
        if not self.sources:
            return  # most plans have none, and the import is slower than Python's start
        from packaging.requirements import Requirement

        for text in self.sources:
            one = Requirement(text)
            name = packages.canonical_package_name(one.name)
            here = one.marker is None or one.marker.evaluate(_marker_environment(self.plan))
            if here and (name == self.distribution or self._can_request(name, "recommended")):
                pins.setdefault(name, []).extend(str(clause) for clause in one.specifier)
                self.extras[name] = tuple(sorted(one.extras))


def _split_want(want: str, already_narrowed: bool) -> list[str]:
    """Split a requirement into clauses. Of alternatives use the last (newest), if nothing else narrows it."""
    if want == "*":
        return []
    choices = [choice.strip() for choice in want.split("|")]
    if len(choices) > 1 and already_narrowed:
        return []
    return [clause.strip() for clause in choices[-1].split(",")]


def _facts_from_plan(plan: Plan) -> Facts:
    """Return what a plan states about its platform, for the conditions of a contract."""
    machine = plan.platform.partition("-")[0] or "x86_64"
    wants = plan.wanted_words
    stated = {
        "os.system": plan_system(plan),
        "os.arch": machine,
        "platform.name": "cuda" if plan.cuda else "rocm" if "+rocm" in plan.torch else "cpu",
        "python.version": plan.python,
        "package.torch": plan.torch or None,
        "torch.version": plan.torch or None,
        "torch.cuda": plan.cuda or None,
        "job.wants": wants,
    }
    facts = [Fact(key, value, "plan", "stated") for key, value in stated.items()]
    capability = plan.options.get("capability")
    return Facts([*facts, Fact("gpu.capability", capability, "plan", "stated")] if capability else facts)


def plan_system(plan: Plan) -> str:
    """Return the operating system of a plan's platform, such as ``x86_64-pc-windows-msvc``."""
    return "windows" if "windows" in plan.platform else "darwin" if "darwin" in plan.platform else "linux"


def _marker_environment(plan: Plan) -> dict[str, str]:
    python = python_minor_version(plan.python)
    machine = plan.platform.partition("-")[0] or "x86_64"
    sys_platform, platform_system, os_name = MARKER_SYSTEMS[plan_system(plan)]
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_machine": machine,
        "sys_platform": sys_platform,
        "platform_system": platform_system,
        "os_name": os_name,
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
