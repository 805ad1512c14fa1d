"""``gpuready completion``: scripts for shells, and what may follow the words of a command line, by the declarations of the commands."""

from collections.abc import Iterable, Sequence

from gpuready.commands import COMMAND_ALIASES, COMMAND_MODULES, load_all_commands, load_command
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, collect_parameters
from gpuready.commands.parameters import COMMON
from gpuready.commands.result import Result
from gpuready.render import completion, json_results
from gpuready.workflow.catalog_lists import NAME_KINDS, list_completion_names

SHELLS = tuple(completion.SCRIPTS)
_LIST = Parameter("only the names of a kind, one on each line", "KIND", NAME_KINDS)
_WORDS = Parameter("what may follow the words behind --, of which the last begins with a dot; for the scripts")
_HELP = Parameter("this command's help", flag="--help")


def run(request: Request) -> Result:
    kind, arguments = request.get_option("list"), request.arguments
    if request.has_switch("words") and arguments:
        return Result.from_text("".join("\t".join(filter(None, row)) + "\n" for row in complete_words(arguments)))
    if bool(kind) == bool(arguments) or (arguments and (arguments[0] not in SHELLS or arguments[1:])):
        raise UsageError(f"gpuready completion takes {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, or --list KIND")
    if request.has_switch("json") and not kind:
        raise UsageError("a script for a shell is no JSON: leave out --json")
    if not kind:
        return Result.from_text(completion.SCRIPTS[arguments[0]])
    return Result(
        list_completion_names(kind),
        lambda names: json_results.render_json("names", kind, names),
        lambda names, screen: "".join(f"{name}\n" for name in names),
    )


def complete_words(words: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Return what may stand in the place of the last word, each with its help; ``@files`` and ``@folders`` for paths."""
    *before, current = [*words[:-1], words[-1][1:]]
    first = COMMAND_ALIASES.get(before[0], before[0]) if before else ""
    if not before:
        commands = load_all_commands()
        heads = {name.partition(" ")[0]: one.help for name, one in commands.items()}
        return (heads | {word: commands[name].help for word, name in COMMAND_ALIASES.items()}).items()
    inner = [name for name in COMMAND_MODULES if name.startswith(f"{first} ")]
    if inner and len(before) == 1:
        return [(name.partition(" ")[2], load_command(name).help) for name in inner]
    name = f"{first} {before[1]}" if inner else first
    return _complete_for(load_command(name), before[2 if inner else 1 :], current) if name in COMMAND_MODULES else ()


def _complete_for(command: Command, before: Sequence[str], current: str) -> Iterable[tuple[str, str]]:
    if "--" in before:
        return [("@files", "")]
    flags = {one.flag: one for one in [*command.flags, _HELP]}
    flag, equals, _ = current.partition("=")
    if equals:  # bash has the flag and the sign as words of their own
        values = _list_values(flags.get(flag or before[-1]))
        return [(f"{flag}={value}" if flag else value, "") for value in values]
    last = before[-2] if before[-1:] == ["="] else before[-1] if before else ""
    asked = flags.get(last)
    if asked and asked.metavar and (before[-1] == "=" or not asked.bare):
        return [(value, "") for value in _list_values(asked)]
    if current.startswith("-"):
        return [(name, one.help) for name, one in flags.items()]
    return [(word, "") for word in _expand_kinds(_kinds_of(command.arguments) if command.most else ())]


def _list_values(flag: Parameter | None) -> list[str]:
    return _expand_kinds(flag.choices or flag.completes or _kinds_of(flag.metavar)) if flag else []


def _expand_kinds(kinds: Iterable[str]) -> list[str]:
    """``@gpus`` -> their names; files, folders and words as they are."""
    return [w for one in kinds for w in (list_completion_names(one[1:]) if one[1:] in NAME_KINDS else [one])]


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


def _kinds_of(metavar: str) -> tuple[str, ...]:
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
        collect_parameters({"list": _LIST, "words": _WORDS}, COMMON),
        "bash|zsh|fish",
        0,
        999,
        examples=("bash", "--list gpus", "--list models --json"),
    ),
)
