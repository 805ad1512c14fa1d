"""Files in the place of a framework: what kind each is, and what the packages of one are judged by."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence

from gpuready import contracts
from gpuready.apply.resolution_request import exact_specifier, python_minor_version
from gpuready.apply.resolve import UvAnswer, resolve_requirements
from gpuready.apply.uv_output import InconclusiveResolution
from gpuready.catalog.indexes import list_indexes
from gpuready.catalog.kernels import find_kernel, find_prebuilt_wheels, list_kernels, list_prebuilt_releases
from gpuready.catalog.packages import canonical_package_name, find_lookalike, find_package, split_requirement
from gpuready.catalog.releases import list_releases
from gpuready.catalog.torch import find_torch_build, find_torch_release, list_torch_builds, list_torch_releases
from gpuready.containers.environment_files import EnvironmentFile, read_environment_file
from gpuready.containers.installs import PackagePin, parse_requirements_file
from gpuready.contracts.catalogued_release import make_torch_contract
from gpuready.contracts.pins import marker_environment
from gpuready.jobs.job_facts import find_job_needs
from gpuready.jobs.job_files import decode_mapping, load_job_file
from gpuready.model import NOT_STATED, Contract, Fact, Facts
from gpuready.model.plan import LockedPackage, Plan, PlanConflict, UnresolvedCause
from gpuready.model.versions import satisfies_specifier
from gpuready.plan.change import SOURCE, end_state_facts, list_linked_extensions
from gpuready.plan.choose import newest_known_minor
from gpuready.plan.kernels import must_be_compiled
from gpuready.plan.limits import ASSUMED_GLIBC
from gpuready.plan.platform import machine_facts_only
from gpuready.plan.torch_packages import COMPILED
from gpuready.system import LiveHost
from gpuready.workflow.container_file import read_referenced_file
from gpuready.workflow.contract_choice import FrameworkSpec
from gpuready.workflow.index_contract import ReleaseFinder, choose_contract_by_index
from gpuready.workflow.refusal import Refused, call_or_refuse, read_named_file

CONTAINER_NAMES = ("dockerfile", "containerfile")
PACKAGE_SUFFIXES = (".txt", ".in", ".toml", ".lock")
JOB_SUFFIXES = (".json", ".py", ".sh")
YAML_SUFFIXES = (".yml", ".yaml")
_REQUIREMENTS = re.compile(r"\A[^\[]*^framework *=", re.M)
"""``framework = "kite"`` before any table: a file of requirements."""
USUAL_PYTHONS = ("3.12", "3.11", "3.10", "3.13", "3.9", "3.8")
"""The Pythons that a file without one is resolved for, the most usual first."""


def sort_asked_files(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the frameworks among the words of a check, and its files by the option that takes each."""
    frameworks: list[str] = []
    files: dict[str, str] = {}
    for word in words:
        names = _frameworks_of_script(word) if word.endswith(".py") else []
        frameworks += names
        if names and not any(find_job_needs(load_job_file(word, read_named_file))):
            continue
        option = _option_of_file(word)
        if option in files:
            raise Refused(f"{files[option]} and {word} are files of the same kind: check them one at a time")
        files |= {option: word} if option else {}
        frameworks += [] if option or names else [word]
    return frameworks, files


