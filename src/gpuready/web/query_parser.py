"""Translate a URL query into a command line; query names are flags, so results equal the command's.

Only names in these tables are passed on. No flag that takes a file is among them, and the value of a machine, model or
framework must look like a name, so no query reaches the file system.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    QueryPairs = Iterable[tuple[str, str]]

WHAT_IF_FLAGS = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python-version")
JOB_FLAGS = (
    "method", "micro-batch", "seq", "precision", "optimizer", "attention", "accumulation", "loss", "lora-r", "lora-targets",
    "lora-dtype", "quant", "alloc-conf", "task", "new-tokens", "cache", "world", "zero", "tensor-parallel", "offload",
)  # fmt: skip
BOOLEAN_FLAGS = ("keep-outputs", "padded", "dpo", "fsdp", "gpus", "strict")
CHECKPOINTING_FLAG = "gradient-checkpointing"
COMMAND_FLAGS = {
    "check": ("on", "wants", "model", "ignore", "strict", *WHAT_IF_FLAGS),
    "plan": ("on", "wants", *WHAT_IF_FLAGS),
    "env": ("on", "wants", "role", *WHAT_IF_FLAGS),
    "fit": ("on", "max", "gpus", CHECKPOINTING_FLAG, "keep-outputs", "padded", "dpo", "fsdp", *JOB_FLAGS),
    "explain": (),
    "contract show": (),
    "contract list": (),
}
COMMAND_ARGUMENTS = {
    "check": ("framework", 8), "plan": ("framework", 8), "env": ("framework", 1), "fit": ("model", 1), "explain": ("code", 1),
    "contract show": ("framework", 1),
}  # fmt: skip
"""The query name of each command's argument, and the most values it may have."""
ARGUMENT_REQUIRED = ("plan", "env", "fit")
REPEATABLE_FLAGS = ("ignore",)
MAX_VALUE_LENGTH = 200

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .*_+-]*", re.ASCII)
SPEC_PATTERN = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?(:[A-Za-z0-9][A-Za-z0-9._-]*)?", re.ASCII
)
SIZE_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)?[bm]?", re.ASCII | re.IGNORECASE)
FILE_SUFFIXES = (".json", ".yml", ".yaml", ".py", ".toml")
VALUE_SHAPES = {
    ("check", "model"): (SIZE_PATTERN, "a size such as 7b"),
    ("fit", "model"): (NAME_PATTERN, "the name of a model without a path, such as llama-3.1-8b"),
    "on": (NAME_PATTERN, "a GPU of the catalogue such as h100x8"),
    "framework": (SPEC_PATTERN, "FRAMEWORK, FRAMEWORK==VERSION or FRAMEWORK:VARIANT"),
    "code": (NAME_PATTERN, "a code such as DRV001"),
}


class InvalidQuery(Exception):
    """An invalid query, described in one sentence."""


def build_command_words(command: str, pairs: QueryPairs) -> list[str]:
    """Return the words of the command line. InvalidQuery where the query is not valid."""
    name, max_arguments = COMMAND_ARGUMENTS.get(command, ("", 0))
    allowed_flags, arguments, flags = COMMAND_FLAGS[command], [], ["--json"]
    seen: set[str] = set()
    for key, value in pairs:
        _check_characters(key, value)
        if key == name:
            arguments.append(_check_shape(command, key, value))
            continue
        if key not in allowed_flags:
            raise InvalidQuery(f"{key!r} is nothing that {command} can be asked: {', '.join(_allowed_names(command))}")
        if key in seen and key not in REPEATABLE_FLAGS:
            raise InvalidQuery(f"{key} is there twice")
        seen.add(key)
        flags += _format_flag(key, _check_shape(command, key, value))
    if len(arguments) > max_arguments or (command in ARGUMENT_REQUIRED and not arguments):
        raise InvalidQuery(
            f"{command} takes {name}: {'one' if max_arguments == 1 else f'1 to {max_arguments}'}, and not {len(arguments)}"
        )
    if command == "plan":
        flags.append("--no-resolve")  # contact no index: nothing leaves this machine
    return [*command.split(), *flags, *(["--", *arguments] if arguments else [])]


