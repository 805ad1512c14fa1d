"""``gpuready fit MODEL --serve ENGINE``: the KV cache of an inference engine, and the setting to change."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready import __version__
from gpuready.fit import FitJob, FitUndecided
from gpuready.fit.job import gpu_candidates
from gpuready.fit.serving.memory_pool import (
    DEFAULT_CONTEXT,
    ServingJob,
    engine_settings,
    model_context,
    serve_model,
    states_context,
)
from gpuready.jobs.config_reader import JobSettings
from gpuready.model.fit import FitResult, GpuCandidate, Proposal, ServingFit
from gpuready.workflow import job_spec
from gpuready.workflow.fit import NO_GPU, find_gpus, name_machine
from gpuready.workflow.refusal import Refused, call_or_refuse

TRAINING_ONLY = (
    "method",
    "optimizer",
    "checkpointing",
    "accumulation",
    "loss",
    "lora_r",
    "zero",
    "fsdp",
    "offload",
    "dpo",
)
HIGHEST_FRACTION = 0.95
NO_CONTEXT = f"the model's longest context is not known here: counted as {DEFAULT_CONTEXT} tokens (--seq N)"
SHORTEST_CONTEXT = 1024
"""A shorter context than this is not proposed."""


def fit_serving(
    arguments: Sequence[str],
    flags: Mapping[str, Any],
    *,
    serve: str,
    on: str | None = None,
    memory_fraction: float | None = None,
    max_sequences: int | None = None,
    kv_dtype: str | None = None,
    every: bool = False,
) -> FitResult:
    """Predict the memory of an engine that serves a model. ``flags`` are fields of a FitJob."""
    wrong = next((name for name in TRAINING_ONLY if flags.get(name)), None)
    if wrong is not None:
        raise Refused(f"--{wrong.replace('_', '-')} is of training, and --serve asks for serving")
    label, spec = call_or_refuse(job_spec.read_job, arguments, flags)
    machine = find_gpus(on, every)
    job = make_serving_job(spec, serve, memory_fraction or 0.0, kv_dtype or "auto").replace(
        max_sequences=max_sequences or 0
    )
    shown = FitJob(
        model={}, seq=job.context or model_context(job.model), micro_batch=job.wanted, task="generate"
    ).replace(precision=job.precision, quant=job.quant, world=job.tensor_parallel, tensor_parallel=job.tensor_parallel)
    result = FitResult(label, spec.kind, job_spec.job_without_model(shown), spec.said)
    notes = spec.notes if job.context or states_context(job.model) else (*spec.notes, NO_CONTEXT)
    result = result.replace(
        notes=notes,
        unmodelled=spec.unmodelled,
        machine=name_machine(on),
        judged_by=f"the accounting of {serve} in gpuready {__version__}",
    )
    try:
        return _judge_serving(result, job, machine, every, (*arguments, *(("--on", on) if on else ())))
    except FitUndecided as undecided:
        return result.replace(places=tuple(machine), why=str(undecided))
    except ValueError as error:
        raise Refused(f"{label}: {error}") from None


def make_serving_job(spec: JobSettings, engine: str, fraction: float, cache: str) -> ServingJob:
    fields = spec.fields
    assert not isinstance(spec.model, str)
    stated = "the command line"
    return ServingJob(
        dict(spec.model),
        engine,
        fraction,
        context=int(fields.get("seq", 0)) if spec.said.get("seq") == stated else 0,
        wanted=int(fields.get("micro_batch", 1)) if spec.said.get("micro_batch") == stated else 1,
        tensor_parallel=int(fields.get("tensor_parallel", 1)),
        precision=str(fields.get("precision", "bf16")).removeprefix("amp-"),
        quant=str(fields.get("quant", "")),
        cache=cache,
    )


def _judge_serving(
    result: FitResult, job: ServingJob, machine: Sequence[GpuCandidate], every: bool, command: tuple[str, ...]
) -> FitResult:
    places = tuple(_judge_place(job, place) for place in machine)
    count = sum(len(place.indexes) for place in machine)
    if every or not places:
        gpus = tuple(_judge_place(job, place) for place in gpu_candidates.list_catalogue_gpus(every))
        result = result.replace(gpus=gpus, why="" if every else NO_GPU)
    if not places:
        fitting = next((gpu for gpu in result.gpus if gpu.verdict == "fits"), result.gpus[-1])
        return result.replace(serving=serve_model(job, fitting))
    if job.tensor_parallel > count:
        raise ValueError(f"{job.tensor_parallel} GPUs are to share each layer, and the machine has {count}")
    tightest = min(places, key=lambda place: place.memory[0])
    served = serve_model(job, tightest)
    result = result.replace(places=places, serving=served, notes=(*result.notes, *serving_notes(served)))
    if served.verdict == "fits":
        return result
    return result.replace(proposals=tuple(propose_serving_changes(job, tightest, count, command)))


def _judge_place(job: ServingJob, place: GpuCandidate) -> GpuCandidate:
    """Return the GPU with the verdict; what other processes use is not the engine's."""
    served = serve_model(job, place)
    free = place.available_memory
    verdict = served.verdict
    if served.budget[0] > free[1]:  # the engine refuses to start
        verdict = "does not fit"
    return place.replace(needs=served.budget, peak=served.budget[1], verdict=verdict)


