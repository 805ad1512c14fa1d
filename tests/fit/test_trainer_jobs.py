"""Jobs of the real transformers.Trainer, measured on an H200 (torch 2.11.0+cu130, transformers 5.17.0), and what follows from their batches:
masks that attention does not see, rows of unequal length, packing, several GPUs.
"""

from __future__ import annotations

import json
import venv

import pytest

from gpuready.fit import H200, FitJob, predict_memory
from gpuready.fit.job.gpu_candidates import list_catalogue_gpus
from gpuready.fit.search import traced_prediction
from gpuready.render.fit import explain_fit_verdict
from gpuready.workflow.fit import fit_job
from gpuready.workflow.fit_time import RunClock
from tests.running import gpuready

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True, "torch_dtype": "float32",
}  # fmt: skip
WIDER = LLAMA | {
    "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 24, "head_dim": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT2 = {
    "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257, "torch_dtype": "float32",
}  # fmt: skip
MEASURED = {  # the config, TrainingArguments, GiB allocated and reserved, milliseconds of a step
    "llama 1B": (LLAMA, {"bf16": True, "per_device_train_batch_size": 4, "optim": "adamw_torch_fused", "max_length": 1024}, 30.01, 31.03, 114),
    "checkpointed": (LLAMA, {"bf16": True, "per_device_train_batch_size": 8, "optim": "adamw_torch_fused", "max_length": 2048, "gradient_checkpointing": True}, 40.16, 45.21, 429),
    "adafactor": (QWEN, {"bf16": True, "per_device_train_batch_size": 4, "optim": "adafactor", "max_length": 1024}, 13.23, 16.93, 180),
    "lora": (WIDER, {"bf16": True, "per_device_train_batch_size": 2, "optim": "adamw_torch", "max_length": 2048, "use_peft": True, "lora_r": 32, "lora_target_modules": ["q_proj", "v_proj"]}, 23.00, 24.24, 180),
    "gpt2": (GPT2, {"per_device_train_batch_size": 8, "optim": "adamw_torch", "max_length": 512}, 7.81, 8.46, 94),
}  # fmt: skip


BATCHES = {  # "llama 1B" with rows of 1024 and 900 tokens, and with its four rows joined by transformers' flattening collator
    "padded": ({"padded": True}, 30.51, 31.54, 127),
    "flat": ({"packing": "flat"}, 30.89, 31.95, 142),
}


def write_job(folder, config: dict, arguments: dict) -> list[str]:
    for name, content in (("config.json", config), ("args.json", {"output_dir": "out"} | arguments)):
        (folder / name).write_text(json.dumps(content))
    return [str(folder / "config.json"), str(folder / "args.json")]


@pytest.mark.parametrize("name", MEASURED)
def test_a_job_of_the_trainer_is_what_was_measured(name, tmp_path):
    config, arguments, allocated, reserved, step = MEASURED[name]
    result = fit_job(write_job(tmp_path, config, arguments), {}, on="h200", search=False, clock=RunClock())
    assert result.peak_allocated / 2**30 == pytest.approx(allocated, rel=0.002)
    assert result.peak_reserved / 2**30 == pytest.approx(reserved, rel=0.002)
    assert result.time.step_seconds * 1e3 == pytest.approx(step, rel=0.12)


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_whose_mask_reaches_attention_is_what_was_measured(name, tmp_path):
    flags, allocated, reserved, step = BATCHES[name]
    words = write_job(tmp_path, *MEASURED["llama 1B"][:2])
    result = fit_job(words, flags, on="h200", search=False, clock=RunClock())
    assert result.peak_allocated / 2**30 == pytest.approx(allocated, rel=0.002)
    assert result.peak_reserved / 2**30 == pytest.approx(reserved, rel=0.002)
    assert result.time.step_seconds * 1e3 == pytest.approx(step, rel=0.12)


def test_rows_of_unequal_length_are_said_and_decide_where_they_matter(tmp_path):
    config, arguments, *_ = MEASURED["lora"]
    words = write_job(tmp_path, config, arguments)
    note = "counted with full rows: where those of a batch differ in length it needs 1.31 GiB more (--padded)"
    assert note in fit_job(words, {}, on="h200", search=False).notes
    assert note not in fit_job(words, {"padded": True}, on="h200", search=False).notes
    close = fit_job(words, {"seq": 1800}, on="rtx4090", search=False)
    assert close.places[0].needs[1] <= close.places[0].available_memory[0], "full rows fit"
    assert close.verdict == "undecided" and "1.14 GiB more (--padded)" in close.unmodelled[0]


def test_a_trace_sends_the_mask_that_a_trainers_collator_makes():
    job = FitJob(GPT2, micro_batch=2)
    asked = {
        loop: traced_prediction.build_trace_request(job.replace(loop=loop), H200)["mask"]
        for loop in ("plain", "trainer")
    }
    assert asked == {"plain": False, "trainer": True}
    assert not traced_prediction.build_trace_request(job.replace(loop="trainer", task="generate"), H200)["mask"]


def test_packed_rows_of_trl_are_one_row_whose_mask_reaches_attention(tmp_path):
    """TRL 1.16 joins them and sends positions; without flash attention transformers makes a mask of all tokens by all."""
    job = FitJob(LLAMA, micro_batch=4, seq=512, loop="trainer")
    flat = job.replace(packing="flat")
    assert flat.played_batch() == flat.replace(micro_batch=1, seq=2048, padded=True)
    bias = 16 * 2048 * 2048 * 2  # of each layer, in 16 bits
    assert predict_memory(flat, H200).peak_allocated - predict_memory(job, H200).peak_allocated > bias
    read = {}
    for key in ("bfd", "wrapped"):
        arguments = {"packing": True, "packing_strategy": key, "per_device_train_batch_size": 4}
        read[key] = fit_job(write_job(tmp_path, QWEN, arguments), {"seq": 256}, on="h200", search=False).job["packing"]
    assert read == {"bfd": "flat", "wrapped": "rows"}


