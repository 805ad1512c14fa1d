"""Help pages, for gpuready and for each command, generated from the command table."""

from __future__ import annotations

from gpuready import __version__
from gpuready.cli import parser
from gpuready.cli.command_spec import WHAT_IF_FLAGS
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.cli.command_spec import CommandSpec, Flag

_EXIT_CODES_LINE = "exit: 0 ready or clear, 1 not ready, 2 gpuready could not run, 3 undecided, 124 out of time"


def format_help(command: str, screen: Screen) -> str:
    """Return the help of one command; of all commands where the name is of none."""
    if command in parser.COMMAND_MODULES:
        return _format_command_help(parser.load_command(command), screen)
    chosen = [
        c for name, c in parser.load_all_commands().items() if command == "help" or name.startswith(f"{command} ")
    ]
    lines = screen.format_paragraph(f"gpuready {__version__}: is this machine ready for an LLM framework on GPUs?")
    rows = [(f"gpuready {c.name} {c.arguments}".rstrip(), c.says) for c in chosen]
    lines += ["", *_indent_table(rows, screen), ""]
    lines += screen.format_paragraph("Each takes --help, --json and --color.", 2)
    return "\n".join([*lines, *screen.format_paragraph(_EXIT_CODES_LINE, 2)]) + "\n"


def _format_command_help(command: CommandSpec, screen: Screen) -> str:
    words = f"gpuready {command.name} {command.arguments}".rstrip() + (f" -- {command.rest}" if command.rest else "")
    lines = screen.format_paragraph(f"{words}: {command.says}")
    plain = [flag for flag in command.flags if flag not in WHAT_IF_FLAGS]
    lines += ["", *_indent_table(_flag_rows(plain), screen)]
    if WHAT_IF_FLAGS[0] in command.flags:
        lines += ["", "what if:", "", *_indent_table(_flag_rows(WHAT_IF_FLAGS), screen)]
    return "\n".join(lines) + "\n"


_MAX_CHOICES_WIDTH = 28
"""Above this width, a flag's choices go into its description and not beside its name."""


def _flag_rows(flags: Iterable[Flag]) -> list[tuple[str, str]]:
    return [_flag_row(flag) for flag in flags]


def _flag_row(flag: Flag) -> tuple[str, str]:
    """Format ``--seq N``; ``--gradient-checkpointing [=reentrant]`` where the value is optional."""
    value = "|".join(flag.choices)
    if len(value) > _MAX_CHOICES_WIDTH:
        return f"{flag.name} {flag.takes}", f"{flag.says}: {', '.join(flag.choices)}"
    value = value or flag.takes
    return (f"{flag.name} [={value}]" if flag.bare else f"{flag.name} {value}".rstrip()), flag.says


def _indent_table(rows: list[tuple[str, str]], screen: Screen) -> list[str]:
    return ["  " + line for row in screen.format_table(rows, 2, (4,)) for line in row]
