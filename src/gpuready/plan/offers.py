"""Turn the fix steps of a finding into changes of the facts."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import torch as torches
from gpuready.catalog.packages import lookalike, split
from gpuready.model import Step
from gpuready.plan import change as changing
from gpuready.plan.change import Change
from gpuready.plan.versioning import in_force, required, requirement, satisfying, version_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from gpuready.model import Contract, Facts, Finding

ELSEWHERE = (
    "use gpus of", "use a machine", "run on a machine", "use more gpus", "choose another variant",
    "give each framework", "run each framework", "use a container or a distribution", "give vllm an environment",
    "use wsl", "or give vllm",
)  # fmt: skip
"""Beginnings of steps that lead to another machine, framework or environment: they fix nothing here."""

VALUED = ("--python", "--torch-backend", "--index-url", "--extra-index-url", "--index", "-r", "-f", "-e")
HARDWARE = ("gpu.capability", "gpu.name", "gpu.memory", "gpu.count", "gpu.pci_count", "gpu.vendor", "os.arch",
            "memory.total", "platform.name")  # fmt: skip
FIXED = (*HARDWARE, "os.", "python.version", "job.", "package.", "torch.")
"""Facts that no manual step changes: the hardware, and facts with change kinds of their own."""


INSTEAD = ("CAP", "MEM")
"""Rule families whose steps name an alternative for the job."""


def offers(finding: Finding, facts: Facts, contract: Contract) -> list[Change]:
    """List the changes that may clear a finding, predictable ones first."""
    found: list[Change] = []
    for step in finding.fix:
        if not is_elsewhere(step):
            found += _read(step, finding, facts, contract)
    found += _unset(finding, facts)
    found += _forgotten(finding, facts)
    found += _by_hand(finding, facts)
    return list({_key(change): change for change in reversed(found)}.values())[::-1]


def _key(change: Change) -> tuple[Any, ...]:
    return change.acts, change.trusts


def is_elsewhere(step: Step) -> bool:
    """Whether a step means another machine or other hardware."""
    does = step.does.lower()
    return does.startswith(ELSEWHERE) or (does.startswith("bring ") and any(key in does for key in HARDWARE))


def _read(step: Step, finding: Finding, facts: Facts, contract: Contract) -> Iterator[Change]:
    run = step.run
    if run[:3] == ("uv", "pip", "install"):
        yield from _installed(step, finding, facts, contract)
    elif run[:2] == ("pip", "install"):
        yield from _its_own_way(step, finding, facts, contract)
    elif run[:3] == ("uv", "pip", "uninstall"):
        names = _positional(run[3:])
        acts = tuple(("package", name, None) for name in names)
        yield Change(step, changing.REMOVAL * len(names), acts, finding.code)
    elif run[:2] == ("uv", "venv") and "--python" in run:
        yield _fresh(run[run.index("--python") + 1], finding, facts, contract)
    elif run[:2] == ("rm", "--"):
        acts = tuple(("unlock", path, None) for path in run[2:])
        yield Change(step, changing.VARIABLE, acts, finding.code)
    else:
        yield from _variables(step, finding)


def _its_own_way(step: Step, finding: Finding, facts: Facts, contract: Contract) -> Iterator[Change]:
    """Install as the framework documents it: its requirements file, or its checkout."""
    path = facts.known("python.path")
    where = ("--python", str(path)) if path else ()
    mine = step.but(run=("uv", "pip", "install", *where, *step.run[2:]), note=step.note or "in its checkout")
    if "-r" in step.run:
        named = {"torch"} - required(contract, facts)
        acts = [*_brought(facts, contract, named), *_torch_of(facts, contract)]
    else:
        acts = [("package", contract.distribution or contract.framework, contract.version)]
    if acts:
        yield Change(mine, changing.PACKAGE, tuple(acts), finding.code)


def _torch_of(facts: Facts, contract: Contract) -> list[tuple[Any, ...]]:
    """Return the torch that a requirements file pins, if it is not installed."""
    version = version_for("torch", "", facts, contract) if "torch" in required(contract, facts) else None
    installed = str(facts.known("package.torch") or "").partition("+")[0]
    return _build(version, None, facts) if version and version.partition("+")[0] != installed else []


def _positional(words: Iterable[str]) -> list[str]:
    left, skip = [], False
    for word in words:
        if not skip and not word.startswith("-"):
            left.append(word)
        skip = not skip and word in VALUED
    return left


def _installed(step: Step, finding: Finding, facts: Facts, contract: Contract) -> Iterator[Change]:
    """Yield what ``uv pip install`` would change: packages, the torch build, and the framework's dependencies."""
    run = step.run
    backend = run[run.index("--torch-backend") + 1] if "--torch-backend" in run else None
    acts: list[tuple[Any, ...]] = []
    words: dict[str, list[str]] = {}
    for word in _positional(run[3:]):
        name, spec = split(word)
        if other := lookalike(name):
            yield _the_real(name, str(other["wanted"]), finding, contract)
            return
        mine = _one(word, name, spec, backend, "--reinstall" in run, facts, contract)
        if mine is None:
            return
        acts += mine[0]
        words[word] = mine[1]
    named = {name for _, name, _ in acts}
    if contract.distribution in named:
        acts += _brought(facts, contract, named)
    rewritten = [new for word in run for new in words.get(word, [word])]
    cost = sum(changing.TORCH if name == "torch" else changing.PACKAGE for name in map(_bare, words))
    yield Change(step.but(run=tuple(dict.fromkeys(rewritten))), cost, tuple(acts), finding.code)


