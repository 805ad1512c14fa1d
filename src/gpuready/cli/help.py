"""Help pages, for gpuready and for each command, generated from the declarations of the commands."""

import shlex
from collections.abc import Iterable

from gpuready import __version__
from gpuready.commands import COMMAND_MODULES, FIRST_COMMANDS, UNLISTED_COMMANDS, load_all_commands, load_command
from gpuready.commands.completion import list_argument_names
from gpuready.commands.declaration import Command, Parameter
from gpuready.render.layout import Screen

_EXIT_CODES_LINE = (
    "exit: 0 ready or no problems found, 1 not ready, 2 gpuready could not run, 3 can't tell, 124 out of time, "
    "130 interrupted"
)


_GUIDES = {"check": "verdicts", "explain": "verdicts", "issue": "tutorial", "docs": "",
           "diff": "recordings", "probe": "recordings", "contract": "add-a-framework"}  # fmt: skip
"""The guide of a command, where it has another name."""


def format_help(command: str, screen: Screen, everything: bool = False) -> str:
    """Return the help of one command; of all commands where the name is of none: without ``everything``, of those used most."""
    if command in COMMAND_MODULES:
        return _format_command_help(load_command(command), screen, everything)
    if command == "help" and not everything:
        return _format_first_help(screen)
    chosen = [
        c
        for name, c in load_all_commands().items()
        if (command == "help" or name.startswith(f"{command} ")) and name not in UNLISTED_COMMANDS
    ]
    lines = screen.format_paragraph(f"gpuready {__version__}: is this machine ready for an LLM framework on GPUs?")
    rows = [(_name_with_words(c), c.help) for c in chosen]
    lines += ["", *_indent_table(rows, screen), ""]
    lines += screen.format_paragraph("Each takes --help, --json and --color.", 2)
    if command == "help":
        lines += screen.format_paragraph("`gpuready fit --help-all` lists the models.", 2)
    lines += _format_known_names("FRAMEWORK", screen)
    return "\n".join([*lines, *screen.format_paragraph(_EXIT_CODES_LINE, 2)]) + "\n"


def _format_first_help(screen: Screen) -> str:
    lines = screen.format_paragraph(f"gpuready {__version__}: is this machine ready for an LLM framework on GPUs?")
    chosen = [load_command(name) for name in FIRST_COMMANDS]
    lines += ["", *_indent_table([(_name_with_words(c), c.help) for c in chosen], screen), ""]
    others = len(COMMAND_MODULES) - len(UNLISTED_COMMANDS) - len(chosen)
    lines += screen.format_paragraph(f"{others} other commands: gpuready --help-all. Each takes --help and --json.", 2)
    lines += screen.format_paragraph("guides: gpuready docs", 2)
    return "\n".join([*lines, *screen.format_paragraph(_EXIT_CODES_LINE, 2)]) + "\n"


def _name_with_words(command: Command) -> str:
    """``gpuready run [FRAMEWORK] -- SCRIPT [ARGS ...]``; fit takes a script without the dashes too."""
    rest = f" -- {command.rest}" if command.rest and "FILE" not in command.arguments else ""
    return f"gpuready {command.name} {command.arguments}".rstrip() + rest


def _format_command_help(command: Command, screen: Screen, everything: bool) -> str:
    words = f"gpuready {command.name} {command.arguments}".rstrip() + (f" -- {command.rest}" if command.rest else "")
    lines = screen.format_paragraph(f"{words}: {command.help}")
    what_if = [flag for flag in command.flags if flag.group == "what_if"]
    others = [flag for flag in command.flags if flag not in what_if]
    usual = others if everything or not command.usual else [f for f in others if f.query in command.usual.split()]
    lines += ["", *_indent_table(_flag_rows(usual), screen)]
    if what_if and everything:
        lines += ["", "what if, each as a flag of its own:", "", *_indent_table(_flag_rows(what_if), screen)]
    if left := len(others) - len(usual):
        lines += ["", *screen.format_paragraph(f"{left} other flags: gpuready {command.name} --help-all", 2)]
    lines += ["", "examples:", "", *_format_examples(command, screen)]
    known = _format_known_names(command.arguments, screen) if everything or "MODEL" not in command.arguments else []
    first = command.name.partition(" ")[0]
    lines += ["", *known, *screen.format_paragraph(f"guide: gpuready docs {_GUIDES.get(first, first)}".rstrip(), 2)]
    return "\n".join(lines) + "\n"


def _format_examples(command: Command, screen: Screen) -> list[str]:
    lines = [shlex.split(f"gpuready {command.name} {one}") for one in command.examples]
    return [line for words in lines for line in screen.format_command(tuple(words), 2, "")]


def _format_known_names(arguments: str, screen: Screen) -> list[str]:
    kind, names = list_argument_names(arguments)
    return screen.format_paragraph(f"{kind}: {', '.join(names)}", 2, 4) if names else []


_MAX_CHOICES_WIDTH = 28
"""Above this width, a flag's choices go into its description and not beside its name."""


def _flag_rows(flags: Iterable[Parameter]) -> list[tuple[str, str]]:
    return [_flag_row(flag) for flag in flags]


def _flag_row(flag: Parameter) -> tuple[str, str]:
    """Format ``--seq N``; ``--gradient-checkpointing [=reentrant]`` where the value is optional."""
    value = "|".join(flag.choices)
    if len(value) > _MAX_CHOICES_WIDTH:
        return f"{flag.flag} {flag.metavar}", f"{flag.help}: {', '.join(flag.choices)}"
    value = value or flag.metavar
    return (f"{flag.flag} [={value}]" if flag.bare else f"{flag.flag} {value}".rstrip()), flag.help


def _indent_table(rows: list[tuple[str, str]], screen: Screen) -> list[str]:
    return ["  " + line for row in screen.format_table(rows, 2, (4,)) for line in row]
