"""The commands at the end of a check: as the user asked, with what the next command takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from gpuready.cli import parser
from gpuready.commands import load_command
from gpuready.commands.declaration import Request, convert_words
from gpuready.commands.suggestions import option_words
from tests.running import call_gpuready as gpuready

MACHINES = Path(__file__).parents[1] / "machines"


def last_commands(*words: str) -> dict[str, str]:
    """The labelled commands of a screen, each on one line."""
    lines = gpuready("check", *words).out.replace("\\\n", "").splitlines()
    return {
        label: " ".join(rest.split())
        for label, _, rest in (line.partition(":  ") for line in lines)
        if "gpuready" in rest
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (
            "axolotl --on {m}/old-driver.json --strict --color never",
            {
                "plan": "plan axolotl --on {m}/old-driver.json",
                "details": "check axolotl --on {m}/old-driver.json --strict -v",
            },
        ),
        (
            "vllm==0.32 --on h100x8 --driver 550.54 --wants fp8",
            {
                "plan": "plan vllm==0.32 --on h100x8 --wants fp8 --driver 550.54",
                "details": "check vllm==0.32 --on h100x8 --driver 550.54 --wants fp8 -v",
            },
        ),
        ("transformers --on {m}/h200.json", {"details": "check transformers --on {m}/h200.json -v"}),
    ],
)
def test_the_commands_after_a_check(words, named):
    found = last_commands(*words.format(m=MACHINES).split())
    assert found.keys() == named.keys()
    for label, command in named.items():
        assert sorted(found[label].split()) == sorted(f"gpuready {command}".format(m=MACHINES).split())


@pytest.mark.parametrize(
    "line",
    [
        "demo --ignore 'GPU001=no GPU here; it is rented' --ignore SYS001=small --strict",
        "demo --python '/a b/bin/python' --config cfg.yml --wants fp8,flash-attn",
    ],
)
def test_the_words_of_a_call_are_those_it_was_made_with(line):
    words = shlex.split(line)
    parsed, command = parser.parse_command_line(["check", *words]), load_command("check")
    request = Request(command, parsed.arguments, convert_words(command, parsed.flags))
    assert [*parsed.arguments, *option_words(request, request.options)] == words
