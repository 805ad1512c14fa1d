"""The words of the command line: what a flag, a command and a line of words are, and the flags that several share."""

from __future__ import annotations

from gpuready.model import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


class Usage(Exception):
    """A command line that is not understood, in one sentence."""


class Flag(Noun):
    """One flag; without ``takes`` it is a switch. ``bare``: it may stand alone, and a value only follows =."""

    name: str
    says: str
    takes: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    bare: bool = False


class Command(Noun):
    """One command: its arguments by name, at least and at most so many, and its flags."""

    name: str
    says: str
    flags: tuple[Flag, ...] = ()
    arguments: str = ""
    least: int = 0
    most: int = 0
    rest: str = ""  # what follows --, word for word, where a command takes that


class Told(Noun):
    """What a command line says."""

    command: str
    arguments: tuple[str, ...] = ()
    flags: dict[str, Any] = {}
    help: bool = False
    rest: tuple[str, ...] = ()


_COLOR = ("auto", "always", "never")
EVERYWHERE = (
    Flag("--json", "the same answer as a JSON document"),
    Flag("--color", "colour the answer", "WHEN", _COLOR),
)
PATIENT = (
    Flag("--on", "a recorded machine (FILE.json) or a name such as h100x8", "MACHINE"),
    Flag("--python", "the environment to look at: a Python, a venv or a conda prefix", "PATH"),
)
WHAT_IF = (
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
RESOLVE = (
    Flag("--wants", "what the job asks for, such as fp8,flash-attn", "LIST"),
    Flag("--contract", "plan by this contract", "FILE"),
    Flag("--source", "where the framework's own sources are, if no index has it", "DIR"),
    Flag("--find-links", "a folder of wheels to take packages from as well", "DIR", many=True),
    Flag("--offline", "ask no index: what is in the cache and the folders must do"),
)


def what_if(flags: Mapping[str, Any]) -> dict[str, str]:
    """What the what-if flags say."""
    names = [flag.name.lstrip("-") for flag in WHAT_IF]
    return {name: flags[name] for name in names if name in flags}


def nearest(word: str, known: Iterable[str]) -> str:
    """``; the nearest is NAME``, or nothing where nothing is near."""
    from difflib import get_close_matches

    bare = {name.lstrip("-"): name for name in known}  # two dashes make no flag like another
    near = get_close_matches(word.lstrip("-"), list(bare), 1, 0.6)
    return f"; the nearest is {bare[near[0]]}" if near else ""
