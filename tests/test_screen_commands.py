"""Every command on every golden screen can be pasted: a shell parses it, and gpuready takes its words."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.cli import parser
from gpuready.commands import COMMAND_MODULES
from tests.running import call_gpuready

GOLDENS = sorted(Path(__file__).parent.glob("*/golden/*.txt"))
SGR = re.compile(r"(?:\x1b|␛)\[[0-9;]*m")
START = re.compile(r"^ *(?:\$ |[a-z][a-z ]*:  +(?=gpuready ))(.*)$")


def find_commands(text: str) -> list[str]:
    """The commands of a screen, as a person would select them: with the lines that continue them."""
    found: list[str] = []
    lines = iter(SGR.sub("", text).splitlines())
    for line in lines:
        if start := START.match(line):
            command = start[1]
            while command.endswith(" \\"):
                command += "\n" + next(lines)
            found.append(command)
    return found


def split_words(command: str) -> list[str]:
    """The words as a shell splits them: shlex does not join continued lines."""
    return shlex.split(command.replace("\\\n", ""))


COMMANDS = {path: commands for path in GOLDENS if (commands := find_commands(path.read_text()))}


def test_a_command_is_found_with_its_continuation():
    text = (
        "fix it:   gpuready fix axolotl \\\n          --python '/a b/python'\n     $ uv venv .venv\nnote: gpuready is\n"
    )
    assert [split_words(one) for one in find_commands(text)] == [
        ["gpuready", "fix", "axolotl", "--python", "/a b/python"],
        ["uv", "venv", ".venv"],
    ]


def test_most_screens_have_commands():
    assert len(COMMANDS) > len(GOLDENS) * 0.7 and len(GOLDENS) > 100


def test_a_shell_parses_every_command():
    script = "\n".join(dict.fromkeys(command for several in COMMANDS.values() for command in several))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_the_words_of_every_command_are_whole():
    shown = {command: path.name for path, several in COMMANDS.items() for command in several}
    for command, name in shown.items():
        words = split_words(command)
        assert "…" not in command, "no word of a command is shortened"
        assert not any(line.endswith(("\\\\", "\\ ")) for line in command.splitlines())
        if words[0] == "gpuready" and "hostile" not in name:
            assert words[1] in {name.split()[0] for name in COMMAND_MODULES}, command
            parser.parse_command_line(words[1:])


SITUATIONS = (
    "check transformers --on 8xH100",
    "check transformers --on 8xH100 --as driver=580.95.05,torch=2.13.0",
    "check transformers --on v100 --driver 470.57.02",
    *(f"check transformers --on tests/machines/{name}.json" for name in ("h200", "old-driver", "no-gpu")),
    f"check transformers --python {sys.base_prefix}/bin/python3",
    "prove trl",
    "plan trl --on 8xH100 --no-resolve",
)
DRY = {"plan": ["--no-resolve"], "fix": ["--dry-run"]}
"""What keeps a command from an index and from changing anything."""


@pytest.mark.parametrize("asked", SITUATIONS)
def test_a_printed_command_works_where_it_was_printed(asked):
    """The first two of each screen are run as they stand."""
    words = asked.split()
    commands = [one for one in map(split_words, find_commands(call_gpuready(*words).out)) if one[0] == "gpuready"]
    assert commands
    here = [one for one in commands if ".venv" not in one and one[1] not in ("install", "run") and "--cpu" not in one]
    for command in here[:2]:
        if "--on" in words and command[1] != "explain":
            assert command[command.index("--on") + 1] == words[words.index("--on") + 1], "it is about the same machine"
        if "--python" in words:
            assert command[command.index("--python") + 1] == words[words.index("--python") + 1]
        ran = call_gpuready(*command[1:], *DRY.get(command[1], []))
        assert ran.code in (0, 1, 3) and ran.out and not ran.err, (command, ran.err)
