"""Every command on every golden screen can be pasted: a shell parses it, and gpuready takes its words."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path

import pytest

from gpuready.cli import parser
from gpuready.commands import COMMAND_MODULES
from tests.running import Run, call_gpuready

GOLDENS = sorted(Path(__file__).parent.glob("*/golden/*.txt"))
SGR = re.compile(r"(?:\x1b|␛)\[[0-9;]*m")
START = re.compile(r"^ *(?:\$ |(?:undo|[a-z][a-z ]*: ) +(?=gpuready ))(.*)$")


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


PYTHON = f"{sys.base_prefix}/bin/python3"
SITUATIONS = (
    "check transformers --on 8xH100",
    "check transformers --on 8xH100 --as driver=580.95.05,torch=2.13.0",
    "check transformers --on v100 --driver 470.57.02",
    *(f"check transformers --on {name}.json" for name in ("h200", "old-driver", "no-gpu")),
    "check requirements.txt --on old-driver.json",
    "check axolotl.yml --on h200.json",
    "check Dockerfile --on h100",
    f"check transformers --python {PYTHON}",
    "check transformers --python venv",
    "check transformers --python venv --on h200.json",
    "check axolotl.yml --python venv --on h200.json",
    "prove trl",
    "prove --cpu --python venv",
    "plan trl --on 8xH100 --no-resolve",
    "plan --config axolotl.yml --on h100 --no-resolve",
    "plan --fix transformers --on old-driver.json --no-resolve",
    "plan transformers --on h200.json --python venv --no-resolve",
    "fix transformers --python venv --dry-run",
    "fix transformers --python venv --config axolotl.yml --dry-run",
    "fit llama-3.2-1b --on rtx3060 --method lora --micro-batch 4",
    "fit axolotl.yml --on t4 --seq 32k",
    "fit llama-3.2-1b --on rtx3060 --world 4",
    "fit llama-3.1-8b --on t4 --serve vllm",
    "fit llama-3.2-1b --on old-driver.json --micro-batch 64",
    "fleet check h200.json old-driver.json",
    "fleet check h200.json old-driver.json --as driver=550.54",
    "fleet check transformers venv --on h200.json",
    "diagnose driver.log",
    "diagnose driver.log --on old-driver.json",
    "diagnose memory.log --config axolotl.yml --on rtx4090",
    "run transformers --python venv --nproc 2 -- train.py",
    "run transformers --python venv --wants cpu --nproc 2 -- train.py",
    "install --lock broken.lock -e new --dry-run",
    "install --rollback -e venv",
    "bench --python venv --only disk",
)
SILENT = ("install --", "bench")
"""Answers that name no command: they have none to name."""
DRY = {"plan": ["--no-resolve"], "fix": ["--dry-run"], "install": ["--dry-run", "--offline"]}
"""What keeps a command from an index and from changing anything."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with an environment, a job, recordings and logs, as the situations name them."""
    folder = tmp_path_factory.mktemp("place")
    for name in ("h200", "old-driver", "no-gpu"):
        shutil.copy(Path(__file__).parent / f"machines/{name}.json", folder)
    venv.create(folder / "venv", with_pip=False)
    too_old = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
    files = {
        "requirements.txt": "torch==2.11.0\ntransformers==4.57.0\n",
        "Dockerfile": "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip install torch==2.11.0 transformers\n",
        "axolotl.yml": "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nsequence_len: 512\nadapter: lora\n",
        "train.py": "print('step')\n",
        "driver.log": f"{too_old}\n",
        "memory.log": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n",
        "broken.lock": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@cache
def ask(place: Path, *words: str) -> Run:
    """What a command says: many screens print the same one, and none of them changes anything."""
    return call_gpuready(*words, cwd=place)


@pytest.mark.parametrize("asked", SITUATIONS)
def test_a_printed_command_works_where_it_was_printed(asked, place):
    """Every command of ours on the screen is run in the folder where it was printed, and is about the same question."""
    words = asked.split()
    shown = ask(place, *words)
    own = [one for one in map(split_words, find_commands(shown.out)) if one[0] == "gpuready"]
    assert own or asked.startswith(SILENT), shown
    # What a step makes first is not there yet, and a new environment takes minutes: tests/apply installs really.
    for command in (one for one in own if ".venv" not in one and "new" not in one):
        for flag in ("--on", "--python", "--config"):
            is_refuted = flag == "--python" and "does not support this Python" in shown.out and command[1] == "plan"
            if flag in words and command[1] != "explain" and "--undo" not in command and not is_refuted:
                asked_for = value_of(flag, words)
                assert value_of(flag, command) in (asked_for, *command[2:3]) or asked_for in command, command
        if "--undo" in command:  # nothing was done yet: tests/workflow takes fixes back
            continue
        ran = ask(place, *command[1:], *DRY.get(command[1], []))
        assert ran.code in (0, 1, 3) and ran.out and not ran.err, (command, ran.err)
        assert "nothing that gpuready can change here" not in ran.out, command


def value_of(flag: str, words: list[str]) -> str:
    return words[words.index(flag) + 1] if flag in words else ""
