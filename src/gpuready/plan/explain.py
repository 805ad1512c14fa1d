"""The reasons for a choice, the versions it decides, and notes on it."""

from __future__ import annotations

from gpuready import contracts, versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import indexes
from gpuready.catalog import packages as catalogue
from gpuready.contracts.want import describe, holds
from gpuready.plan import extensions
from gpuready.plan.ground import pair, shown
from gpuready.planned import Because

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract
    from gpuready.plan.choose import Field
    from gpuready.plan.ground import Ground
    from gpuready.planned import Fallen


def because(field: Field, build: Build, python: str, fell: Sequence[Fallen]) -> tuple[Because, ...]:
    """Return the reasons for the winner, each with its source."""
    found = [_framework(field, fell), _torch(field, build), *_index(field, build, python)]
    found += [*_gpu(field, build), *_driver(field, build), _python(field, build, python)]
    return tuple(found)


def _framework(field: Field, fell: Sequence[Fallen]) -> Because:
    contract = field.contract
    if field.asked.version or field.asked.contract:
        return Because("framework", f"{contract.name}: it was asked for", contract.origin)
    if fell:
        return Because(
            "framework", f"{contract.name}: the newest that fits; {fell[0].choice} does not", fell[0].cite
        )
    return Because("framework", f"{contract.name}: the newest that has a contract", contract.origin)


def _torch(field: Field, build: Build) -> Because:
    asked = field.asked
    if asked.torch and (not asked.why or build.version in asked.why):  # ``why`` may be about Python only
        says = asked.why or "--torch asks for it"
        return Because("torch", f"{build.version}: {says}", "uv" if asked.why else "--torch")
    pins = [n for n in field.contract.wants("package.torch") if n.level == "required" and n.want != "*"]
    held = [n for n in pins if field.ground.applies(n.when, build, "")]
    if not held:
        return Because(
            "torch", f"{build.version}: the newest there is; the contract names none", _cite(build.cite)
        )
    wants = " and ".join(dict.fromkeys(describe(n.want) for n in held))
    exact = held[0].want.startswith("==") and "|" not in held[0].want
    what = "the one that" if exact else "the newest that fits of those that"
    return Because(
        "torch", f"{build.version}: {what} {field.contract.framework} takes ({wants})", held[0].cite
    )


def _index(field: Field, build: Build, python: str) -> list[Because]:
    if build.variant == "cpu":
        return [Because("index", "cpu: there is no GPU to use", field.ground.facts.fact("gpu.count").source)]
    rivals = [i for i, b in enumerate(field.builds) if b.version == build.version and b.pypi and b != build]
    if build.pypi or not rivals:
        word = "what PyPI serves" if build.pypi else f"from the PyTorch index {build.variant}"
        return [Because("index", f"{build.variant}: {word}", _cite(build.cite))]
    default = field.builds[rivals[0]]
    limit = field.first(rivals[0], [python, *field.pythons])
    if limit is not None:
        why = next(w for p in [python, *field.pythons] if (w := limit.fails(default, p)))
        return [Because("index", f"{build.variant}, not PyPI's {default.variant}: {why}", limit.cite)]
    odd = extensions.unfit(field.ground, field.contract, default, python)
    told = ", ".join(f"{name} has wheels for {what} alone" for name, what in odd.items() if "." not in name)
    told = told or ", ".join(f"{name} {what} is recommended" for name, what in odd.items())
    says = f"{build.variant}, not PyPI's {default.variant}: {told or 'its kernels come ready-made'}"
    return [Because("index", says, _package_source(next(iter(odd), "")))]


def _gpu(field: Field, build: Build) -> list[Because]:
    from gpuready.catalog import torch as torches

    found = []
    for capability in dict.fromkeys(map(str, shown(field.ground.facts, "gpu.capability"))):
        why = torches.covers(build.arch, capability, build.cuda)[1]
        found.append(Because("gpu", why, _cite(build.cite)))
    return found


def _driver(field: Field, build: Build) -> list[Because]:
    if not build.cuda:
        return []
    floor, cite = toolkits.driver_floor(build.cuda)
    driver = field.ground.facts.known("driver.version")
    here = f"{driver} is here" if driver else "none is stated" if floor else ""
    return [Because("driver", f"CUDA {build.cuda} starts on driver {floor} and newer; {here}", cite)]


def _python(field: Field, build: Build, python: str) -> Because:
    asked = field.asked
    if asked.python and asked.why:
        return Because("python", f"{python}: {asked.why}", "uv")
    if asked.python:
        return Because("python", f"{python}: {asked.python_source} asks for it", asked.python_source)
    if asked.prefer and versions.minor(asked.prefer) == versions.minor(python):
        return Because("python", f"{python}: it is there already, and everything takes it", "python.version")
    needs = [n for n in field.contract.wants("python.version") if n.level == "required"]
    cite = needs[0].cite if needs else _cite(build.cite)
    takes = f"; {field.contract.framework} takes {describe(needs[0].want)}" if needs else ""
    return Because("python", f"{python}: the newest that torch has had wheels for since long{takes}", cite)


