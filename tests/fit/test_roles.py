"""Roles that share GPUs: ROLL's, verl's and trl's files, and what each GPU holds in every phase."""

from __future__ import annotations

import json

import pytest
import yaml

from gpuready.fit.roles.records import GENERATE, SCORE, TRAIN, UPDATE, RoleUse
from gpuready.fit.roles.role_memory import build_timelines
from gpuready.jobs import job_files
from gpuready.jobs.config_reader import resolve_references
from gpuready.model.fit import GpuCandidate
from tests.fit.asking import SMALL, document
from tests.running import gpuready

GIB = 1 << 30
ROLL = {
    "pretrain": "./model", "prompt_length": 512, "response_length": 512, "rollout_batch_size": 8,
    "actor_train": {
        "model_args": {"dtype": "bf16"}, "training_args": {"per_device_train_batch_size": 4},
        "strategy_args": {"strategy_name": "fsdp2_train", "strategy_config": {"param_dtype": "bf16"}},
        "device_mapping": "list(range(0,4))", "infer_batch_size": 4,
    },
    "actor_infer": {
        "model_args": {"dtype": "bf16"}, "device_mapping": "${actor_train.device_mapping}",
        "strategy_args": {"strategy_name": "vllm", "strategy_config": {"gpu_memory_utilization": 0.6, "max_model_len": 1024}},
    },
    "reference": {
        "model_args": {"dtype": "bf16"}, "device_mapping": "[0, 1]", "infer_batch_size": 2,
        "strategy_args": {"strategy_name": "hf_infer"},
    },
}  # fmt: skip
VERL = {
    "algorithm.adv_estimator": "grpo",
    "data.max_prompt_length": 2048,
    "data.max_response_length": 3072,
    "actor_rollout_ref.model.path": "/models/Qwen3-8B",
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.ref.fsdp_config.param_offload": True,
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 2,
}


def nested(settings):
    config = {}
    for key, value in settings.items():
        *outer, last = key.split(".")
        here = config
        for part in outer:
            here = here.setdefault(part, {})
        here[last] = value
    return config


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    return tmp_path


def write(folder, config, name="job.yaml"):
    (folder / name).write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return name


def read(config, path="job.yaml"):
    text = config if isinstance(config, str) else yaml.safe_dump(config)
    return job_files.read_job_settings(job_files.make_job_file(path, job_files.decode_mapping(text, path)))


def roles_of(config, path="job.yaml"):
    return {role.name: role for role in read(config, path).roles}


# -- the timeline ---------------------------------------------------------------------------------------------


def test_a_gpu_holds_who_works_and_who_waits():
    train = RoleUse("train", (0, 1), {TRAIN: (40, 50), UPDATE: (20, 20)}, (1, 2))
    infer = RoleUse("infer", (0,), {GENERATE: (60, 61), UPDATE: (16, 16)}, (3, 3))
    both, alone = build_timelines([train, infer], GpuCandidate("x", "9.0", (64, 64)))
    assert both.gpus == (0,) and alone.gpus == (1,)
    assert {one.phase: one.total for one in both.phases} == {UPDATE: (36, 36), GENERATE: (61, 63), TRAIN: (43, 53)}
    assert (both.peak, both.needs, both.verdict) == (GENERATE, (61, 63), "fits")
    assert [one.phase for one in alone.phases] == [UPDATE, TRAIN] and alone.peak == TRAIN
    tight = build_timelines([train, infer], GpuCandidate("x", "9.0", (62, 62)))
    assert tight[0].verdict == "undecided"
    assert build_timelines([train, infer], GpuCandidate("x", "9.0", (60, 60)))[0].verdict == "does not fit"


# -- ROLL -----------------------------------------------------------------------------------------------------


def test_the_roles_of_a_roll_file():
    roles = roles_of(ROLL)
    train, infer, reference = roles["actor_train"], roles["actor_infer"], roles["reference"]
    assert infer.gpus == (0, 1, 2, 3) and infer.serving["fraction"] == 0.6 and infer.leaves == "all"
    assert [phase for phase, _ in train.phases] == [UPDATE, SCORE, TRAIN]
    assert train.leaves == "weights"  # FSDP2 without offloading keeps the optimizer on the GPU
    assert train.fields["loss"] == "logprob" and train.score == {"micro_batch": 4, "seq": 1024}
    assert reference.kind == "score" and not reference.is_megatron and reference.gpus == (0, 1)


