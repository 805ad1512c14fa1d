"""ROLL's own SFT pipeline on a local Ray: its driver, one of its training workers (FSDP 2), and a loss that falls.

The model is tiny and random, the data is written here: nothing is downloaded.
"""

import json
import os

import package_import
import proof
import ray_actor
import tiny_llama as tiny

ROUNDS = 8


def run_proof(p):
    folder = os.getcwd()
    p.torch()
    namespace = ray_actor.roll_namespace(p)
    model = os.path.join(folder, "model")
    tiny.save_llama(p, model, **tiny.SMALL_SIZES)
    config = make_config(p, folder, model)
    variables = package_import.import_compiled(p, "roll.platforms").current_platform.get_custom_env_vars()
    # The workers import ROLL where the driver does, also from a checkout that is not installed.
    variables["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    ray_actor.run_in_cluster(p, lambda p, ray: train_pipeline(p, ray, config), namespace, {"env_vars": variables})


def make_config(p, folder, model):
    """Make the configuration of the pipeline as ROLL's start script does: a dictionary, read by dacite."""
    p.begin_step("read the configuration")
    dacite = package_import.import_compiled(p, "dacite", "dacite")
    config_module = package_import.import_compiled(p, "roll.pipeline.sft.sft_config", "roll")
    half = p.cuda and p.capability() >= (8, 0)
    words = {
        "exp_name": "proof",
        "seed": 20261115,
        "logging_dir": os.path.join(folder, "logs"),
        "output_dir": os.path.join(folder, "out"),
        "profiler_output_dir": os.path.join(folder, "profile"),
        "checkpoint_config": {"type": "file_system", "output_dir": os.path.join(folder, "checkpoints")},
        "track_with": "",  # the default is tensorboard, which ROLL does not require
        "save_steps": 10**6,
        "sequence_length": 128,
        "pretrain": model,
        "sft_train": {
            "model_args": {"dtype": "bf16" if half else "fp32", "attn_implementation": "sdpa"},
            "training_args": {
                "num_train_epochs": 3,
                "per_device_train_batch_size": 4,
                "gradient_accumulation_steps": 1,
                "learning_rate": 3e-3,
                "lr_scheduler_type": "constant",
            },
            "data_args": {"file_name": write_data(folder), "template": "chatml", "preprocessing_num_workers": 1},
            "strategy_args": {"strategy_name": "fsdp2_train", "strategy_config": {"fsdp_size": 1}},
        },
    }
    words["sft_train"].update({"device_mapping": "[0]"} if p.cuda else {"world_size": 1})
    config = dacite.from_dict(config_module.SFTConfig, words)
    if not p.cuda:  # ROLL counts the CPU as a device that Ray cannot assign
        config.num_gpus_per_node = 0
    return config


def write_data(folder):
    path = os.path.join(folder, "data.json")
    rows = [{"instruction": text[:20], "output": text} for text in tiny.SENTENCES * ROUNDS]
    with open(path, "w") as file:
        json.dump(rows, file)
    return path


def train_pipeline(p, ray, config):
    """Run the pipeline as ROLL's start script does; the losses are those that it logs."""
    p.begin_step("start ROLL's pipeline and its worker")
    pipeline = package_import.import_compiled(p, "roll.pipeline.sft.sft_pipeline", "roll").SFTPipeline(config)
    p.begin_step("train")
    pipeline.run()
    steps = pipeline.state.log_history
    p.record_number("steps", len(steps), "least", ROUNDS)
    losses = [value for row in steps for name, value in row.items() if name.partition("@")[0] == "sft_train/loss"]
    if len(losses) != len(steps):
        raise proof.WrongResult("ROLL logged %d losses in %d steps" % (len(losses), len(steps)))
    tiny.check_loss_fell(p, [sum(losses[:3]) / 3, sum(losses[-3:]) / 3])
