"""``gpuready env``: the variables that a framework wants, for a shell, a container, a batch script or a service."""

from __future__ import annotations

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen


_FLAGS = (
    *TARGET_FLAGS,
    Flag("--contract", "the variables of this contract", "FILE"),
    Flag("--shell", "for which reader", "SHELL", ("bash", "fish", "json", "docker", "slurm", "systemd")),
    Flag("--role", "the process that they are for, where a framework has several", "ROLE"),
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    *WHAT_IF_FLAGS,
)
COMMANDS = (CommandSpec("env", "the variables that a framework wants", _FLAGS + COMMON_FLAGS, "FRAMEWORK", 1, 1),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    """Return the text for stdout and exit code 0, even where the user's own values conflict."""
    flags = parsed.flags
    shell = flags.get("shell", "json" if flags.get("json") else "bash")
    if flags.get("json") and shell != "json":
        raise UsageError(f"--json and --shell {shell} do not go together: choose one")
    from gpuready.render import env, json_results
    from gpuready.workflow.env import framework_variables as look
    from gpuready.workflow.refusal import Refused

    settings = look(
        parsed.arguments[0],
        **{name: flags.get(name) for name in ("on", "python", "role", "wants", "contract")},
        what_if=what_if_values(flags),
    )
    if shell == "json":
        return json_results.render_env_json(settings), 0
    try:
        return env.render_env_script(settings, shell, _repeat_command(parsed)), 0
    except ValueError as error:
        raise Refused(str(error)) from None


def _repeat_command(parsed: ParsedCommand) -> tuple[str, ...]:
    """Return the same command line, for the line that says how to use its output."""
    words = ["gpuready", "env", *parsed.arguments]
    for name, value in parsed.flags.items():
        if name not in ("shell", "color", "json"):
            words += [f"--{name}", str(value)]
    if parsed.flags.get("shell", "bash") != "bash":
        words += ["--shell", parsed.flags["shell"]]
    return tuple(words)
