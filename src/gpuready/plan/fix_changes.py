"""Turn the fix steps of a finding into changes of the facts."""

import re
from collections.abc import Iterator
from typing import Any

from gpuready.catalog import torch as torches
from gpuready.catalog.cuda import needs_open_modules
from gpuready.catalog.packages import find_lookalike, list_positional_words, split_requirement
from gpuready.catalog.systems import driver_command
from gpuready.model import Contract, Facts, Finding, FixStep, versions
from gpuready.model.facts import HARDWARE_FACTS
from gpuready.plan import change as changing
from gpuready.plan.change import FixChange
from gpuready.plan.requirements import (
    make_satisfying_value,
    newest_allowed_version,
    pinned_requirement,
    required_needs,
    required_package_names,
)

FIXED_FACTS = (*HARDWARE_FACTS, "os.", "python.version", "job.", "package.", "torch.", "requirements.")
"""Facts that no manual step changes: the hardware, and facts with change kinds of their own."""


JOB_CHANGE_FAMILIES = ("CAP", "MEM")
"""Rule families whose steps name an alternative for the job."""


def list_fix_changes(finding: Finding, facts: Facts, contract: Contract) -> list[FixChange]:
    """List the changes that may clear a finding, predictable ones first."""
    changes: list[FixChange] = []
    for step in finding.fix:
        if step.safety != "elsewhere":
            changes += _read_step(step, finding, facts, contract)
    changes += _unset_changes(finding, facts)
    changes += _job_changes(finding, facts)
    changes += _manual_changes(finding, facts)
    return list({(change.acts, change.trusts): change for change in reversed(changes)}.values())[::-1]


def _read_step(step: FixStep, finding: Finding, facts: Facts, contract: Contract) -> Iterator[FixChange]:
    run = step.run
    if run[:3] == ("uv", "pip", "install"):
        yield from _read_uv_install(step, finding, facts, contract)
    elif run[:2] == ("pip", "install"):
        yield from _read_framework_install(step, finding, facts, contract)
    elif run[:3] == ("uv", "pip", "uninstall"):
        names = list_positional_words(run[3:])
        acts = tuple(("package", name, None) for name in names)
        yield FixChange(step, changing.REMOVAL_COST * len(names), acts, finding.code)
    elif run[:2] == ("uv", "venv") and "--python" in run:
        yield _new_environment_change(run[run.index("--python") + 1], finding, facts, contract)
    elif run[:2] == ("rm", "--"):
        acts = tuple(("delete", path, None) for path in run[2:])
        yield FixChange(step, changing.VARIABLE_COST, acts, finding.code)
    else:
        yield from _variable_changes(step, finding)


def _read_framework_install(step: FixStep, finding: Finding, facts: Facts, contract: Contract) -> Iterator[FixChange]:
    """Install as the framework documents it: its requirements file, or its checkout."""
    path = facts.value_if_known("python.path")
    where = ("--python", str(path)) if path else ()
    mine = step.replace(run=("uv", "pip", "install", *where, *step.run[2:]), note=step.note or "in its checkout")
    if "-r" in step.run:
        named = {"torch"} - required_package_names(contract, facts)
        acts = [*_dependency_actions(facts, contract, named), *_pinned_torch_action(facts, contract)]
    else:
        acts = [("package", contract.distribution or contract.framework, contract.version)]
    if acts:
        yield FixChange(mine, changing.PACKAGE_COST, tuple(acts), finding.code)


def _pinned_torch_action(facts: Facts, contract: Contract) -> list[tuple[Any, ...]]:
    """Return the torch that a requirements file pins, if it is not installed."""
    version = (
        newest_allowed_version("torch", "", facts, contract)
        if "torch" in required_package_names(contract, facts)
        else None
    )
    installed = str(facts.value_if_known("package.torch") or "").partition("+")[0]
    return _torch_build_action(version, None, facts) if version and version.partition("+")[0] != installed else []


def _read_uv_install(step: FixStep, finding: Finding, facts: Facts, contract: Contract) -> Iterator[FixChange]:
    """Yield what ``uv pip install`` would change: packages, the torch build, and the framework's dependencies."""
    run = step.run
    backend = run[run.index("--torch-backend") + 1] if "--torch-backend" in run else None
    acts: list[tuple[Any, ...]] = []
    words: dict[str, list[str]] = {}
    for word in list_positional_words(run[3:]):
        name, spec = split_requirement(word)
        if other := find_lookalike(name):
            yield _install_from_sources(name, str(other["wanted"]), finding, contract)
            return
        mine = _read_requirement(word, name, spec, backend, "--reinstall" in run, facts, contract)
        if mine is None:
            return
        acts += mine[0]
        words[word] = mine[1]
    named = {name for _, name, _ in acts}
    if contract.distribution in named:
        acts += _dependency_actions(facts, contract, named)
    rewritten = [new for word in run for new in words.get(word, [word])]
    cost = sum(
        changing.TORCH_COST if name == "torch" else changing.PACKAGE_COST for name in map(_requirement_name, words)
    )
    yield FixChange(step.replace(run=tuple(dict.fromkeys(rewritten))), cost, tuple(acts), finding.code)