@pytest.mark.parametrize(
    ("change", "missing"),
    [({"enable_reference": False}, "reference"), ({"actor_train": {"model_args": {"lora_rank": 8}}}, "reference")],
)
def test_roles_that_roll_does_not_make(change, missing):
    config = ROLL | {k: (ROLL[k] | v if isinstance(v, dict) else v) for k, v in change.items()}
    assert missing in roles_of(ROLL) and missing not in roles_of(config)


def test_a_critic_is_made_for_gae_alone():
    critic = ROLL["actor_train"] | {"device_mapping": "[2, 3]"}
    assert "critic" in roles_of(ROLL | {"critic": critic, "adv_estimator": "gae"})
    assert "critic" not in roles_of(ROLL | {"critic": critic, "adv_estimator": "grpo"})


def test_an_engine_that_never_sleeps_and_packed_batches():
    config = ROLL | {"async_generation_ratio": 1}
    assert roles_of(config)["actor_infer"].leaves == "none"
    packed = ROLL["actor_train"] | {
        "use_sequence_packing": True,
        "sequence_packing_args": {"max_packed_sequence_length_train": 9000, "max_packed_sequence_length_forward": 5000},
    }
    train = roles_of(ROLL | {"actor_train": packed})["actor_train"]
    assert (train.fields["micro_batch"], train.fields["seq"]) == (1, 9000)
    assert train.score == {"micro_batch": 1, "seq": 5000}


def test_a_roll_file_gets_a_timeline(folder):
    found, code = document(write(folder, ROLL), "--on", "rtx4090x4", cwd=folder)
    assert code == 0 and found["verdict"] == "fits"
    shared, alone = found["timeline"]
    assert shared["gpus"] == [0, 1] and alone["gpus"] == [2, 3]
    generation = next(one for one in shared["phases"] if one["phase"] == GENERATE)
    assert generation["working"] == ["actor_infer"]
    low, high = generation["roles"]["actor_infer"]
    assert 0.6 * 23.4 * GIB < low < high < 0.75 * 23.9 * GIB
    screen = gpuready("fit", "job.yaml", "--on", "rtx4090x4", cwd=folder).out
    assert "GPUs 0 to 1" in screen and "<< the peak" in screen and "roles that wait" in screen


def test_the_smallest_change_of_a_role_fits_when_it_is_made(folder):
    config = json.loads(json.dumps(ROLL))
    config["actor_infer"]["strategy_args"]["strategy_config"]["gpu_memory_utilization"] = 0.95
    found, code = document(write(folder, config), "--on", "rtx4090x4", cwd=folder)
    assert code in (1, 3) and found["proposals"]
    key, _, value = found["proposals"][0]["settings"][0].partition(": ")
    assert key == "actor_infer.strategy_args.strategy_config.gpu_memory_utilization"
    config["actor_infer"]["strategy_args"]["strategy_config"]["gpu_memory_utilization"] = float(value)
    assert document(write(folder, config), "--on", "rtx4090x4", cwd=folder)[1] == 0


def test_a_role_whose_model_is_unknown_is_named_and_not_counted(folder):
    judge = ROLL["actor_infer"] | {
        "model_args": {"model_name_or_path": "somebody/unknown-model"},
        "device_mapping": "[4]",
    }
    found, code = document(write(folder, ROLL | {"rewards": {"judge": judge}}), "--on", "rtx4090x8", cwd=folder)
    assert code == 3 and any("judge on 1 GPUs" in text for text in found["unmodelled"])


def test_a_role_in_megatron_is_named_and_not_counted(folder):
    config = json.loads(json.dumps(ROLL))
    config["reference"]["strategy_args"]["strategy_name"] = "megatron_infer"
    found, code = document(write(folder, config), "--on", "rtx4090x4", cwd=folder)
    assert code == 3 and found["timeline"]
    assert "reference on 2 GPUs: the memory of Megatron's ranks is not predicted here" in found["unmodelled"]


