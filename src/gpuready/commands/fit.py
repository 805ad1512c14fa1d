"""``gpuready fit``: how much GPU memory a job needs, and what makes it fit."""

from typing import Any

from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    call_command,
    collect_parameters,
    reject_together,
)
from gpuready.commands.job_fields import AUTOCAST, CHECKPOINTING, KBIT, job_fields, job_parameter
from gpuready.commands.parameters import COMMON, ON_DETAILS, PathArgument, quiet_and_verbose
from gpuready.commands.result import Result
from gpuready.model.fit import FitResult
from gpuready.render import fit as render
from gpuready.render import json_results
from gpuready.workflow.fit import fit_job
from gpuready.workflow.fit_script import fit_script, names_a_script
from gpuready.workflow.fit_serving import fit_serving
from gpuready.workflow.fit_time import RunClock

_JOB = (
    ("method", "what is trained", "METHOD"),
    ("micro_batch", "sequences on one GPU at once", "N"),
    ("seq", "tokens in a sequence", "N"),
    ("precision", "precision of weights and step", "P"),
    ("optimizer", "the optimizer", "NAME"),
    ("gradient_checkpointing", "", ""),
    ("attention", "the attention implementation", "KIND"),
    ("accumulation", "micro-batches per step", "N"),
    ("loss", "how the loss is computed; fused ones keep no logits in memory", "KIND"),
    ("lora_r", "the rank of the adapter", "N"),
    ("lora_targets", "the layers with an adapter: all linear ones, q and v, or names with commas", "all|qv|LIST"),
    ("lora_dtype", "the dtype of the adapter", "DTYPE"),
    ("lora_dropout", "the dropout before the adapter", "P"),
    ("dora", "weight-decomposed adapters (DoRA)", ""),
    ("quant", "quantize the base model to 4 or 8 bits", "KIND"),
    ("double_quant", "quantize the scales of a 4-bit base too", ""),
    ("kbit", "", ""),
    ("autocast", "", ""),
    ("trainer", "whose defaults apply, where no job's file decides it", "NAME"),
    ("keep_outputs", "the loop keeps the model's outputs during the backward pass", ""),
    ("padded", "sequences are padded, with an attention mask", ""),
    ("packing", "samples fill every row, or one flat row (TRL's packing)", "KIND"),
    ("dpo", "preference training with a reference model", ""),
    ("alloc_conf", "the value of PYTORCH_ALLOC_CONF", "CONF"),
    ("task", "train, generate with a KV cache, or score without one", "TASK"),
    ("new_tokens", "number of generated tokens", "N"),
    ("cache", "the kind of KV cache", "KIND"),
    ("on", "", ""),
    ("world", "GPUs that share the job", "N"),
    ("zero", "the stage of ZeRO", "STAGE"),
    ("fsdp", "shard everything, as FSDP2 does", ""),
    ("tensor_parallel", "GPUs that share each layer", "N"),
    ("context_parallel", "GPUs that share each sequence", "N"),
    ("offload", "what is offloaded to host memory", "WHAT"),
)
"""The fields of FitJob that are flags, in the order of the help; choices, bounds and defaults are those of FitJob."""
_SPECIAL = {
    "gradient_checkpointing": CHECKPOINTING,
    "kbit": KBIT,
    "autocast": AUTOCAST,
    "on": Parameter(
        "a GPU such as rtx4090 or h100x8, or a recorded machine (FILE.json)",
        "NAME",
        mcp=True,
        web="machine",
        path="machine_name",
        details=ON_DETAILS,
        completes=("@gpus", "@files"),
    ),
}
_SERVING = {
    "serve": Parameter("serve the model with this engine: the KV cache, the largest context, sequences at once", "ENGINE", ("vllm", "sglang"), mcp=True, web="any"),
    "memory_fraction": Parameter("share of the GPU that the engine uses (--gpu-memory-utilization, --mem-fraction-static)", "SHARE", kind="number", most=1, mcp=True, web="any"),
    "max_sequences": Parameter("the most sequences that the engine takes at once", "N", kind="count", most=1 << 20, mcp=True, web="any"),
    "kv_dtype": Parameter("dtype of the KV cache", "DTYPE", ("auto", "fp8"), mcp=True, web="any"),
}  # fmt: skip
_QUESTIONS = {
    "trace": Parameter("take the layers from a trace of the installed torch: for a model that is not known here"),
    "download": Parameter("fetch the config.json of a hub id that is not known here; nothing else is fetched"),
    "python": Parameter("the environment that a script or a trace runs in: a Python, a venv or a conda prefix", "PATH"),
    "read_only": Parameter("read a script, and do not run it"),
    "run_script": Parameter("run a script that is named as the model, as the command line does", cli=False),
    "steps": Parameter("optimizer steps of a script to run (default: 2, and more where they differ)", "N", kind="count", most=1000),
    "gpus": Parameter("list the GPUs of the catalogue that fit", mcp=True, web="any"),
    "largest": Parameter(
        "find the largest value that fits", "WHAT", ("micro-batch", "seq"), flag="--max", mcp=True, web="any"
    ),
    "time": Parameter("do not predict the time", flag="--no-time", inverted=True),
    "bench": Parameter("a record of `gpuready bench` of this GPU, to predict the time by", "FILE", path="job_file"),
    "price": Parameter("price of a GPU an hour; with --gpus the cheapest that fits comes first", "NAME=USD", kind="list"),
    "run_steps": Parameter("steps of the whole run", "N", kind="count", most=1 << 40, mcp=True, web="any"),
    "samples": Parameter("sequences of the dataset, for the time of the whole run", "N", kind="count", most=1 << 40, mcp=True, web="any"),
    "mean_tokens": Parameter("mean tokens of a sample, for the time of a run whose samples are packed", "N", kind="count", most=1 << 26, mcp=True, web="any"),
    "epochs": Parameter("passes over the dataset", "N", kind="number", most=1 << 20, mcp=True, web="any"),
    **quiet_and_verbose("also every default, and the phases of a step"),
}  # fmt: skip


