"""The commands that create one generation: shown by a dry run, executed by an install."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

from gpuready.apply import audit
from gpuready.apply.audit import list_site_folders
from gpuready.apply.generation import IN_USE_LOCK
from gpuready.apply.uv import UvSettings
from gpuready.catalog import indexes
from gpuready.catalog.proofs import proofs_for_capability
from gpuready.model import FixStep, Record
from gpuready.model.plan import KernelPlan, LockedPackage, Plan
from gpuready.system import HostAccess, durable_files, file_contents
from gpuready.system.download import quote_path

LOCK_FILE = "requirements.lock"
FOREIGN_LOCK = "resolved by another tool"
"""``Plan.resolved`` for a lock that is a requirements list made by another tool."""

MADE_FOR_KEY, MACHINE_KEY = "gpuready-made-for", "gpuready-machine"
"""The keys of pyvenv.cfg that say what an environment was made for: the CPU, another architecture."""

_HOOK_MODULE = "_gpuready_generation"


class InstallInputs(Record):
    """The inputs of an install."""

    uv: str
    python: str  # an interpreter, or a version for uv to find
    prompt: str
    indexes: tuple[str, ...] = ()  # from the catalogue; addresses with secrets go by the environment
    elsewhere: bool = False  # for another machine
    copies: bool = False  # the user's uv would link to its cache, which may be cleaned at any time
    allow_build: bool = False  # packages without a wheel may be built
    source: str = ""  # the checkout of a framework that is on no index
    source_hash: str = ""
    source_parts: tuple[str, ...] = ()  # packages inside the checkout that its requirements name
    foreign: str = ""  # the architecture it is for, where this machine has another and can start nothing of it


def plan_identity(plan: Plan, source_hash: str = "") -> str:
    """Return the first letters of a hash over everything that decides an environment's contents."""
    rows = sorted([row.name, row.version, sorted(row.hashes), row.origin] for row in plan.lock)
    built = [[k.package, k.version, k.how, k.arch_list] for k in kernels_to_build(plan)]
    text = json.dumps([plan.python, rows, built, *([source_hash] if source_hash else [])], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:12]


def format_lock_requirements(rows: Sequence[LockedPackage]) -> str:
    """Format rows as uv and pip read them: exact, each with its hashes."""
    lines = []
    for row in sorted(rows, key=lambda row: row.name):
        pin = f"{row.name} @ {_file_address(row.origin)}" if row.origin else f"{row.name}=={row.version}"
        lines.append(" \\\n    ".join([pin, *(f"--hash={digest}" for digest in row.hashes)]))
    return "\n".join(lines) + "\n"


def _file_address(origin: str) -> str:
    return origin if "://" in origin else f"file://{quote_path(origin)}"


def kernels_to_build(plan: Plan) -> list[KernelPlan]:
    """List compiled packages that are not in the lock: they are built, or fetched by their own address."""
    locked = {row.name for row in plan.lock}
    compiled = [k for k in plan.kernels if k.how in ("build", "release")]
    return [
        k for k in compiled if k.package not in locked or any("--reinstall-package" in step.run for step in k.steps)
    ]


def foreign_architecture(plan: Plan, machine: str) -> str:
    """Return the architecture of a plan where this machine has another; ValueError for another system than Linux."""
    target, _, system = plan.platform.partition("-")
    if target not in ("x86_64", "aarch64") or not machine or target == machine:
        return ""
    if "manylinux" not in system:
        raise ValueError(
            f"the plan is for {target} and this machine is {machine}: install it there, or plan a --bundle"
        )
    return target


def list_install_steps(plan: Plan, generation: str, inputs: InstallInputs) -> list[FixStep]:
    """List the commands to run, in order."""
    python = f"{generation}/bin/python"
    steps = [
        FixStep("make the environment", _venv_command(generation, inputs), "safe"),
        FixStep(
            f"install {_format_package_count(len(plan.lock))}, each by its hash",
            _install_command(plan, generation, python, inputs),
            "safe",
        ),
    ]
    if inputs.source:
        words = (inputs.uv, "pip", "install", "--python", python, "--no-deps", inputs.source, *inputs.source_parts)
        parts = [f" and its {part.removeprefix(inputs.source).strip('/')}" for part in inputs.source_parts]
        steps.append(FixStep(f"install the checkout {inputs.source}{''.join(parts)}", words, "safe"))
    for kernel in kernels_to_build(plan):
        steps += [_kernel_step(step, python, inputs, plan.platform) for step in kernel.steps if step.run]
    return steps


def _format_package_count(packages: int) -> str:
    return "1 package" if packages == 1 else f"{packages} packages"


def _venv_command(generation: str, inputs: InstallInputs) -> tuple[str, ...]:
    words = (inputs.uv, "venv", "--relocatable", "--no-project", "--prompt", inputs.prompt)
    return (*words, "--python", inputs.python, generation)