def _the_real(name: str, wanted: str, finding: Finding, contract: Contract) -> Change:
    """A package whose name on the index is another project: it needs a manual install."""
    step = Step(f"install {name} from its own sources: {wanted}", (), "manual", note="no index has it")
    version = contract.version if name == contract.distribution else "1.0"
    return Change(step, changing.SYSTEM, (("package", name, version),), finding.code)


def _bare(word: str) -> str:
    return split(word)[0]


def _one(
    word: str, name: str, spec: str, backend: str | None, anew: bool, facts: Facts, contract: Contract
) -> tuple[list[tuple[Any, ...]], list[str]] | None:
    """Return what one requirement changes, and the exact requirement words; None if it cannot be predicted."""
    installed = facts.known(f"package.{name}")
    if anew and installed:
        broken = [("fact", "torch.broken", None)] if name == "torch" else []
        return [("package", name, str(installed)), *broken], [word]
    bare = spec.partition("]")[2] if spec.startswith("[") else spec
    version = version_for(name, bare, facts, contract)
    if version is None:
        return None
    if name == "torch":
        return _with_companions(version, backend, facts)
    exact = word if "[" in spec else requirement(name, bare, version, facts, contract)
    return [("package", name, version)], [exact]


def _with_companions(
    version: str, backend: str | None, facts: Facts
) -> tuple[list[tuple[Any, ...]], list[str]] | None:
    """Return a torch build with its local version, since another build of the release would satisfy the plain one,
    and the torchvision and torchaudio of the same build if they are installed.
    """
    found = _build(version, backend, facts)
    if not found:
        return None
    _, public, variant = found[0]
    words = [f"torch=={public}+{variant}"]
    for name in ("torchvision", "torchaudio"):
        pair = str((torches.release(public) or {}).get(name) or "")
        if facts.known(f"package.{name}") and versions.plain(pair) is not None:
            found.append(("package", name, pair))
            words.append(f"{name}=={pair}" + (f"+{variant}" if _is_built(name, pair, variant) else ""))
    return found, words


def _is_built(name: str, pair: str, variant: str) -> bool:
    """Whether there is such a build: torchaudio ends with torch 2.11, and has the builds of its own version."""
    return name != "torchaudio" or any(build.variant == variant for build in torches.builds(pair))


def _build(version: str, backend: str | None, facts: Facts) -> list[tuple[Any, ...]]:
    public, variant = torches.parse(version)
    machine = facts.known("os.arch") or "x86_64"
    build = torches.build(public, backend or variant, machine)
    return [("torch", public, build.variant)] if build is not None else []


def _brought(facts: Facts, contract: Contract, named: set[str]) -> list[tuple[Any, ...]]:
    """Return the dependencies that installing the framework adds. torch is left out, since the default build
    may not run here.
    """
    brought = []
    for name in sorted(required(contract, facts) - {"torch"}):
        installed = facts.known(f"package.{name}")
        pins = [need.want for need in in_force(contract, facts, f"package.{name}")]
        fits = installed is not None and all(versions.satisfies(str(installed), pin) for pin in pins)
        version = None if fits or name in named else version_for(name, "", facts, contract)
        brought += [("package", name, version)] if version else []
    return brought


def _fresh(python: str, finding: Finding, facts: Facts, contract: Contract) -> Change:
    """A new environment with a plan of its own: findings about the present packages end with it."""
    folder = f".venv-{python}"
    step = Step(
        f"make a new environment with Python {python} and install {contract.framework} there",
        ("gpuready", "install", contract.framework, "-e", folder, "--python-version", python),
        "ask",
        note="the present one stays; the new one has a plan of its own",
    )
    return Change(step, changing.ENVIRONMENT, (("python", python, None),), finding.code, ("*packages",))