def run(request: Request) -> Result:
    result = predict_fit(request)
    return Result(result, json_results.renderer("fit"), render.render_fit_screen, line=render.format_fit_line)


def predict_fit(request: Request, search: bool = True) -> FitResult:
    """Predict; without ``search``, no set-up that fits is searched for: the same result where the job fits as it is."""
    reject_together(request, "gpus", "largest")
    reject_together(request, "trace", "largest", why="a trace is one size")
    if words := _words_to_run(request):
        return _run_script(request, words, search)
    if request.rest:
        request.arguments += request.rest
    if request.get_option("python") is not None and not request.has_switch("trace"):
        raise UsageError("--python goes with a script that is run, or with --trace")
    if not request.arguments:
        raise UsageError("fit takes a model: a name such as llama-3.1-8b, its config.json, or the file of a job")
    if request.get_option("serve") is not None:
        return _predict_serving(request)
    for name in ("memory_fraction", "max_sequences", "kv_dtype"):
        if request.get_option(name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --serve")
    return fit_job(
        request.arguments,
        job_fields(request),
        **request.pick_options("on", "largest", "python"),
        every=request.has_switch("gpus"),
        trace=request.has_switch("trace"),
        download=request.has_switch("download"),
        search=search,
        show_progress=request.show_progress,
        clock=_read_clock(request),
        agree=(lambda note: _agree(request, note)) if request.session.is_command_line else None,
    )


def _words_to_run(request: Request) -> tuple[str, ...]:
    """Return the command line of a script that a person asks to run; empty where nothing is run."""
    if request.has_switch("read_only") or request.arguments[1:]:
        return ()
    if request.session.is_command_line and request.session.may_start_python and not request.arguments:
        return tuple(request.rest) if names_a_script(request.rest) else ()
    return tuple(request.arguments) if request.has_switch("run_script") else ()


def _run_script(request: Request, words: tuple[str, ...], search: bool) -> FitResult:
    unread = [
        name
        for name in (*job_fields(request), "trace", "serve", "largest")
        if name != "world" and request.options.get(name) not in (None, False)
    ]
    if unread:
        raise UsageError(
            f"--{unread[0].replace('_', '-')} is not read for a script that is run: its own arguments decide (--read-only reads it)"
        )
    request.session.write_note(
        f"running {words[0]} in its environment, offline and on tensors without memory; this is no sandbox (--read-only reads it)"
    )
    flags = [
        word
        for name in ("on", "world", "steps")
        if (value := request.get_option(name))
        for word in (f"--{name}", str(value))
    ]
    return fit_script(
        words,
        **request.pick_options("on", "python", "world", "steps"),
        download=request.has_switch("download"),
        every=request.has_switch("gpus"),
        search=search,
        clock=_read_clock(request),
        command=("gpuready", "fit", *flags, "--", *words),
        show_progress=request.show_progress,
        agree=lambda note: request.session.is_command_line and _agree(request, note),
    )


def _agree(request: Request, note: str) -> bool:
    """Ask a person whether something may be made; nobody there to ask is no."""
    return request.can_ask and request.session.ask_person(lambda: note, "make it? [y/N] ")


def _read_clock(request: Request) -> RunClock | None:
    """Return what the request says about time; None where it is not wanted."""
    names = ("bench", "price", "run_steps", "samples", "mean_tokens", "epochs")
    options = {name: value for name in names if (value := request.get_option(name)) is not None}
    if request.get_option("time") is False:
        if options:
            raise UsageError(f"--{next(iter(options)).replace('_', '-')} does not go with --no-time")
        return None
    prices = options.pop("price", ())
    return RunClock(prices=prices.split(",") if isinstance(prices, str) else tuple(prices), **options)


def _predict_serving(request: Request) -> FitResult:
    for other in ("trace", "largest"):
        reject_together(request, "serve", other, why="serving is its own question")
    return fit_serving(
        request.arguments,
        job_fields(request),
        **request.pick_options("serve", "on", "memory_fraction", "max_sequences", "kv_dtype"),
        every=request.has_switch("gpus"),
    )


FIT = Command(
    "fit",
    "how much GPU memory a job needs, and what makes it fit",
    run,
    collect_parameters(
        {name: _SPECIAL.get(name) or job_parameter(name, help, metavar) for name, help, metavar in _JOB},
        _SERVING,
        _QUESTIONS,
        COMMON,
    ),
    "MODEL|FILE ...",
    1,
    9,
    "SCRIPT.py [ARGS ...]",
    argument=Parameter(
        "A model by name, its config.json, and files of the job's set-up.",
        name="model",
        flag="model",
        many=True,
        most=9,
        mcp=True,
        web="model",
        path="model",
    ),
    other_keywords=True,
    examples=(
        "llama-3.1-8b --on h100 --method lora --micro-batch 4",
        "axolotl.yml --on rtx4090",
        "qwen2.5-7b --gpus --seq 8k",
        "llama-3.1-8b --serve vllm --on rtx4090",
        "--on h100 train.py --lr 1e-4",
        "--on h100x8 -- torchrun --nproc_per_node 8 train.py",
    ),
    usual="on method micro-batch seq precision optimizer gradient-checkpointing world zero gpus max serve",
)
COMMANDS = (FIT,)


def fit(*model: PathArgument, **job: Any) -> Result:
    """Predict how much GPU memory a job needs, and what makes it fit.

    ``model`` is a name, a config.json, or files of the job's set-up; the keywords are those of the signature, and every
    other field of ``gpuready.fit.FitJob``. ``largest``: "micro-batch" or "seq".
    """
    return call_command(FIT, model, job)
