"""Flags mean what trainers do; a file decides for itself, and what is stated wins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.commands.declaration import UsageError
from gpuready.workflow.fit import fit_job

MEASURED = json.loads(Path(__file__).with_name("measured.json").read_text(encoding="utf-8"))


def ask(*words: str, **flags) -> dict:
    return dict(fit_job(words or ("llama-3.2-1b",), flags, on="h200", search=False).job)


def test_flags_alone_mean_transformers():
    job = ask(method="qlora")
    assert (job["trainer"], job["loop"], job["autocast"], job["kbit"]) == ("transformers", "trainer", "bf16", True)


def test_plain_leaves_everything_as_it_is_told():
    job = ask(method="qlora", trainer="plain")
    assert (job["loop"], job["autocast"], job["kbit"]) == ("plain", "", False)


@pytest.mark.parametrize("trainer", ["transformers", "trl", "axolotl", "llama-factory"])
def test_every_trainer_prepares_a_quantised_base_and_autocasts(trainer):
    job = ask(method="qlora", trainer=trainer)
    assert (job["autocast"], job["kbit"]) == ("bf16", True)


def test_what_is_stated_wins_over_the_trainer():
    job = ask(method="qlora", autocast="", kbit=False, checkpointing="none", trainer="trl")
    assert (job["autocast"], job["kbit"], job["checkpointing"]) == ("", False, "none")


def test_trainers_that_checkpoint_by_default():
    assert ask(trainer="trl")["checkpointing"] == "nonreentrant"
    assert ask(trainer="llama-factory")["checkpointing"] == "reentrant"
    assert ask(trainer="llama-factory")["precision"] == "amp-bf16"


def test_nothing_is_cast_where_deepspeed_or_fsdp_does_it():
    assert ask(zero=2, world=2)["autocast"] == ask(fsdp=True, world=2)["autocast"] == ""


def test_generation_has_no_trainer():
    assert ask(task="generate")["autocast"] == ""


def test_the_verbose_screen_says_what_was_assumed():
    said = fit_job(("llama-3.2-1b",), {"method": "qlora"}, on="h200", search=False).said
    assert said["kbit"] == said["autocast"] == "what transformers does"


@pytest.mark.parametrize("id", ["Q02", "Q10", "H04"])
def test_qlora_by_flags_alone_is_what_was_measured(id, tmp_path):
    case = next(one for one in MEASURED["cases"] if one["id"] == id)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MEASURED["models"][case["model"]]), encoding="utf-8")
    flags = {k: v for k, v in case["job"].items() if k not in ("kbit", "autocast", "loop")}
    result = fit_job((str(path),), flags, on="h200", search=False)
    assert result.peak_allocated == pytest.approx(case["allocated"], rel=0.003)


def test_flags_of_the_command_line():
    from gpuready.commands import load_command
    from gpuready.commands.declaration import Request
    from gpuready.commands.job_fields import job_fields

    def read(**options):
        return job_fields(Request(load_command("fit"), ("m",), options))

    assert read(autocast="off", kbit="on", lora_dropout="0.05", dora=True) == {
        "autocast": "", "kbit": True, "lora_dropout": 0.05, "dora": True,
    }  # fmt: skip
    with pytest.raises(UsageError, match="lora-dropout"):
        read(lora_dropout="much")


def test_trl_arguments_that_quantise_are_prepared(tmp_path):
    path = tmp_path / "sft.yaml"
    path.write_text(
        "model_name_or_path: llama-3.2-1b\nuse_peft: true\nload_in_4bit: true\nbf16: true\nlearning_rate: 1.0e-4\n"
        "per_device_train_batch_size: 1\nmax_length: 512\n",
        encoding="utf-8",
    )
    job = ask(str(path))
    assert (job["trainer"], job["kbit"], job["loop"]) == ("transformers", True, "trainer")