def _frameworks_of_script(path: str) -> list[str]:
    """Return the frameworks that a script imports at its top, else torch; none for one of ColossalAI, which sets up a job."""
    try:
        tree = ast.parse(read_named_file(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"{path} is not Python: {getattr(error, 'msg', None) or error or 'nested too deeply'}") from None
    modules: list[str] = []
    for node in tree.body:
        modules += [one.name for one in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    known = {str(row["distribution"]).replace("-", "_"): row["framework"] for row in contracts.list_contract_rows()}
    found = dict.fromkeys(known[root] for one in modules if (root := one.partition(".")[0]) in known)
    return [] if "colossalai" in found else list(found) or ["torch"]


def _option_of_file(word: str) -> str:
    """Return the option that takes a file; empty for a framework."""
    path = word.partition("#")[0]
    name = path.rpartition("/")[2].lower()
    if name.startswith(CONTAINER_NAMES) or name.endswith(".dockerfile"):
        return "dockerfile"
    if name.endswith(".toml") and _REQUIREMENTS.search(read_named_file(path)):
        return "contract"
    if name.endswith(PACKAGE_SUFFIXES):
        return "packages"
    if name.endswith(YAML_SUFFIXES):
        keys = call_or_refuse(decode_mapping, read_named_file(path), path)
        return "dockerfile" if "services" in keys else "packages" if "dependencies" in keys else "config"
    if name.endswith(".json") and '"facts"' in read_named_file(path):
        return "on"
    if name.endswith(JOB_SUFFIXES):
        return "config"
    if name.endswith(".log"):
        raise Refused(f"{path} is a log: `gpuready diagnose` reads those")
    if "/" in path:  # not opened: a client of a server may not have the right to
        raise Refused(f"the name of {path} says no kind of file: give it with --packages, --dockerfile or --config")
    return ""


def read_package_file(path: str, facts: Facts, what_if: Mapping[str, str]) -> EnvironmentFile:
    """Read a file of packages; the Python that was stated is that of its markers, the torch is asked for beside what it asks for."""
    environment = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    try:
        text = read_named_file(path)
        markers = environment | marker_environment(machine_facts_only(facts).with_facts(*_stated_packages(facts)))
        file = read_environment_file(read_referenced_file, path, text, markers)
    except ValueError as error:
        raise Refused(f"{path}: {error}") from None
    if not (torch := what_if.get("torch", "").strip()):
        return file
    words = (*file.words, f"torch=={torch}") if file.words else ()  # a lock is not resolved
    return file.replace(pins=(PackagePin("torch", torch), *file.pins), words=words)


def _stated_packages(facts: Facts) -> list[Fact]:
    """Return what ``--as`` states of an environment."""
    return [one for one in facts if one.source in ("--as torch", "--as python-version")]


def add_packages(facts: Facts, file: EnvironmentFile) -> Facts:
    """Return the machine with what a file, or the user beside it, states in the place of any environment of its own.

    What it names itself, and is compiled, is asked for as by ``--wants``.
    """
    machine = machine_facts_only(facts)
    stated = [*file.to_facts(str(machine.value_if_known("os.arch") or "x86_64")), *_stated_packages(facts)]
    named = want_compiled(facts, [pin.name for pin in file.pins], file.path)
    return Facts(machine, facts.host, NOT_STATED).with_facts(*stated, *named)


def want_compiled(facts: Facts, names: Sequence[str], source: str) -> list[Fact]:
    """Return what a job asks for with the compiled packages among these, which somebody names because they are used."""
    compiled = [name for name in names if (find_package(name) or {}).get("kind") in COMPILED]
    wants = (*(facts.value_if_known("job.wants") or ()), *compiled)
    return [Fact("job.wants", wants, source, "stated")] if compiled else []


def resolve_file(facts: Facts, file: EnvironmentFile, note: Callable[..., object]) -> Facts:
    """Return the facts with every version that uv resolves the file to on this machine, or with what it holds against the file.

    Without a stated Python the newest of the usual ones with which it resolves is taken.
    """
    if file.lacks:
        return facts.with_facts(Fact("requirements.conflict", {"says": file.lacks, "needs": ()}, file.path, "stated"))
    if not file.words:
        return facts.with_facts(Fact("python.packages", len(file.pins), file.path, "stated")) if file.pins else facts
    resolved, first, pythons = _resolve_on_usual_pythons(facts, file, note)
    return facts.with_facts(*(resolved or [_make_conflict(facts, file, first, pythons, note)]))


def state_releases(facts: Facts, chosen: Sequence[Contract]) -> Facts:
    """Return the facts with the releases of an exact version that were asked for, and the CUDA of their wheels, as if they were installed."""
    rows = {one.distribution or one.framework: one.version for one in chosen if one.version.count(".") > 1}
    rows = {name: version for name, version in rows.items() if name != "torch" and f"package.{name}" not in facts}
    plan = Plan("", "", "plan", cuda=str(facts.value_if_known("torch.cuda") or ""))
    linked = dict(list_linked_extensions(plan, rows))
    stated = [Fact(f"package.{name}", version, "what was asked for", "stated") for name, version in rows.items()]
    stated += [Fact("extension.linked", linked, "the catalogue", "stated")] if linked else []
    finder = ReleaseFinder(str(facts.value_if_known("python.version") or ""))
    sources = [name for name, version in rows.items() if finder.has_to_compile(name, version)]
    return add_builds(facts.with_facts(*stated, *want_compiled(facts, [*rows], "")), "what was asked for", sources)


def resolve_releases(facts: Facts, specs: Sequence[FrameworkSpec], note: Callable[..., object]) -> list[Fact]:
    """Return what uv proves against releases that are named, beside the stated torch, on a Linux with CUDA, or the environment that it would make; empty where it says nothing."""
    is_cuda = facts.value_if_known("platform.name") in (None, "cuda", "cpu")
    if not is_cuda or facts.value_if_known("os.system") not in (None, "linux"):
        return []
    named = [(contracts.distribution_name(name), version) for name, version, variant in specs if not variant]
    words = [
        name + (exact_specifier(version) if version else "") for name, version in named if not find_lookalike(name)
    ]
    torch = str(facts.value_if_known("package.torch") or "")
    is_default = _default_torch(torch.partition("+")[0], facts) == torch
    words += [f"torch=={torch.partition('+')[0] if is_default else torch}"] if torch else []
    file = EnvironmentFile("what was asked for", parse_requirements_file("\n".join(words), "").pins, words=tuple(words))
    resolved, first, pythons = _resolve_on_usual_pythons(facts, file, note) if words else ([], None, [])
    return [_make_conflict(facts, file, first, pythons, note)] if isinstance(first, PlanConflict) else resolved


def _resolve_on_usual_pythons(
    facts: Facts, file: EnvironmentFile, note: Callable[..., object]
) -> tuple[list[Fact], PlanConflict | InconclusiveResolution | None, list[str]]:
    """Return the facts of the first Python with which a file resolves; else none, the first answer, and the Pythons."""
    stated = str(facts.value_if_known("python.version") or "")
    pythons = [python_minor_version(stated)] if stated else _list_usual_pythons(file)
    first: PlanConflict | InconclusiveResolution | None = None
    for python in pythons:
        answer = _resolve_on_python(LiveHost(), facts, file, python, note)
        if isinstance(answer, tuple):
            return [*_locked_facts(facts, file, answer, python)], None, pythons
        first = first or answer
        if isinstance(answer, InconclusiveResolution) and (answer.cause is None or answer.cause.kind != "no-wheel"):
            break
        if isinstance(answer, PlanConflict) and answer.kind == "platform-tag":  # on any Python
            break
    return [], first, pythons


def resolve_container_file(facts: Facts, path: str, note: Callable[..., object]) -> Facts:
    """Return the facts with what the installs of a container file bring along, or with what uv holds against them.

    pip does not hold one command against another: a conflict counts where one command installs all.
    """
    words = facts.value_if_known("container.requests") or ()
    if not words:
        return facts
    file = EnvironmentFile(path, parse_requirements_file("\n".join(words), "").pins, words=words)
    resolved, first, pythons = _resolve_on_usual_pythons(facts, file, note)
    if resolved:
        return facts.with_facts(*resolved)
    if isinstance(first, InconclusiveResolution):
        is_held = first.cause is not None and first.cause.kind == "missing"
    else:
        is_held = facts.value_if_known("container.installs") == 1
    return facts.with_facts(_make_conflict(facts, file, first, pythons, note)) if is_held else facts


def add_builds(facts: Facts, path: str, sources: Sequence[str] = ()) -> Facts:
    """Return the facts with what a container file installs and is compiled among the wants, and ``build`` where that has to be compiled for its torch.

    ``sources``: what has no wheel and compiles CUDA code, unless the catalogue knows a wheel elsewhere.
    """
    named = (facts.fact(f"package.{name}") for name in list_kernels())
    installed = [one.key.removeprefix("package.") for one in named if one.how == "stated" and one.value]
    facts = facts.with_facts(*want_compiled(facts, installed, path))
    torch, python = (str(facts.value_if_known(key) or "") for key in ("package.torch", "python.version"))
    if not torch and not sources:
        return facts
    arch = str(facts.value_if_known("os.arch") or "x86_64")
    build = find_torch_build(*torch.partition("+")[::2], arch) if torch else None
    pins = {name: str(facts.value_if_known(f"package.{name}") or "") for name in (*list_kernels(), *sources)}
    newest = {name: list_prebuilt_releases(name)[-1:] for name in facts.value_if_known("container.requests") or ()}
    pins |= {name: release[0] for name, release in newest.items() if release and not pins[name]}
    names = " and ".join(
        f"{name} {pin}"
        for name, pin in pins.items()
        if (name in sources and not _has_known_wheel(name, pin))
        or (
            pin
            and build
            and all(must_be_compiled(name, pin, build, one) for one in ([python] if python else USUAL_PYTHONS))
        )
    )
    if not names:
        return facts
    source = f"{path}: no wheel of {names} is made for torch {torch} and Python {python}".removesuffix(" and Python ")
    gap = f"not given: CUDA code of {names} is compiled by its install, with nvcc of torch's CUDA"
    found = [Fact("job.wants", (*(facts.value_if_known("job.wants") or ()), "build"), source, "stated")]
    if facts.fact("toolkit.version").gap == NOT_STATED:
        found += [Fact("toolkit.version", None, path, "stated", f"{gap} {build.cuda if build else ''}".rstrip())]
    return facts.with_facts(*found)


def _has_known_wheel(name: str, version: str) -> bool:
    """Whether the set-up of a release takes a wheel of its release page, where one fits."""
    row = find_kernel(name) or {}
    return bool(row.get("comes") == "jit" or (find_prebuilt_wheels(name, version) and not row.get("setup_needs_nvcc")))


def _make_conflict(
    facts: Facts,
    file: EnvironmentFile,
    answer: PlanConflict | InconclusiveResolution | None,
    pythons: Sequence[str],
    note: Callable[..., object],
) -> Fact:
    """Return what uv holds against a file, and the release that it would take instead; without a proof of it the fact is a gap."""
    if isinstance(answer, PlanConflict):
        needs = tuple({"key": n.key, "want": n.want, "cite": n.cite or file.path} for n in answer.needs)
        fix = _find_other_pin(LiveHost(), facts, file, pythons[0], answer, note)
        table = {"says": f"{answer.says} (uv, Python {pythons[0]})", "needs": needs, "fix": fix}
        return Fact("requirements.conflict", table, file.path, "stated")
    gap = f"uv could not say whether what {file.path} asks for fits together: {answer.why if answer else 'no Python fits'}"
    return Fact("requirements.conflict", None, file.path, "stated", gap)


def _find_other_pin(
    host: LiveHost,
    facts: Facts,
    file: EnvironmentFile,
    python: str,
    conflict: PlanConflict,
    note: Callable[..., object],
) -> str:
    """Return the release that uv takes of one package of a conflict where the file leaves it open: ``torchvision==0.21.0``; else empty."""
    named = [pin.name for pin in file.pins if pin.version and pin.name in conflict.says]
    for name in sorted(named, key=lambda one: (one == "torch", -conflict.says.find(one))):
        others = tuple(word for word in file.words if canonical_package_name(split_requirement(word)[0]) != name)
        answer = _resolve_on_python(host, facts, file.replace(words=(*others, name)), python, note)
        if isinstance(answer, tuple):
            return next((f"{name}=={row.version}" for row in answer if row.name == name), "")
    return ""


def _resolve_on_python(
    host: LiveHost, facts: Facts, file: EnvironmentFile, python: str, note: Callable[..., object]
) -> UvAnswer:
    """Ask uv; where only torch's own index cannot be read, with the torch of the same release on PyPI."""
    arch, glibc = facts.value_if_known("os.arch") or "x86_64", facts.value_if_known("os.glibc") or ASSUMED_GLIBC
    platform = f"{arch}-manylinux_2_{newest_known_minor(str(glibc))}"
    pin = next((one for one in file.pins if one.name == "torch"), None)
    local = ((pin and pin.version) or "").partition("+")[2]
    index = local or (pin.build if pin else "")
    target = Plan("", "", "plan", python=python, platform=platform, index=index if index in list_indexes() else "pypi")
    answer = call_or_refuse(resolve_requirements, host, file.path, file.words, target, note)
    is_unread = isinstance(answer, InconclusiveResolution) and (answer.cause or UnresolvedCause("")).names == (index,)
    if target.index != "pypi" and is_unread:
        words = tuple(re.sub(r"(==\d[\d.]*)\+[\w.]+", r"\1", word) for word in file.words)
        return call_or_refuse(resolve_requirements, host, file.path, words, target.replace(index="pypi"), note)
    return answer


def _list_usual_pythons(file: EnvironmentFile) -> list[str]:
    """Return the Pythons to ask with: those that the torch of the file has wheels for, and that the file accepts."""
    pin = next((one for one in file.pins if one.name == "torch"), None)
    row = find_torch_release(pin.version.partition("+")[0]) if pin and pin.version else None
    known = row["python"] if row else USUAL_PYTHONS
    fitting = [one for one in USUAL_PYTHONS if one in known]
    return [one for one in fitting if not file.python or satisfies_specifier(f"{one}.99", file.python)]


def _locked_facts(facts: Facts, file: EnvironmentFile, rows: tuple[LockedPackage, ...], python: str) -> list[Fact]:
    """Return the environment that uv made of the file as the judge of a plan sees it; what the file states itself stays."""
    found = {row.name: row.version for row in rows if row.version}
    stated = {pin.name: pin.version for pin in file.pins if pin.version and pin.sure}
    torch = str(facts.value_if_known("package.torch") or "") or _default_torch(found.get("torch", ""), facts)
    arch = str(facts.value_if_known("os.arch") or "x86_64")
    build = find_torch_build(*torch.partition("+")[::2], arch) if torch else None
    plan = Plan("", "", "plan", python=python, torch=torch, packages=found | stated, lock=rows)
    end = end_state_facts(facts, plan.replace(cuda=build.cuda if build else "")) if torch else facts
    source = f"uv, for {file.path} on Python {python}"
    planned = [one for one in end if one.source == SOURCE or one.key.startswith(("torch.", "package.torch"))]
    is_new = {one.key for one in planned if one.key not in facts}
    more = [Fact("package." + name, version, source, "stated") for name, version in found.items()] if not torch else []
    unnamed = {f"package.{name}" for name in found.keys() - {pin.name for pin in file.pins}}
    kept = (one.replace(source=source) for one in (*planned, *more) if one.key in is_new or one in more)
    compiled = _list_compiled(rows, python)
    gap = f"no wheel of {' and '.join(compiled)} is for Python {python}: its install compiles it, which may fail"
    more = [Fact("requirements.conflict", None, source, "stated", gap)] if compiled else []
    return [*more, *(one.replace(how="read") if one.key in unnamed else one for one in kept)]


def _list_compiled(rows: Sequence[LockedPackage], python: str) -> list[str]:
    """Return what has wheels for single Pythons, and none for this one."""
    finder = ReleaseFinder(next(one for one in USUAL_PYTHONS if one != python))
    found = ((row, finder(row.name, row.version)) for row in rows if row.built)
    return [f"{row.name} {row.version}" for row, release in found if release and release.has_wheel]


def _default_torch(version: str, facts: Facts) -> str:
    """``2.6.0`` -> ``2.6.0+cu124``: what the default index has of a release for this processor."""
    is_open = version and "+" not in version
    builds = list_torch_builds(version, str(facts.value_if_known("os.arch") or "x86_64")) if is_open else ()
    return next((f"{version}+{one.variant}" for one in builds if one.pypi), version)


def choose_file_contracts(facts: Facts, file: EnvironmentFile, ask_index: bool) -> list[Contract]:
    """Return the contracts of the frameworks that a file names, else that of torch."""
    named = [(contracts.framework_by_name(pin.name), pin) for pin in file.pins]
    versions = {pin.name: str(facts.value_if_known(f"package.{pin.name}") or "") for pin in file.pins}
    chosen = [
        choose_contract_by_index(
            facts, (name, versions[pin.name] or _newest_inside(pin.name, pin.spec), None), (), ask_index
        )
        for name, pin in named
        if contracts.has_contract(name)
    ]
    torch = next((pin for pin in file.pins if pin.name == "torch"), None)
    version = (torch and torch.version) or versions.get("torch", "").partition("+")[0]
    if "python.packages" in facts:
        chosen = [without_unlocked(one, facts) for one in chosen]
    return chosen or [make_torch_contract(version, file.path)]


def without_unlocked(contract: Contract, facts: Facts) -> Contract:
    """Return a contract without its needs of packages that a lock does not have: what releases require is in it."""
    kept = ("package.torch", f"package.{contract.distribution or contract.framework}")
    needs = (n for n in contract.needs if not n.key.startswith("package.") or n.key in kept or n.key in facts)
    return contract.replace(needs=tuple(needs))


def add_ranges(contract: Contract, file: EnvironmentFile) -> Contract:
    """Return a contract with the ranges that a file asks for."""
    says = f"with what {file.path} asks for"
    return contract.replace(
        needs=(*contract.needs, *file.to_needs()), says=f"{contract.says}; {says}" if contract.says else says
    )


def _newest_inside(name: str, specifier: str) -> str | None:
    known = list_torch_releases() if name == "torch" else list_releases(name)
    fitting = (v for v in reversed(known) if not specifier or satisfies_specifier(v, specifier))
    return next(fitting, None)
