"""Predict from a trace of the target's own torch, for a model whose layers are not modelled here.

The trace (scripts/trace.py) has the allocations and frees of forward and backward; optimizer, clipping and
cuBLAS workspaces are added as for every other model.
"""

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.fit.job.records import FitJob, FitPrediction, FitUndecided, GpuCard
from gpuready.fit.search.prediction import fit_from_tape
from gpuready.fit.tape.autograd import Tape, TapeMemory, Tensor
from gpuready.fit.tape.ddp_fsdp import new_ddp_buckets, rebuild_ddp_buckets
from gpuready.fit.tape.optimizers import JobOptimizer
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.training import cublas_workspace_size
from gpuready.fit.time.kernel_time import Kernel

TRACED_STEPS = 2
MAX_TRACE_EVENTS = 4_000_000  # largest accepted number of events
MAX_NEW_TOKENS = 256  # largest number of generated tokens: each is a pass through all layers
TRACE_KINDS = ("parameters", "adapters", "activations", "loss")
TRACE_PHASES = ("build", "fwd", "bwd", "step", "zero", "prefill", "freed", "generate", "ref")
TRACE_NOTE = "traced on the meta device: what CUDA kernels ask for beside their results is counted for attention, sums, embeddings and convolutions"
UNTRACEABLE: dict[str, tuple[Any, str]] = {
    "loss": ("plain", "a fused loss"), "zero": (0, "ZeRO"), "fsdp": (False, "FSDP"), "tensor_parallel": (1, "tensor parallel"),
    "offload": ("", "offloading"), "cache": ("dynamic", "a static cache"),
}  # fmt: skip
"""Fields that a trace cannot represent: the value that it can, and the words for any other."""


def build_trace_request(job: FitJob, card: GpuCard) -> dict[str, Any]:
    """Return the input of the trace script; FitUndecided for a job that cannot be traced."""
    wrong = [words for name, (value, words) in UNTRACEABLE.items() if getattr(job, name) != value]
    if job.attention == "flash":
        wrong.append("the flash-attn package (--attention sdpa has the same kernel)")
    if job.method != "full" and job.task == "generate":
        wrong.append("adapters in generation")
    if job.quant == "int8":
        wrong.append("a base in int8")
    if job.quant and (job.task == "generate" or job.dora):
        wrong.append("a quantised base in generation or under DoRA")
    if job.method != "full" and job.lora_dtype not in ("fp32", job.precision):
        wrong.append(f"adapters in {job.lora_dtype} over weights in {job.precision}")
    if job.task == "generate" and job.new_tokens > MAX_NEW_TOKENS:
        wrong.append(f"an answer of more than {MAX_NEW_TOKENS} tokens")
    if wrong:
        raise FitUndecided(f"a trace does not play {' or '.join(wrong)}")
    job = job.played_batch()
    major, _, minor = card.capability.partition(".")
    targets = job.lora_targets if isinstance(job.lora_targets, str) else list(job.lora_targets)
    lora = {
        "r": job.lora_r, "targets": targets, "dropout": job.lora_dropout, "dora": job.dora, "wide": job.lora_dtype == "fp32",
    }  # fmt: skip
    return {
        "config": dict(job.model), "task": job.task, "micro_batch": job.micro_batch, "seq": job.seq, "precision": job.precision,
        "attention": job.attention, "checkpointing": job.checkpointing, "keep_outputs": job.keep_outputs, "steps": TRACED_STEPS,
        "capability": [int(major), int(minor or 0)], "accumulation": job.accumulation, "new_tokens": job.new_tokens,
        "autocast": job.precision[4:] if job.precision.startswith("amp-") else job.autocast,
        "scaled": job.precision == "amp-fp16", "lora": lora if job.method != "full" else None, "quant": job.quant,
        "double_quant": job.double_quant, "kbit": job.kbit, "padded": job.padded, "dpo": job.dpo, "folder": "",
        "mask": job.loop == "trainer" and job.task == "train",
        "reference": job.dpo and (job.method == "full" or job.loop == "plain"),
    }  # fmt: skip


def predict_traced(job: FitJob, card: GpuCard, trace: Mapping[str, Any], search: bool = True) -> FitPrediction:
    """Predict a traced job; FitUndecided where the trace has other parameters than the config counts."""
    _compare_parameters(job, trace)
    fit = fit_from_tape(job, card, tape_from_trace(job, card, trace), search)
    played = (f"played as {trace['class']}",) if trace.get("class") else ()
    return fit.replace(notes=(*fit.notes, *played, *trace.get("notes", ()), TRACE_NOTE), versions=trace["versions"])


def _compare_parameters(job: FitJob, trace: Mapping[str, Any]) -> None:
    """Compare the traced parameters with those that the layers known here have by the config."""
    try:
        counted = count_parameters(parse_model_config(job.model))
    except ValueError:  # not known here
        return
    traced = trace.get("count", counted)
    if job.quant or not str(trace.get("class", "")).endswith("ForCausalLM") or abs(traced - counted) <= counted / 1000:
        return
    raise FitUndecided(f"{trace['class']} was traced with {traced:,} parameters, and its config counts {counted:,}")


