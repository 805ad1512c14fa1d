"""Misspelt keys and wrong values of an axolotl file are named by check and by fit alike."""

from __future__ import annotations

import json

import pytest

from gpuready.cli import run_command_line
from gpuready.jobs import axolotl
from gpuready.jobs.known_keys import KeyProblems, find_key_problems, list_job_keys

GOOD = {
    "base_model": "Qwen/Qwen2.5-0.5B",
    "adapter": "lora",
    "micro_batch_size": 2,
    "sequence_len": 512,
    "bf16": "auto",
}


def problems(**changed) -> KeyProblems:
    return find_key_problems("axolotl", GOOD | changed)


def test_a_good_file_has_none():
    assert problems() == KeyProblems()
    assert find_key_problems("deepspeed", {"anything": 1}) == KeyProblems(), "its keys are not in the catalogue"


@pytest.mark.parametrize(
    ("key", "meant"),
    [("adaptr", "adapter"), ("gradient_acumulation_steps", "gradient_accumulation_steps"), ("Learning-Rate", "learning_rate"),
     ("lora_dropuot", "lora_dropout"), ("datsets", "datasets"), ("context_parapllel_size", "context_parallel_size")],
)  # fmt: skip
def test_a_misspelt_key_has_the_one_that_was_meant(key, meant):
    bare = {name: value for name, value in GOOD.items() if name != "adapter"}
    assert find_key_problems("axolotl", bare | {key: 1}).misspelt == ((key, meant),)


def test_a_key_that_is_near_none_and_one_beside_the_right_key_are_only_unknown():
    assert problems(my_company_option=3) == KeyProblems(unknown=("my_company_option",))
    assert problems(adapterr="lora").misspelt == (), "adapter is in the file: something else was meant"


@pytest.mark.parametrize(
    ("key", "value", "takes"),
    [
        ("micro_batch_size", "two", "a whole number"),
        ("num_epochs", "three", "a number"),
        ("sample_packing", "perhaps", "true or false"),
        ("adapter", ["lora"], "text"),
        ("plugins", "liger", "a list"),
        ("lora_target_modules", {"a": 1}, "a list or text"),
        ("bnb_config_kwargs", "x", "a mapping"),
    ],
)
def test_a_value_of_a_wrong_kind_is_named(key, value, takes):
    assert [(one[0], one[1]) for one in problems(**{key: value}).wrong] == [(key, takes)]


@pytest.mark.parametrize(
    ("key", "value"),
    [("micro_batch_size", "2"), ("micro_batch_size", None), ("micro_batch_size", "${oc.env:MB}"), ("num_epochs", 3),
     ("learning_rate", "2e-4"), ("sample_packing", "yes"), ("sample_packing", 1), ("warmup_steps", 0.1),
     ("wandb_project", 42), ("eval_steps", 0.05), ("deepspeed", {"zero": 1}), ("deepspeed", "zero2.json")],
)  # fmt: skip
def test_what_the_schema_reads_is_accepted(key, value):
    assert problems(**{key: value}) == KeyProblems()


def test_every_key_that_gpuready_reads_is_in_the_catalogue():
    known = list_job_keys("axolotl")
    read = {name for name, _, _ in axolotl.AXOLOTL_UNCOUNTED} | set(axolotl.LIGER_KEYS) | set(axolotl.LORA_KERNEL_KEYS)
    assert len(known) > 450 and read - set(known) == set()


@pytest.fixture
def train(tmp_path):
    path = tmp_path / "train.yml"
    path.write_text(
        "base_model: Qwen/Qwen2.5-0.5B\nadaptr: lora\nnum_epochs: three\nown_thing: 1\nmicro_batch_size: 1\n"
    )
    return str(path)


def test_check_names_both(train, capsys):
    assert run_command_line(["check", "axolotl", "--on", "h100", "--config", train, "--json"]) == 1
    found = {one["code"]: one["says"] for one in json.loads(capsys.readouterr().out)["findings"]}
    assert "adaptr (adapter?)" in found["CAP017"] and "own_thing" not in found["CAP017"]
    assert "num_epochs takes a number, not 'three'" in found["CAP018"]


def test_fit_names_both_and_the_unknown_one_with_v_only(train, capsys):
    run_command_line(["fit", train, "--on", "h100", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert f"{train}: it has no key adaptr: did you mean adapter?" in result["notes"]
    assert f"{train}: num_epochs takes a number, not 'three'" in result["notes"]
    assert result["unknown_keys"] == ["own_thing"]
    shown = {}
    for words in ((), ("-v",)):
        run_command_line(["fit", train, "--on", "h100", *words])
        shown[words] = capsys.readouterr().out
    assert "own_thing" not in shown[()] and "own_thing" in shown[("-v",)]
    assert "did you mean adapter?" in shown[()].replace("\n      ", " ")


def test_fit_refuses_a_wrong_value_that_decides_it(tmp_path, capsys):
    path = tmp_path / "train.yml"
    path.write_text("base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: two\n")
    assert run_command_line(["fit", str(path), "--on", "h100"]) == 2
    assert "micro_batch_size must be a whole number from 1 up, not 'two'" in capsys.readouterr().err