# -- the time of a run ------------------------------------------------------------------------------------


def run_of(folder, dataset: str, **said) -> tuple[int | None, tuple[float, float] | None]:
    lines = (
        "base_model: llama-3.2-1b", f"datasets: [{{path: {dataset}, type: alpaca}}]", "sequence_len: 1024", "micro_batch_size: 2",
        "sample_packing: true", "flash_attention: true", "bf16: true", "num_epochs: 2", "learning_rate: 1e-4",
    )  # fmt: skip
    (folder / "a.yml").write_text("\n".join(lines))
    time = fit_job([str(folder / "a.yml")], {}, on="h200", search=False, clock=RunClock(**said)).time
    return time.steps, time.run_range


def test_the_tokens_of_packed_samples_count_and_not_their_rows(tmp_path):
    (tmp_path / "ids.jsonl").write_text("\n".join(json.dumps({"input_ids": [1] * 256}) for _ in range(80)))
    assert run_of(tmp_path, "ids.jsonl") == (20, None), "2 x 80 x 256 tokens in batches of 2 x 1024"
    assert run_of(tmp_path, "ids.jsonl", mean_tokens=512) == (40, None)
    assert run_of(tmp_path, "org/hub", samples=80, mean_tokens=256) == (20, None)


def test_a_length_that_is_not_known_is_a_range(tmp_path):
    steps, (low, high) = run_of(tmp_path, "org/hub", samples=80)
    assert (steps, round(high / low)) == (80, 80), "one token a sample, or a full row"
    (tmp_path / "text.jsonl").write_text("\n".join(json.dumps({"text": "a" * 1100}) for _ in range(80)))
    steps, (low, high) = run_of(tmp_path, "text.jsonl")
    assert 1.9 < high / low < 2.4 and 20 < steps < 40
    (tmp_path / "broken.jsonl").write_text("{")
    assert run_of(tmp_path, "broken.jsonl") == run_of(tmp_path, "org/hub") == (None, None)
    ran = gpuready("fit", "llama-3.2-1b", "--on", "h200", "--packing", "rows", "--samples", "80")
    assert "by how many tokens the packed samples have (--mean-tokens N)" in " ".join(ran.out.split())


# -- several GPUs -----------------------------------------------------------------------------------------


def test_a_machine_with_eight_gpus_means_eight():
    result = fit_job(["meta-llama/Llama-3.1-8B-Instruct"], {}, on="h100x8")
    assert (result.job["world"], result.verdict) == (8, "does not fit")
    assert "GiB on each of 8 GPUs (DDP), the GPU has" in explain_fit_verdict(result)
    assert [one.says.partition(" over")[0] for one in result.proposals] == ["ZeRO stage 2", "FSDP", "ZeRO stage 3"]
    for one in result.proposals:
        again = fit_job(["meta-llama/Llama-3.1-8B-Instruct"], dict(one.changes), on="h100x8", search=False)
        assert again.verdict == "fits" and again.minimum <= one.minimum


def test_the_headline_says_how_they_share_it():
    shown = [
        fit_job(["llama-3.2-1b"], {"seq": 256} | more, on="h100x2", search=False)
        for more in ({}, {"zero": 2}, {"fsdp": True}, {"world": 1})
    ]
    assert [explain_fit_verdict(one).partition(" on each of ")[2].partition(";")[0] for one in shown] == [
        "2 GPUs (DDP)", "2 GPUs (ZeRO 2)", "2 GPUs (FSDP)", "",
    ]  # fmt: skip


def test_no_gpu_is_offered_that_nobody_trains_on():
    names = {place.name for place in list_catalogue_gpus()}
    assert "NVIDIA H200" in names and not any("Jetson" in name for name in names)


# -- an environment for the trace -------------------------------------------------------------------------

RARE = {
    "model_type": "deepseek_v3",
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 128,
}


def ask_json(folder, *words: str, **environment: str) -> dict:
    (folder / "config.json").write_text(json.dumps(RARE))
    cache = folder / "cache"
    cache.mkdir(exist_ok=True)
    words = ("fit", str(folder / "config.json"), "--on", "h200", "--json", *words)
    return json.loads(gpuready(*words, cwd=folder, XDG_CACHE_HOME=str(cache), **environment).out)


def test_without_a_terminal_the_command_is_named_that_makes_an_environment_for_the_trace(tmp_path):
    home = tmp_path / "cache/gpuready/trace"
    for words in ((), ("--trace",)):
        answer = ask_json(tmp_path, *words, PATH="")
        assert answer["verdict"] == "undecided"
        assert (
            f"`gpuready install trl --wants cpu,lora -e {home}` makes an environment for the trace" in answer["notes"]
        )
    assert not home.exists()


def test_an_environment_that_was_made_traces_by_itself(tmp_path):
    """A Python without torch stands in its place: what it says shows that it was asked."""
    ask_json(tmp_path)
    home = tmp_path / "cache/gpuready/trace"
    venv.create(home)
    answer = ask_json(tmp_path)
    assert answer["why"] == f"{home}/bin/python could not trace the model: ModuleNotFoundError: No module named 'torch'"
    assert f"traced in {home}, which gpuready made for this: delete it to undo that" in answer["notes"]