def _allowed_names(command: str) -> Sequence[str]:
    name = COMMAND_ARGUMENTS.get(command, ("", 0))[0]
    return [name, *COMMAND_FLAGS[command]] if name else ["nothing"]


def _check_characters(key: str, value: str) -> None:
    if len(key) > MAX_VALUE_LENGTH or len(value) > MAX_VALUE_LENGTH:
        raise InvalidQuery(f"{key[:40]!r} is longer than {MAX_VALUE_LENGTH} characters")
    if not (key + value).isprintable():
        raise InvalidQuery(f"{key[:40]!r} has characters that cannot be printed")


def _check_shape(command: str, key: str, value: str) -> str:
    """Return the stripped value if it matches the expected pattern."""
    pattern, description = VALUE_SHAPES.get((command, key)) or VALUE_SHAPES.get(key) or (None, "")
    if pattern is None:
        return value
    if not pattern.fullmatch(value.strip()) or value.strip().lower().endswith(FILE_SUFFIXES):
        raise InvalidQuery(f"{key} takes {description}, not {value!r}")
    return value.strip()


def _format_flag(key: str, value: str) -> list[str]:
    on, off = value.lower() in ("1", "true", "on", "yes", ""), value.lower() in ("0", "false", "no")
    if key in BOOLEAN_FLAGS:
        if not on and not off and value != "off":
            raise InvalidQuery(f"{key} takes 1 or 0, not {value!r}")
        return [f"--{key}"] if on else []
    if key == CHECKPOINTING_FLAG and (on or off):
        return [f"--{key}"] if on else [f"--{key}=off"]
    return [f"--{key}={value}"]


# -- the page ---------------------------------------------------------------------------------------------------

MACHINE_FIELDS = ("framework", "gpu", "count", "wants", *WHAT_IF_FLAGS)
JOB_FIELDS = ("model", CHECKPOINTING_FLAG, "keep-outputs", "padded", "dpo", "fsdp", *JOB_FLAGS)
PAGE_PARTS = ("check", "plan", "env", "memory", "fit")


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
    for key, value in pairs:
        _check_characters(key, value)
        if key not in MACHINE_FIELDS and key not in JOB_FIELDS:
            raise InvalidQuery(
                f"{key!r} is nothing that the page knows: {', '.join(dict.fromkeys((*MACHINE_FIELDS, *JOB_FIELDS)))}"
            )
        if key in query:
            raise InvalidQuery(f"{key} is there twice")
        if value.strip():
            query[key] = value.strip()
    machine_fields = machine_flags(query)
    if "gpu" in query:
        _check_shape("check", "on", query["gpu"])
    commands: dict[str, list[str]] = {}
    if "framework" in query:
        fields = machine_fields | {key: query[key] for key in ("framework", "wants", *WHAT_IF_FLAGS) if key in query}
        commands = {command: build_command_words(command, fields.items()) for command in ("check", "plan", "env")}
    if "model" in query:
        fields = machine_fields | {key: query[key] for key in JOB_FIELDS if key in query}
        commands["fit"] = build_command_words("fit", fields.items())
        commands["memory"] = commands["fit"]
    return commands


# -- parameters of an upload ----------------------------------------------------------------------------------------


def parse_framework_query(pairs: QueryPairs) -> list[str]:
    """Return the framework named beside an upload: one or none."""
    fields = list(pairs)
    if any(key != "framework" for key, _ in fields) or len(fields) > 1:
        raise InvalidQuery("only framework can be told beside what is sent")
    return [_check_shape("check", "framework", value) for _, value in fields if value.strip()]


def parse_wait_seconds(text: str, max_seconds: float) -> float:
    if not text.isascii() or not text.isdecimal() or len(text) > 3:
        raise InvalidQuery(f"wait takes whole seconds, not {text[:20]!r}")
    return min(float(text), max_seconds)
