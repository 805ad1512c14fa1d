"""``gpuready completion``: completion scripts for shells, generated from the declarations of the commands."""

from __future__ import annotations

from gpuready.commands import COMMAND_ALIASES, load_all_commands
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.render import completion, json_results
from gpuready.workflow.catalog_lists import list_completion_names

SHELLS = ("bash", "zsh", "fish")
_LIST = Parameter(
    "only the names of a kind, one on each line; the scripts ask for them when they are needed",
    "KIND",
    ("frameworks", "gpus", "models", "codes", "torch", "proofs"),
)


def run(request: Request) -> Result:
    kind, shells = request.get_option("list"), request.arguments
    if bool(kind) == bool(shells) or (shells and shells[0] not in SHELLS):
        raise UsageError(f"gpuready completion takes {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, or --list KIND")
    if request.has_switch("json") and not kind:
        raise UsageError("a script for a shell is no JSON: leave out --json")
    if kind:
        names = list_completion_names(kind)
        return Result(
            names,
            lambda names: json_results.render_names_json(kind, names),
            lambda names, screen: "".join(f"{name}\n" for name in names),
        )
    commands = load_all_commands()
    commands |= {word: commands[name].replace(name=word) for word, name in COMMAND_ALIASES.items()}
    entries = [_completion_entry(command) for command in commands.values()]
    return Result.from_text(completion.completion_script(shells[0], entries))


def _completion_entry(command: Command) -> dict[str, object]:
    return {
        "name": command.name,
        "help": command.help,
        "arguments": _completion_kinds(command.arguments) if command.most else (),
        "flags": [
            {"name": one.flag, "help": one.help, "bare": one.bare, "many": one.many, "choices": one.choices}
            | {"metavar": one.metavar, "kinds": one.completes or _completion_kinds(one.metavar)}
            for one in [*command.flags, Parameter("this command's help", flag="--help")]
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


def _completion_kinds(metavar: str) -> tuple[str, ...]:
    """Return what completes a value: ``@KIND`` for names of a kind, files or folders; other words literally."""
    return next((kinds for word, kinds in _KINDS_BY_WORD.items() if word in metavar), ())


def list_argument_names(arguments: str) -> tuple[str, list[str]]:
    """Return the kind of names that arguments take (frameworks or models), and every name; for the help."""
    kind = "frameworks" if "FRAMEWORK" in arguments else "models" if "MODEL" in arguments else ""
    return kind, list_completion_names(kind) if kind else []


COMMANDS = (
    Command(
        "completion",
        "print a completion script for bash, zsh or fish",
        run,
        collect_parameters({"list": _LIST}, COMMON),
        "bash|zsh|fish",
        0,
        1,
        examples=("bash", "--list gpus", "--list models --json"),
    ),
)
