"""Pinned requirements of a plan: hashes, indexes and install commands, shared by the file formats."""

import shlex
from collections.abc import Iterable

from gpuready.model import FixStep
from gpuready.model.plan import NOT_RESOLVED, KernelPlan, LockedPackage, Plan
from gpuready.render.files import quoting

REQUIRE_HASHES_FLAG = "--require-hashes"
MIXED_INDEX_FLAGS = ("--index-strategy", "unsafe-best-match")
"""uv takes a package from the first index that has it; with every file pinned by hash, any index may provide it."""

HASH_FILE = "requirements.gpuready.txt"
"""The file with hashes that a Dockerfile and a compose file copy into the image."""

FIND_LINKS_INDEX = "find-links"
"""The index name a lock uses for a folder of wheels."""


def is_resolved(plan: Plan) -> bool:
    return bool(plan.lock) and plan.resolved in ("", "resolved")


def unresolved_reason(plan: Plan) -> str:
    """Why there is no resolution, as the plan states it."""
    why = plan.why_unresolved
    return f"{NOT_RESOLVED}: {why}" if why else NOT_RESOLVED


def packages_from_indexes(plan: Plan) -> list[LockedPackage]:
    """Locked packages from an index, sorted by name, without compiled kernels."""
    compiled_names = set(compiled_kernels(plan))
    mine = (one for one in plan.lock if not one.origin and one.name not in compiled_names)
    return sorted(mine, key=lambda one: one.name)


def packages_outside_indexes(plan: Plan) -> list[LockedPackage]:
    """Locked packages from a folder or a URL of their own."""
    return sorted((one for one in plan.lock if one.origin), key=lambda one: one.name)


def format_requirement_pin(one: LockedPackage) -> str:
    return f"{one.name}=={one.version}"


def hashed_requirement_lines(one: LockedPackage) -> list[str]:
    digests = [f"    --hash={digest}" for digest in sorted(one.hashes)]
    return [
        part + (" \\" if i < len(digests) else "") for i, part in enumerate([format_requirement_pin(one), *digests])
    ]


def chosen_requirements(plan: Plan) -> dict[str, str]:
    """Requirements of an unresolved plan by package: what its steps install."""
    requirements = {word.partition("==")[0]: word for step in plan.steps for word in _step_requirements(step)}
    requirements = requirements or {name: f"{name}=={version}" for name, version in plan.packages.items()}
    if plan.torch:
        requirements["torch"] = f"torch=={_index_version(plan, plan.torch)}"
    return {name: requirements[name] for name in sorted(requirements) if name not in compiled_kernels(plan)}


def _step_requirements(step: FixStep) -> list[str]:
    """The exact requirements in a plain ``uv pip install`` step."""
    plain = step.run[:3] == ("uv", "pip", "install") and "--no-build-isolation" not in step.run
    return [word for word in step.run if plain and "==" in word]


def compiled_kernels(plan: Plan) -> dict[str, KernelPlan]:
    """Kernels that no index has prebuilt: installed last, by their own steps."""
    return {kernel.package: kernel for kernel in plan.kernels if kernel.how in ("build", "release")}


def kernel_build_commands(plan: Plan) -> list[tuple[str, ...]]:
    """The commands that install those kernels against the installed torch."""
    commands: list[tuple[str, ...]] = []
    for kernel in compiled_kernels(plan).values():
        kernel_commands = [step.run for step in kernel.steps if step.run and step.safety != "manual"]
        commands += kernel_commands or [_kernel_build_command(kernel)]
    return commands


def _kernel_build_command(kernel: KernelPlan) -> tuple[str, ...]:
    settings = [f"TORCH_CUDA_ARCH_LIST={kernel.arch_list}"] if kernel.arch_list else []
    settings += [f"MAX_JOBS={kernel.max_jobs}"] if kernel.max_jobs > 0 else []
    pin = f"{kernel.package}=={kernel.version}"
    install = ("uv", "pip", "install", "--no-build-isolation", "--no-deps", pin)
    return ("env", *settings, *install) if settings else install