def lesser(field: Field, build: Build, winner: Build, python: str) -> str:
    """Return why a usable build was not chosen."""
    if build.version != winner.version:
        return f"it would do, and is older than {winner.version}"
    odd = extensions.unfit(field.ground, field.contract, build, python)
    if odd and len(odd) > len(extensions.unfit(field.ground, field.contract, winner, python)):
        return "it would do, but not for " + ", ".join(f"{name} ({what})" for name, what in odd.items())
    return (
        "it would do; PyPI's own build goes first" if winner.pypi else "it would do, and is for an older CUDA"
    )


# -- decided versions -----------------------------------------------------------------------------------


def decided(ground: Ground, contract: Contract, build: Build, python: str) -> dict[str, str]:
    """Return every version that the choice fixes, without packages whose name on the index is another project."""
    own = framework_version(contract)
    found = {contract.distribution: own} if contract.distribution and own else {}
    found["torch"] = build.version if build.pypi else f"{build.version}+{build.variant}"
    asked = [n for n in contract.wants("package.*") if n.level == "required"]
    for name in ("torchvision", "torchaudio"):
        if any(n.key == f"package.{name}" and ground.applies(n.when, build, python) for n in asked):
            found |= {name: version} if (version := pair(build, name)) else {}
    for name, (version, when) in extensions.exact(contract).items():
        if ground.applies(when, build, python):
            found.setdefault(name, version)
    return {name: version for name, version in found.items() if not catalogue.lookalike(name)}


def framework_version(contract: Contract) -> str:
    """Return the exact version of the framework if the contract or the catalogue knows it."""
    if contract.version.count(".") >= 2:
        return contract.version
    known = catalogue.framework(contract.distribution or contract.framework)
    rows = (catalogue.package(contract.distribution or contract.framework) or {}).get("version", ())
    every = [*([known["version"]] if known else []), *(row["version"] for row in rows)]
    inside = [v for v in every if contracts.covers(contract.version, v)]
    return str(inside[0]) if inside else ""


def unresolvable(contract: Contract) -> str:
    """Return why this contract cannot be resolved from release indexes; empty if it can."""
    elsewhere = indexes.apart(contract.framework, contract.variant)
    if not elsewhere:
        return ""
    told = [
        note for note in contract.notes if any(name in note.lower() for name in elsewhere) and "index" in note
    ]
    named = ", ".join(f"{name} comes from the index {index}" for name, index in elsewhere.items())
    return f"not resolved here: {told[0] if told else named}"


def notes(field: Field, build: Build, python: str) -> tuple[str, ...]:
    """Return further notes on the winner."""
    found = [field.contract.says] if field.contract.says else []
    for name, what in extensions.unfit(field.ground, field.contract, build, python).items():
        if "." not in name:
            found.append(
                f"the wheels of {name} are for {what} alone: beside this torch its kernels do not load"
                + _instead(field, build, python)
            )
        else:
            found.append(
                f"{field.contract.framework} recommends {name} {describe(what)}, which is not to be had here"
            )
    found += _memory(field)
    if field.ground.cpu:
        found.append("planned for the CPU alone: there is no GPU that it could use")
    if field.ground.facts.known("os.glibc") is None and "os.glibc" not in field.ground.facts:
        found.append(
            "the system is not stated: planned for Linux with glibc 2.28 or newer; --os states another"
        )
    return (*found, *unseen(field.ground))


def _instead(field: Field, build: Build, python: str) -> str:
    """Suggest a build of the same release for which every required package is ready-made, if there is one."""
    for other, with_python in field.open():
        if (
            other.version == build.version
            and with_python == python
            and not extensions.unfit(field.ground, field.contract, other, python)
        ):
            return f"; --torch {other.version}+{other.variant} takes it as it is"
    return ""


def _memory(field: Field) -> list[str]:
    """Return the memory floors for usual jobs that a GPU here does not reach."""
    sizes = [int(size * 16 / 15) for size in shown(field.ground.facts, "gpu.memory")]
    floors = [n for n in field.contract.wants("gpu.memory") if n.level == "required" and not n.when]
    short = [n for n in floors if sizes and not holds(n.want, min(sizes))]
    return [f"{field.contract.framework} asks for GPUs of {describe(n.want)} ({n.cite})" for n in short]


def unseen(ground: Ground) -> tuple[str, ...]:
    """Return the facts that could not be read and were ignored."""
    return tuple(f"not seen, and taken to be in order: {key} ({gap})" for key, gap in ground.unseen.items())


def _cite(source: object) -> str:
    return str(source[0] if isinstance(source, (list, tuple)) and source else source)


def _package_source(name: str) -> str:
    return _cite((catalogue.package(name) or {}).get("source", "")) if name else ""
