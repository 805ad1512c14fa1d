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
                "plan": "plan vllm==0.32 --on h100x8 --wants fp8",
                "details": "check vllm==0.32 --on h100x8 --wants fp8 --as driver=550.54 -v",
            },
        ),
        (
            "axolotl vllm --on h100x8",
            {"plan": "plan axolotl vllm --on h100x8", "details": "check axolotl vllm --on h100x8 -v"},
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


JOBS = {
    "axolotl": "base_model: NousResearch/Meta-Llama-3-8B\nadapter: qlora\n",
    "llama-factory": "model_name_or_path: m\nfinetuning_type: lora\ncutoff_len: 2048\n",
    "roll": "actor_train: {}\nrollout_batch_size: 8\n",
    "transformers": "per_device_train_batch_size: 1\nnum_train_epochs: 1\n",
}


@pytest.mark.parametrize("framework", JOBS)
def test_a_file_of_one_framework_is_judged_for_it(framework, tmp_path, monkeypatch):
    """Without a FRAMEWORK; where several take such a file, it is as without one. What comes next keeps the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yml").write_text(JOBS[framework])
    found = last_commands("--config", "job.yml", "--on", "h100", "--driver", "525.60.13")
    assert found["plan"].startswith(f"gpuready plan {framework} ") and "--config job.yml" in found["plan"]


def test_a_plan_and_an_install_take_the_framework_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yml").write_text(JOBS["axolotl"])
    ran = gpuready("plan", "--config", "job.yml", "--on", "h100", "--no-resolve")
    assert ran.code == 0 and "axolotl train job.yml" in ran.out, ran.out + ran.err
    assert "not stated" not in ran.out, "the words of a screen: not given"
    (tmp_path / "job.yml").write_text(JOBS["transformers"])
    for command in ("plan", "install"):
        ran = gpuready(command, "--config", "job.yml", "--on", "h100")
        assert ran.code == 2 and "FRAMEWORK" in ran.err


def test_a_framework_for_gpus_alone_is_planned_for_elsewhere_where_none_is(tmp_path):
    """`install` would refuse, so that it is not called the fix."""
    from gpuready.model import Contract, Fact, Facts, Finding, Report
    from gpuready.render.check_report import list_next_commands

    facts = Facts([Fact("platform.name", "cpu", "test"), Fact("python.managed", True, "test")], "here")
    finding = Finding("GPU001", "error", "no NVIDIA GPU found")
    for platforms, command, labels in (
        (("cuda",), "fix", ["fix it", "elsewhere", "details"]),
        (("cuda", "cpu"), "install", ["fix it", "details"]),
    ):
        rows = list_next_commands(Report(Contract("demo", "1", platforms=platforms), facts, (finding,)))
        assert [label for label, _ in rows] == labels and rows[0][1][1] == command
