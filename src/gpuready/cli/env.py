"""``gpuready env``: the variables that a framework wants, for a shell, a container, a batch script or a service."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, PATIENT, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen


_FLAGS = (
    *PATIENT,
    Flag("--contract", "the variables of this contract", "FILE"),
    Flag("--shell", "for which reader", "SHELL", ("bash", "fish", "json", "docker", "slurm", "systemd")),
    Flag("--role", "the process that they are for, where a framework has several", "ROLE"),
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    *WHAT_IF,
)
COMMANDS = (Command("env", "the variables that a framework wants", _FLAGS + EVERYWHERE, "FRAMEWORK", 1, 1),)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    """Return the text for stdout and exit code 0, even where the user's own values conflict."""
    flags = told.flags
    shell = flags.get("shell", "json" if flags.get("json") else "bash")
    if flags.get("json") and shell != "json":
        raise Usage(f"--json and --shell {shell} do not go together: choose one")
    from gpuready.render import answers, env
    from gpuready.workflow.refusal import Refused
    from gpuready.workflow.setting import env as look

    found = look(
        told.arguments[0],
        **{name: flags.get(name) for name in ("on", "python", "role", "wants", "contract")},
        what_if=what_if(flags),
    )
    if shell == "json":
        return answers.env(found), 0
    try:
        return env.text(found, shell, _command(told)), 0
    except ValueError as bad:
        raise Refused(str(bad)) from None


def _command(told: Told) -> tuple[str, ...]:
    """Return the same command line, for the line that says how to use its output."""
    words = ["gpuready", "env", *told.arguments]
    for name, value in told.flags.items():
        if name not in ("shell", "color", "json"):
            words += [f"--{name}", str(value)]
    if told.flags.get("shell", "bash") != "bash":
        words += ["--shell", told.flags["shell"]]
    return tuple(words)