# -- verl -----------------------------------------------------------------------------------------------------


def test_a_shell_script_is_not_read():
    with pytest.raises(ValueError, match=r"bash x\.sh --cfg job > job\.yaml"):
        read("python3 -m verl.trainer.main_ppo trainer.nnodes=2", "x.sh")


def test_the_roles_of_a_verl_job():
    roles = roles_of(nested(VERL))
    assert set(roles) == {"actor", "rollout", "ref"} and len(roles["actor"].gpus) == 16
    assert roles["actor"].leaves == "none" and roles["ref"].leaves == "all" and roles["rollout"].leaves == "all"
    assert roles["actor"].fields["fsdp_version"] == 2 and roles["actor"].fields["seq"] == 5120
    assert roles["rollout"].serving == {
        "engine": "vllm", "fraction": 0.6, "tensor_parallel": 2, "batch_tokens": 8192, "max_sequences": 256, "context": 5120,
    }  # fmt: skip
    gae = roles_of(nested(VERL | {"algorithm.adv_estimator": "gae"}))
    assert gae["critic"].fields["loss"] == "value" and TRAIN not in dict(gae["critic"].phases)


def test_packed_batches_and_megatron_of_a_verl_job():
    more = {
        "actor_rollout_ref.actor.strategy": "megatron",
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 20000,
    }
    actor = roles_of(nested(VERL | more))["actor"]
    assert actor.is_megatron and (actor.fields["micro_batch"], actor.fields["seq"]) == (1, 20000)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("actor_rollout_ref.rollout.name", "trtllm", "is not counted"),
        ("actor_rollout_ref.actor.strategy", "x", "must be fsdp"),
        ("data.max_prompt_length", "$((1024 * 2))", r"max_prompt_length.*\$\(\(1024"),
    ],
)
def test_what_is_not_known_of_verl_is_one_sentence(key, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        roles_of(nested(VERL | {key: value}))


# -- trl ------------------------------------------------------------------------------------------------------


def test_grpo_keeps_everything_on_the_gpu_unless_it_sleeps(folder):
    config = {"model_name_or_path": "./model", "per_device_train_batch_size": 4, "num_generations": 4, "bf16": True,
              "max_prompt_length": 256, "max_completion_length": 256, "use_vllm": True, "vllm_mode": "colocate"}  # fmt: skip
    roles = roles_of(config)
    assert (
        set(roles) == {"trainer", "vllm"}
        and roles["vllm"].leaves == "none"
        and roles["vllm"].serving["fraction"] == 0.3
    )
    assert roles_of(config | {"vllm_enable_sleep_mode": True})["vllm"].leaves == "all"
    assert "reference" in roles_of(config | {"beta": 0.1})
    assert set(roles_of(config | {"use_vllm": False})) == {"trainer"}
    found, code = document(write(folder, config), "--on", "rtx4090x2", cwd=folder)
    assert code == 0 and {one["phase"] for one in found["timeline"][0]["phases"]} == {UPDATE, GENERATE, SCORE, TRAIN}


def test_generation_without_an_engine_is_a_phase_of_the_trainer(folder):
    config = {"model_name_or_path": "./model", "num_generations": 4, "max_completion_length": 128, "bf16": True}
    found, code = document(write(folder, config), "--on", "rtx4090", cwd=folder)
    assert code == 0 and {one["phase"] for one in found["timeline"][0]["phases"]} == {GENERATE, SCORE, TRAIN}


# -- references -----------------------------------------------------------------------------------------------


def test_references_are_followed_and_never_endlessly():
    config = {"a": "${b}", "b": "${c.d}", "c": {"d": 7, "e": ["${b}"]}, "loop": "${loop}", "env": "${oc.env:HOME,none}",
              "select": "${oc.select:x.y,512}", "odd": "${a.b"}  # fmt: skip
    found = resolve_references(config)
    assert (found["a"], found["b"], found["c"]["e"]) == (7, 7, [7])
    assert found["loop"] == "${loop}" and found["env"] is None and found["select"] == 512 and found["odd"] == "${a.b"
