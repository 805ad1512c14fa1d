"""Axolotl's command on a tiny random model and a data set that are written here: nothing is downloaded.

Arguments: lora, qlora or full (the default). The command runs as a user starts it: it reads its configuration,
prepares its data, runs its trainer and writes its checkpoint; the losses are those that it logs.
"""

import json
import os
import sys

import package_import
import proof
import tiny_llama as tiny

STEPS = 24


def run_proof(p):
    torch = p.torch()
    folder = os.getcwd()
    method = (p.arguments or ["full"])[0]
    package_import.import_compiled(p, "axolotl", "axolotl")
    p.record_version("transformers")
    model = os.path.join(folder, "model")
    tiny.save_llama(p, model, **tiny.SMALL_SIZES)
    config_path = write_config(p, torch, folder, model, method)
    for command in ("preprocess", "train"):
        p.begin_step("run axolotl %s (%s)" % (command, method))
        code, text = run_axolotl(p, folder, command, config_path)
        if code:
            raise proof.WrongResult("axolotl %s ended with %s: %s" % (command, code, find_last_error(text)))
    check_training_output(p, os.path.join(folder, "out"), method)


def write_config(p, torch, folder, model, method):
    """Write the configuration, as JSON, which is also YAML."""
    data = os.path.join(folder, "data.jsonl")
    with open(data, "w") as file:
        for row in tiny.SENTENCES * 8:
            file.write(json.dumps({"text": row}) + "\n")
    half = p.cuda and p.capability() >= (8, 0)
    words = {
        "base_model": model,
        "datasets": [{"path": data, "ds_type": "json", "type": "completion"}],
        "dataset_prepared_path": os.path.join(folder, "prepared"),
        "output_dir": os.path.join(folder, "out"),
        "val_set_size": 0,
        "sequence_len": 64,
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_steps": STEPS,
        "num_epochs": 3,  # an epoch is 8 steps; a single one would end the run early
        "learning_rate": 0.01,
        "optimizer": "adamw_torch",
        "lr_scheduler": "constant",
        "logging_steps": 1,
        "saves_per_epoch": 0,
        "bf16": bool(half),
        "fp16": bool(p.cuda and not half),
        "tf32": False,
        "sample_packing": False,
        "pad_to_sequence_len": True,
        "dataset_num_proc": 1,
        "dataset_processes": 1,
        "special_tokens": {"pad_token": "<pad>"},
        "use_tensorboard": False,
        "torch_dtype": "bfloat16" if half else ("float16" if p.cuda else "float32"),
    }
    if method != "full":
        # The random head learns too: without it an adapter could learn little.
        words.update(adapter=method, lora_r=16, lora_alpha=32, lora_dropout=0.0)
        words["lora_target_modules"] = list(tiny.LORA_TARGETS)
        words["load_in_4bit"] = method == "qlora"
        if not p.cuda:  # Triton kernels that Axolotl enables without checking for a GPU
            words.update(lora_mlp_kernel=False, lora_qkv_kernel=False, lora_o_kernel=False)
    path = os.path.join(folder, "settings.yml")
    with open(path, "w") as file:
        json.dump(words, file)
    return path


def run_axolotl(p, folder, command, config_path):
    """Run a command of Axolotl in this Python, with one process; its output is passed through."""
    import subprocess

    env = dict(os.environ)
    if not p.cuda:
        env.update(CUDA_VISIBLE_DEVICES="", ACCELERATE_USE_CPU="true")
    words = [sys.executable, "-m", "axolotl.cli.main", command, config_path]
    words += ["--launcher", "python"] if command == "train" else []
    done = subprocess.run(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode(errors="replace")
    sys.stdout.write(text)
    return done.returncode, text


def find_last_error(text):
    """Return the error of the last traceback that is not from cleanup; else the last line."""
    named = []
    for part in text.split("Traceback (most recent call last):")[1:]:
        error = next((x for x in part.splitlines() if x and not x[0].isspace()), "")
        if error and "_run_finalizers" not in part.partition(error)[0]:
            named.append(error.strip())
    lines = [x.strip() for x in text.splitlines() if x.strip()]
    return (named or lines or ["it said nothing"])[-1][:300]


def check_training_output(p, out, method):
    """Check the trainer's log and the weights that the command wrote."""
    p.begin_step("read what it left")
    states = []
    for place, _, files in os.walk(out):
        states += [os.path.join(place, x) for x in files if x == "trainer_state.json"]
    weights = [x for x in os.listdir(out) if x.endswith((".safetensors", ".bin"))] if os.path.isdir(out) else []
    p.record_number("weight_files", len(weights), "least", 1)
    if not states:
        raise proof.WrongResult("axolotl train ended well and left no trainer_state.json in its output")
    trainer_states = []
    for path in states:
        with open(path) as file:
            trainer_states.append(json.load(file))
    # By name, checkpoint-8 would come after checkpoint-24.
    state = max(trainer_states, key=lambda one: one.get("global_step", 0))
    p.record_number("steps", state.get("global_step", 0), "equal", STEPS)
    losses = [row["loss"] for row in state.get("log_history", []) if "loss" in row]
    # Average the first and last few: every step sees other sentences.
    tiny.check_loss_fell(p, [sum(losses[:3]) / 3, sum(losses[-3:]) / 3] if len(losses) >= 6 else losses)