def tape_from_trace(job: FitJob, card: GpuCard, trace: Mapping[str, Any]) -> Tape:
    """Return the trace's events with what torch does not show there."""
    made = Tape()
    ops = TorchOps(made, workspace=cublas_workspace_size(card))
    parameters = [_placeholder_parameter(tuple(shape), width) for shape, width in trace["parameters"]]
    tables = trace.get("tables", ()) if job.loop == "trainer" else ()
    optimizer = JobOptimizer(ops, job.optimizer, parameters, [parameters[n] for n in tables])
    buckets: list[Tensor] = []  # of DDP, which holds every gradient once more
    born: dict[int, TapeMemory] = {}
    gradients = set(trace.get("gradients", ()))
    by, names = trace.get("by", ()), trace.get("names", ())
    births = 0
    for event in trace["events"]:
        if isinstance(event, str):
            if event == "build":
                buckets = new_ddp_buckets(ops, job, parameters)
            _apply_trace_word(event, ops, optimizer, job)
            if event == "zero0":
                rebuild_ddp_buckets(ops, job, parameters, buckets)
        elif event >= 0:
            made.op = names[by[births]] if by else ""
            born[births] = one = TapeMemory(made, event)
            if births in gradients:
                made.kinds[one.number] = "gradients"
            births += 1
            del one
        else:
            born.pop(~event, None)
    made.events = made.events[:]
    made.kernels = [*read_traced_kernels(trace.get("kernels", [])), *made.kernels]  # those of the optimizer last
    return made


def _placeholder_parameter(shape: tuple[int, ...], width: int) -> Tensor:
    """Return a parameter whose memory the trace already has; its gradient is needed for the norm."""
    one = Tensor(None, shape, width)
    one.grad = Tensor(None, shape, width)
    return one


def _apply_trace_word(word: str, ops: TorchOps, optimizer: JobOptimizer, job: FitJob) -> None:
    """Apply a word of the trace: a kind, a product, or the end of a phase and what follows it."""
    made = ops.tape
    if word[0] == "=":
        made.kind = word[1:]
    elif word[0] == "!":
        ops.ensure_bias_workspace() if word == "!biased" else ops.ensure_workspace()
    elif word.startswith("step"):
        if job.clip:
            optimizer.clip_gradients()
        made.mark_phase(f"clip{word[4:]}")
        optimizer.step()
        made.mark_phase(f"opt{word[4:]}")
    else:
        made.mark_phase(word)
        ops.in_backward = word.startswith("fwd")


def validate_trace(trace: Any) -> dict[str, Any]:
    """Validate the form of a trace from another process; ValueError if it is invalid."""
    if not isinstance(trace, dict) or not all(isinstance(trace.get(k), t) for k, t in TRACE_FIELDS.items()):
        raise ValueError("the trace is not one")
    if not all(isinstance(trace.get(name, []), list) for name in ("names", "notes")):
        raise ValueError("the trace has a list that is none")
    births = 0
    for event in trace["events"]:
        if isinstance(event, str):
            known = event[1:] in TRACE_KINDS if event[:1] == "=" else event in ("!product", "!biased")
            if not known and event.rstrip("0123456789.") not in TRACE_PHASES:
                raise ValueError(f"the trace has a word without a meaning, {event[:40]!r}")
        elif isinstance(event, bool) or not isinstance(event, int) or ~event >= births:
            raise ValueError("the trace frees what was never born")
        else:
            births += event >= 0
    if len(trace["events"]) > MAX_TRACE_EVENTS or not births:
        raise ValueError("the trace is empty, or too long")
    by, names = trace.get("by", []), trace.get("names", [])
    numbers = ("gradients", births), ("tables", len(trace["parameters"])), ("by", len(names))
    for name, below in numbers:
        several = trace.get(name, [])
        if not isinstance(several, list) or not all(type(n) is int and 0 <= n < below for n in several):
            raise ValueError("the trace has a number that stands for nothing")
    texts = (trace.get("class", ""), *names, *trace["versions"].values(), *trace.get("notes", ()))
    if (by and len(by) != births) or not all(isinstance(text, str) for text in texts):
        raise ValueError("the trace does not say which operation asked, or has a text that is none")
    for one in trace["parameters"]:
        shape, width = one if isinstance(one, list) and len(one) == 2 else (None, 0)
        sizes = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not sizes or width not in (1, 2, 4, 8):
            raise ValueError("the trace has a parameter without a shape")
    read_traced_kernels(trace.get("kernels", []))
    return trace


TRACE_FIELDS = {"events": list, "parameters": list, "versions": dict}


# Kind: how many sizes follow; attention has the kernel's name before them.
KERNEL_SIZES = {
    "move": 1, "rows": 1, "columns": 1, "spread": 2, "guess": 2, "mixed": 2, "topk": 2, "wait": 1, "host": 1, "softmax": 3, "softmax backward": 3,
    "embedding": 4, "matmul": 6, "convolution": 7, "attention": 8, "attention backward": 8,
}  # fmt: skip
MAX_SIZE = 1 << 56
MAX_KERNELS = 1_000_000


def read_traced_kernels(rows: Any) -> list[Kernel]:
    """Return the kernels of a trace with the ends of its phases; ValueError where a row is none."""
    if not isinstance(rows, list) or len(rows) > MAX_KERNELS:
        raise ValueError("the trace has no list of kernels, or one that is too long")
    return [_read_row(row) for row in rows]


def _read_row(row: Any) -> Kernel:
    if not isinstance(row, list) or len(row) < 2 or not isinstance(row[0], str):
        raise ValueError("the trace has a kernel without a kind")
    kind, *sizes = row
    named = kind == "phase" or kind.startswith("attention")
    name = sizes.pop(0) if named else ""
    if not isinstance(name, str) or len(name) > 40 or len(sizes) != (0 if kind == "phase" else KERNEL_SIZES.get(kind)):
        raise ValueError(f"the trace has a kernel that is not known, {kind[:40]!r}")
    if not all(type(size) is int and 0 <= size < MAX_SIZE for size in sizes):
        raise ValueError("the trace has a kernel whose sizes are not numbers")
    return (kind, name, *sizes) if named else (kind, *sizes)
