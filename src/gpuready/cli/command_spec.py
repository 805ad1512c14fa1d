"""Records of the command line (flag, command, parsed command), and the flags that several commands share."""

from __future__ import annotations

from gpuready.model import Record
from gpuready.model.record import field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


class UsageError(Exception):
    """A command line that cannot be parsed, in one sentence."""


class Flag(Record):
    """One flag; without ``takes`` it is a switch. ``bare``: the value is optional, and only follows =."""

    name: str
    says: str
    takes: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    bare: bool = False


class CommandSpec(Record):
    """One command: its arguments by name, their minimum and maximum number, and its flags."""

    name: str
    says: str
    flags: tuple[Flag, ...] = ()
    arguments: str = ""
    least: int = 0
    most: int = 0
    rest: str = ""  # placeholder for the words after --, where a command takes them


class ParsedCommand(Record):
    """A parsed command line."""

    command: str
    arguments: tuple[str, ...] = ()
    flags: dict[str, Any] = field(default_factory=dict)
    help: bool = False
    rest: tuple[str, ...] = ()


_COLOR = ("auto", "always", "never")
COMMON_FLAGS = (
    Flag("--json", "the same answer as a JSON document"),
    Flag("--color", "colour the answer", "WHEN", _COLOR),
)
TARGET_FLAGS = (
    Flag("--on", "a recorded machine (FILE.json) or a name such as h100x8", "MACHINE"),
    Flag("--python", "the environment to look at: a Python, a venv or a conda prefix", "PATH"),
)
WHAT_IF_FLAGS = (
    Flag("--driver", "as if the driver were this one", "VERSION"),
    Flag("--toolkit", "as if this CUDA toolkit were there", "VERSION"),
    Flag("--torch", "as if this torch were installed, such as 2.8.0+cu128", "VERSION"),
    Flag("--ram", "as if the machine had this much memory, such as 512GB", "SIZE"),
    Flag("--os", "as if it ran this system, such as ubuntu22.04", "NAME"),
    Flag("--arch", "as if it were x86_64 or aarch64", "ARCH"),
    Flag("--kernel", "as if it ran this kernel", "VERSION"),
    Flag("--disk", "as if this much disk were free", "SIZE"),
    Flag("--shm", "as if /dev/shm had this size", "SIZE"),
    Flag("--python-version", "as if the environment had this Python", "VERSION"),
)
RESOLVE_FLAGS = (
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--contract", "plan by this contract", "FILE"),
    Flag("--source", "where the framework's own sources are, if no index has it", "DIR"),
    Flag("--find-links", "a folder of wheels to take packages from as well", "DIR", many=True),
    Flag("--offline", "ask no index: what is in the cache and the folders must do"),
)


def what_if_values(flags: Mapping[str, Any]) -> dict[str, str]:
    names = [flag.name.lstrip("-") for flag in WHAT_IF_FLAGS]
    return {name: flags[name] for name in names if name in flags}


def nearest_name_hint(word: str, known: Iterable[str]) -> str:
    """Return ``; the nearest is NAME``, or an empty text where nothing is near."""
    from difflib import get_close_matches

    bare = {name.lstrip("-"): name for name in known}  # the dashes must not count as similarity
    near = get_close_matches(word.lstrip("-"), list(bare), 1, 0.6)
    return f"; the nearest is {bare[near[0]]}" if near else ""
