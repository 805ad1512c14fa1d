"""``tarmac fit`` as a user meets it: the screen, the JSON, the exit codes, and bad input in one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarmac.fit import models
from tarmac.fitted import Fitted
from tarmac.render import fit as render
from tarmac.render.layout import Screen
from tarmac.workflow import Refused, fitting
from tests.running import tarmac

SMALL = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
AXOLOTL = """
base_model: ./model
sequence_len: 4096
sample_packing: true
micro_batch_size: 8
gradient_accumulation_steps: 2
optimizer: adamw_torch
bf16: true
flash_attention: true
"""
PLACE = {"name", "capability", "memory", "held", "indexes", "source", "needs", "peak", "verdict", "room"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "axolotl.yml").write_text(AXOLOTL)
    return tmp_path


def document(*words: str, cwd=None) -> tuple[dict, int]:
    ran = tarmac("fit", *words, "--json", cwd=cwd)
    assert ran.out, ran.err
    return json.loads(ran.out), ran.code


# -- the answer ---------------------------------------------------------------------------------------------------


def test_the_json_has_the_fields_of_the_issue(folder):
    found, code = document("model", "--micro-batch", "2", "--seq", "512", "--on", "h200", cwd=folder)
    assert (code, found["schema"], found["verdict"], found["fits"]) == (0, 1, "fits", True)
    for key in ("peak_allocated", "peak_reserved", "peak_device", "minimum"):
        assert isinstance(found[key], int) and found[key] > 0
    assert found["peak_allocated"] <= found["minimum"] <= found["peak_reserved"] < found["peak_device"]
    assert found["parts"]["parameters"] > 0 and found["phases"] and found["proposals"] == []
    assert all(isinstance(size, int) for size in (*found["parts"].values(), *found["phases"].values()))
    assert set(found["places"][0]) >= PLACE and found["job"]["micro_batch"] == 2
    assert found["said"]["seq"] == "the command line"


def test_a_job_that_does_not_fit_is_exit_1_with_the_change_in_the_words_of_its_file(folder):
    found, code = document("axolotl.yml", "--on", "rtx3060", cwd=folder)
    assert (code, found["verdict"], found["fits"], found["kind"]) == (1, "does not fit", False, "axolotl")
    first = found["proposals"][0]
    assert (
        first["verdict"] == "fits"
        and first["changes"]
        and first["settings"]
        and first["run"][:3] == ["tarmac", "fit", "axolotl.yml"]
    )
    again = tarmac(*first["run"][1:], "-q", cwd=folder)
    assert again.code == 0 and "fits on NVIDIA GeForce RTX 3060" in again.out
    ranks = [one["rank"] for one in found["proposals"]]
    assert ranks == sorted(ranks) == [round(rank, 2) for rank in ranks]


def test_inside_the_band_it_is_undecided_and_exit_3(folder):
    """The box of the card is between what the job needs at least and at most."""
    answer = fitting.fit([str(folder / "model")], {"micro_batch": 2, "seq": 512}, on="h200")
    assert answer.minimum is not None
    need = answer.minimum + answer.overhead[1]
    edge = answer.places[0].but(memory=(need - 1, need + 1), verdict="undecided")
    undecided = answer.but(places=(edge,))
    assert (undecided.verdict, undecided.fits, undecided.exit) == ("undecided", None, 3)
    assert "undecided:" in render.page(undecided, Screen())


def test_without_a_gpu_it_tells_which_would_do(folder):
    found, code = document("model", "--seq", "512", cwd=folder)
    if found["places"]:
        pytest.skip("there is a GPU here")
    assert (code, found["verdict"]) == (3, "undecided") and "--on" in found["why"]
    sizes = [place["memory"][1] for place in found["gpus"]]
    assert sizes == sorted(sizes) and {"fits"} <= {place["verdict"] for place in found["gpus"]}


def test_gpus_of_the_catalogue(folder):
    found, code = document("model", "--micro-batch", "16", "--seq", "2048", "--gpus", cwd=folder)
    assert code == 0 and found["verdict"] == "fits"
    by_verdict = {
        v: [p["memory"][0] for p in found["gpus"] if p["verdict"] == v] for v in ("fits", "does not fit")
    }
    assert by_verdict["fits"] and by_verdict["does not fit"]
    assert "NVIDIA GeForce RTX 4090" in {place["name"] for place in found["gpus"]}


@pytest.mark.parametrize(("what", "field", "unit"), [("micro-batch", "micro_batch", 1), ("seq", "seq", 64)])
def test_the_largest(folder, what, field, unit):
    found, code = document("model", "--seq", "1024", "--max", what, "--on", "rtx3060", cwd=folder)
    most = found["largest"]
    assert (
        code == 0
        and most["field"] == field
        and most["value"] >= unit
        and most["fails"] == most["value"] + unit
    )
    assert found["job"][field] == most["value"] and found["verdict"] == "fits"


def test_the_screen_is_80_columns_and_in_order(folder):
    out = tarmac("fit", "axolotl.yml", "--on", "rtx3060", cwd=folder).out
    assert max(map(len, out.splitlines())) <= 80
    order = [
        "fit of model",
        "at the peak",
        "needed",
        "NVIDIA GeForce RTX 3060",
        "what would make it fit",
        "costs:",
        "does not fit:",
    ]
    assert [out.index(word) for word in order] == sorted(out.index(word) for word in order)
    assert tarmac("fit", "axolotl.yml", "--on", "rtx3060", "-q", cwd=folder).out.count("\n") == 1


@pytest.mark.parametrize("width", [40, 80, 100])
def test_every_screen_fits_and_colour_changes_no_word(folder, width):
    answer = fitting.fit([str(folder / "axolotl.yml")], {}, on="rtx3060", every=True)
    for verbose in (False, True):
        plain = render.page(answer, Screen(width), verbose)
        assert all(len(line) <= width for line in plain.splitlines())
        painted = render.page(answer, Screen(width, colour=True), verbose)
        import re

        assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain


def test_what_a_file_says_cannot_move_the_cursor(folder):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL))
    (folder / "axolotl.yml").write_text(AXOLOTL.replace("./model", '"./model\\e[2J"'))
    ran = tarmac("fit", "axolotl.yml", cwd=folder)
    assert ran.code == 2 and "\x1b" not in ran.err + ran.out


# -- where the numbers come from ---------------------------------------------------------------------------------


def test_flags_come_after_the_file(folder):
    found, _ = document("axolotl.yml", "--micro-batch", "1", "--on", "h200", cwd=folder)
    assert found["job"]["micro_batch"] == 1 and found["job"]["seq"] == 4096
    assert found["said"]["micro_batch"] == "the command line" and "sequence_len" in found["said"]["seq"]


def test_a_model_and_files_together(folder):
    (folder / "ds.json").write_text(
        json.dumps({"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    )
    args = {"per_device_train_batch_size": 2, "bf16": True, "max_length": 512, "gradient_checkpointing": True}
    (folder / "args.json").write_text(json.dumps(args))
    answer = fitting.fit(
        ["llama-3.2-1b", str(folder / "args.json"), str(folder / "ds.json")], {}, on="h100x8", search=False
    )
    assert (answer.kind, answer.job["zero"], answer.job["world"], answer.job["precision"]) == (
        "trainer",
        2,
        8,
        "bf16",
    )


def test_what_others_hold_is_not_there(folder, tmp_path):
    def machine(free: int) -> str:
        facts = {"gpu.count": 1, "gpu.visible": [0], "gpu.name": ["NVIDIA H200"], "gpu.capability": ["9.0"]}
        facts |= {"gpu.memory": [150754820096], "gpu.free": [free]}
        path = tmp_path / f"{free}.json"
        rows = [{"key": key, "value": value, "source": "nvml"} for key, value in facts.items()]
        path.write_text(json.dumps({"schema": 1, "host": "x", "facts": rows}))
        return str(path)

    job = {"micro_batch": 4, "seq": 1024}
    idle = fitting.fit([str(folder / "model")], job, on=machine(150109880320))
    busy = fitting.fit([str(folder / "model")], job, on=machine(2 << 30), search=False)
    assert (idle.verdict, busy.verdict) == ("fits", "does not fit")
    assert busy.places[0].held == 150754820096 - (2 << 30)


def test_what_is_not_counted_never_fits(folder):
    (folder / "axolotl.yml").write_text(AXOLOTL + "lora_modules_to_save: [lm_head]\nadapter: lora\n")
    answer = fitting.fit([str(folder / "axolotl.yml")], {"micro_batch": 1}, on="h200")
    assert answer.verdict == "undecided" and "lora_modules_to_save" in answer.unmodelled[0]


def test_an_unknown_architecture_is_undecided_in_words(folder):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | {"model_type": "mamba9"}))
    found, code = document("model", "--on", "h200", cwd=folder)
    assert (code, found["verdict"], found["fits"], found["peak_allocated"]) == (3, "undecided", None, None)
    assert "--trace" in found["why"]
    assert "mamba9" in found["why"] and "mamba9" in tarmac("fit", "model", "--on", "h200", cwd=folder).out


# -- check and diagnose ------------------------------------------------------------------------------------------


def test_check_says_when_the_job_of_its_file_cannot_fit(folder):
    ran = tarmac("check", "axolotl", "--config", "axolotl.yml", "--on", "rtx3060", "--json", cwd=folder)
    codes = {finding["code"]: finding for finding in json.loads(ran.out)["findings"]}
    assert codes["MEM008"]["fix"][0]["run"] == ["tarmac", "fit", "axolotl.yml", "--on", "rtx3060"]
    ran = tarmac("check", "axolotl", "--config", "axolotl.yml", "--on", "h200", "--json", cwd=folder)
    assert "MEM008" not in {finding["code"] for finding in json.loads(ran.out)["findings"]}


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 11.63 GiB of which "
    "1.10 GiB is free. Including non-PyTorch memory, this process has 10.50 GiB memory in use. Of the allocated memory 9.80 GiB "
    "is allocated by PyTorch, and 112.00 MiB is reserved by PyTorch but unallocated.\n"
)


def test_diagnose_gives_the_exact_change_for_the_file(folder):
    (folder / "train.log").write_text("Traceback (most recent call last):\n" + OOM)
    ran = tarmac("diagnose", "train.log", "--config", "axolotl.yml", "--json", cwd=folder)
    found = json.loads(ran.out)
    assert found["code"] == "MEM001"
    step = found["fix"][0]
    assert step["run"][:3] == ["tarmac", "fit", "axolotl.yml"] and "costs:" in step["note"]
    assert any("by tarmac fit" in note for note in found["notes"])


# -- bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["llama-9"], "no model is known as 'llama-9' (nearest: "),
        (["gone.yml"], "gone.yml does not exist"),
        (["llama-3.1-8b", "--on", "h1000"], "--on 'h1000': no GPU of the catalogue has that name"),
        (["llama-3.1-8b", "--seq", "-5"], "--seq takes a whole number from 1 to 67108864, not '-5'"),
        (["llama-3.1-8b", "--micro-batch", "1e9"], "--micro-batch takes a whole number from 1 to 65536"),
        (["llama-3.1-8b", "--lora-targets", "../x;"], "--lora-targets takes all, qv, or names"),
        (["gpt2", "--seq", "2048"], "the model has 1024 positions"),
        (["llama-3.1-8b", "--gpus", "--max", "seq"], "--gpus and --max do not go together"),
        (["llama-3.1-8b", "-q", "-v"], "-q and -v do not go together"),
        (
            ["llama-3.1-8b", "qwen2.5-7b"],
            "one job has one model, and 'llama-3.1-8b' and 'qwen2.5-7b' are two",
        ),
        (["llama-3.1-8b", "--zero", "3", "--fsdp", "--on", "h100x8"], "ZeRO and FSDP"),
        (
            ["llama-3.1-8b", "--accumulation", "99999999999"],
            "--accumulation takes a whole number from 1 to 16777216",
        ),
        (["llama-3.1-8b", "--on", "h200", "--alloc-conf", "garbage_collection_threshold:2"], "cannot be '2'"),
        (["llama-3.1-8b", "--alloc-conf", "nonsense"], "'nonsense' has no value"),
        (["llama-3.1-8b", "--alloc-conf", "expandable_segment:True"], "has no setting 'expandable_segment'"),
        (["llama-3.1-8b", "--on", "h100", "--tensor-parallel", "8", "--world", "4"], "8 GPUs cannot share"),
        (["llama-3.1-8b", "--on", "h100", "--tensor-parallel", "4", "--world", "6"], "multiple of tensor"),
    ],
)
def test_bad_words_are_one_sentence_and_exit_2(words, sentence, tmp_path):
    ran = tarmac("fit", *words, cwd=tmp_path)
    assert "Traceback" not in ran.err and "tarmac failed" not in ran.err
    assert (
        ran.code == 2 and ran.err.startswith("tarmac: ") and sentence in ran.err and ran.err.count("\n") == 1
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden_size": -1}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"num_key_value_heads": 3}, "num_attention_heads"),
        ({"hidden_size": None}, "hidden_size"),
        ({"intermediate_size": 1.5}, "intermediate_size"),
        ({"hidden_size": 1020}, "hidden_size (1020) must be a multiple of the heads (8)"),
        ({"head_dim": 7}, "must be even"),
        ({"tie_word_embeddings": "no"}, "must be true or false, not 'no'"),
    ],
)
def test_an_absurd_config_is_one_sentence(folder, change, sentence):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | change))
    with pytest.raises(Refused) as refused:
        fitting.fit([str(folder / "model")], {}, on="h200")
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_flags_without_a_bearing_are_named():
    found = fitting.fit(["llama-3.2-1b"], {"cache": "static", "lora_r": 4}, on="h200", search=False)
    idle = {note.split()[0] for note in found.notes if note.endswith("it changes nothing")}
    assert idle == {"--lora-r", "--cache"}
    found = fitting.fit(["llama-3.2-1b"], {"method": "lora", "lora_r": 4}, on="h200", search=False)
    assert not any("it changes nothing" in note for note in found.notes)


def test_a_named_model_comes_before_that_of_a_file_and_a_byte_order_mark_is_passed_over(folder):
    (folder / "args.json").write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps({"model_name_or_path": "gpt2", "per_device_train_batch_size": 2}).encode()
    )
    found = fitting.fit(["llama-3.2-1b", str(folder / "args.json")], {}, on="h200", search=False)
    assert (found.model, found.job["micro_batch"]) == ("llama-3.2-1b", 2)


def test_another_allocator_is_undecided():
    found = fitting.fit(["llama-3.2-1b"], {"alloc_conf": "backend:cudaMallocAsync"}, on="h200", search=False)
    assert found.verdict == "undecided" and "cudaMallocAsync" in found.why


def test_generation_over_several_gpus_is_shared_and_proposed():
    whole, half = (
        fitting.fit(["llama-3.2-1b"], {"task": "generate", "tensor_parallel": n}, on="h100x2", search=False)
        for n in (1, 2)
    )
    assert half.parts["parameters"] < 0.75 * whole.parts["parameters"]
    assert half.parts["cache"] == whole.parts["cache"] // 2
    found = fitting.fit(["llama-3.1-70b"], {"task": "generate"}, on="h100x8")
    assert found.proposals[0].changes == {"world": 2, "tensor_parallel": 2}


def test_a_model_of_a_trillion_parameters_has_an_answer(folder):
    huge = SMALL | {
        "hidden_size": 32768,
        "intermediate_size": 131072,
        "num_hidden_layers": 64,
        "num_attention_heads": 256,
    }
    (folder / "model" / "config.json").write_text(json.dumps(huge | {"num_key_value_heads": 16}))
    found, code = document("model", "--on", "h100x8", cwd=folder)
    assert (code, found["fits"]) == (1, False) and found["minimum"] > 5 * 10**12


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=6)
    | st.lists(st.integers(), max_size=2)
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.sampled_from([*SMALL, "head_dim", "sliding_window", "rope_parameters", "attention_dropout"]),
        VALUES,
        max_size=3,
    )
)
def test_any_config_is_an_answer_or_one_sentence(folder, change):
    (folder / "model" / "config.json").write_text(json.dumps(SMALL | {"num_hidden_layers": 2} | change))
    try:
        answer = fitting.fit([str(folder / "model")], {"seq": 128}, on="h200", search=False)
    except Refused as refused:
        assert "\n" not in str(refused) and str(refused)
        return
    assert (
        isinstance(answer, Fitted)
        and render.page(answer, Screen())
        and render.fields(answer)["verdict"] == answer.verdict
    )


def test_the_models_of_the_catalogue_are_known_by_how_people_write_them():
    for name in (
        "meta-llama/Llama-3.1-8B-Instruct",
        "NousResearch/Meta-Llama-3-8B",
        "Qwen/Qwen2.5-7B-Instruct",
        "google/gemma-2-9b-it",
    ):
        assert models.known(name), name
    assert (
        models.known("Qwen/Qwen2.5-7B") != models.known("Qwen/Qwen2.5-0.5B")
        and models.known("no-such-model") is None
    )
    assert len(models.names()) == len(set(models.names())) >= 50


def test_a_known_model_that_sees_says_that_only_its_language_model_is_counted():
    answer = fitting.fit(["google/gemma-3-4b-it"], {"seq": 128}, on="h200", search=False)
    assert answer.verdict == "undecided" and "vision_config" in answer.unmodelled[0]
    assert fitting.fit(["gemma-3-4b"], {"seq": 8192}, on="rtx3060", search=False).verdict == "does not fit"
    assert not fitting.fit(["gemma-3-1b"], {"seq": 128}, on="h200", search=False).unmodelled


def test_the_parameters_of_the_catalogue_are_what_their_configs_amount_to():
    from tarmac.catalog import load
    from tarmac.probe.size import counted

    for row in load("models")["model"]:
        count = counted(row["config"])
        assert count in (None, row["parameters"]), row["name"]
