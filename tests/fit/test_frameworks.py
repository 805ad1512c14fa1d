"""What the frameworks do of themselves, and their files leave unsaid: small files of our own in their words."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuready.catalog import machine_names
from gpuready.fit import FitJob, predict_memory
from gpuready.fit.job import known_models
from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.job.records import H200
from gpuready.jobs import job_files, model_config
from gpuready.workflow import Refused, fit

LORA = {"base_model": "llama-3.2-1b", "adapter": "lora", "lora_r": 8, "lora_target_linear": True, "bf16": True}
FULL = {"base_model": "llama-3.2-1b", "bf16": True, "flash_attention": True, "micro_batch_size": 1}
NEW = {
    "model": "Qwen/Qwen3-4B", "model_class": "llm", "micro_batch_size": 2, "cutoff_len": 1024, "learning_rate": 1e-4,
    "dist_config": {"name": "fsdp2"}, "peft_config": {"name": "lora", "r": 8, "target_modules": "all"},
}  # fmt: skip


def read(found: dict, name: str = "a.yml") -> job_files.JobSettings:
    disk = {name: yaml.safe_dump(found)}.get
    return job_files.merge_settings(job_files.read_settings_with_nested(job_files.load_job_file(name, disk), disk))


# -- axolotl --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, "reentrant"),
        ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, "nonreentrant"),
        ({"rl": "dpo"}, "nonreentrant"),
        ({"unfrozen_parameters": ["model.layers.1"]}, "nonreentrant"),
        ({"gradient_checkpointing": False}, None),
    ],
)
def test_axolotl_checkpoints_reentrant_unless_told_otherwise(more, kind):
    assert read(FULL | {"gradient_checkpointing": True} | more).fields.get("checkpointing") == kind


@pytest.mark.parametrize(
    ("more", "takes", "word"),
    [
        ({"unfrozen_parameters": ["lm_head"]}, "less", "unfrozen_parameters"),
        ({"lora_modules_to_save": ["lm_head"]}, "more", "lora_modules_to_save"),
        ({"processor_type": "AutoProcessor"}, "more", "processor_type"),
        ({"torch_compile": True}, "both", "torch_compile"),
        ({"optimizer": "adamw_torch_8bit"}, "less", "adamw_torch_8bit"),
        ({"optimizer": "muon"}, "both", "muon"),
        ({"tiled_mlp": True}, "less", "tiled_mlp"),
        ({"flash_attention": False, "sdp_attention": True}, "more", "fp32 without flash attention"),
        ({"val_set_size": 0.1, "eval_batch_size": 16}, "more", "eval_batch_size"),
        ({"torch_compile": False, "qat": None, "lora_modules_to_save": []}, "", ""),
    ],
)
def test_what_axolotl_is_asked_for_and_nobody_counts_is_told(more, takes, word):
    found = read(FULL | more)
    assert any(word in says for says in found.unmodelled) == (takes in ("more", "both"))
    assert any(word in says for says in found.lessened) == (takes in ("less", "both"))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"zero_optimization": {"stage": 1}, "expert_parallel": {"autoep_size": 4}}, "expert_parallel.autoep_size"),
        ({"zero_optimization": {"stage": 1}, "pipeline": {"stages": 2}}, "pipeline"),
        ({"zero_optimization": {"stage": 1}, "moe": {"ep_size": 8}}, "moe.ep_size"),
        (
            {"per_device_train_batch_size": 1, "output_dir": "x", "expert_model_parallel_size": 2},
            "expert_model_parallel_size",
        ),
        ({"per_device_train_batch_size": 1, "output_dir": "x", "ep_size": 1, "num_experts": 8}, ""),
    ],
)
def test_expert_and_pipeline_parallelism_is_named_by_any_key(config, key):
    found = read(config)
    named = [says for says in found.lessened if "among GPUs" in says]
    assert [says.partition(" ")[0] for says in named] == ([key] if key else [])


def test_the_plugin_of_axolotl_turns_its_loss_on():
    plugins = {"plugins": ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]}
    assert read(FULL | plugins).fields["loss"] == "fused"
    assert "loss" not in read(FULL | plugins | {"cut_cross_entropy": False}).fields


def test_packed_samples_without_flash_attention_are_told_apart_by_a_mask():
    assert read(LORA | {"sample_packing": True, "sdp_attention": True}).fields["padded"] is True
    assert "padded" not in read(LORA | {"sample_packing": True, "flash_attention": True}).fields


def test_an_adapter_that_is_not_there_says_nothing():
    assert not {"lora_r", "lora_targets", "method"} & set(read(FULL | {"lora_r": 8, "lora_target_linear": True}).fields)


def test_ranks_of_axolotl():
    found = read(FULL | {"fsdp_config": {"reshard_after_forward": True}, "dp_shard_size": 4, "tensor_parallel_size": 2})
    assert (found.fields["world"], found.fields["tensor_parallel"], found.fields["fsdp"]) == (8, 2, True)
    assert read(FULL | {"fsdp": ["shard_grad_op", "offload"]}).fields["reshard"] is False


# -- FSDP under accelerate ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        (FULL | {"fsdp_config": {"fsdp_version": 2}},),
        ({"model_name_or_path": "llama-3.2-1b", "per_device_train_batch_size": 1, "bf16": True, "fsdp": "full_shard"},),
        (
            {"distributed_type": "FSDP", "mixed_precision": "bf16", "fsdp_config": {"fsdp_version": 2}},
            {"model_name_or_path": "llama-3.2-1b", "per_device_train_batch_size": 1, "optim": "adamw_torch"},
        ),
    ],
)
def test_mixed_precision_makes_the_shares_of_fsdp_fp32(tmp_path, arguments):
    paths = []
    for n, found in enumerate(arguments):
        paths.append(str(tmp_path / f"{n}.yml"))
        (tmp_path / f"{n}.yml").write_text(yaml.safe_dump(found))
    answer = fit.fit_job(paths, {"seq": 512}, on="h100x4", search=False)
    assert (answer.job["fp32_shards"], answer.job["precision"], answer.job["world"]) == (True, "bf16", 4)
    plain = fit.fit_job(["llama-3.2-1b"], {"fsdp": True, "seq": 512, "world": 4}, on="h100x4", search=False)
    weights = known_models.find_model_config("llama-3.2-1b")
    assert weights and answer.peak_allocated > plain.peak_allocated


def test_a_share_in_fp32_holds_twice_and_so_does_its_state():
    job = FitJob(known_models.find_model_config("llama-3.2-1b"), seq=64, fsdp=True, world=4, optimizer="adamw_fused")
    narrow, wide = (predict_memory(job.replace(fp32_shards=on), H200, False) for on in (False, True))
    parts = [fit.phases["zero1"] for fit in (narrow, wide)]
    assert parts[1] / parts[0] == pytest.approx(2, rel=0.1)


# -- Hugging Face, LLaMA-Factory, DeepSpeed, accelerate, ROLL ---------------------------------------------------


@pytest.mark.parametrize(
    ("key", "says"), [("export_dir", "exports a model"), ("infer_backend", "answers with a model")]
)
def test_a_file_that_trains_nothing_is_told_so(key, says):
    with pytest.raises(ValueError, match=says):
        read({"model_name_or_path": "x", "template": "qwen", key: "y"})


def test_new_files_of_llama_factory():
    found = read(NEW)
    assert found.kind == "llama-factory" and found.model == "Qwen/Qwen3-4B"
    wanted = {
        "micro_batch": 2,
        "seq": 1024,
        "method": "lora",
        "lora_r": 8,
        "fsdp": True,
        "checkpointing": "nonreentrant",
    }
    assert wanted.items() <= found.fields.items()
    four = read(NEW | {"quant_config": {"name": "bnb", "quantization_bit": 4}})
    assert (four.fields["method"], four.fields["quant"]) == ("qlora", "nf4")
    full = {key: value for key, value in NEW.items() if key != "peft_config"}
    assert read(full).fields["fp32_shards"] is True
    assert read(full | {"dist_config": None}).fields["precision"] == "amp-bf16"


def test_arguments_of_trl_tell_the_preference():
    base = {"per_device_train_batch_size": 1, "bf16": True}
    assert read(base | {"precompute_ref_log_probs": False}).fields["dpo"] is True
    assert "num_generations" in read(base | {"num_generations": 8}).unmodelled[0]
    assert "dpo" not in read(base).fields


def test_deepspeed_without_zero_keeps_a_copy_that_is_not_counted():
    half = {"bf16": {"enabled": True}, "train_micro_batch_size_per_gpu": 1}
    assert "fp32 copy" in read(half | {"zero_optimization": {"stage": 0}}).unmodelled[0]
    assert not read(half | {"zero_optimization": {"stage": 1}}).unmodelled


def test_ranks_of_accelerate():
    at = "parallelism_config_"
    sizes = {f"{at}dp_shard_size": 2, f"{at}dp_replicate_size": 2, f"{at}tp_size": 2, f"{at}cp_size": 1}
    found = read({"distributed_type": "FSDP", "num_processes": 8, "parallelism_config": sizes})
    assert (found.fields["world"], found.fields["tensor_parallel"], found.lessened) == (4, 2, ())
    found = read({"distributed_type": "FSDP", "parallelism_config": {f"{at}cp_size": 4}})
    assert found.fields["context_parallel"] == 4 and found.fields["fsdp_version"] == 1


def test_a_student_of_roll_trains():
    role = {"training_args": {"per_device_train_batch_size": 4}, "strategy_args": {"strategy_name": "fsdp2_train"}}
    found = read({"student_pretrain": "Qwen/Qwen2.5-7B", "student": role, "sequence_length": 1024})
    assert (found.kind, found.model, found.fields["micro_batch"]) == ("roll", "Qwen/Qwen2.5-7B", 4)
    assert found.fields["fp32_shards"] is True


def test_training_takes_every_gpu_and_generation_one(tmp_path):
    (tmp_path / "a.yml").write_text(yaml.safe_dump(FULL | {"sequence_len": 256}))
    assert fit.fit_job([str(tmp_path / "a.yml")], {}, on="h100x4", search=False).job["world"] == 4
    assert fit.fit_job(["llama-3.2-1b"], {"seq": 256}, on="h100x4", search=False).job["world"] == 4
    assert fit.fit_job(["llama-3.2-1b"], {"seq": 256, "world": 1}, on="h100x4", search=False).job["world"] == 1
    assert fit.fit_job(["llama-3.2-1b"], {"task": "generate"}, on="h100x4", search=False).job["world"] == 1


def test_what_takes_less_is_never_called_too_large(tmp_path):
    (tmp_path / "a.yml").write_text(yaml.safe_dump(FULL | {"base_model": "llama-3.1-8b", "lisa_n_layers": 4}))
    answer = fit.fit_job([str(tmp_path / "a.yml")], {}, on="rtx3060", search=False)
    assert (answer.verdict, answer.exit) == ("undecided", 3) and "lisa_n_layers" in answer.lessened[0]


def test_an_adapter_on_layers_that_are_not_there_is_one_sentence():
    with pytest.raises(Refused, match="no layer of the model is called Wqkv"):
        fit.fit_job(["llama-3.2-1b"], {"method": "lora", "lora_targets": ("Wqkv",)}, on="h100", search=False)


# -- configs of models -----------------------------------------------------------------------------------------


def test_a_language_model_inside_another_is_filled_up_and_the_rest_is_not_forgotten():
    inner = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    result = model_config.read_model_settings(
        {"model_type": "gemma3", "text_config": inner, "vision_config": {"hidden_size": 1152}}, "c"
    )
    assert (result.model["num_attention_heads"], result.model["vocab_size"], result.model["num_hidden_layers"]) == (
        8,
        262208,
        34,
    )
    assert "vision_config and what it feeds in" in result.unmodelled[0]
    llava = model_config.read_model_settings(
        {"text_config": {"model_type": "llama", "vocab_size": 32064}, "vision_config": {"x": 1}}, "c"
    )
    assert predict_memory(FitJob(llava.model, seq=64), H200, False).parts["parameters"] == pytest.approx(
        2 * 6.74e9, rel=0.01
    )


@pytest.mark.parametrize(
    ("kind", "outer", "inner", "tied"),
    [
        ("qwen3_vl", False, True, False),
        ("qwen3_vl", True, False, True),
        ("qwen2_5_vl", False, True, True),
        ("llava", None, True, True),
        ("internvl", None, False, False),
        ("llava", True, None, True),
    ],
)
def test_the_outer_config_says_whether_embeddings_are_tied(kind, outer, inner, tied):
    text = known_models.find_model_config("llama-3.2-1b") | {"tie_word_embeddings": inner}
    whole = {"model_type": kind, "tie_word_embeddings": outer, "text_config": text}
    counted = 1_235_814_400 + (0 if tied else 128256 * 2048)
    assert model_config.read_model_settings(whole, "c").model["tie_word_embeddings"] is tied
    assert model_config.count_model_parameters(whole) == counted
    assert count_parameters(parse_model_config(whole)) == counted


@pytest.mark.parametrize(
    ("how", "fields", "less"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, {"quant": "nf4"}, False),
        ({"load_in_8bit": True}, {"quant": "int8"}, False),
        ({"quant_method": "gptq", "bits": 4}, {}, True),
        ("nonsense", {}, False),
    ],
)
def test_a_checkpoint_that_is_stored_quantised(how, fields, less):
    result = model_config.read_model_settings(
        known_models.find_model_config("llama-3.2-1b") | {"quantization_config": how}, "c"
    )
    assert fields.items() <= result.fields.items() and bool(result.lessened) == less


def test_a_quantised_checkpoint_is_not_trained_in_full(tmp_path):
    how = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (tmp_path / "config.json").write_text(
        json.dumps(known_models.find_model_config("llama-3.2-1b") | {"quantization_config": how})
    )
    with pytest.raises(Refused, match="a quantised base cannot be trained in full"):
        fit.fit_job([str(tmp_path)], {}, on="h100", search=False)
    assert fit.fit_job([str(tmp_path)], {"method": "lora"}, on="h100", search=False).job["quant"] == "fp4"
    assert (
        fit.fit_job(["unsloth/Llama-3.2-1B-bnb-4bit"], {"method": "lora"}, on="h100", search=False).job["quant"]
        == "nf4"
    )


# -- slices ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "gpu", "size"),
    [
        ("h100-1g.10gb", "h100", 10), ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A100-SXM4-40GB", 5),
        ("a100 3g.40gb", "a100", 40), ("h100x8", "", 0), ("rtx4090", "", 0),
    ],
)  # fmt: skip
def test_a_slice_by_its_name(name, gpu, size):
    found = machine_names.parse_mig_slice(name)
    assert (found and (found[0], found[2])) == ((gpu, size) if size else None)


def test_a_slice_has_its_own_memory_and_not_the_gpus():
    (place,) = fit.fit_job(["qwen2.5-0.5b"], {"seq": 256}, on="h100-1g.10gb", search=False).places
    assert 8 << 30 < place.memory[0] < place.memory[1] < 10 << 30 and place.capability == "9.0"
