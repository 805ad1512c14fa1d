"""The command table, and the parser of a command line.

Each command is a module of this package, with a table of flags; only the called one is imported.
``argparse`` is not used: importing it and building one parser costs 21 ms, more than starting Python.
"""

from __future__ import annotations

from gpuready.cli.words import Command, Flag, Told, Usage, nearest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

MODULES = {
    "check": "check",
    "prove": "prove",
    "plan": "plan",
    "install": "install",
    "fit": "fit",
    "env": "env",
    "run": "run",
    "diagnose": "diagnose",
    "diff": "diff",
    "explain": "explain",
    "probe": "probe",
    "bench": "bench",
    "report": "report",
    "serve": "serve",
    "mcp": "mcp",
    "completion": "completion",
    "fleet check": "fleet",
    "fleet prove": "fleet",
    "fleet bench": "fleet",
    "fleet drift": "fleet",
    "fleet bisect": "fleet",
    "contract list": "contract",
    "contract show": "contract",
    "contract diff": "contract",
    "contract import": "contract",
}
"""Every command in the order of the help, and the module of this package that implements it."""


def module(name: str) -> ModuleType:
    """Import the module of a command: its ``COMMANDS``, and ``run(parsed, screen, started)`` -> (text, exit code)."""
    found: ModuleType = __import__(f"gpuready.cli.{MODULES[name]}", fromlist=["run"])
    return found


def command(name: str) -> Command:
    """Return one command with its flags."""
    found: Command = next(c for c in module(name).COMMANDS if c.name == name)
    return found


def commands() -> dict[str, Command]:
    """Return every command: for the help, the reference and the tests."""
    return {name: command(name) for name in MODULES}


def parse(argv: Sequence[str]) -> Told:
    """Parse the words after ``gpuready``; UsageError, in one sentence, where that fails."""
    if argv[:1] == ["help"] and argv[1:]:
        return parse([*argv[1:], "--help"])
    if not argv or argv[0] in ("-h", "--help", "help"):
        return Told("help", help=True)
    if argv[0] in ("--version", "-V"):
        return Told("version")
    if argv[0] in ("contract", "fleet") and argv[1:2] in (["-h"], ["--help"]):
        return Told(argv[0], help=True)
    name, rest = _command(argv)
    return _arguments(command(name), rest)


def _command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    first = argv[0]
    if first in MODULES:
        return first, argv[1:]
    inner = [name.partition(" ")[2] for name in MODULES if name.startswith(f"{first} ")]
    if not inner:
        raise Usage(
            f"gpuready has no command {first!r}{nearest(first, _words())}; `gpuready --help` lists them"
        )
    if not argv[1:] or argv[1] not in inner:
        given = f", not {argv[1]!r}{nearest(argv[1], inner)}" if argv[1:] else ""
        raise Usage(f"gpuready {first} takes one of {', '.join(inner)}{given}")
    return f"{first} {argv[1]}", argv[2:]


def _arguments(command: Command, words: Sequence[str]) -> Told:
    known = {flag.name: flag for flag in command.flags}
    flags: dict[str, Any] = {}
    arguments: list[str] = []
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if command.rest and (word == "--" or _is_script(word)):
            rest = tuple(reversed(waiting)) if word == "--" else (word, *reversed(waiting))
            _counted(command, arguments)
            return Told(command.name, tuple(arguments), flags, rest=rest)
        if word == "--":
            arguments += reversed(waiting)
            break
        if word in ("-h", "--help"):
            return Told(command.name, help=True)
        if word.startswith("-") and word != "-":
            _flag(command, known, word, waiting, flags)
        else:
            arguments.append(word)
    _counted(command, arguments)
    return Told(command.name, tuple(arguments), flags)


def _is_script(word: str) -> bool:
    """Accept a script without -- before it, as with torchrun."""
    return word.endswith((".py", ".sh")) and not word.startswith("-")


def _flag(
    command: Command, known: dict[str, Flag], word: str, waiting: list[str], flags: dict[str, Any]
) -> None:
    name, equals, value = word.partition("=")
    if name not in known:
        near = nearest(name, known)
        raise Usage(
            f"gpuready {command.name} has no flag {name!r}{near}; `gpuready {command.name} --help` lists them"
        )
    flag = known[name]
    key = name.lstrip("-")
    if not flag.takes:
        if equals:
            raise Usage(f"{name} takes no value")
        flags[key] = True
        return
    if flag.bare and not equals:
        flags[key] = True
        return
    if not equals:
        value = _value(flag, waiting)
    if flag.choices and value not in flag.choices:
        raise Usage(f"{name} takes {', '.join(flag.choices[:-1])} or {flag.choices[-1]}, not {value!r}")
    if flag.many:
        flags.setdefault(key, []).append(value)
    else:
        flags[key] = value


def _value(flag: Flag, waiting: list[str]) -> str:
    if not waiting or (waiting[-1].startswith("-") and not waiting[-1][1:2].isdigit() and waiting[-1] != "-"):
        raise Usage(f"{flag.name} needs a value: {flag.name} {flag.takes}")
    return waiting.pop()


def _counted(command: Command, arguments: list[str]) -> None:
    if command.least <= len(arguments) <= command.most:
        return
    if not command.arguments:
        raise Usage(f"gpuready {command.name} takes no arguments, and was given {arguments[0]!r}")
    raise Usage(
        f"gpuready {command.name} takes {command.arguments}, and was given {len(arguments) or 'nothing'}"
    )


def _words() -> list[str]:
    return list(dict.fromkeys(name.partition(" ")[0] for name in MODULES))