def _install_from_sources(name: str, wanted: str, finding: Finding, contract: Contract) -> FixChange:
    """A package whose name on the index is another project: it needs a manual install."""
    step = FixStep(f"install {name} from its own sources: {wanted}", (), "manual", note="no index has it")
    version = contract.version if name == contract.distribution else "1.0"
    return FixChange(step, changing.SYSTEM_COST, (("package", name, version),), finding.code)


def _requirement_name(word: str) -> str:
    return split_requirement(word)[0]


def _read_requirement(
    word: str, name: str, spec: str, backend: str | None, reinstall: bool, facts: Facts, contract: Contract
) -> tuple[list[tuple[Any, ...]], list[str]] | None:
    """Return what one requirement changes, and the exact requirement words; None if it cannot be predicted."""
    installed = facts.value_if_known(f"package.{name}")
    if reinstall and installed:
        broken = [("fact", "torch.broken", None)] if name == "torch" else []
        return [("package", name, str(installed)), *broken], [word]
    bare = spec.partition("]")[2] if spec.startswith("[") else spec
    version = newest_allowed_version(name, bare, facts, contract)
    if version is None:
        return None
    if name == "torch":
        return _torch_with_companions(version, backend, facts)
    exact = word if "[" in spec else pinned_requirement(name, bare, version, facts, contract)
    return [("package", name, version)], [exact]


def _torch_with_companions(
    version: str, backend: str | None, facts: Facts
) -> tuple[list[tuple[Any, ...]], list[str]] | None:
    """Return a torch build with its local version, since another build of the release would satisfy the plain one,
    and the torchvision and torchaudio of the same build if they are installed.
    """
    actions = _torch_build_action(version, backend, facts)
    if not actions:
        return None
    _, public, variant = actions[0]
    words = [f"torch=={public}+{variant}"]
    for name in ("torchvision", "torchaudio"):
        companion = str((torches.find_torch_release(public) or {}).get(name) or "")
        if facts.value_if_known(f"package.{name}") and versions.parse_plain_release(companion) is not None:
            actions.append(("package", name, companion))
            words.append(
                f"{name}=={companion}" + (f"+{variant}" if _is_build_published(name, companion, variant) else "")
            )
    return actions, words


def _is_build_published(name: str, pair: str, variant: str) -> bool:
    """Whether there is such a build: torchaudio ends with torch 2.11, and has the builds of its own version."""
    return name != "torchaudio" or any(build.variant == variant for build in torches.list_torch_builds(pair))


def _torch_build_action(version: str, backend: str | None, facts: Facts) -> list[tuple[Any, ...]]:
    public, variant = torches.parse_torch_version(version)
    if backend == "cpu":
        return [("torch", public, "cpu")]
    machine = facts.value_if_known("os.arch") or "x86_64"
    build = torches.find_torch_build(public, backend or variant, machine)
    return [("torch", public, build.variant)] if build is not None else []


def _dependency_actions(facts: Facts, contract: Contract, named: set[str]) -> list[tuple[Any, ...]]:
    """Return the dependencies that installing the framework adds. torch is left out, since the default build
    may not run here.
    """
    brought = []
    for name in sorted(required_package_names(contract, facts) - {"torch"}):
        installed = facts.value_if_known(f"package.{name}")
        pins = [need.want for need in required_needs(contract, facts, f"package.{name}")]
        fits = installed is not None and all(versions.satisfies_specifier(str(installed), pin) for pin in pins)
        version = None if fits or name in named else newest_allowed_version(name, "", facts, contract)
        brought += [("package", name, version)] if version else []
    return brought


def _new_environment_change(python: str, finding: Finding, facts: Facts, contract: Contract) -> FixChange:
    """A new environment with a plan of its own: findings about the present packages end with it."""
    folder = f".venv-{python}"
    wants = ",".join(facts.value_if_known("job.wants") or ())
    step = FixStep(
        f"make a new environment with Python {python} and install {contract.framework} there",
        ("gpuready", "install", contract.framework, "-e", folder, "--python-version", python)
        + (("--wants", wants) if wants else ()),
        "ask",
        note="the present one stays; the new one has a plan of its own",
    )
    return FixChange(step, changing.ENVIRONMENT_COST, (("python", python, None),), finding.code, ("*packages",))


