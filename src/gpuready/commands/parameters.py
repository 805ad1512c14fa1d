"""Parameters that several commands share, each declared once.

A group is a TypedDict; its annotations carry the Parameters, and are read when a command is declared. So this module,
and every module with such a class, must not import ``annotations`` from ``__future__``.
"""

import os
import re
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Annotated, TypedDict

from gpuready.commands.declaration import Parameter, Request, UsageError, collect_parameters
from gpuready.workflow import machine_facts

PathArgument = str | PathLike[str]
WordList = str | Iterable[str]
PathList = str | PathLike[str] | Sequence[str | PathLike[str]]

FRAMEWORK_HELP = (
    "NAME, NAME==VERSION or NAME==VERSION:VARIANT, such as vllm, transformers==4.57 or roll==0.3.0:torch291-vllm"
)
_WANTS = Parameter(
    "what the job asks for, such as fp8,flash-attn",
    "LIST",
    kind="list",
    mcp=True,
    web="any",
    max_length=60,
    details="What the job asks for, such as bf16, fp8, flash-attn, deepspeed, vllm, qlora.",
)
_CONTRACT_DETAILS = "The path of a TOML file of requirements, to judge by in place of known ones."
FIND_LINKS = Parameter("also use packages from this folder of wheels", "DIR", many=True, path="folder")
ALLOW_BUILD = Parameter("agree that packages without a wheel are built, which runs their code")
USE_PROJECT_CONFIG = Parameter("also use uv's settings of the current folder (uv.toml, pyproject.toml)")
OFFLINE = Parameter("use no index: only the cache and the given folders")
CONFIG_DETAILS = "The path of the job's own configuration (YAML or JSON of a trainer)."
CONFIG = Parameter(
    "the job's own configuration file, which names the framework if you do not",
    "FILE",
    mcp=True,
    path="file",
    details=CONFIG_DETAILS,
)
ON_DETAILS = (
    "The machine to judge: a GPU by name, with a count (h100, h100x8, rtx4090, a100-40gb), or the path of a recording "
    "(FILE.json made by `gpuready probe -o FILE.json`). Leave it out for the machine that this server runs on."
)


def contract_parameter(help: str, mcp: bool = True) -> Parameter:
    return Parameter(help, "FILE", mcp=mcp, path="file", details=_CONTRACT_DETAILS)


class Machine(TypedDict, total=False):
    on: Annotated[
        PathArgument,
        Parameter(
            "a recorded machine (FILE.json) or a name such as h100x8",
            "MACHINE",
            mcp=True,
            web="machine",
            path="machine_name",
            details=ON_DETAILS,
        ),
    ]


class Environment(TypedDict, total=False):
    python: Annotated[
        PathArgument,
        Parameter(
            "the environment to examine: a Python, a venv or a conda prefix",
            "PATH",
            mcp=True,
            path="environment",
            details="The folder of a virtual environment to look at. "
            "Left out: the environment that the server was started for.",
        ),
    ]


class RunPython(TypedDict, total=False):
    """Never for MCP or the web: there, what is marked read-only starts nothing of an environment."""

    run_python: Annotated[
        bool, Parameter("let programs of the environment be started where its files do not tell enough")
    ]


class Wants(TypedDict, total=False):
    wants: Annotated[WordList, _WANTS]


class Strict(TypedDict, total=False):
    strict: Annotated[bool, Parameter("count warnings and open questions (can't tell) as errors", mcp=True, web="any")]


class Job(TypedDict, total=False):
    """The job that a machine is judged for."""

    model: Annotated[
        PathArgument,
        Parameter(
            "the job's model: a size such as 7b, or its config.json", "MODEL", mcp=True, web="size", path="model"
        ),
    ]
    config: Annotated[PathArgument, CONFIG]


