"""Completion in real shells: what a user gets for the Tab key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from gpuready.commands import load_all_commands
from gpuready.commands.completion import complete_words
from tests.running import SRC
from tests.running import gpuready as command

COMMANDS = load_all_commands()
HEADS = {name.partition(" ")[0] for name in COMMANDS}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the command in it, the scripts, and files to complete."""
    found = tmp_path_factory.mktemp("shell")
    (found / "bin").mkdir()
    (found / "bin" / "gpuready").write_text(f'#!/bin/sh\nPYTHONPATH="{SRC}" exec "{sys.executable}" -m gpuready "$@"\n')
    (found / "bin" / "gpuready").chmod(0o755)
    for shell in ("bash", "zsh", "fish"):
        ran = command("completion", shell)
        assert ran.code == 0
        (found / f"script.{shell}").write_text(ran.out)
    (found / "h100-recorded.json").write_text("{}")
    (found / "two words.log").write_text("")
    (found / "folder").mkdir()
    return found


def env(place) -> dict[str, str]:
    return {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": str(place), "LANG": "C.UTF-8", "TERM": "dumb"}


def bash(place, *words: str) -> set[str]:
    """What bash would offer for the last word."""
    listed = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    ask = f'COMP_WORDS=(gpuready {listed}); COMP_CWORD={len(words)}; _gpuready; printf "%s\\n" "${{COMPREPLY[@]}}"; '
    done = subprocess.run(
        ["bash", "--norc", "-c", f"source ./script.bash; {ask}"],
        cwd=place,
        env=env(place),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not [x for x in done.stderr.splitlines() if "compopt" not in x], done.stderr
    return {line for line in done.stdout.splitlines() if line}


def fish(place, *words: str) -> set[str]:
    line = "gpuready " + " ".join(words)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source script.fish; complete -C '{line}'"],
        cwd=place,
        env=env(place),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return {line.partition("\t")[0] for line in done.stdout.splitlines()}


ASKED = {"bash": bash, "fish": fish}
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed here"))
    for shell in ASKED
]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_flags_choices_and_names(place, shell):
    ask = ASKED[shell]
    assert ask(place, "") >= HEADS
    assert ask(place, "fleet", "check", "--pro") == {"--prolog"}
    assert ask(place, "check", "--driver", "5") == set()
    assert {"h100", "h100-recorded.json"} <= ask(place, "check", "--on", "h1")
    assert {"folder/", "folder"} & ask(place, "install", "-e", "fo")


def offered(*words: str) -> set[str]:
    """What a shell is given for the last word, without asking through one."""
    return {word for word, _ in complete_words([*words[:-1], f".{words[-1]}"])}


def test_commands_values_and_names_are_offered():
    assert "check" in offered("che") and {"list", "show", "diff", "new", "check"} <= offered("contract", "")
    assert "check" in offered("fleet", "ch") and "--driver" in offered("check", "--dr")
    assert {"text", "json", "sarif", "junit", "prometheus"} <= offered("check", "--format", "")
    assert {"transformers", "trl"} <= offered("check", "tr") and {"DRV001", "DRV002"} <= offered("explain", "DRV00")
    assert {"bash", "zsh", "fish"} <= offered("completion", "")
    assert "frameworks" in offered("completion", "--list", "fr")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_every_command_is_offered(name):
    assert {flag.flag for flag in COMMANDS[name].flags} <= offered(*name.split(), "-")


def test_a_value_behind_an_equals_sign_and_what_follows_two_dashes(place):
    assert bash(place, "check", "--format", "=", "sa") == {"sarif"}
    assert bash(place, "fit", "llama", "--gradient-checkpointing", "=", "") == {"reentrant", "off"}
    assert complete_words(["check", ".--format=s"])[2] == ("--format=sarif", "")
    assert "--seq" in offered("fit", "--gradient-checkpointing", "--s")
    assert bash(place, "run", "--", "fo") == {"folder"}
    assert bash(place, "diagnose", "two") == {"two words.log"}


@pytest.mark.parametrize("kind", ["frameworks", "gpus", "models", "codes", "torch", "proofs"])
def test_every_name_that_is_offered_is_taken(kind):
    names = command("completion", "--list", kind).out.split()
    assert len(names) > 5 and len(set(names)) == len(names)
    if kind == "gpus":
        from gpuready.catalog import gpus

        assert all(gpus.find_gpu(name) for name in names)


def test_a_shell_that_is_unknown_is_refused():
    for argv in (("tcsh",), (), ("bash", "--list", "gpus"), ("bash", "--json")):
        ran = command("completion", *argv)
        assert ran.code == 2 and ran.err.count("\n") == 1


# -- with a terminal, a prompt and the Tab key --------------------------------------------------------------

START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source ./script.bash"),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit && compinit -u -D && source ./script.zsh"),
}


class Terminal:
    def __init__(self, argv: list[str], place):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(place)
            os.execvpe(argv[0], argv, env(place) | {"PS1": "READY> ", "TERM": "vt100"})
        self.seen = ""

    def type(self, text: str, until: str, seconds: float = 60) -> str:
        """Type, and read on until something is seen."""
        self.seen = ""
        os.write(self.fd, text.encode())
        end = time.monotonic() + seconds
        while time.monotonic() < end and not re.search(until, self.seen):
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
        assert re.search(until, self.seen), self.seen
        return self.seen

    def close(self) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.mark.parametrize("shell", START)
def test_the_tab_key(place, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    argv, load = START[shell]
    terminal = Terminal(argv, place)
    try:
        terminal.type(f"{load} && echo loa''ded\n", "loaded")
        terminal.type("gpuready expl\t", "expl.*ain")
        terminal.type("DRV00\t\t", "DRV002")
        terminal.type("\x15gpuready check --form\t", r"--form.*at")
        terminal.type("\x15gpuready check --on h100-r\t", "h100-r.*ecorded.json")
    finally:
        terminal.close()
