"""Translate a URL query into a command line; query names are flags, so results equal the command's.

Only parameters that their declaration offers to the web are passed on. None of them takes a file, and the value of a
machine, model or framework must look like a name, so no query reaches the file system.
"""

import re
from collections.abc import Iterable, Mapping

from gpuready.commands import load_command
from gpuready.commands.declaration import Parameter
from gpuready.commands.parameters import WHAT_IF

QueryPairs = Iterable[tuple[str, str]]


WEB_COMMANDS = ("check", "plan", "env", "fit", "explain", "contract show", "contract list")
MAX_FRAMEWORKS = 8
MAX_VALUE_LENGTH = 200

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .*_+-]*", re.ASCII)
SPEC_PATTERN = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?(:[A-Za-z0-9][A-Za-z0-9._-]*)?", re.ASCII
)
SIZE_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)?[bm]?", re.ASCII | re.IGNORECASE)
FILE_SUFFIXES = (".json", ".yml", ".yaml", ".py", ".toml")
VALUE_SHAPES = {
    "size": (SIZE_PATTERN, "a size such as 7b"),
    "model": (NAME_PATTERN, "the name of a model without a path, such as llama-3.1-8b"),
    "machine": (NAME_PATTERN, "a GPU of the catalogue such as h100x8"),
    "framework": (SPEC_PATTERN, "FRAMEWORK, FRAMEWORK==VERSION or FRAMEWORK:VARIANT"),
    "code": (NAME_PATTERN, "a code such as DRV001"),
}
"""What a value looks like, by the ``web`` of its parameter; the others take any text."""


class InvalidQuery(Exception):
    """An invalid query, described in one sentence."""


def query_parameters(command: str) -> dict[str, Parameter]:
    """Return what a command can be asked on the web, by query name."""
    return {one.query: one for one in load_command(command).flags if one.web}


def build_command_words(command: str, pairs: QueryPairs) -> list[str]:
    """Return the words of the command line. InvalidQuery where the query is not valid."""
    argument, known = load_command(command).argument, query_parameters(command)
    arguments, flags = [], ["--json"]
    seen: set[str] = set()
    for key, value in pairs:
        _check_characters(key, value)
        if argument is not None and key == argument.flag:
            arguments.append(_check_shape(argument, value))
            continue
        if key not in known:
            names = ", ".join([argument.flag, *known]) if argument is not None else "nothing"
            raise InvalidQuery(f"{key!r} is nothing that {command} can be asked: {names}")
        if key in seen and not known[key].many:
            raise InvalidQuery(f"{key} is there twice")
        seen.add(key)
        flags += _format_flag(known[key], _check_shape(known[key], value))
    if argument is not None:
        _check_argument_count(command, argument, len(arguments))
    if command == "plan":
        flags.append("--no-resolve")  # contact no index: nothing leaves this machine
    return [*command.split(), *flags, *(["--", *arguments] if arguments else [])]


def _check_argument_count(command: str, argument: Parameter, count: int) -> None:
    most = MAX_FRAMEWORKS if argument.name == "frameworks" else 1
    if not argument.least <= count <= most:
        raise InvalidQuery(
            f"{command} takes {argument.flag}: {'one' if most == 1 else f'1 to {most}'}, and not {count}"
        )


def _check_characters(key: str, value: str) -> None:
    if len(key) > MAX_VALUE_LENGTH or len(value) > MAX_VALUE_LENGTH:
        raise InvalidQuery(f"{key[:40]!r} is longer than {MAX_VALUE_LENGTH} characters")
    if not (key + value).isprintable():
        raise InvalidQuery(f"{key[:40]!r} has characters that cannot be printed")


def _check_shape(parameter: Parameter, value: str) -> str:
    """Return the stripped value if it matches the expected pattern."""
    if parameter.web not in VALUE_SHAPES:
        return value
    pattern, description = VALUE_SHAPES[parameter.web]
    if not pattern.fullmatch(value.strip()) or value.strip().lower().endswith(FILE_SUFFIXES):
        raise InvalidQuery(f"{parameter.query} takes {description}, not {value!r}")
    return value.strip()


def _format_flag(parameter: Parameter, value: str) -> list[str]:
    on, off = value.lower() in ("1", "true", "on", "yes", ""), value.lower() in ("0", "false", "no")
    if not parameter.metavar:
        if not on and not off and value != "off":
            raise InvalidQuery(f"{parameter.query} takes 1 or 0, not {value!r}")
        return [parameter.flag] if on else []
    if parameter.bare and (on or off):
        return [parameter.flag] if on else [f"{parameter.flag}=off"]
    return [f"{parameter.flag}={value}"]


# -- the page ---------------------------------------------------------------------------------------------------

_MACHINE_FIELDS = ("framework", "gpu", "count", "wants", *(one.query for one in WHAT_IF.values()))


def machine_flags(query: Mapping[str, str]) -> dict[str, str]:
    """Turn ``gpu`` and ``count`` into the flag ``--on``; without a GPU it is this machine."""
    gpu, count = query.get("gpu", "").strip(), query.get("count", "1").strip()
    if not gpu:
        return {}
    if not count.isascii() or not count.isdecimal() or not 1 <= int(count[:5]) <= 1024 or len(count) > 4:
        raise InvalidQuery(f"count takes a whole number from 1 to 1024, not {count!r}")
    return {"on": gpu if int(count) == 1 else f"{gpu}x{int(count)}"}


def build_page_commands(pairs: QueryPairs) -> dict[str, list[str]]:
    """Return the command line of every page part that the query has enough fields for."""
    query: dict[str, str] = {}
    job_fields = ["model", *(name for name, one in query_parameters("fit").items() if one.group == "job")]
    for key, value in pairs:
        _check_characters(key, value)
        if key not in _MACHINE_FIELDS and key not in job_fields:
            raise InvalidQuery(f"{key!r} is nothing that the page knows: {', '.join((*_MACHINE_FIELDS, *job_fields))}")
        if key in query:
            raise InvalidQuery(f"{key} is there twice")
        if value.strip():
            query[key] = value.strip()
    machine_fields = machine_flags(query)
    if "gpu" in query:
        _check_shape(query_parameters("check")["on"], query["gpu"])
    commands: dict[str, list[str]] = {}
    if "framework" in query:
        fields = machine_fields | {key: query[key] for key in _MACHINE_FIELDS if key in query}
        fields = {key: value for key, value in fields.items() if key not in ("gpu", "count")}
        commands = {command: build_command_words(command, fields.items()) for command in ("check", "plan", "env")}
    if "model" in query:
        fields = machine_fields | {key: query[key] for key in job_fields if key in query}
        commands["fit"] = build_command_words("fit", fields.items())
        commands["memory"] = commands["fit"]
    return commands


# -- parameters of an upload ----------------------------------------------------------------------------------------


def parse_framework_query(pairs: QueryPairs) -> list[str]:
    """Return the framework named beside an upload: one or none."""
    fields = list(pairs)
    if any(key != "framework" for key, _ in fields) or len(fields) > 1:
        raise InvalidQuery("only framework can be told beside what is sent")
    argument = load_command("check").argument
    assert argument is not None
    return [_check_shape(argument, value) for _, value in fields if value.strip()]


def parse_wait_seconds(text: str, max_seconds: float) -> float:
    if not text.isascii() or not text.isdecimal() or len(text) > 3:
        raise InvalidQuery(f"wait takes whole seconds, not {text[:20]!r}")
    return min(float(text), max_seconds)
