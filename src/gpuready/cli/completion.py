"""``gpuready completion``: completion scripts for shells, generated from the command table."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.render.layout import Screen

SHELLS = ("bash", "zsh", "fish")
_LIST = Flag(
    "--list",
    "only the names of a kind, one on each line; the scripts ask for them when they are needed",
    "KIND",
    ("frameworks", "gpus", "models", "codes", "torch", "proofs"),
)
COMMANDS = (
    Command(
        "completion",
        "a script that makes bash, zsh or fish complete these commands",
        (_LIST, *EVERYWHERE),
        "bash|zsh|fish",
        0,
        1,
    ),
)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    kind, shells = told.flags.get("list"), told.arguments
    if bool(kind) == bool(shells) or (shells and shells[0] not in SHELLS):
        raise Usage(f"gpuready completion takes {', '.join(SHELLS[:-1])} or {SHELLS[-1]}, or --list KIND")
    if told.flags.get("json") and not kind:
        raise Usage("a script for a shell is no JSON: leave out --json")
    if kind:
        from gpuready.render import answers
        from gpuready.workflow.naming import names

        found = names(kind)
        text = answers.names(kind, found) if told.flags.get("json") else "".join(f"{n}\n" for n in found)
        return text, 0
    from gpuready.cli import grammar
    from gpuready.render import completion

    return completion.script(shells[0], [_entry(one) for one in grammar.commands().values()]), 0


def _entry(command: Command) -> dict[str, object]:
    flags = [*command.flags, Flag("--help", "this command's help")]
    return {
        "name": command.name,
        "says": command.says,
        "arguments": _kind(command.arguments) if command.most else (),
        "flags": [
            {"name": f.name, "says": f.says, "bare": f.bare, "many": f.many, "choices": f.choices}
            | {"takes": f.takes, "kinds": _kind(f.takes, f.name)}
            for f in flags
        ],
    }


_BY_WORD = {
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
_BY_FLAG = {"--torch": ("@torch",), "--ignore": ("@codes",)}


def _kind(takes: str, flag: str = "") -> tuple[str, ...]:
    """Return what completes a value: ``@KIND`` for names of a kind, files or folders; other words literally."""
    if flag in _BY_FLAG:
        return _BY_FLAG[flag]
    if (flag, takes) == ("--on", "NAME"):
        return "@gpus", "@files"
    return next((kinds for word, kinds in _BY_WORD.items() if word in takes), ())