def retarget_install_command(words: tuple[str, ...], python: str) -> str:
    """Rewrite an install command for bash to use one Python; ``python`` is inserted unquoted."""
    if "pip" not in words or "install" not in words:
        return shlex.join(words)
    at = words.index("install") + 1
    rest = list(words[at:])
    if "--python" in rest:
        place = rest.index("--python")
        del rest[place : place + 2]
    start = words[:at] if "uv" in words[:at] else (*words[: at - 2], "uv", *words[at - 2 : at])
    return " ".join(part for part in (shlex.join(start), "--python", python, shlex.join(rest)) if part)


def _index_version(plan: Plan, version: str) -> str:
    """The version as its index has it: builds on PyPI have no local part."""
    return version.partition("+")[0] if plan.index in ("", "pypi") else version


def requirements_by_package(plan: Plan) -> dict[str, str]:
    """All requirements from indexes, resolved or not."""
    if is_resolved(plan):
        return {one.name: format_requirement_pin(one) for one in packages_from_indexes(plan)}
    return chosen_requirements(plan)


def find_package_index(plan: Plan, name: str) -> str:
    """The index a package is pinned to; empty means the default one."""
    locked = next((one for one in plan.lock if one.name == name), None)
    if locked is not None and locked.index != FIND_LINKS_INDEX:
        return "" if locked.index == "pypi" or locked.index.startswith("own:") else locked.index
    # A folder of wheels exists only on the planning machine; the same build is on torch's own index.
    version = locked.version if locked else plan.packages.get(name, plan.torch if name == "torch" else "")
    return plan.index if "+" in version and plan.index not in ("", "pypi") else ""


def extra_index_urls(plan: Plan) -> dict[str, str]:
    """URLs of the indexes besides the default one that packages of this plan come from."""
    used = {find_package_index(plan, name) for name in requirements_by_package(plan)} - {""}
    return {name: plan.indexes[name] for name in sorted(used) if name in plan.indexes}


def indexes_without_url(plan: Plan) -> list[str]:
    """Indexes whose URL the plan does not have: a file can only name them."""
    used = {find_package_index(plan, name) for name in requirements_by_package(plan)} - {""}
    return sorted(used - set(plan.indexes))


def default_index_url(plan: Plan) -> str:
    """The default index, where it is not PyPI."""
    return plan.indexes.get("pypi", "")


def index_options(plan: Plan) -> list[str]:
    """The indexes as pip's options."""
    own = [f"--index-url {plan.indexes['pypi']}"] if default_index_url(plan) else []
    return own + [f"--extra-index-url {address}" for address in extra_index_urls(plan).values()]


def header_comment(plan: Plan, what: str, how: str = "") -> list[str]:
    """The first lines of every file: what it is, the plan, and whether it is resolved."""
    name = f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")
    where = f" on {plan.machine}" if plan.machine else ""
    lines = quoting.wrap_comment(f"{what} for {name}{where}" + (f": {how}" if how else "."))
    stack = [f"Python {plan.python}" if plan.python else "", f"torch {plan.torch}" if plan.torch else ""]
    stack += [f"CUDA {plan.cuda}" if plan.cuda else "", f"catalogue of {plan.catalog}" if plan.catalog else ""]
    lines += quoting.wrap_comment("Made by `gpuready plan`: " + ", ".join(part for part in stack if part) + ".")
    lines += quoting.wrap_comment(f"Planned {plan.contract_note}.") if plan.contract_note else []
    if not is_resolved(plan):
        lines += quoting.wrap_comment(
            f"UNRESOLVED: {unresolved_reason(plan)}. Versions that are not named here are the installer's choice, "
            "and no hash is checked."
        )
    from_folder = [one.name for one in plan.lock if one.index == FIND_LINKS_INDEX]
    if from_folder:
        lines += quoting.wrap_comment(
            f"Planned from a folder of wheels: {', '.join(from_folder)}. Where no index has that file, add "
            "--find-links FOLDER."
        )
    return lines


def hashed_install_flags(plan: Plan) -> tuple[str, ...]:
    """Flags for a file with hashes: several indexes are safe, since hashes identify the files."""
    if extra_index_urls(plan):
        return (REQUIRE_HASHES_FLAG, *MIXED_INDEX_FLAGS)
    return (REQUIRE_HASHES_FLAG, *_torch_backend_flag(plan))


def _torch_backend_flag(plan: Plan) -> tuple[str, ...]:
    """uv knows the URL of a PyTorch index that the plan only names."""
    return ("--torch-backend", plan.index) if plan.index in indexes_without_url(plan) else ()


def join_lines(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
