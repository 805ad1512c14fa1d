"""Every command of README, tutorial and how-to pages parses: bash takes it, and gpuready its words. `make docs-run` executes them."""

from __future__ import annotations

import re
import shlex
import subprocess

from gpuready.cli import parser
from gpuready.commands import COMMAND_MODULES
from tests.docs_commands import PAGES, find_commands, load_changes, strip_comment
from tests.every import every

COMMANDS = {page: commands for page in PAGES if (commands := find_commands(page))}
EVERY = [command for commands in COMMANDS.values() for command in commands]


def test_there_are_commands_on_most_pages():
    assert len(EVERY) > 100 and len(COMMANDS) > 20


def test_a_shell_parses_every_command():
    done = subprocess.run(["bash", "-n"], input="\n".join(EVERY), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and not done.stderr, done.stderr


@every("page", COMMANDS, ids=lambda page: page.stem)
def test_gpuready_takes_the_words_of_every_command(page):
    for command in COMMANDS[page]:
        assert "…" not in command and "..." not in command, command
        for inner in re.findall(r"(?:^|[|(] ?|[A-Z_]=\S+ |--no-python )(gpuready [^|)&]+)", strip_comment(command)):
            words = shlex.split(inner.replace('"', "") if inner.count('"') % 2 else inner)
            words = words[: words.index(">")] if ">" in words else words
            assert words[1] in {name.split()[0] for name in COMMAND_MODULES}, command
            parser.parse_command_line(words[1:])


def test_what_is_run_otherwise_is_a_line_of_a_page():
    lines = {strip_comment(command) for command in EVERY}
    changes = load_changes()
    assert set(changes) <= lines, set(changes) - lines
    assert all(("run" in row) != ("skip" in row) or "exits" in row for row in changes.values())
    assert sum("skip" in row for row in changes.values()) < len(lines) / 4
