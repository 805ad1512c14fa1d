"""Translate a URL query into a command line; query names are flags, so results equal the command's.

Only names in these tables are passed on. No flag that takes a file is among them, and the value of a machine, model or
framework must look like a name, so no query reaches the file system.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Pairs = Iterable[tuple[str, str]]

WHAT_IF = ("driver", "toolkit", "torch", "ram", "os", "arch", "kernel", "disk", "shm", "python-version")
JOB = (
    "method", "micro-batch", "seq", "precision", "optimizer", "attention", "accumulation", "loss", "lora-r", "lora-targets",
    "lora-dtype", "quant", "alloc-conf", "task", "new-tokens", "cache", "world", "zero", "tensor-parallel", "offload",
)  # fmt: skip
SWITCHES = ("keep-outputs", "padded", "dpo", "fsdp", "gpus", "strict")
CHECKPOINTING = "gradient-checkpointing"
FLAGS = {
    "check": ("on", "wants", "model", "ignore", "strict", *WHAT_IF),
    "plan": ("on", "wants", *WHAT_IF),
    "env": ("on", "wants", "role", *WHAT_IF),
    "fit": ("on", "max", "gpus", CHECKPOINTING, "keep-outputs", "padded", "dpo", "fsdp", *JOB),
    "explain": (),
    "contract show": (),
    "contract list": (),
}
ARGUMENTS = {
    "check": ("framework", 8), "plan": ("framework", 8), "env": ("framework", 1), "fit": ("model", 1), "explain": ("code", 1),
    "contract show": ("framework", 1),
}  # fmt: skip
"""The query name of each command's argument, and the most values it may have."""
NEEDED = ("plan", "env", "fit")
MANY = ("ignore",)
LONGEST = 200

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .*_+-]*", re.ASCII)
SPEC = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?(:[A-Za-z0-9][A-Za-z0-9._-]*)?", re.ASCII
)
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[bm]?", re.ASCII | re.IGNORECASE)
FILES = (".json", ".yml", ".yaml", ".py", ".toml")
SHAPES = {
    ("check", "model"): (SIZE, "a size such as 7b"),
    ("fit", "model"): (NAME, "the name of a model without a path, such as llama-3.1-8b"),
    "on": (NAME, "a GPU of the catalogue such as h100x8"),
    "framework": (SPEC, "FRAMEWORK, FRAMEWORK==VERSION or FRAMEWORK:VARIANT"),
    "code": (NAME, "a code such as DRV001"),
}


class Wrong(Exception):
    """An invalid query, described in one sentence."""


def words(command: str, pairs: Pairs) -> list[str]:
    """Return the words of the command line. InvalidQuery where the query is not valid."""
    name, most = ARGUMENTS.get(command, ("", 0))
    known, arguments, out = FLAGS[command], [], ["--json"]
    seen: set[str] = set()
    for key, value in pairs:
        _plain(key, value)
        if key == name:
            arguments.append(_shaped(command, key, value))
            continue
        if key not in known:
            raise Wrong(f"{key!r} is nothing that {command} can be asked: {', '.join(_names(command))}")
        if key in seen and key not in MANY:
            raise Wrong(f"{key} is there twice")
        seen.add(key)
        out += _flag(key, _shaped(command, key, value))
    if len(arguments) > most or (command in NEEDED and not arguments):
        raise Wrong(
            f"{command} takes {name}: {'one' if most == 1 else f'1 to {most}'}, and not {len(arguments)}"
        )
    if command == "plan":
        out.append("--no-resolve")  # contact no index: nothing leaves this machine
    return [*command.split(), *out, *(["--", *arguments] if arguments else [])]


def _names(command: str) -> Sequence[str]:
    name = ARGUMENTS.get(command, ("", 0))[0]
    return [name, *FLAGS[command]] if name else ["nothing"]


def _plain(key: str, value: str) -> None:
    if len(key) > LONGEST or len(value) > LONGEST:
        raise Wrong(f"{key[:40]!r} is longer than {LONGEST} characters")
    if not (key + value).isprintable():
        raise Wrong(f"{key[:40]!r} has characters that cannot be printed")


def _shaped(command: str, key: str, value: str) -> str:
    """Return the stripped value if it matches the expected pattern."""
    pattern, says = SHAPES.get((command, key)) or SHAPES.get(key) or (None, "")
    if pattern is None:
        return value
    if not pattern.fullmatch(value.strip()) or value.strip().lower().endswith(FILES):
        raise Wrong(f"{key} takes {says}, not {value!r}")
    return value.strip()


def _flag(key: str, value: str) -> list[str]:
    on, off = value.lower() in ("1", "true", "on", "yes", ""), value.lower() in ("0", "false", "no")
    if key in SWITCHES:
        if not on and not off and value != "off":
            raise Wrong(f"{key} takes 1 or 0, not {value!r}")
        return [f"--{key}"] if on else []
    if key == CHECKPOINTING and (on or off):
        return [f"--{key}"] if on else [f"--{key}=off"]
    return [f"--{key}={value}"]


# -- the page ---------------------------------------------------------------------------------------------------

MACHINE = ("framework", "gpu", "count", "wants", *WHAT_IF)
SETUP = ("model", CHECKPOINTING, "keep-outputs", "padded", "dpo", "fsdp", *JOB)
PARTS = ("check", "plan", "env", "memory", "fit")


def machine(query: Mapping[str, str]) -> dict[str, str]:
    """Turn ``gpu`` and ``count`` into the flag ``--on``; without a GPU it is this machine."""
    gpu, count = query.get("gpu", "").strip(), query.get("count", "1").strip()
    if not gpu:
        return {}
    if not count.isascii() or not count.isdecimal() or not 1 <= int(count[:5]) <= 1024 or len(count) > 4:
        raise Wrong(f"count takes a whole number from 1 to 1024, not {count!r}")
    return {"on": gpu if int(count) == 1 else f"{gpu}x{int(count)}"}


def parts(pairs: Pairs) -> dict[str, list[str]]:
    """Return the command line of every page part that the query has enough fields for."""
    query: dict[str, str] = {}
    for key, value in pairs:
        _plain(key, value)
        if key not in MACHINE and key not in SETUP:
            raise Wrong(
                f"{key!r} is nothing that the page knows: {', '.join(dict.fromkeys((*MACHINE, *SETUP)))}"
            )
        if key in query:
            raise Wrong(f"{key} is there twice")
        if value.strip():
            query[key] = value.strip()
    where = machine(query)
    if "gpu" in query:
        _shaped("check", "on", query["gpu"])
    found: dict[str, list[str]] = {}
    if "framework" in query:
        asked = where | {key: query[key] for key in ("framework", "wants", *WHAT_IF) if key in query}
        found = {command: words(command, asked.items()) for command in ("check", "plan", "env")}
    if "model" in query:
        asked = where | {key: query[key] for key in SETUP if key in query}
        found["fit"] = words("fit", asked.items())
        found["memory"] = found["fit"]
    return found


# -- parameters of an upload ----------------------------------------------------------------------------------------


def framework(pairs: Pairs) -> list[str]:
    """Return the framework named beside an upload: one or none."""
    given = list(pairs)
    if any(key != "framework" for key, _ in given) or len(given) > 1:
        raise Wrong("only framework can be told beside what is sent")
    return [_shaped("check", "framework", value) for _, value in given if value.strip()]


def seconds(text: str, most: float) -> float:
    if not text.isascii() or not text.isdecimal() or len(text) > 3:
        raise Wrong(f"wait takes whole seconds, not {text[:20]!r}")
    return min(float(text), most)