class Resolve(TypedDict, total=False):
    """Where packages come from."""

    wants: Annotated[WordList, _WANTS]
    contract: Annotated[PathArgument, contract_parameter("plan by this file of requirements")]
    config: Annotated[PathArgument, CONFIG]
    source: Annotated[
        PathArgument, Parameter("the checkout of a framework that is on no index: a folder or a git address", "DIR|GIT")
    ]
    find_links: Annotated[PathList, FIND_LINKS]
    offline: Annotated[bool, OFFLINE]
    allow_build: Annotated[bool, ALLOW_BUILD]
    use_project_config: Annotated[bool, USE_PROJECT_CONFIG]


class WhatIf(TypedDict, total=False):
    """Values that replace what is seen or recorded of a machine."""

    driver: Annotated[str, Parameter("as if this driver were installed", "VERSION")]
    toolkit: Annotated[str, Parameter("as if this CUDA toolkit were installed", "VERSION")]
    torch: Annotated[
        str, Parameter("as if this torch were installed, such as 2.8.0+cu128", "VERSION", completes=("@torch",))
    ]
    ram: Annotated[str, Parameter("as if the machine had this much memory, such as 512GB", "SIZE")]
    os: Annotated[str, Parameter("as if it ran this operating system, such as ubuntu22.04", "NAME")]
    arch: Annotated[str, Parameter("as if it were x86_64 or aarch64", "ARCH")]
    kernel: Annotated[str, Parameter("as if it ran this kernel", "VERSION")]
    disk: Annotated[str, Parameter("as if this much disk were free", "SIZE")]
    shm: Annotated[str, Parameter("as if /dev/shm had this size", "SIZE")]
    python_version: Annotated[str, Parameter("as if the environment had this Python", "VERSION")]


WHAT_IF = {
    name: one.replace(mcp=True, web="any", max_length=60)
    for name, one in collect_parameters(WhatIf, group="what_if").items()
}
AS_IF = {
    "as": Parameter(
        "as if the machine had these: " + ", ".join(one.query for one in WHAT_IF.values()),
        "NAME=VALUE,...",
        kind="as_if",
        python=False,
    )
}
"""One flag for all of WHAT_IF; the parser makes those of it, so that no command reads it."""
COLOR = {"color": Parameter("colour the answer", "WHEN", ("auto", "always", "never"), python=False)}
COMMON = {"json": Parameter("the same answer as a JSON document", python=False), **COLOR}


def quiet_and_verbose(verbose: str, quiet: str = "one line") -> dict[str, Parameter]:
    return {"quiet": Parameter(quiet, flag="-q", python=False), "verbose": Parameter(verbose, flag="-v", python=False)}


def read_token(request: Request, variable: str) -> str:
    """Return the token of the flag, else of the variable; empty where a new one is to be made."""
    given = request.get_option("token")
    token = (os.environ.get(variable) or None) if given is None else given
    if token is not None and not re.fullmatch(r"[\w.~+/=-]{16,512}", token, re.ASCII):
        name = variable if given is None else "--token"
        raise UsageError(f"{name}: a token has from 16 to 512 letters, digits or any of - _ . ~ + / =")
    return token or ""


def named_frameworks(request: Request) -> list[str]:
    """The frameworks that were named; else the one whose file ``--config`` is."""
    config = request.get_option("config")
    if request.arguments or config is None or any(request.options.get(name) for name in ("contract", "lock", "undo")):
        return list(request.arguments)
    return machine_facts.frameworks_of_file(config)


def frameworks_argument(least: int = 0) -> Parameter:
    return Parameter(
        f"Frameworks: {FRAMEWORK_HELP}.",
        name="frameworks",
        flag="framework",
        many=True,
        least=least,
        most=16,
        mcp=True,
        web="framework",
        max_length=120,
    )


def framework_argument(least: int = 0) -> Parameter:
    return Parameter(
        FRAMEWORK_HELP, name="framework", flag="framework", least=least, mcp=True, web="framework", max_length=120
    )
