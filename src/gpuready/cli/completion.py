"""``gpuready completion``: completion scripts for shells, generated from the command table."""

from __future__ import annotations

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.render.layout import Screen

SHELLS = ("bash", "zsh", "fish")
_LIST_FLAG = Flag(
    "--list",
    "only the names of a kind, one on each line; the scripts ask for them when they are needed",
    "KIND",
    ("frameworks", "gpus", "models", "codes", "torch", "proofs"),
)
COMMANDS = (
    CommandSpec(
        "completion",
        "a script that makes bash, zsh or fish complete these commands",
        (_LIST_FLAG, *COMMON_FLAGS),
        "bash|zsh|fish",
        0,
        1,
    ),
)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    kind, shells = parsed.flags.get("list"), parsed.arguments
    if bool(kind) == bool(shells) or (shells and shells[0] not in SHELLS):
        raise UsageError(f"gpuready completion takes {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, or --list KIND")
    if parsed.flags.get("json") and not kind:
        raise UsageError("a script for a shell is no JSON: leave out --json")
    if kind:
        from gpuready.render import json_results
        from gpuready.workflow.completion_names import list_completion_names

        name_list = list_completion_names(kind)
        text = (
            json_results.render_names_json(kind, name_list)
            if parsed.flags.get("json")
            else "".join(f"{n}\n" for n in name_list)
        )
        return text, 0
    from gpuready.cli import parser
    from gpuready.render import completion

    return completion.completion_script(
        shells[0], [_completion_entry(one) for one in parser.load_all_commands().values()]
    ), 0


def _completion_entry(command: CommandSpec) -> dict[str, object]:
    flags = [*command.flags, Flag("--help", "this command's help")]
    return {
        "name": command.name,
        "says": command.says,
        "arguments": _completion_kinds(command.arguments) if command.most else (),
        "flags": [
            {"name": f.name, "says": f.says, "bare": f.bare, "many": f.many, "choices": f.choices}
            | {"takes": f.takes, "kinds": _completion_kinds(f.takes, f.name)}
            for f in flags
        ],
    }


_KINDS_BY_WORD = {
    "CAPABILITY": ("@proofs",),
    "FRAMEWORK": ("@frameworks",),
    "MACHINE": ("@gpus", "@files"),
    "MODEL": ("@models", "@files"),
    "CODE": ("@codes",),
    "bash": SHELLS,
    "A B": ("@frameworks", "@files"),
    "LOG": ("@files",),
    "PAGE": ("@files",),
    "DIR": ("@folders",),
    "FILE": ("@files",),
    "PATH": ("@files",),
}
_KINDS_BY_FLAG = {"--torch": ("@torch",), "--ignore": ("@codes",)}


def _completion_kinds(takes: str, flag: str = "") -> tuple[str, ...]:
    """Return what completes a value: ``@KIND`` for names of a kind, files or folders; other words literally."""
    if flag in _KINDS_BY_FLAG:
        return _KINDS_BY_FLAG[flag]
    if (flag, takes) == ("--on", "NAME"):
        return "@gpus", "@files"
    return next((kinds for word, kinds in _KINDS_BY_WORD.items() if word in takes), ())
