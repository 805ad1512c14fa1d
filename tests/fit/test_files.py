"""The frameworks' own files, read: each kind in its own words, and nonsense in one sentence."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.fit.job import known_models
from gpuready.fit.job.records import FitJob
from gpuready.jobs import job_files
from gpuready.jobs.roll_colossalai import parse_device_mapping
from tests.sampling import FUZZ

AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
load_in_4bit: true
adapter: qlora
sequence_len: 4096
sample_packing: true
lora_r: 32
lora_dropout: 0.05
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: paged_adamw_32bit
bf16: auto
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: true
attn_implementation: flash_attention_2
"""
ROLL = """
pretrain: Qwen/Qwen2.5-7B
prompt_length: 2048
response_length: 4096
actor_train:
  model_args:
    attn_implementation: fa2
    disable_gradient_checkpointing: false
    dtype: bf16
  training_args:
    per_device_train_batch_size: 1
    gradient_accumulation_steps: 32
  strategy_args:
    strategy_name: deepspeed_train
    strategy_config: ${deepspeed_zero3}
  device_mapping: list(range(0,16))
actor_infer:
  model_args: {dtype: bf16}
  strategy_args: {strategy_name: vllm}
  device_mapping: list(range(16,32))
"""
TRAINER = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "optim": "adamw_torch_fused",
    "bf16": True,
    "gradient_checkpointing": True,
    "max_length": 2048,
    "output_dir": "out",
}
DEEPSPEED = {
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    "bf16": {"enabled": True},
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "train_batch_size": 64,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}},
}
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_offload_params: false
  fsdp_activation_checkpointing: true
