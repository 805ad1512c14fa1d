"""The commands that create one generation: shown by a dry run, executed by an install."""

from __future__ import annotations

from gpuready.apply.audit import sites
from gpuready.apply.generation import IN_USE
from gpuready.model import Noun, Step
from gpuready.system import contents, durable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.apply.uv import Settings
    from gpuready.planned import Kernel, Locked, Plan

LOCK = "requirements.lock"
FOREIGN = "resolved by another tool"
"""``Plan.resolved`` for a lock that is a requirements list made by another tool."""

SMOKE_DEADLINE = 300.0
_RESIDENT = "_gpuready_generation"


class Ingredients(Noun):
    """The inputs of an install."""

    uv: str
    python: str  # an interpreter, or a version for uv to find
    prompt: str
    indexes: tuple[
        str, ...
    ] = ()  # from the catalogue; addresses with secrets go by the environment
    elsewhere: bool = False  # for another machine
    copies: bool = False  # the user's uv would link to its cache, which may be cleaned at any time


def identity(plan: Plan) -> str:
    """Return the first letters of a hash over everything that decides an environment's contents."""
    import json
    from hashlib import sha256

    rows = sorted([row.name, row.version, sorted(row.hashes), row.origin] for row in plan.lock)
    built = [[k.package, k.version, k.how, k.arch_list] for k in kernels(plan)]
    text = json.dumps([plan.python, rows, built], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:12]


def lock_text(rows: Sequence[Locked]) -> str:
    """Format rows as uv and pip read them: exact, each with its hashes."""
    lines = []
    for row in sorted(rows, key=lambda row: row.name):
        what = f"{row.name} @ {_address(row.origin)}" if row.origin else f"{row.name}=={row.version}"
        lines.append(" \\\n    ".join([what, *(f"--hash={told}" for told in row.hashes)]))
    return "\n".join(lines) + "\n"


def _address(origin: str) -> str:
    if "://" in origin:
        return origin
    plain = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-._~+"
    return "file://" + "".join(chr(b) if b in plain else f"%{b:02X}" for b in origin.encode())


def kernels(plan: Plan) -> list[Kernel]:
    """List compiled packages that are not in the lock: they are built, or fetched by their own address."""
    locked = {row.name for row in plan.lock}
    compiled = [k for k in plan.kernels if k.how in ("build", "release")]
    return [k for k in compiled if k.package not in locked or _replaces(k)]


def _replaces(kernel: Kernel) -> bool:
    """Whether it is compiled over an index wheel that does not work here."""
    return any("--reinstall-package" in step.run for step in kernel.steps)


def steps(plan: Plan, generation: str, use: Ingredients) -> list[Step]:
    """List the commands to run, in order."""
    python = f"{generation}/bin/python"
    made = [
        Step("make the environment", _venv(generation, use), "safe"),
        Step(
            f"install {_counted(len(plan.lock))}, each by its hash",
            _packages(plan, generation, python, use),
            "safe",
        ),
    ]
    for kernel in kernels(plan):
        made += [_kernel(step, python, use) for step in kernel.steps if step.run]
    return made


def _counted(packages: int) -> str:
    return "1 package" if packages == 1 else f"{packages} packages"


def _venv(generation: str, use: Ingredients) -> tuple[str, ...]:
    words = (use.uv, "venv", "--relocatable", "--no-project", "--prompt", use.prompt)
    return (*words, "--python", use.python, generation)


def _packages(plan: Plan, generation: str, python: str, use: Ingredients) -> tuple[str, ...]:
    words = [use.uv, "pip", "install", "--python", python, "--no-deps", "--require-hashes"]
    for address in use.indexes:
        words += ["--index", address]
    # Every file is pinned by its hash, so the index it comes from does not matter.
    words += ["--index-strategy", "unsafe-best-match"]
    if plan.resolved == FOREIGN:
        words += ["--only-binary", ":all:"]  # a build would run the package's code without consent
    if use.elsewhere and plan.platform:
        words += ["--python-platform", plan.platform]
    words += ["--link-mode", "copy"] if use.copies else []
    return (*words, "-r", f"{generation}/{LOCK}")


def _kernel(step: Step, python: str, use: Ingredients) -> Step:
    """Adapt a step to our uv and the new environment. It must not install another torch."""
    variables, words = parted(step.run)
    at = words.index("install") + 1 if "install" in words else len(words)
    alone = ["--no-deps"] if "--no-build-isolation" in words or any("://" in word for word in words) else []
    named = [f"{name}={value}" for name, value in variables.items()]
    env = ["env", *named] if named else []
    return step.but(run=(*env, use.uv, *words[1:at], "--python", python, *alone, *words[at:]))


def parted(run: Sequence[str]) -> tuple[dict[str, str | None], tuple[str, ...]]:
    """Split ``env NAME=VALUE … program …`` into the variables and the command."""
    words = list(run[1:] if run[:1] == ("env",) else run)
    variables: dict[str, str | None] = {}
    while words and "=" in words[0] and "/" not in words[0].partition("=")[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return variables, tuple(words)


def ready(kernel: Kernel) -> str:
    """Return what a person has to do before a kernel can be built; empty if nothing."""
    return next((step.does for step in kernel.steps if not step.run), "")


def settings_for(made: Settings, plan: Plan) -> dict[str, str | None]:
    """Return UV_INDEX with those of the user's extra indexes that a row of the lock comes from.

    They may contain a password, and one that is not needed may be unreachable without harm. A foreign lock does not
    say where its rows come from, so it gets all of them.
    """
    numbers = {row.index[4:] for row in plan.lock if row.index.startswith("pip-")}
    told = plan.resolved == "resolved"
    extra = [address for at, address in enumerate(made.extra) if not told or str(at) in numbers]
    return {"UV_INDEX": " ".join(extra)} if extra and "UV_INDEX" not in made.env else {}


def smoke(plan: Plan, modules: Sequence[str], python: str) -> tuple[str, ...]:
    """Return the command that imports what was installed, by its own Python in isolation."""
    return (python, "-I", "-c", f"import {', '.join(modules)}")


def settle(generation: str) -> None:
    """Write the startup hook, and make activate scripts lead to the home, not to one generation."""
    source = contents.text(__file__.replace("build.py", "resident.py")) or ""
    for site in sites(generation):
        at = f"{generation}/{site}"
        durable.write(f"{at}/{_RESIDENT}.py", source)
        # First, so that other .pth files see the generation, and last, for the paths they added.
        durable.write(f"{at}/_0_gpuready.pth", f"import {_RESIDENT}; {_RESIDENT}.begin()\n")
        durable.write(f"{at}/~gpuready.pth", f"import {_RESIDENT}; {_RESIDENT}.begin()\n")
    durable.write(f"{generation}/{IN_USE}", "")
    for name in ("activate", "activate.fish"):
        path = f"{generation}/bin/{name}"
        text = contents.text(path)
        if text is not None:
            durable.write(path, text.replace("realpath -- ", "realpath -s -- "))