def _variable_changes(step: FixStep, finding: Finding) -> Iterator[FixChange]:
    """Yield the variables that the text of a step sets or unsets."""
    pairs = re.findall(r"\b([A-Z][A-Z0-9_]{2,})=([^\s]+)", step.does)
    values = {name: value.rstrip(",.;") for name, value in pairs}
    for names, value in re.findall(r"\bset ([A-Z][A-Z0-9_]+(?: and [A-Z][A-Z0-9_]+)*) to (\S+)", step.does):
        bare = value.rstrip(",.;")
        if bare not in ("a", "the", "it", "its"):
            values |= dict.fromkeys(names.split(" and "), bare)
    swap = re.search(r"\bset ([A-Z][A-Z0-9_]+) instead of ([A-Z][A-Z0-9_]+)", step.does)
    values = {name: value for name, value in values.items() if "…" not in value and value}
    if swap:
        yield from _swap_variable_change(swap[1], swap[2], finding)
    if values:
        acts = tuple(("set", name, value) for name, value in values.items())
        assignments = " and ".join(f"{name}={value}" for name, value in values.items())
        yield _shell_change(f"set {assignments}", acts, finding, step.does)
    unset_match = re.search(r"\bunset ((?:[A-Z][A-Z0-9_]+)(?:(?:,| and|) [A-Z][A-Z0-9_]+)*)", step.does)
    if unset_match:
        names = re.findall(r"[A-Z][A-Z0-9_]+", unset_match[1])
        yield _shell_change(f"unset {' '.join(names)}", tuple(("unset", n, None) for n in names), finding, step.does)


def _swap_variable_change(right: str, wrong: str, finding: Finding) -> Iterator[FixChange]:
    value = next((str(f.value) for f in finding.found if f.key == f"env.{wrong}"), None)
    if value:
        acts = (("set", right, value), ("unset", wrong, None))
        yield _shell_change(f"set {right}={value} and unset {wrong}", acts, finding)


def _shell_change(does: str, acts: tuple[Any, ...], finding: Finding, note: str = "") -> FixChange:
    where = "in the shell that starts the job"
    return FixChange(FixStep(does, (), "safe", note=where), changing.VARIABLE_COST * len(acts), acts, finding.code)


def _unset_changes(finding: Finding, facts: Facts) -> Iterator[FixChange]:
    """Yield changes that unset the variables in the evidence: each one, and all of them."""
    names = [f.key[4:] for f in finding.found if f.key.startswith("env.") and f.key != "env.names"]
    there = [name for name in names if facts.value_if_known(f"env.{name}") is not None]
    for some in dict.fromkeys([*((name,) for name in there), tuple(there)]):
        if some:
            acts = tuple(("unset", name, None) for name in some)
            # Costs one more, so that setting it correctly is preferred to unsetting it.
            one = _shell_change(f"unset {' '.join(some)}", acts, finding)
            yield one.replace(cost=one.cost + 1)


def _job_changes(finding: Finding, facts: Facts) -> Iterator[FixChange]:
    """Yield the job without one of its wants, or with the alternative that the rule names."""
    own = next((step for step in finding.fix if not step.run and step.safety != "elsewhere"), None)
    instead = finding.code.startswith(JOB_CHANGE_FAMILIES) and own is not None
    for word in facts.value_if_known("job.wants") or ():
        does = f"take {word} out of what the job asks for"
        step = FixStep(own.does if instead and own else does, (), "manual", note=f"{word}, in the job")
        cost = changing.JOB_CHANGE_COST if instead else changing.JOB_DROP_COST
        yield FixChange(step, cost, (("forget", word, None),), finding.code)


def _manual_changes(finding: Finding, facts: Facts) -> Iterator[FixChange]:
    """Yield manual steps: with what the finding needs as their effect, else assumed to work."""
    # The effect of CUDA_VISIBLE_DEVICES is predictable, so such a step is never just assumed to work.
    own = [step for step in finding.fix if "CUDA_VISIBLE_DEVICES" not in step.does]
    steps = [step for step in own if not step.run and step.safety != "elsewhere"]
    manual = next((step for step in steps if step.note), steps[0] if steps else None)
    if manual is None:
        return
    step = _add_driver_command(manual, finding, facts)
    acts = []
    for key in dict.fromkeys(need.key for need in finding.needs):
        value = (
            None
            if key.startswith(FIXED_FACTS)
            else make_satisfying_value(finding.needs, key, facts.value_if_known(key))
        )
        acts += [("fact", key, value)] if value is not None else []
    if acts:
        yield FixChange(step, changing.SYSTEM_COST, tuple(acts), finding.code)
    yield FixChange(step, changing.TRUST_COST, (), finding.code, (finding.code,))


def _add_driver_command(step: FixStep, finding: Finding, facts: Facts) -> FixStep:
    """Add the command that installs a driver to the step of a finding that needs a newer one; a container has no driver."""
    floor = next((need.want for need in finding.needs if need.key == "driver.version"), "")
    branch = floor.lstrip("<>=~! ").partition(".")[0]
    is_host = facts.value_if_known("os.container") in (None, "none")
    if not branch.isdecimal() or not floor.startswith(">") or not is_host:
        return step.replace(safety="manual")
    name, release = (str(facts.value_if_known(key) or "") for key in ("os.name", "os.version"))
    run, packages = driver_command(name, release, branch, _needs_open_modules(facts))
    note = step.note or (f"from {packages}" if packages else "")
    return step.replace(safety="manual", run=run, note=note)


def _needs_open_modules(facts: Facts) -> bool:
    capabilities, names = (tuple(facts.value_if_known(key) or ()) for key in ("gpu.capability", "gpu.name"))
    names += ("",) * len(capabilities)
    return any(needs_open_modules(str(one), str(name)) for one, name in zip(capabilities, names, strict=False) if one)