def _variables(step: Step, finding: Finding) -> Iterator[Change]:
    """Yield the variables that the text of a step sets or unsets."""
    import re

    pairs = re.findall(r"\b([A-Z][A-Z0-9_]{2,})=([^\s]+)", step.does)
    values = {name: value.rstrip(",.;") for name, value in pairs}
    for names, value in re.findall(r"\bset ([A-Z][A-Z0-9_]+(?: and [A-Z][A-Z0-9_]+)*) to (\S+)", step.does):
        bare = value.rstrip(",.;")
        if bare not in ("a", "the", "it", "its"):
            values |= dict.fromkeys(names.split(" and "), bare)
    swapped = re.search(r"\bset ([A-Z][A-Z0-9_]+) instead of ([A-Z][A-Z0-9_]+)", step.does)
    values = {name: value for name, value in values.items() if "…" not in value and value}
    if swapped:
        yield from _swapped(swapped[1], swapped[2], finding)
    if values:
        acts = tuple(("set", name, value) for name, value in values.items())
        said = " and ".join(f"{name}={value}" for name, value in values.items())
        yield _in_shell(f"set {said}", acts, finding, step.does)
    gone = re.search(r"\bunset ((?:[A-Z][A-Z0-9_]+)(?:(?:,| and|) [A-Z][A-Z0-9_]+)*)", step.does)
    if gone:
        names = re.findall(r"[A-Z][A-Z0-9_]+", gone[1])
        yield _in_shell(
            f"unset {' '.join(names)}", tuple(("unset", n, None) for n in names), finding, step.does
        )


def _swapped(right: str, wrong: str, finding: Finding) -> Iterator[Change]:
    value = next((str(f.value) for f in finding.found if f.key == f"env.{wrong}"), None)
    if value:
        acts = (("set", right, value), ("unset", wrong, None))
        yield _in_shell(f"set {right}={value} and unset {wrong}", acts, finding)


def _in_shell(does: str, acts: tuple[Any, ...], finding: Finding, note: str = "") -> Change:
    where = "in the shell that starts the job"
    return Change(Step(does, (), "safe", note=where), changing.VARIABLE * len(acts), acts, finding.code)


def _unset(finding: Finding, facts: Facts) -> Iterator[Change]:
    """Yield changes that unset the variables in the evidence: each one, and all of them."""
    names = [f.key[4:] for f in finding.found if f.key.startswith("env.") and f.key != "env.names"]
    there = [name for name in names if facts.known(f"env.{name}") is not None]
    for some in dict.fromkeys([*((name,) for name in there), tuple(there)]):
        if some:
            acts = tuple(("unset", name, None) for name in some)
            # Costs one more, so that setting it correctly is preferred to unsetting it.
            one = _in_shell(f"unset {' '.join(some)}", acts, finding)
            yield one.but(cost=one.cost + 1)


def _forgotten(finding: Finding, facts: Facts) -> Iterator[Change]:
    """Yield the job without one of its wants, or with the alternative that the rule names."""
    own = next((step for step in finding.fix if not step.run and not is_elsewhere(step)), None)
    instead = finding.code.startswith(INSTEAD) and own is not None
    for word in facts.known("job.wants") or ():
        does = f"take {word} out of what the job asks for"
        step = Step(own.does if instead and own else does, (), "manual", note=f"{word}, in the job")
        cost = changing.INSTEAD if instead else changing.JOB
        yield Change(step, cost, (("forget", word, None),), finding.code)


def _by_hand(finding: Finding, facts: Facts) -> Iterator[Change]:
    """Yield manual steps: with what the finding needs as their effect, else assumed to work."""
    # The effect of CUDA_VISIBLE_DEVICES is predictable, so such a step is never just assumed to work.
    own = [step for step in finding.fix if "CUDA_VISIBLE_DEVICES" not in step.does]
    steps = [step for step in own if not step.run and not is_elsewhere(step)]
    manual = next((step for step in steps if step.note), steps[0] if steps else None)
    if manual is None:
        return
    step = _driver(manual, finding, facts)
    acts = []
    for key in dict.fromkeys(need.key for need in finding.needs):
        value = None if key.startswith(FIXED) else satisfying(finding.needs, key, facts.known(key))
        acts += [("fact", key, value)] if value is not None else []
    if acts:
        yield Change(step, changing.SYSTEM, tuple(acts), finding.code)
    yield Change(step, changing.TRUST, (), finding.code, (finding.code,))


def _driver(step: Step, finding: Finding, facts: Facts) -> Step:
    """Add the install command of this system to a driver step, if the system is known."""
    floor = next((need.want for need in finding.needs if need.key == "driver.version"), "")
    branch = floor.lstrip("<>=~! ").partition(".")[0]
    plain = facts.known("os.name") == "ubuntu" and facts.known("os.container") in (None, "none")
    if (
        not branch.isdecimal()
        or not floor.startswith(">")
        or not plain
        or not step.does.startswith("install")
    ):
        return step.but(safety="manual")
    return step.but(safety="manual", run=("sudo", "apt-get", "install", f"nvidia-driver-{branch}"))
