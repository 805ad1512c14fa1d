"""The memory of one role in each of its phases, from the engine's predictions or from an inference engine's pool."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready.fit.job.gpu_candidates import to_gpu_card
from gpuready.fit.job.records import FitJob, FitPrediction, FitUndecided
from gpuready.fit.roles.records import PHASES, RoleSettings, RoleUse
from gpuready.fit.search.prediction import context_overhead
from gpuready.fit.serving.memory_pool import ServingJob, serve_model, sleeping_bytes
from gpuready.model.fit import GpuCandidate, GpuTimeline, PhaseMemory, ServingFit

Range = tuple[int, int]
UPDATE_BUFFER = 2 << 30
"""The most that gathered weights take on their way to the inference engine, in buckets."""


def measure_role(
    role: RoleSettings, config: Mapping[str, Any], place: GpuCandidate, predict: Callable[[FitJob], FitPrediction]
) -> tuple[RoleUse, ServingFit | None]:
    """Return a role's memory. ValueError and FitUndecided say why there is none."""
    if role.kind == "serve":
        return _measure_serving(role, config, place)
    if role.is_megatron:
        raise FitUndecided("the memory of Megatron's ranks is not predicted here")
    sizes, idle = _measure_torch(role, config, place, predict)
    active = {phase: sizes[what] for phase, what in role.phases if what in sizes}
    return RoleUse(role.name, role.gpus, active, idle), None


def _measure_serving(role: RoleSettings, config: Mapping[str, Any], place: GpuCandidate) -> tuple[RoleUse, ServingFit]:
    served = serve_model(ServingJob(dict(config), **role.serving), place)
    context = _context_range(role, place, FitJob({}, task="generate", world=served.tensor_parallel))
    low, high = served.budget[0] + context[0], served.budget[1] + context[1] + served.graphs[1]
    if served.engine == "sglang":
        low, high = low + served.graphs[0], high + served.activations[1]
    sleeping = sleeping_bytes(served.engine)
    idle = sleeping if role.leaves == "all" else (low, high)
    woken = sleeping[0] + served.weights, sleeping[1] + served.weights
    sizes = {"serve": (low, high), "update": woken if role.leaves == "all" else (low, high)}
    return RoleUse(role.name, role.gpus, {phase: sizes[what] for phase, what in role.phases}, idle), served


def _measure_torch(
    role: RoleSettings, config: Mapping[str, Any], place: GpuCandidate, predict: Callable[[FitJob], FitPrediction]
) -> tuple[dict[str, Range], Range]:
    """Return what a role of transformers' layers needs: sharded by FSDP or ZeRO, or whole."""
    job = FitJob(_without_head(config, role), **role.fields).validate_fields()
    context = _context_range(role, place, job)
    sizes: dict[str, Range] = {}
    weights = optimizer = 0
    if role.kind == "train":
        fit = predict(job)
        lasting = fit.stacks.get("zeroing of gradients", {})
        weights = lasting.get("parameters", 0) + lasting.get("adapters", 0)
        optimizer = lasting.get("optimizer", 0) + lasting.get("communication", 0)  # gradients are gone after a step
        sizes["train"] = _add(context, fit.minimum)
    stays = optimizer if role.leaves in ("weights", "none") else 0
    scored = predict(_scoring_job(job, role))
    own = scored.parts.get("parameters", 0)
    sizes["score"] = _add(context, scored.minimum + max(weights - own, 0) + stays)
    loaded = max(weights, own)
    if any(what == "generate" for _, what in role.phases):
        written = predict(_scoring_job(job, role).replace(task="generate", **role.serving))
        sizes["generate"] = _add(context, written.minimum + max(weights - own, 0) + stays)
    sizes["update"] = (context[0] + loaded + stays, context[1] + loaded + stays + UPDATE_BUFFER)
    return sizes, _add(context, stays + (loaded if role.leaves in ("optimizer", "none") else 0))


def _without_head(config: Mapping[str, Any], role: RoleSettings) -> dict[str, Any]:
    """Return the model's config; one with a value at its end has no output vocabulary."""
    return dict(config) | ({"tie_word_embeddings": True} if role.fields.get("loss") == "value" else {})


def _scoring_job(job: FitJob, role: RoleSettings) -> FitJob:
    plain = job.replace(
        task="score", method="full", checkpointing="none", zero=0, dpo=False, offload="", accumulation=1
    )
    if job.zero == 3 and job.world > 1:  # gathers by layer too
        plain = plain.replace(fsdp=True)
    return plain.replace(**role.score).validate_fields()


def _context_range(role: RoleSettings, place: GpuCandidate, job: FitJob) -> Range:
    """Return the CUDA context of the role's process; nothing where another role has one there already."""
    return (0, 0) if role.shares_process else context_overhead(job, to_gpu_card(place))


def _add(context: Range, size: int) -> Range:
    return context[0] + size, context[1] + size


def build_timelines(uses: Sequence[RoleUse], place: GpuCandidate) -> tuple[GpuTimeline, ...]:
    """Return one timeline for each group of GPUs that have the same roles."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for gpu in sorted({gpu for use in uses for gpu in use.gpus}):
        present = tuple(n for n, use in enumerate(uses) if gpu in use.gpus)
        groups.setdefault(present, []).append(gpu)
    return tuple(_make_timeline(tuple(gpus), [uses[n] for n in present], place) for present, gpus in groups.items())


def _make_timeline(gpus: tuple[int, ...], uses: Sequence[RoleUse], place: GpuCandidate) -> GpuTimeline:
    phases = tuple(_make_phase(phase, uses) for phase in PHASES if any(phase in use.active for use in uses))
    peak = max(phases, key=lambda one: one.total[1])
    low, high = place.available_memory
    needs = max(one.total[0] for one in phases), peak.total[1]
    verdict = "fits" if needs[1] <= low else "does not fit" if needs[0] > high else "undecided"
    return GpuTimeline(gpus, phases, peak.phase, needs, verdict)


def _make_phase(phase: str, uses: Sequence[RoleUse]) -> PhaseMemory:
    roles = {use.role: use.active.get(phase, use.idle) for use in uses}
    working = tuple(use.role for use in uses if phase in use.active)
    total = sum(low for low, _ in roles.values()), sum(high for _, high in roles.values())
    return PhaseMemory(phase, roles, working, total)
