"""Find the cheapest change that fits, and the largest size that fits.

Candidates come in the order of their cost. An estimate in microseconds drops most that are too large; a replay
with few layers, extrapolated to all, drops nearly all others; what is reported was replayed in full.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from gpuready.fit.job.gpu_candidates import judge_gpu, to_gpu_card
from gpuready.fit.job.records import FitJob, FitPrediction
from gpuready.fit.search.prediction import phase_peak_sizes
from gpuready.fit.search.tuning_steps import (
    EXPANDABLE_SEGMENTS,
    TuningStep,
    is_sensible_job,
    list_sharding_steps,
    list_tuning_axes,
)
from gpuready.model.fit import GpuCandidate

PredictFunction = Callable[..., FitPrediction]
FittingChange = tuple[float, list[TuningStep], FitJob, FitPrediction]


MAX_PROPOSALS = 3
"""Maximum number of proposals."""
MAX_REPLAYS, MAX_SKETCHES = 8, 28
"""Maximum number of candidates replayed, in full and with few layers."""
DEEP_MODEL_LAYERS, MIN_REPLAYS = 40, 3
"""From so many layers on fewer candidates are replayed in full, but at least so many."""
MAX_ALLOCATED_SHARE, MAX_RESERVE_SHARE = 0.98, 0.985
"""Upper bounds for the allocation and the minimum reserve of a proposal, as shares of the available memory: a
proposal should not depend on the last block.
"""
EXTRA_REPLAYS = 2
"""Further replays after one that fits."""
SKETCH_LAYERS_LOW, SKETCH_LAYERS_HIGH = 2, 4
"""Layers of the two sketches; their difference is the cost of one layer."""
MAX_COMBINATIONS = 60_000
"""Maximum number of combinations considered, in order of cost."""
ESTIMATE_MARGIN, REGIME_MARGIN = 1.05, 0.04
"""How far an estimate may exceed the available memory and still be tried: for a kind of job that was replayed,
and more for each difference from the nearest replayed one.
"""


class CachedPredictor:
    """``predict_memory`` with a cache; None for a job that the engine has no model for."""

    def __init__(self, predict: PredictFunction, traced: bool = False):
        self._predict, self.traced = predict, traced
        self._predictions: dict[Any, FitPrediction | None] = {}
        self._sketches: dict[Any, list[dict[str, int]]] = {}
        self.prediction_count = self.sketch_count = 0  # predictions and sketches made, without cache hits

    def __call__(self, job: FitJob, gpu: GpuCandidate, search: bool = True, most: int = 0) -> FitPrediction | None:
        key = (gpu.capability, gpu.memory, gpu.held, search, most, repr(job))
        if key not in self._predictions:
            self.prediction_count += 1
            try:
                self._predictions[key] = self._predict(job, to_gpu_card(gpu), search, *((most,) if most else ()))
            except ValueError:
                self._predictions[key] = None
        return self._predictions[key]

    def explain_failure(self, job: FitJob, gpu: GpuCandidate) -> FitPrediction:
        """Predict again without catching the error, which says why there is no prediction."""
        return self._predict(job, to_gpu_card(gpu), True)

    def predict_if_fits(self, job: FitJob, gpu: GpuCandidate, tight: bool) -> FitPrediction | None:
        """Return the prediction of a job if it fits, else None.

        The minimum reserve is not searched if the job fits without it, if it would be too near the limit to be
        proposed, or if a tight fit is not wanted.
        """
        fit = self(job, gpu, False)
        if fit is None or judge_gpu(gpu, fit).verdict == "fits":
            return fit
        if not tight or fit.peak_allocated + fit.overhead[1] > gpu.available_memory[0] * MAX_ALLOCATED_SHARE:
            return None
        most = int(gpu.available_memory[0] * MAX_RESERVE_SHARE) - fit.overhead[1]
        fit = self(job, gpu, most=most)
        return fit if fit is not None and fit.minimum <= most else None

    def sketch_allocation(self, job: FitJob, gpu: GpuCandidate) -> float | None:
        """Estimate the peak allocation from two models with few layers; None if unknown."""
        layers = count_layers(job.model)
        job = job.replace(accumulation=min(job.accumulation, 2))  # micro-steps after the second are the same
        if job.alloc_conf == EXPANDABLE_SEGMENTS:  # changes the placement of blocks, not their size
            job = job.replace(alloc_conf="")
        if layers <= SKETCH_LAYERS_HIGH:
            fit = self(job, gpu, False)
            return None if fit is None else float(fit.peak_allocated)
        key = gpu.capability, repr(job)
        if key not in self._sketches:
            self.sketch_count += 1
            try:
                self._sketches[key] = [
                    phase_peak_sizes(job.replace(model=truncate_model(job.model, n)), to_gpu_card(gpu))
                    for n in (SKETCH_LAYERS_LOW, SKETCH_LAYERS_HIGH)
                ]
            except ValueError:
                self._sketches[key] = []
        if not self._sketches[key]:
            return None
        low, high = self._sketches[key]
        one = {
            name: (high[name] - size) / (SKETCH_LAYERS_HIGH - SKETCH_LAYERS_LOW)
            for name, size in low.items()
            if name in high
        }
        return max((low[name] + (layers - SKETCH_LAYERS_LOW) * more for name, more in one.items()), default=0.0)


def find_cheapest_changes(
    job: FitJob, gpu: GpuCandidate, predictor: CachedPredictor, gpus: int = 1, uncounted: Sequence[str] = ()
) -> list[FittingChange]:
    """Return the cheapest changes with which the job fits; none includes another one."""
    base = predictor(job, gpu)
    if base is None or any(uncounted):
        return []
    available = gpu.available_memory[0] - base.overhead[1]
    scale = {_job_regime(job): base.peak_allocated / max(estimate_peak(job), 1)}
    proposals = _try_sharding_alone(job, gpu, predictor, gpus)
    axes = list_tuning_axes(job, gpus, gpu.capability)
    if proposals:  # no other change needs to be combined with it
        axes = [axis for axis in axes if "zero" not in axis[0].changes]
    accepted: list[tuple[int, ...]] = []
    correction: dict[tuple[int, str], float] = {}  # factor by which sketches were too low, per kind of sharding
    tries = predictor.prediction_count + max(
        MAX_REPLAYS * DEEP_MODEL_LAYERS // max(count_layers(job.model), DEEP_MODEL_LAYERS), MIN_REPLAYS
    )
    sketches = predictor.sketch_count + MAX_SKETCHES
    for cost, levels, steps in _cheapest_combinations(axes):
        if len(proposals) >= MAX_PROPOSALS or predictor.prediction_count >= tries or predictor.sketch_count >= sketches:
            break
        if any(all(a <= b for a, b in zip(one, levels, strict=True)) for one in accepted):
            continue
        other = apply_steps(job, steps)
        if not is_sensible_job(other) or _is_redundant_change(job, other) or _scaled_estimate(other, scale) > available:
            continue
        sketched = predictor.sketch_allocation(other, gpu)
        if sketched is None:
            continue
        spread = other.zero, other.offload
        sketched *= correction.get(spread, 1.0)
        scale[_job_regime(other)] = sketched / max(estimate_peak(other), 1)
        if sketched > available * MAX_ALLOCATED_SHARE:
            continue
        fit = predictor.predict_if_fits(other, gpu, tight=not proposals)
        whole = predictor(other, gpu, False)
        if whole is not None:
            correction[spread] = correction.get(spread, 1.0) * max(whole.peak_allocated / max(sketched, 1), 1.0)
        if fit is not None:
            accepted.append(levels)
            proposals.append((cost, steps, other, fit))
            tries = min(tries, predictor.prediction_count + EXTRA_REPLAYS)
            sketches = min(sketches, predictor.sketch_count + 3 * EXTRA_REPLAYS)
    return sorted(proposals, key=lambda one: one[0])


def _try_sharding_alone(job: FitJob, gpu: GpuCandidate, predictor: CachedPredictor, gpus: int) -> list[FittingChange]:
    """Return which of ZeRO 2, ZeRO 3 and FSDP fit by themselves: what people try first on several GPUs."""
    steps = list_sharding_steps(job, gpus) if job.task == "train" else []
    others = [(step, apply_steps(job, [step])) for step in steps if step.changes.get("zero") != 1]
    fits = [(*one, predictor.predict_if_fits(one[1], gpu, tight=True)) for one in others if is_sensible_job(one[1])]
    return [(step.cost, [step], other, fit) for step, other, fit in fits if fit is not None]


def count_layers(config: Mapping[str, Any]) -> int:
    """Return the number of layers of a config."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    value = config.get("num_hidden_layers", config.get("n_layer"))
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def truncate_model(config: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return the config with fewer layers."""
    inner = config.get("text_config")
    if isinstance(inner, dict):
        return {**config, "text_config": truncate_model(inner, layers)}
    out = dict(config)
    for name in ("num_hidden_layers", "n_layer"):
        if name in out:
            out[name] = layers
    if isinstance(out.get("layer_types"), (list, tuple)):
        out["layer_types"] = list(out["layer_types"])[:layers]
    return out


def _is_redundant_change(job: FitJob, other: FitJob) -> bool:
    """Whether a change has no effect: the optimizer's kernel, if the optimizer runs on the host."""
    return other.offload in ("optimizer", "parameters") and other.optimizer == "adamw_fused" != job.optimizer


def _job_regime(job: FitJob) -> tuple[Any, ...]:
    """Return the fields by which jobs share an estimation error."""
    return (job.method, job.checkpointing, job.loss, job.zero, job.offload, job.optimizer, job.precision, job.quant)


def _scaled_estimate(job: FitJob, scale: Mapping[tuple[Any, ...], float]) -> float:
    """Return a low estimate, scaled by the most similar job that was replayed.

    An estimate that was too low there, by its activations or its adapter, says nothing about a job that differs
    in them.
    """
    regime_here = _job_regime(job)
    distances = {regime: sum(a != b for a, b in zip(regime_here, regime, strict=True)) for regime in scale}
    nearest = min(distances, key=lambda regime: distances[regime])
    learned = min(scale[nearest], 1.0) if distances[nearest] else scale[nearest]
    return float(estimate_peak(job) * learned / (ESTIMATE_MARGIN + REGIME_MARGIN * distances[nearest]))


def apply_steps(job: FitJob, steps: Sequence[TuningStep]) -> FitJob:
    """Return the job after these steps. Accumulation keeps the global batch if possible."""
    merged: dict[str, Any] = {}
    for step in steps:
        merged |= step.changes
    if job.task == "train" and {"micro_batch", "world"} & set(merged):
        whole = job.micro_batch * job.accumulation * job.world
        each = merged.get("micro_batch", job.micro_batch) * merged.get("world", job.world)
        merged["accumulation"] = max(whole // each, 1)
    return job.replace(**merged)


def _cheapest_combinations(
    several: list[list[TuningStep]],
) -> Iterator[tuple[float, tuple[int, ...], list[TuningStep]]]:
    """Yield combinations of steps, at most one per axis, cheapest first."""
    heap: list[tuple[float, tuple[int, ...], int]] = [(0.0, (0,) * len(several), 0)]
    for _ in range(MAX_COMBINATIONS):
        if not heap:
            return
        cost, levels, last = heappop(heap)
        if any(levels):
            yield cost, levels, [several[i][n - 1] for i, n in enumerate(levels) if n]
        for i in range(last, len(several)):
            if levels[i] < len(several[i]):
                before = several[i][levels[i] - 1].cost if levels[i] else 0.0
                higher = (*levels[:i], levels[i] + 1, *levels[i + 1 :])
                heappush(heap, (cost + several[i][levels[i]].cost - before, higher, i))


# -- the largest value ----------------------------------------------------------------------------------------

FIELD_UNITS = {"micro_batch": 1, "seq": 64}
FIELD_LIMITS = {"micro_batch": 1 << 16, "seq": 1 << 22}


def find_largest_value(
    job: FitJob, field: str, gpu: GpuCandidate, predictor: CachedPredictor, most: int = 0
) -> tuple[int, FitPrediction | None, int]:
    """Return the largest value of a field that fits, its prediction, and the smallest value known not to fit
    (0: none).
    """
    unit, most = FIELD_UNITS[field], most or FIELD_LIMITS[field]

    def check_count(count: int) -> tuple[bool, FitPrediction | None]:
        fit = predictor(job.replace(**{field: count * unit}), gpu)
        return fit is not None and judge_gpu(gpu, fit).verdict == "fits", fit

    def needed_bytes(count: int) -> float:
        fit = check_count(count)[1]
        return float("inf") if fit is None else fit.minimum + fit.overhead[1]

    good, bad = 0, most // unit + 1
    probe = max(min(getattr(job, field) // unit, most // unit), 1)
    while bad - good > 1:
        yes, _ = check_count(probe)
        good, bad = (probe, bad) if yes else (good, probe)
        probe = _next_count(good, bad, probe, most // unit, gpu.available_memory[0], needed_bytes)
    return good * unit, check_count(good)[1] if good else None, bad * unit if bad * unit <= most else 0


def _next_count(good: int, bad: int, probe: int, most: int, available: int, needs: Callable[[int], float]) -> int:
    """Return the next value to try: by linear interpolation to the available memory, inside the bracket."""
    if bad > most:
        return min(good * 2, most)
    if good == 0:
        return max(probe // 2, 1) if probe > 1 else 1
    low, high = needs(good), needs(bad)
    share = (available - low) / (high - low) if good < bad and low < high < float("inf") else 0.5
    guessed = good + int(share * (bad - good))
    return min(max(guessed, good + 1), bad - 1) if bad - good > 1 else good


def describe_change(steps: Sequence[TuningStep], job: FitJob, other: FitJob) -> tuple[str, str]:
    """Describe a combination, and its cost."""
    titles = [step.says for step in steps]
    costs = [step.costs for step in sorted(steps, key=lambda s: -s.cost) if not step.costs.startswith("nothing")]
    before, after = (one.micro_batch * one.accumulation * one.world for one in (job, other))
    if job.task == "train" and other.accumulation != job.accumulation:
        titles.append(
            f"accumulation {other.accumulation}" + (f" (still a batch of {after})" if after == before else "")
        )
    if job.task == "train" and before != after:
        costs.insert(0, f"a batch of {after} instead of {before}")
    return _join_with_and(titles), "; ".join(dict.fromkeys(costs)) or "nothing: the result is the same"


def _join_with_and(several: Sequence[str]) -> str:
    return several[0] if len(several) == 1 else ", ".join(several[:-1]) + " and " + several[-1]


def diff_jobs(job: FitJob, other: FitJob) -> Mapping[str, Any]:
    """Return the fields in which two jobs differ."""
    fields = [field for field in type(job)._fields if field != "model"]
    return {field: getattr(other, field) for field in fields if getattr(other, field) != getattr(job, field)}


STATE_BYTES = {"adamw_8bit": 2, "paged_adamw_8bit": 0, "paged_adamw": 0, "adafactor": 0, "adafactor_torch": 0, "sgd": 0}
"""Bytes of optimizer state per trained parameter, if not two values."""


def _config_number(config: Mapping[str, Any], *names: str, default: int = 0) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def estimate_shape(config: Mapping[str, Any]) -> tuple[int, int, int, int, int]:
    """Return hidden size, MLP size, layers, vocabulary and, roughly, the number of parameters."""
    inner = config.get("text_config")
    config = inner if isinstance(inner, dict) else config
    hidden = _config_number(config, "hidden_size", "n_embd")
    layers = _config_number(config, "num_hidden_layers", "n_layer")
    wide = _config_number(config, "intermediate_size", "n_inner", default=4 * hidden)
    vocab = _config_number(config, "vocab_size")
    experts = _config_number(config, "num_local_experts", "num_experts", default=1)
    each = _config_number(config, "moe_intermediate_size", default=wide) if experts > 1 else wide
    embeddings = vocab * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return hidden, wide, layers, vocab, embeddings + layers * hidden * (3 * hidden + 3 * each * experts)


def estimate_peak(job: FitJob) -> float:
    """Return the estimated peak in bytes."""
    hidden, wide, layers, vocab, parameters = estimate_shape(job.model)
    number = 4 if job.precision in ("fp32", "amp-bf16", "amp-fp16") else 2
    moving = 4 if job.precision == "fp32" else 2
    quant = job.quant or ("nf4" if job.method == "qlora" else "")
    weights = parameters * (0.62 if quant in ("nf4", "fp4") else 1.1 if quant == "int8" else number)
    tokens = job.micro_batch * job.seq
    if job.task == "generate":
        cache = 4 * (job.seq + job.new_tokens) * job.micro_batch * layers * hidden / 4
        return weights / job.tensor_parallel + cache / job.tensor_parallel + tokens * (8 * hidden + 4 * wide)
    trained, trained_width = (parameters, number) if job.method == "full" else (job.lora_r * layers * hidden * 14, 4)
    share = max(job.world, 1)
    gradients = trained * trained_width / (share if job.zero >= 2 or job.fsdp else 1)
    state = trained * STATE_BYTES.get(job.optimizer, 2 * trained_width) / (share if job.zero >= 1 or job.fsdp else 1)
    spare = gradients if job.optimizer == "adamw" and job.offload not in ("optimizer", "parameters") else 0
    other = parameters * number if job.dpo and (job.method == "full" or job.loop == "plain") else 0.0
    if job.zero >= 3 or job.fsdp:
        weights, other = weights / share, other / share
    if job.offload in ("optimizer", "parameters"):
        state, weights = 0.0, weights if job.offload == "optimizer" else weights / 10
    saved = _estimate_activations(job, tokens, hidden, wide, layers, moving)
    loss = tokens * vocab * (12 if job.loss == "plain" else 1)
    twice = 1.6 if job.dpo else 1
    split = job.tensor_parallel
    still = (weights + other + state + gradients) / split
    return max(still + spare / split, still + twice * (saved / split + loss / split))


def _estimate_activations(job: FitJob, tokens: int, hidden: int, wide: int, layers: int, number: int) -> float:
    layer = tokens * (10 * hidden + 4 * wide) * number
    if job.method != "full":
        layer += tokens * (3 * hidden + wide) * 4
    if job.attention == "eager":
        layer += 6 * job.micro_batch * job.seq * job.seq * max(hidden // 128, 1)
    if job.checkpointing == "none":
        return float(layers * layer)
    kept = 0 if job.offload == "activations" else layers * tokens * hidden * number
    return float(kept + layer)
