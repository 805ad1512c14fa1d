"""Pinned requirements of a plan: hashes, indexes and install commands, shared by the file formats."""

from __future__ import annotations

from gpuready.render.files import quoting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.model import Step
    from gpuready.planned import Kernel, Locked, Plan

HASHED = "--require-hashes"
MIXED = ("--index-strategy", "unsafe-best-match")
"""uv takes a package from the first index that has it; with every file pinned by hash, any index may provide it."""

FOLDER = "find-links"
"""The index name a lock uses for a folder of wheels."""


def is_resolved(plan: Plan) -> bool:
    return bool(plan.lock) and plan.resolved in ("", "resolved")


def unresolved(plan: Plan) -> str:
    """Why there is no resolution, as the plan states it."""
    said = plan.resolved if plan.resolved not in ("", "resolved") else "not resolved here"
    return said if said.startswith("not resolved") else f"not resolved here: {said}"


def from_indexes(plan: Plan) -> list[Locked]:
    """Locked packages from an index, sorted by name, without compiled kernels."""
    apart = set(compiled(plan))
    mine = (one for one in plan.lock if not one.origin and one.name not in apart)
    return sorted(mine, key=lambda one: one.name)


def from_elsewhere(plan: Plan) -> list[Locked]:
    """Locked packages from a folder or a URL of their own."""
    return sorted((one for one in plan.lock if one.origin), key=lambda one: one.name)


def requirement(one: Locked) -> str:
    return f"{one.name}=={one.version}"


def hashed(one: Locked) -> list[str]:
    digests = [f"    --hash={digest}" for digest in sorted(one.hashes)]
    return [part + (" \\" if i < len(digests) else "") for i, part in enumerate([requirement(one), *digests])]


def chosen(plan: Plan) -> dict[str, str]:
    """Requirements of an unresolved plan by package: what its steps install."""
    asked = {word.partition("==")[0]: word for step in plan.steps for word in _asked(step)}
    asked = asked or {name: f"{name}=={version}" for name, version in plan.packages.items()}
    if plan.torch:
        asked["torch"] = f"torch=={_public(plan, plan.torch)}"
    return {name: asked[name] for name in sorted(asked) if name not in compiled(plan)}


def _asked(step: Step) -> list[str]:
    """The exact requirements in a plain ``uv pip install`` step."""
    plain = step.run[:3] == ("uv", "pip", "install") and "--no-build-isolation" not in step.run
    return [word for word in step.run if plain and "==" in word]


def compiled(plan: Plan) -> dict[str, Kernel]:
    """Kernels that no index has prebuilt: installed last, by their own steps."""
    return {kernel.package: kernel for kernel in plan.kernels if kernel.how in ("build", "release")}


def compilations(plan: Plan) -> list[tuple[str, ...]]:
    """The commands that install those kernels against the installed torch."""
    found: list[tuple[str, ...]] = []
    for kernel in compiled(plan).values():
        own = [step.run for step in kernel.steps if step.run and step.safety != "manual"]
        found += own or [_compilation(kernel)]
    return found


def _compilation(kernel: Kernel) -> tuple[str, ...]:
    settings = [f"TORCH_CUDA_ARCH_LIST={kernel.arch_list}"] if kernel.arch_list else []
    settings += [f"MAX_JOBS={kernel.max_jobs}"] if kernel.max_jobs > 0 else []
    named = f"{kernel.package}=={kernel.version}"
    install = ("uv", "pip", "install", "--no-build-isolation", "--no-deps", named)
    return ("env", *settings, *install) if settings else install


def into(words: tuple[str, ...], python: str) -> str:
    """Rewrite an install command for bash to use one Python; ``python`` is inserted unquoted."""
    if "pip" not in words or "install" not in words:
        return quoting.words(words)
    at = words.index("install") + 1
    rest = list(words[at:])
    if "--python" in rest:
        place = rest.index("--python")
        del rest[place : place + 2]
    start = words[:at] if "uv" in words[:at] else (*words[: at - 2], "uv", *words[at - 2 : at])
    return " ".join(part for part in (quoting.words(start), "--python", python, quoting.words(rest)) if part)


def _public(plan: Plan, version: str) -> str:
    """The version as its index has it: builds on PyPI have no local part."""
    return version.partition("+")[0] if plan.index in ("", "pypi") else version


def wanted(plan: Plan) -> dict[str, str]:
    """All requirements from indexes, resolved or not."""
    if is_resolved(plan):
        return {one.name: requirement(one) for one in from_indexes(plan)}
    return chosen(plan)


def index_of(plan: Plan, name: str) -> str:
    """The index a package is pinned to; empty means the default one."""
    locked = next((one for one in plan.lock if one.name == name), None)
    if locked is not None and locked.index != FOLDER:
        return "" if locked.index == "pypi" else locked.index
    # A folder of wheels exists only on the planning machine; the same build is on torch's own index.
    version = locked.version if locked else plan.packages.get(name, plan.torch if name == "torch" else "")
    return plan.index if "+" in version and plan.index not in ("", "pypi") else ""


def indexes(plan: Plan) -> dict[str, str]:
    """URLs of the indexes besides the default one that packages of this plan come from."""
    used = {index_of(plan, name) for name in wanted(plan)} - {""}
    return {name: plan.indexes[name] for name in sorted(used) if name in plan.indexes}


def without_address(plan: Plan) -> list[str]:
    """Indexes whose URL the plan does not have: a file can only name them."""
    used = {index_of(plan, name) for name in wanted(plan)} - {""}
    return sorted(used - set(plan.indexes))


def default_index(plan: Plan) -> str:
    """The default index, where it is not PyPI."""
    return plan.indexes.get("pypi", "")


def head(plan: Plan, what: str, how: str = "") -> list[str]:
    """The first lines of every file: what it is, the plan, and whether it is resolved."""
    name = f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")
    where = f" on {plan.machine}" if plan.machine else ""
    lines = quoting.wrapped(f"{what} for {name}{where}" + (f": {how}" if how else "."))
    stack = [f"Python {plan.python}" if plan.python else "", f"torch {plan.torch}" if plan.torch else ""]
    stack += [
        f"CUDA {plan.cuda}" if plan.cuda else "",
        f"catalogue of {plan.catalog}" if plan.catalog else "",
    ]
    lines += quoting.wrapped("Made by `gpuready plan`: " + ", ".join(part for part in stack if part) + ".")
    if not is_resolved(plan):
        lines += quoting.wrapped(
            f"UNRESOLVED: {unresolved(plan)}. Versions that are not named here are the installer's choice, "
            "and no hash is checked."
        )
    lay = [one.name for one in plan.lock if one.index == FOLDER]
    if lay:
        lines += quoting.wrapped(
            f"Planned from a folder of wheels: {', '.join(lay)}. Where no index has that file, add "
            "--find-links FOLDER."
        )
    return lines


def installing(plan: Plan) -> tuple[str, ...]:
    """Flags for a file with hashes: several indexes are safe, since hashes identify the files."""
    if indexes(plan):
        return (HASHED, *MIXED)
    return (HASHED, *_backend(plan))


def _backend(plan: Plan) -> tuple[str, ...]:
    """uv knows the URL of a PyTorch index that the plan only names."""
    return ("--torch-backend", plan.index) if plan.index in without_address(plan) else ()


def listed(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
