"""Split a RUN line into its literal commands. Nothing is executed, and what needs a shell to be understood is not read."""

from __future__ import annotations

import json
import shlex

from gpuready.containers.dockerfile import UNKNOWN, BuildValues, expand_variables
from gpuready.model import Record

SYSTEM_MANAGERS = {"apt": "apt", "apt-get": "apt", "aptitude": "apt", "dnf": "dnf", "microdnf": "dnf", "yum": "yum",
                   "zypper": "zypper", "apk": "apk"}  # fmt: skip
"""Programs that install the distribution's packages, and the package manager of each."""

SHELL_WORDS = {
    "if", "for", "while", "until", "case", "function", "{", "}", "!", "[", "[[", "export", "unset", "alias", "eval",
    "exec", "source", ".", "pushd", "popd", "activate",
}  # fmt: skip
"""Words after which other commands of a script may mean something else, or may not run."""

HARMLESS_PROGRAMS = {
    "adduser", "addgroup", "cat", "chmod", "chown", "echo", "git", "groupadd", "ldconfig", "locale-gen", "ls", "mkdir",
    "printf", "set", "test", "touch", "true", "useradd", "usermod",
}  # fmt: skip
HARMLESS_VERBS = {
    **dict.fromkeys(SYSTEM_MANAGERS, ("autoclean", "autoremove", "clean", "makecache", "update", "upgrade")),
    **dict.fromkeys(("conda", "mamba", "micromamba"), ("clean", "info", "list", "--version")),
    **dict.fromkeys(("pip", "pip3", "uv"), ("cache", "check", "list", "--version")),
}
"""Verbs of package managers that change no package which a fact speaks of."""


class LiteralCommand(Record):
    """The words of one command, and the variables that are set for it alone."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """``pip`` of ``/opt/venv/bin/pip``."""
        return self.words[0].rpartition("/")[2].lower()


def strip_run_flags(text: str) -> str:
    """Strip ``--mount=…`` and ``--network=…``."""
    while text.startswith("--"):
        text = text.partition(" ")[2].lstrip()
    return text


def parse_exec_form(text: str) -> list[str]:
    """Parse ``["pip", "install", "x"]``; empty if it is not that form."""
    try:
        decoded = json.loads(text) if text.startswith("[") else None
    except (ValueError, RecursionError):
        return []
    return decoded if isinstance(decoded, list) and all(isinstance(word, str) for word in decoded) else []


def split_commands(text: str, values: BuildValues) -> list[LiteralCommand] | None:
    """Return the commands of ``a && b; c`` or of the JSON form; None where it is more than that."""
    exec_form = parse_exec_form(text)
    if exec_form:
        return [LiteralCommand(tuple(exec_form))]
    parts = None if "`" in text or "<<" in text else _split_at_operators(text)
    commands = [_strip_prefixes(_expand_words(words, values)) for words in parts or ()]
    if parts is None or any(
        not one.words or one.words[0] in SHELL_WORDS or "activate" in one.words for one in commands
    ):
        return None
    return commands


def _split_at_operators(script: str) -> list[list[str]] | None:
    lexer = shlex.shlex(script, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    try:
        for token in lexer:
            if token in ("&&", ";"):
                commands.append([])
            elif token.startswith("#") or (token and not token.strip("();<>|&")):
                return None
            else:
                commands[-1].append(token)
    except ValueError:  # a quote that is never closed
        return None
    return [words for words in commands if words]


def _expand_words(words: list[str], values: BuildValues) -> list[str]:
    """Expand variables; one whose value has blanks becomes several words."""
    return [part for word in words for part in (expand_variables(word, values).split() if "$" in word else [word])]


def _strip_prefixes(words: list[str]) -> LiteralCommand:
    """Split ``DEBIAN_FRONTEND=noninteractive sudo apt-get install x``."""
    variables: list[tuple[str, str]] = []
    while words and (words[0] == "sudo" or (words[0].partition("=")[0].isidentifier() and "=" in words[0])):
        name, equals, value = words[0].partition("=")
        variables += [(name, value)] if equals else []
        words = words[1:]
    return LiteralCommand(tuple(words), tuple(variables))


def is_harmless(command: LiteralCommand) -> bool:
    """Return whether a command changes no Python, package or toolkit."""
    words = command.words[1:]
    if command.program in ("rm", "ln", "cp", "mv"):
        touched = " ".join(words).lower()
        return UNKNOWN not in touched and not any(
            word in touched for word in ("python", "pip", "conda", "packages", "cuda", "managed")
        )
    if command.program in ("curl", "wget"):
        return True  # what runs what they fetched is a command of its own
    verb = next((word for word in words if not word.startswith("-") or word == "--version"), "")
    return command.program in HARMLESS_PROGRAMS or verb in HARMLESS_VERBS.get(command.program, ())
