"""The job that a log's own command line states, as a command of ``gpuready fit``."""

import re

from gpuready.fit.job.gpu_candidates import list_catalogue_gpus
from gpuready.fit.job.known_models import find_model_config
from gpuready.fit.search.tuning_steps import format_job_flags
from gpuready.jobs.huggingface import read_trainer
from gpuready.model import FixStep
from gpuready.model.diagnosis import Diagnosis
from gpuready.model.sizes import parse_size
from gpuready.workflow import job_spec

_OPTION = re.compile(r"--([a-z][\w-]{1,60})(?:[= ]([\w./][\w./-]{0,119}))?(?=\s|$)", re.ASCII)
_STATED = (
    "model_name_or_path", "per_device_train_batch_size", "gradient_accumulation_steps", "max_length", "max_seq_length",
    "cutoff_len", "model_max_length", "block_size", "optim", "gradient_checkpointing", "bf16", "fp16", "torch_dtype",
    "attn_implementation", "finetuning_type", "use_peft", "lora_r", "lora_rank", "load_in_4bit",
)  # fmt: skip
"""Options of trainers that are read; none names a file."""
_RANKS = ("nproc_per_node", "num_processes")
MAX_RANKS = 4096


def add_fit_command(diagnosis: Diagnosis) -> Diagnosis:
    """Add to an OOM the command that looks for what fits. Of a log only numbers, words of a job and a known model's name are printed."""
    if diagnosis.code != "MEM001" or diagnosis.verdict != "cause":
        return diagnosis
    given = {name.replace("-", "_"): value for name, value in _OPTION.findall(diagnosis.command)}
    config = {name: _parse_word(value) for name, value in given.items() if name in _STATED}
    model = str(config.get("model_name_or_path"))
    if not job_spec.is_hub_id(model) or find_model_config(model) is None:
        return diagnosis
    ranks = next((int(given[name]) for name in _RANKS if given.get(name, "").isdecimal()), 1)
    try:
        fields = dict(read_trainer("the command", config).fields)
        job_spec.merge_job((), [model], fields)
    except ValueError:
        return diagnosis
    fields |= {"world": ranks} if 1 < ranks <= MAX_RANKS else {}
    gpu = name_logged_gpu(diagnosis)
    run = ("gpuready", "fit", model, *gpu, *format_job_flags(fields))
    says = "find the smallest change that fits" + (", on a GPU with that memory" if gpu else "")
    step = FixStep(says, run, "safe", note="the options of the command in the log")
    return diagnosis.replace(fix=(step, *diagnosis.fix))


def name_logged_gpu(diagnosis: Diagnosis) -> tuple[str, ...]:
    """``--on`` with a usual GPU that has the memory of the error message."""
    size = int(parse_size(diagnosis.captures.get("total", ""), 1024) or 0)
    gpus = [gpu.short for gpu in list_catalogue_gpus(False) if gpu.memory[0] <= size <= gpu.memory[1]]
    return ("--on", gpus[0]) if gpus else ()


def _parse_word(value: str) -> str | int | bool:
    return True if not value else int(value) if value.isdecimal() and len(value) < 10 else value
