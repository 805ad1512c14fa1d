"""Help pages, for gpuready and for each command, generated from the command table."""

from __future__ import annotations

from gpuready import __version__
from gpuready.cli import grammar
from gpuready.cli.words import WHAT_IF
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.cli.words import Command, Flag

_EXITS = "exit: 0 ready or clear, 1 not ready, 2 gpuready could not run, 3 undecided, 124 out of time"


def page(command: str, screen: Screen) -> str:
    """Return the help of one command; of all commands where the name is of none."""
    if command in grammar.MODULES:
        return _of_one(grammar.command(command), screen)
    chosen = [
        c for name, c in grammar.commands().items() if command == "help" or name.startswith(f"{command} ")
    ]
    lines = screen.paragraph(f"gpuready {__version__}: is this machine ready for an LLM framework on GPUs?")
    rows = [(f"gpuready {c.name} {c.arguments}".rstrip(), c.says) for c in chosen]
    lines += ["", *_indented(rows, screen), ""]
    lines += screen.paragraph("Each takes --help, --json and --color.", 2)
    return "\n".join([*lines, *screen.paragraph(_EXITS, 2)]) + "\n"


def _of_one(command: Command, screen: Screen) -> str:
    words = f"gpuready {command.name} {command.arguments}".rstrip() + (
        f" -- {command.rest}" if command.rest else ""
    )
    lines = screen.paragraph(f"{words}: {command.says}")
    plain = [flag for flag in command.flags if flag not in WHAT_IF]
    lines += ["", *_indented(_rows(plain), screen)]
    if WHAT_IF[0] in command.flags:
        lines += ["", "what if:", "", *_indented(_rows(WHAT_IF), screen)]
    return "\n".join(lines) + "\n"


_LONG = 28
"""Above this width, a flag's choices go into its description and not beside its name."""


def _rows(flags: Iterable[Flag]) -> list[tuple[str, str]]:
    return [_row(flag) for flag in flags]


def _row(flag: Flag) -> tuple[str, str]:
    """Format ``--seq N``; ``--gradient-checkpointing [=reentrant]`` where the value is optional."""
    value = "|".join(flag.choices)
    if len(value) > _LONG:
        return f"{flag.name} {flag.takes}", f"{flag.says}: {', '.join(flag.choices)}"
    value = value or flag.takes
    return (f"{flag.name} [={value}]" if flag.bare else f"{flag.name} {value}".rstrip()), flag.says


def _indented(rows: list[tuple[str, str]], screen: Screen) -> list[str]:
    return ["  " + line for row in screen.table(rows, 2, (4,)) for line in row]