def _install_command(plan: Plan, generation: str, python: str, inputs: InstallInputs) -> tuple[str, ...]:
    words = [inputs.uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes"]
    for address in inputs.indexes:
        words += ["--index", address]
    # Every file is pinned by its hash, so the index it comes from does not matter.
    words += ["--index-strategy", "unsafe-best-match"]
    if not inputs.allow_build:
        words += ["--only-binary", ":all:"]  # a build would run the package's code without consent
    if inputs.elsewhere and plan.platform:
        words += ["--python-platform", plan.platform]
    words += ["--link-mode", "copy"] if inputs.copies else []
    return (*words, "-r", f"{generation}/{LOCK_FILE}")


def _kernel_step(step: FixStep, python: str, inputs: InstallInputs, platform: str) -> FixStep:
    """Adapt a step to our uv and the new environment. It must not install another torch."""
    variables, words = split_env_command(step.run)
    at = words.index("install") + 1 if "install" in words else len(words)
    alone = ["--no-deps"] if "--no-build-isolation" in words or any("://" in word for word in words) else []
    alone += ["--python-platform", platform] if inputs.foreign else []
    assignments = [f"{name}={value}" for name, value in variables.items()]
    env = ["env", *assignments] if assignments else []
    return step.replace(run=(*env, inputs.uv, *words[1:at], "--python", python, *alone, *words[at:]))


def split_env_command(run: Sequence[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Split ``env NAME=VALUE … program …`` into the variables and the command."""
    words = list(run[1:] if run[:1] == ("env",) else run)
    variables: dict[str, str | None] = {}
    while words and "=" in words[0] and "/" not in words[0].partition("=")[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, tuple(words)


def pending_manual_step(kernel: KernelPlan) -> str:
    """Return what a person has to do before a kernel can be built; empty if nothing."""
    return next((step.does for step in kernel.steps if not step.run), "")


def extra_index_environment(settings: UvSettings, plan: Plan) -> dict[str, str | None]:
    """Return UV_INDEX with those of the user's extra indexes that a row of the lock comes from.

    They may contain a password, and one that is not needed may be unreachable without harm. A foreign lock does not
    say where its rows come from, so it gets all of them.
    """
    numbers = {row.index[4:] for row in plan.lock if row.index.startswith("pip-")}
    resolved = plan.resolved == "resolved"
    extra = [address for at, address in enumerate(settings.extra) if not resolved or str(at) in numbers]
    return {"UV_INDEX": " ".join(extra)} if extra and "UV_INDEX" not in settings.env else {}


def list_entry_modules(plan: Plan) -> list[str]:
    """Return the modules that the framework's own command starts from; for the CPU without those that need a GPU."""
    rows = proofs_for_capability("entry-point", plan.framework)
    return [module for row in rows if row.device == "any" or not is_for_cpu(plan) for module in row.arguments]


def list_index_urls(plan: Plan) -> tuple[str, ...]:
    """Return the index URLs of a lock's rows, other than the default index and the user's own."""
    known = set(indexes.list_indexes()) - {indexes.DEFAULT_INDEX}
    names = dict.fromkeys(row.index for row in plan.lock if row.index)
    return tuple(indexes.index_url(name) for name in names if name in known)


def describe_builds(plan: Plan) -> str:
    """Name the packages of a lock that are built from their sources; empty if there are none."""
    built = ", ".join(f"{row.name} {row.version}" for row in plan.lock if row.built)
    where = f"no wheel for Python {plan.python} on this platform"
    return built and f"{where}: {built}; an install builds from source, which runs the code of these packages"


def is_for_cpu(plan: Plan) -> bool:
    """Whether the plan took the CPU build of torch."""
    return bool(plan.torch) and not plan.cuda and "+rocm" not in plan.torch


def note_purpose(generation: str, plan: Plan, foreign: str) -> None:
    """Say in pyvenv.cfg what the environment was made for: a check of one for the CPU asks for no GPU."""
    lines = [f"{MADE_FOR_KEY} = cpu\n"] if is_for_cpu(plan) else []
    lines += [f"{MACHINE_KEY} = {foreign}\n"] if foreign else []
    path = f"{generation}/pyvenv.cfg"
    text = (file_contents.read_text_file(path) or "").rstrip("\n")
    if lines:
        durable_files.replace_file(path, f"{text}\n{''.join(lines)}")


def own_interpreter(host: HostAccess, generation: str) -> None:
    """Give a new environment a Python file of its own: uv remembers an interpreter by the file that its path leads to.

    A Python that does not start from another folder, since it looks for its libraries beside itself, stays a link.
    """
    path, config = f"{generation}/bin/python", f"{generation}/pyvenv.cfg"
    base = file_contents.resolve_real_path(path)
    text = (file_contents.read_text_file(config) or "").rstrip("\n")
    durable_files.copy_program(base, path)
    if host.run((path, "-I", "-c", ""), deadline=60.0).rc != 0:
        durable_files.replace_link(path, base)
        return
    durable_files.replace_file(config, f"{text}\n{audit.BASE_PYTHON_KEY} = {base}\n")


def write_generation_hook(generation: str) -> None:
    """Write the startup hook, and make activate scripts lead to the home, not to one generation."""
    source = file_contents.read_text_file(__file__.replace("install_steps.py", "generation_hook.py")) or ""
    words = f"{_package_folder()!r}, {audit.describe_interpreter(generation)['path']!r}"
    start = f"import {_HOOK_MODULE}; {_HOOK_MODULE}.begin({words})\n"
    for site in list_site_folders(generation):
        at = f"{generation}/{site}"
        durable_files.replace_file(f"{at}/{_HOOK_MODULE}.py", source)
        # First, so that other .pth files see the generation, and last, for the paths they added.
        durable_files.replace_file(f"{at}/_0_gpuready.pth", start)
        durable_files.replace_file(f"{at}/~gpuready.pth", start)
    durable_files.replace_file(f"{generation}/{IN_USE_LOCK}", "")
    for name in ("activate", "activate.fish"):
        path = f"{generation}/bin/{name}"
        text = file_contents.read_text_file(path)
        if text is not None:
            durable_files.replace_file(path, text.replace("realpath -- ", "realpath -s -- "))


def _package_folder() -> str:
    """Return the folder that has the package gpuready."""
    return __file__.removesuffix("/gpuready/apply/install_steps.py")