"""
PLUGIN = """
from colossalai.booster.plugin import HybridParallelPlugin
BATCH_SIZE = 4
plugin = HybridParallelPlugin(tp_size=2, pp_size=1, zero_stage=1, precision="bf16", enable_flash_attention=True)
"""


def read_disk(path: str, disk: dict[str, str]) -> list[job_files.JobSettings]:
    """The settings of a file, and of those that it names."""
    return job_files.read_settings_with_nested(job_files.load_job_file(path, disk.get), disk.get)


def read(text: str, name: str = "a.yml") -> job_files.JobSettings:
    return job_files.read_job_settings(job_files.load_job_file(name, {name: text}.get))


def fields(text: str, name: str = "a.yml", *keys: str) -> dict:
    found = dict(job_files.merge_settings(read_disk(name, {name: text})).fields)
    return {key: found.get(key) for key in keys} if keys else found


def test_axolotl():
    one = read(AXOLOTL, "axolotl.yml")
    assert (one.kind, one.model, one.unmodelled, one.lessened) == ("axolotl", "NousResearch/Meta-Llama-3.1-8B", (), ())
    assert one.fields == {
        "loop": "trainer", "micro_batch": 2, "accumulation": 4, "seq": 4096, "method": "qlora", "quant": "nf4",
        "double_quant": True, "lora_r": 32, "lora_dropout": 0.05, "lora_targets": "all", "precision": "bf16",
        "autocast": "bf16",
        "optimizer": "paged_adamw", "checkpointing": "reentrant", "attention": "flash", "packing": "rows",
    }  # fmt: skip
    assert one.said["seq"] == "axolotl.yml: sequence_len"
    FitJob(known_models.find_model_config(str(one.model)), **one.fields).validate_fields()


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("lora_target_linear: false\nlora_target_modules: [q_proj, v_proj]", "lora_targets", "qv"),
        ("lora_target_linear: false\nlora_target_modules: [q_proj]", "lora_targets", ("q_proj",)),
        ("lora_target_linear: false\nlora_target_modules: '(q|v)_proj'", "lora_targets", "all"),
        ("liger_fused_linear_cross_entropy: true", "loss", "fused"),
        ("liger_fused_linear_cross_entropy: true\nliger_rms_norm: true\nliger_rope: true", "loss", "liger"),
        ("sample_packing: false", "padded", None),
        ("sample_packing: false", "packing", None),
        ("rl: dpo", "dpo", True),
        ("rl: dpo", "padded", True),
        ("gradient_checkpointing: offload", "offload", "activations"),
        ("bf16: false\nfp16: true", "precision", "fp16"),
        ("bf16: false", "precision", "fp32"),
        ("deepspeed: {zero_optimization: {stage: 2}}", "zero", 2),
        ("deepspeed: {zero_optimization: {stage: 2.0}}", "zero", 2),
        ("deepspeed: {zero_optimization: {stage: 3, sub_group_size: 1e7}}", "sub_group", 10_000_000),
        ("fsdp_config: {offload_params: true}", "offload", "parameters"),
        ("peft_use_dora: true", "dora", True),
    ],
)
def test_axolotl_in_detail(more, field, value):
    whole = yaml.safe_load(AXOLOTL) | yaml.safe_load(more)
    assert fields(yaml.safe_dump(whole), "a.yml", field) == {field: value}


def test_roll():
    one = read(ROLL)
    assert (one.kind, one.model) == ("roll", "Qwen/Qwen2.5-7B")
    assert dict(one.fields) == {
        "loop": "plain", "seq": 6144, "precision": "bf16", "attention": "flash", "checkpointing": "nonreentrant",
        "micro_batch": 1, "accumulation": 32, "world": 16, "zero": 3,
    }  # fmt: skip
    assert not one.unmodelled  # the other role has GPUs of its own
    shared = read(ROLL.replace("range(16,32)", "range(0,16)"))
    assert "actor_infer shares GPUs" in shared.unmodelled[0]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("list(range(0,8))", 8), ("list(range(8))", 8), ("[0, 1, 2]", 3), ("list(range(0,4)) + list(range(8,12))", 8),
        ("__import__('os').system('true')", 0), ("list(range(0,99999))", 1 << 16), ("", 0),
    ],
)  # fmt: skip
def test_a_device_mapping_is_counted_and_never_run(text, count):
    assert len(parse_device_mapping(text)) == count


def test_training_arguments():
    found = fields(json.dumps(TRAINER), "args.json")
    assert found["optimizer"] == "adamw_fused" and found["precision"] == "amp-bf16" and "padded" not in found
    assert found["checkpointing"] == "nonreentrant" and (found["micro_batch"], found["accumulation"]) == (4, 8)


def test_llama_factory_checkpoints_by_default():
    text = "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: lora\nlora_rank: 8\ncutoff_len: 2048\nbf16: true"
    one = read(text)
    assert (one.kind, one.fields["checkpointing"], one.fields["lora_r"]) == ("llama-factory", "reentrant", 8)
    assert fields(text + "\nquantization_bit: 4", "a.yml", "method", "quant") == {"method": "qlora", "quant": "nf4"}


def test_deepspeed():
    one = read(json.dumps(DEEPSPEED), "ds.json")
    assert dict(one.fields) == {
        "micro_batch": 2, "accumulation": 4, "zero": 3, "world": 8, "precision": "bf16", "offload": "optimizer",
        "optimizer": "adamw_fused",
    }  # fmt: skip
    auto = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto"}
    assert fields(json.dumps(auto), "ds.json") == {"zero": 2}
    with pytest.raises(ValueError, match="not a multiple"):
        read(json.dumps(DEEPSPEED | {"train_batch_size": 63}), "ds.json")
    with pytest.raises(ValueError, match="cannot be auto"):
        read(json.dumps({"zero_optimization": {"stage": "auto"}}), "ds.json")


def test_accelerate():
    assert fields(ACCELERATE) == {
        "world": 8, "precision": "amp-bf16", "fsdp": True, "fsdp_version": 2, "checkpointing": "nonreentrant",
    }  # fmt: skip
    deep = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, offload_optimizer_device: cpu}"
    assert fields(deep) == {"zero": 2, "offload": "optimizer"}
    kept = "distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_activation_checkpointing: true}"
    assert fields(kept) == {"fsdp": True, "fsdp_version": 1, "reshard": False, "checkpointing": "nonreentrant"}


def test_colossalai_from_a_script_that_is_never_run(tmp_path):
    there = tmp_path / "ran"
    evil = PLUGIN + f"\nopen({str(there)!r}, 'w')\n"
    one = read(evil, "train.py")
    assert not there.exists()
    assert one.kind == "colossalai" and one.fields["tensor_parallel"] == 2 and one.fields["zero"] == 1
    assert (one.fields["precision"], one.fields["attention"], one.fields["micro_batch"]) == ("bf16", "flash", 4)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("plugin: zero2_cpu\nmixed_precision: bf16", {"zero": 2, "offload": "optimizer", "precision": "bf16"}),
        ("plugin: {name: LowLevelZeroPlugin, stage: 1, precision: fp16}", {"zero": 1, "precision": "fp16"}),
        ("plugin: 3d\ntp: 4\nzero_stage: 1", {"zero": 1, "tensor_parallel": 4}),
        ("plugin: gemini", {"zero": 3}),
        ("plugin: TorchFSDPPlugin\ngrad_checkpoint: true", {"fsdp": True, "checkpointing": "nonreentrant"}),
    ],
)
def test_colossalai_plugins(text, wanted):
    assert fields(text, "c.yml", *wanted) == wanted


def test_what_is_shared_further_takes_less_and_what_is_not_counted_takes_more():
    assert read("plugin: 3d\npp: 2").lessened == ("pp is not counted",)
    assert read("plugin: gemini").unmodelled
    assert "muon" in read(AXOLOTL.replace("paged_adamw_32bit", "muon")).unmodelled[0]


def test_a_model():
    config = known_models.find_model_config("llama-3.1-8b")
    one = read(json.dumps(config), "config.json")
    assert one.kind == "model" and one.model == config


# -- files that name files --------------------------------------------------------------------------------------


def test_a_file_that_is_named_is_looked_for_beside_and_above():
    disk = {
        "job/configs/a.yml": AXOLOTL + "deepspeed: ds/zero2.json",
        "job/ds/zero2.json": json.dumps(DEEPSPEED | {"zero_optimization": {"stage": 2}}),
    }
    whole = job_files.merge_settings(read_disk("job/configs/a.yml", disk))
    assert (whole.kind, whole.fields["zero"], whole.said["zero"]) == (
        "axolotl",
        2,
        "job/ds/zero2.json: zero_optimization.stage",
    )


def test_a_file_that_is_not_there_may_tell_by_its_name():
    disk = {"a.yml": AXOLOTL + "deepspeed: deepspeed_configs/zero3_bf16_cpuoffload_all.json"}
    whole = job_files.merge_settings(read_disk("a.yml", disk))
    assert (whole.fields["zero"], whole.fields["offload"]) == (3, "parameters")
    assert "taken from its name" in whole.notes[-1]
    with pytest.raises(ValueError, match=r"names the deepspeed file mine\.json, which is not there"):
        read_disk("a.yml", {"a.yml": AXOLOTL + "deepspeed: mine.json"})


# -- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("- 1\n- 2", "a.yml", "a.yml line 1: it must be a mapping of names to values"),
        ("services: {web: {image: nginx}}", "a.yml", "it has 'services'"),
        ("{", "a.json", "a.json line 1: Expecting property name"),
        ("a: [1", "a.yml", "a.yml line 1"),
        (
            AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: -2"),
            "a.yml",
            "micro_batch_size must be a whole number",
        ),
        (AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: many"), "a.yml", "not 'many'"),
        (AXOLOTL.replace("micro_batch_size: 2", "micro_batch_size: [2]"), "a.yml", "not [2]"),
        (AXOLOTL.replace("lora_dropout: 0.05", "lora_dropout: 7"), "a.yml", "lora_dropout must be a number"),
        (AXOLOTL.replace("load_in_4bit: true", "load_in_4bit: maybe"), "a.yml", "load_in_4bit must be true or false"),
        ('{"zero_optimization": {"stage": 9}}', "ds.json", "zero_optimization.stage must be 0, 1, 2 or 3, not 9"),
        ("plugin: warp", "a.yml", "ColossalAI has no plugin 'warp'"),
        ("rollout_batch_size: 4", "a.yml", "no role that trains"),
        ("def f(", "a.py", "a.py is not Python"),
        ("x = 1", "a.py", "`gpuready fit a.py` runs it"),
        ("!!python/object/apply:os.system ['true']", "a.yml", "it must be YAML"),
    ],
)
def test_nonsense_is_one_sentence(text, name, sentence):
    with pytest.raises(ValueError) as bad:
        read(text, name)
    assert sentence in str(bad.value) and "\n" not in str(bad.value)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)
KEYS = {
    "axolotl": (yaml.safe_load(AXOLOTL), ("deepspeed", "fsdp", "fsdp_config", "rl", "lora_target_modules", "adapter")),
    "roll": (yaml.safe_load(ROLL), ("sequence_length", "critic", "reference")),
    "trainer": (TRAINER, ("deepspeed", "fsdp", "fsdp_config", "dtype", "quantization_bit", "finetuning_type", "stage")),
    "deepspeed": (DEEPSPEED, ("fp16", "pipeline", "tensor_parallel")),
    "accelerate": (yaml.safe_load(ACCELERATE), ("deepspeed_config",)),
    "colossalai": ({"plugin": "3d", "tp": 1}, ("zero_stage", "precision", "pp", "lora_rank", "max_length")),
}


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=5000 if FUZZ else 12)
@given(data=st.data())
def test_any_value_under_any_key_is_an_answer_or_one_sentence(kind, data):
    base, more = KEYS[kind]
    whole = dict(base)
    for key in data.draw(st.lists(st.sampled_from([*base, *more]), min_size=1, max_size=3)):
        whole[key] = data.draw(ANY)
    try:
        several = read_disk("a.yml", {"a.yml": yaml.safe_dump(whole)})
    except ValueError as bad:
        assert "\n" not in str(bad) and len(str(bad)) < 400
        return
    found = job_files.merge_settings(several)
    if found.fields and not {"tensor_parallel"} & set(found.fields):
        try:
            FitJob(known_models.find_model_config("llama-3.2-1b"), **found.fields).validate_fields()
        except ValueError as bad:  # two sizes that are each possible, and their sum is not
            assert "\n" not in str(bad) and len(str(bad)) < 400


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_an_answer_or_one_sentence(text):
    for name in ("a.yml", "a.json", "a.py"):
        try:
            read(text, name)
        except ValueError as bad:
            assert str(bad)


@pytest.mark.parametrize("key", ["micro_batch_size", "qat", "deepspeed", "lora_target_modules", "load_in_4bit"])
def test_a_value_that_multiplies_itself_is_never_written_out(key):
    lines = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12))]
    begun = time.process_time()
    with suppress(ValueError):
        read("\n".join([*lines, "base_model: gpt2", "adapter: lora", f"{key}: *a11"]))
    assert time.process_time() - begun < 20, "written out it would take days"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"zero_optimization": 5}, "zero_optimization must be a mapping of names to values, not 5"),
        ({"bf16": 5}, "bf16 must be a mapping"),
        ({"optimizer": "Adam"}, "optimizer must be a mapping"),
        ({"zero_optimization": {"stage": 3, "offload_param": {"device": "gpu"}}}, "must be cpu, nvme or none"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": 5}}, "offload_optimizer must be a mapping"),
    ],
)
def test_a_part_of_a_deepspeed_file_that_is_of_the_wrong_kind_is_one_sentence(change, sentence):
    with pytest.raises(ValueError, match=r"^ds\.json: ") as bad:
        read(json.dumps({"train_micro_batch_size_per_gpu": 1} | change), "ds.json")
    assert sentence in str(bad.value) and "\n" not in str(bad.value)


def test_deepspeed_says_true_for_the_first_stage():
    found = read(json.dumps({"zero_optimization": True}), "ds.json")
    assert found.fields["zero"] == 1
    nothing = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}
    assert "offload" not in read(json.dumps(nothing), "ds.json").fields
