"""The parser of a command line, driven by the declarations of the commands.

``argparse`` is not used: importing it costs 14 ms, more than starting Python, and it would need as much code: for
one-sentence errors, options that take a value only after =, and a script with its own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpuready.commands import COMMAND_ALIASES, COMMAND_MODULES, UNLISTED_COMMANDS, load_command
from gpuready.commands.declaration import Command, Parameter, UsageError
from gpuready.model.record import Record, field

_FILE_FLAGS = {"yml": "config", "yaml": "config", "json": "on", "toml": "contract"}
"""The flag that takes a file with this ending."""


class ParsedCommand(Record):
    """A parsed command line; ``flags`` has words, by the names of flags without dashes."""

    command: str
    arguments: tuple[str, ...] = ()
    flags: dict[str, Any] = field(default_factory=dict)
    help: bool = False
    help_all: bool = False
    rest: tuple[str, ...] = ()


def parse_command_line(argv: Sequence[str]) -> ParsedCommand:
    """Parse the words after ``gpuready``; UsageError, in one sentence, where that fails."""
    if argv[:1] == ["help"] and argv[1:]:
        return parse_command_line([*argv[1:], "--help"])
    if not argv or argv[0] in ("-h", "--help", "--help-all", "help"):
        return ParsedCommand("help", help=True, help_all=argv[:1] == ["--help-all"])
    if argv[0] in ("--version", "-V", "version"):
        return ParsedCommand("version")
    if argv[0] in ("contract", "fleet") and argv[1:2] in (["-h"], ["--help"]):
        return ParsedCommand(argv[0], help=True)
    name, rest = _split_command_name(argv)
    return _parse_arguments(load_command(name), rest)


def _split_command_name(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    first = COMMAND_ALIASES.get(argv[0], argv[0])
    if first in COMMAND_MODULES:
        return first, argv[1:]
    names = [name for name in COMMAND_MODULES if name.startswith(f"{first} ")]
    inner = [name.partition(" ")[2] for name in names if name not in UNLISTED_COMMANDS or name.split() == argv[:2]]
    if not inner:
        raise UsageError(
            f"gpuready has no command {first!r}{nearest_name_hint(first, _first_words())}; `gpuready --help` lists them"
        )
    if not argv[1:] or argv[1] not in inner:
        got = f", not {argv[1]!r}{nearest_name_hint(argv[1], inner)}" if argv[1:] else ""
        raise UsageError(f"gpuready {first} takes one of {', '.join(inner)}{got}; `gpuready {first} --help` lists them")
    return f"{first} {argv[1]}", argv[2:]


def _parse_arguments(command: Command, words: Sequence[str]) -> ParsedCommand:
    known = {flag.flag: flag for flag in command.flags}
    flags: dict[str, Any] = {}
    arguments: list[str] = []
    waiting = list(reversed(words))
    while waiting:
        word = waiting.pop()
        if command.rest and (word == "--" or (_is_script(word) and not (command.argument and arguments))):
            rest = tuple(reversed(waiting)) if word == "--" else (word, *reversed(waiting))
            _check_argument_count(command, [*arguments, *rest[: command.least]])
            return ParsedCommand(command.name, tuple(arguments), flags, rest=rest)
        if word == "--":
            arguments += reversed(waiting)
            break
        if word in ("-h", "--help", "--help-all"):
            return ParsedCommand(command.name, help=True, help_all=word == "--help-all")
        if word.startswith("-") and word != "-":
            _parse_flag(command, known, word, waiting, flags)
        else:
            arguments.append(word)
    _check_argument_count(command, arguments)
    return ParsedCommand(command.name, tuple(arguments), flags)


def _is_script(word: str) -> bool:
    """Accept a script without -- before it, as with torchrun."""
    return word.endswith((".py", ".sh")) and not word.startswith("-")


def _parse_flag(
    command: Command, known: dict[str, Parameter], word: str, waiting: list[str], flags: dict[str, Any]
) -> None:
    name, equals, value = word.partition("=")
    if name not in known:
        of = next((flag for flag, one in known.items() if name[2:] in one.choices), "")
        near = f"; it is a value: {of} {name[2:]}" if of else nearest_name_hint(name, known)
        alone = command.name.partition(" ")[2]  # fleet check: what one machine can say, by check
        if alone in COMMAND_MODULES and any(name == one.flag for one in load_command(alone).flags):
            near = f" (gpuready {alone} has it)"
        raise UsageError(
            f"gpuready {command.name} has no flag {name!r}{near}; `gpuready {command.name} --help` lists them"
        )
    flag = known[name]
    key = flag.query
    if not flag.metavar:
        if equals:
            raise UsageError(f"{name} takes no value")
        flags[key] = True
        return
    if flag.bare and not equals:
        flags[key] = True
        return
    if not equals:
        value = _take_flag_value(flag, waiting)
    if not value.strip():  # "$UNSET" in a script: to go on without it would answer another question
        raise UsageError(f"{name} was given an empty value: {flag.flag} {flag.metavar}")
    if flag.choices and value not in flag.choices:
        raise UsageError(f"{name} takes {', '.join(flag.choices[:-1])} or {flag.choices[-1]}, not {value!r}")
    if flag.kind == "as_if":
        flags |= _parse_as_if(command, value)
    elif flag.many:
        flags.setdefault(key, []).append(value)
    else:
        flags[key] = value


def _parse_as_if(command: Command, text: str) -> dict[str, str]:
    """``driver=550.54,os=ubuntu20.04`` -> the values of the flags ``--driver`` and ``--os``."""
    known = [flag.query for flag in command.flags if flag.group == "what_if"]
    stated = {}
    for one in text.split(","):
        name, _, value = (part.strip() for part in one.partition("="))
        name = "python-version" if name == "python" else name
        if name not in known or not value:
            near = nearest_name_hint(name, known) if name not in known else ""
            raise UsageError(
                f"--as takes NAME=VALUE with commas between, NAME one of {', '.join(known)}, not {one!r}{near}"
            )
        stated[name] = value
    return stated


def _take_flag_value(flag: Parameter, waiting: list[str]) -> str:
    if not waiting or (waiting[-1].startswith("-") and not waiting[-1][1:2].isdigit() and waiting[-1] != "-"):
        raise UsageError(f"{flag.flag} needs a value: {flag.flag} {flag.metavar}")
    return waiting.pop()


def _check_argument_count(command: Command, arguments: list[str]) -> None:
    if not all(word.strip() for word in arguments):
        raise UsageError(
            f"gpuready {command.name} was given an empty argument: leave it out, or name {command.arguments}"
        )
    if "FRAMEWORK" in command.arguments and "FILE" not in command.arguments:
        _refuse_file_names(command, arguments)
    if command.least <= len(arguments) <= command.most:
        return
    if command.rest and len(arguments) > command.most:
        raise UsageError(f"gpuready {command.name}: what it starts goes after --, such as -- train.py {arguments[-1]}")
    if not command.arguments:
        raise UsageError(f"gpuready {command.name} takes no arguments, and was given {arguments[0]!r}")
    count = len(arguments) or "nothing"
    raise UsageError(f"gpuready {command.name} takes {command.arguments}, and was given {count}; --help has examples")


def _refuse_file_names(command: Command, arguments: list[str]) -> None:
    """UsageError with the flag that takes a file, where a file stands in the place of a framework."""
    for word in arguments if "packages" not in command.parameters else ():  # check takes files
        name = word.lower().rpartition("/")[2]
        is_container_file = "dockerfile" in name or "containerfile" in name or "compose.y" in name
        flag = "dockerfile" if is_container_file else _FILE_FLAGS.get(name.rpartition(".")[2] if "." in name else "")
        if flag in command.parameters:
            raise UsageError(f"{word!r} is a file, not a framework: give it with --{flag}")


def nearest_name_hint(word: str, known: Iterable[str]) -> str:
    """Return ``; the nearest is NAME``, or an empty text where nothing is near."""
    from difflib import get_close_matches

    bare = {name.lstrip("-"): name for name in known}  # the dashes must not count as similarity
    near = get_close_matches(word.lstrip("-"), list(bare), 1, 0.6)
    return f"; the nearest is {bare[near[0]]}" if near else ""


def _first_words() -> list[str]:
    return [*dict.fromkeys(name.partition(" ")[0] for name in COMMAND_MODULES), *COMMAND_ALIASES]