def serving_notes(served: ServingFit) -> list[str]:
    """Return what the numbers rest on."""
    notes = [
        f"activations, CUDA graphs and workspaces are estimated from {served.engine}'s own accounting: "
        "a range, not measured on this GPU"
    ]
    if served.engine == "vllm":
        notes.append("a sequence need not have the whole context: shorter ones leave room for more at once")
    return notes


def propose_serving_changes(
    job: ServingJob, place: GpuCandidate, count: int, command: tuple[str, ...]
) -> list[Proposal]:
    """Return the single changes that fit, the cheapest first."""
    names = engine_settings(job.engine)
    served = serve_model(job, place)
    longest = served.largest_context[0] // max(job.wanted, 1) // 16 * 16
    options: list[tuple[str, str, float, dict[str, Any], str]] = []
    if served.fraction < HIGHEST_FRACTION:
        options.append(
            ("a larger share of the GPU", "less room for other processes", 1, {"fraction": HIGHEST_FRACTION},
             f"{names['setting']} {HIGHEST_FRACTION}")
        )  # fmt: skip
    fewer = min(served.max_sequences, max(job.wanted, 64))
    options.append(
        ("fewer sequences at once", "less throughput", 2, {"max_sequences": fewer}, f"{names['sequences']} {fewer}")
    )
    options.append(("an 8-bit cache", "keys and values are rounded", 4, {"cache": "fp8"}, names["cache"]))
    for ranks in (n for n in (2, 4, 8) if job.tensor_parallel < n <= count):
        says = f"tensor parallel over {ranks} GPUs"
        options.append(
            (
                says,
                "each layer waits for the others",
                5 + ranks / 10,
                {"tensor_parallel": ranks},
                f"{names['parallel']} {ranks}",
            )
        )
    if SHORTEST_CONTEXT <= longest < served.context:
        options.append(
            (
                f"a context of {longest} tokens",
                "longer requests are refused",
                8,
                {"context": longest},
                f"{names['context']} {longest}",
            )
        )
    if not job.quant:
        options.append(("weights in 8 bits", "weights are rounded", 9, {"quant": "int8"}, "--quantization fp8"))
    return [one for option in options if (one := _try_change(job, place, command, option)) is not None]


def _try_change(job: ServingJob, place: GpuCandidate, command: tuple[str, ...], option: Any) -> Proposal | None:
    says, costs, rank, changes, setting = option
    try:
        served = serve_model(job.replace(**changes), place)
    except ValueError:
        return None
    if served.verdict != "fits":
        return None
    return Proposal(
        says, costs, rank, changes, (setting,), ("gpuready", "fit", *command, *_command_flags(job.replace(**changes))),
        "fits", peak_device=served.budget[1],
    )  # fmt: skip


def _command_flags(job: ServingJob) -> list[str]:
    """Return the flags of ``gpuready fit`` that ask for this job."""
    flags = ["--serve", job.engine]
    for flag, value, default in (
        ("--memory-fraction", job.fraction, 0.0), ("--seq", job.context, 0), ("--micro-batch", job.wanted, 1),
        ("--tensor-parallel", job.tensor_parallel, 1), ("--quant", job.quant, ""), ("--kv-dtype", job.cache, "auto"),
        ("--max-sequences", job.max_sequences, 0),
    ):  # fmt: skip
        if value != default:
            flags += [flag, str(value)]
    return flags
