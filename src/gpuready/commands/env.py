"""``gpuready env``: the variables that a framework wants, for a shell, a container, a batch script or a service."""

from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.result import Result
from gpuready.commands.suggestions import option_words
from gpuready.render import env as render
from gpuready.render import json_results
from gpuready.workflow.env import framework_variables

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Wanted(TypedDict, total=False):
    contract: Annotated[shared.PathArgument, shared.contract_parameter("the variables of this file of requirements")]
    shell: Annotated[
        str,
        Parameter(
            "the output format",
            "SHELL",
            ("bash", "fish", "json", "docker", "slurm", "systemd"),
            mcp=True,
            default="bash",
        ),
    ]
    allow_variable: Annotated[
        shared.WordList,
        Parameter("let that file set this variable, though it may load code or redirect", "NAME", many=True),
    ]
    role: Annotated[
        str,
        Parameter(
            "the process to set them for, if a framework has several", "ROLE", mcp=True, web="any", max_length=60
        ),
    ]


class EnvOptions(
    shared.Machine, shared.Environment, shared.RunPython, _Wanted, shared.Wants, shared.WhatIf, total=False
):
    """Keywords of env()."""


def run(request: Request) -> Result:
    """Return the variables with exit code 0, even where the user's own values conflict."""
    shell = request.get_option("shell", "json" if request.has_switch("json") else "bash")
    if request.has_switch("json") and shell != "json":
        raise UsageError(f"--json and --shell {shell} cannot be combined: choose one")
    options = request.pick_options("on", "python", "role", "wants", "contract")
    options["allow_variable"] = request.get_option("allow_variable", ())
    settings = framework_variables(
        request.first_argument, **options, what_if=request.what_if, run_python=request.has_switch("run_python")
    )

    def render_script() -> str:
        if shell == "json":
            return json_results.render_json("env", settings)
        try:
            return render.render_env_script(settings, shell, _repeat_command(request, shell))
        except ValueError as error:
            raise UsageError(str(error)) from None

    return Result(settings, json_results.renderer("env"), lambda settings, screen: render_script())


def _repeat_command(request: Request, shell: str) -> tuple[str, ...]:
    """Return the same command line, for the line that says how to use its output."""
    asked = [name for name in request.options if name not in ("shell", "color", "json")]
    words = ("gpuready", "env", *request.arguments, *option_words(request, asked))
    return (*words, "--shell", shell) if shell != "bash" else words


ENV = Command(
    "env",
    "the environment variables that a framework needs",
    run,
    collect_parameters(EnvOptions, shared.WHAT_IF, shared.AS_IF, shared.COMMON),
    "FRAMEWORK",
    1,
    1,
    argument=shared.framework_argument(1),
    examples=("vllm", "deepspeed --shell slurm --on h100x8", "axolotl --wants flash-attn --shell docker"),
)
COMMANDS = (ENV,)


def env(framework: str, **options: "Unpack[EnvOptions]") -> Result:
    """Return the variables that a framework wants; ``shell`` is the output format (bash, fish, docker, slurm, systemd)."""
    return call_command(ENV, [framework], options)
