"""The KV cache of vLLM and SGLang: what their own accounting leaves for it, and how many tokens that is.

vLLM takes a share of the GPU, runs a batch of the largest size, and gives the rest to the cache (gpu_worker.py,
determine_available_memory). SGLang gives the cache what is free after loading, less the GPU's other share
(pool_configurator.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.model.fit import GpuCandidate, ServingFit
from gpuready.model.record import Record

MIB, GIB = 1 << 20, 1 << 30
ENGINES = ("vllm", "sglang")
CACHE_WIDTHS = {"auto": 0, "fp8": 1, "bf16": 2, "fp16": 2}
BLOCK = 16
"""Tokens in a block of the cache: a sequence takes whole blocks."""
CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length")
DEFAULT_CONTEXT = 4096
"""The context of a model whose config names none."""


class ServingJob(Record):
    """How a model is served. Zeros and "auto" are the engine's defaults."""

    model: Mapping[str, Any]
    engine: str = "vllm"
    fraction: float = 0.0
    context: int = 0
    batch_tokens: int = 0
    max_sequences: int = 0
    wanted: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    precision: str = "bf16"
    quant: str = ""
    cache: str = "auto"
    eager: bool = False  # no CUDA graphs


def serve_model(job: ServingJob, gpu: GpuCandidate) -> ServingFit:
    """Return the engine's memory on one GPU. ValueError where the engine refuses the split."""
    share = find_rank_share(job.model, job.tensor_parallel, job.pipeline_parallel)
    row, batch = _engine_row(job.engine), _batch_row(job.engine, gpu)
    tokens = job.batch_tokens or batch["tokens"]
    sequences = job.max_sequences or batch["sequences"]
    context = job.context or model_context(job.model)
    most = max(model_context(job.model), context) if states_context(job.model) else 1 << 62
    width = 4 if job.precision == "fp32" else 2
    weights = weight_bytes(share, job.model, job.quant, width)
    sampled = batch["captured"] if job.engine == "sglang" else min(sequences, tokens)  # rows of logits at once
    activations = _activation_range(share, row, tokens, sampled, width)
    captured = 0 if job.eager else share.layers
    graphs = _scale_range(row["graph_layer"], captured * MIB)
    reserve = _scale_range(row["reserve"], MIB)
    fraction = job.fraction or row["fraction"] or sglang_fraction(gpu, tokens, batch["captured"], job)
    budget = (int(gpu.memory[0] * fraction), int(gpu.memory[1] * fraction))
    if job.engine == "sglang":  # its share is weights and cache alone: the rest is for everything else
        pool = (budget[0] - weights - reserve[1], budget[1] - weights)
    else:
        pool = (
            budget[0] - weights - activations[1] - graphs[1] - reserve[1],
            budget[1] - weights - activations[0] - reserve[0],  # before 0.21 vLLM did not count the graphs
        )
    pool = (max(pool[0], 0), max(pool[1], 0))
    bytes_per_value = CACHE_WIDTHS[job.cache] or width
    one = sequence_bytes(share, context, tokens, bytes_per_value)
    return ServingFit(
        engine=job.engine, fraction=fraction, budget=budget, weights=weights, activations=activations, graphs=graphs,
        reserve=reserve, pool=pool, token_bytes=(share.cache + share.windowed) * bytes_per_value,
        tokens=_each(pool, lambda size: _longest_sequence(share, size, 0, bytes_per_value)),
        context=context, context_bytes=one,
        largest_context=_each(pool, lambda size: min(_longest_sequence(share, size, tokens, bytes_per_value), most)),
        sequences=_each(pool, lambda size: min(size // one if one else 0, sequences)),
        max_sequences=sequences, tensor_parallel=job.tensor_parallel, pipeline_parallel=job.pipeline_parallel,
        wanted=job.wanted,
    )  # fmt: skip


def model_context(config: Mapping[str, Any]) -> int:
    """Return the longest sequence that a model's config allows: the default of both engines."""
    sizes = (config.get(key) for key in CONTEXT_KEYS)
    return next((size for size in sizes if isinstance(size, int) and 1 < size < 1 << 31), DEFAULT_CONTEXT)


def states_context(config: Mapping[str, Any]) -> bool:
    return any(isinstance(config.get(key), int) for key in CONTEXT_KEYS)


def sequence_bytes(share: RankShare, context: int, batch: int, width: int) -> int:
    """Return the cache of one sequence: layers with a window keep that and the batch being computed."""
    whole = -(-context // BLOCK) * BLOCK
    kept = min(whole, share.window + batch) if share.window else 0
    return (share.cache * whole + share.windowed * kept) * width


def _longest_sequence(share: RankShare, size: int, batch: int, width: int) -> int:
    """Return the tokens that a pool holds: of one sequence, or without ``batch`` of all layers alike."""
    if batch and share.windowed and share.cache:
        windows = share.windowed * (share.window + batch) * width
        longest = (size - windows) // (share.cache * width) if size > windows else 0
        if longest > share.window + batch:
            return int(longest // BLOCK * BLOCK)
    every = (share.cache + share.windowed) * width
    return size // every // BLOCK * BLOCK if every else 0


def _activation_range(
    share: RankShare, row: Mapping[str, Any], tokens: int, sequences: int, width: int
) -> tuple[int, int]:
    """Return the peak of the largest batch: in a layer, or in the sampler that follows with one row per sequence."""
    layer = share.widest * tokens * width
    logits = share.vocabulary * sequences
    low, high = (max(layer, logits * size) for size in row["sampler"])
    return int(low), int(high)


def sglang_fraction(gpu: GpuCandidate, tokens: int, captured: int, job: ServingJob) -> float:
    """Return SGLang's own choice, from what it reserves for activations and graphs."""
    ranks = job.tensor_parallel * job.pipeline_parallel
    total = gpu.memory[1] / MIB
    reserved = 512 + max(tokens, 2048) * 1.5 + ranks / 8 * 1024 + (0 if job.eager else captured * 2)
    if total > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    return max(round((total - reserved) / total, 3), 0.0)


def sleeping_bytes(engine: str) -> tuple[int, int]:
    """Return what a sleeping engine still has on the GPU."""
    return _scale_range(_engine_row(engine)["sleeping"], MIB)


def engine_settings(engine: str) -> dict[str, str]:
    """Return how the engine calls its settings."""
    row = _engine_row(engine)
    return {name: str(row[name]) for name in ("setting", "context", "sequences", "cache", "parallel")}


def _engine_row(engine: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in load_catalog("serving")["engine"] if row["name"] == engine)
    return found


def _batch_row(engine: str, gpu: GpuCandidate) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [row for row in load_catalog("serving")["batch"] if row["engine"] == engine]
    size = gpu.memory[1] / GIB
    if engine == "vllm" and "a100" in gpu.name.lower():  # vLLM's own exception
        return rows[-1]
    return next(row for row in rows if size >= row["least"])


def _scale_range(pair: Any, unit: int) -> tuple[int, int]:
    low, high = pair
    return int(low * unit), int(high * unit)


def _each(pair: tuple[int, int], count: Any) -> tuple[int, int]:
    return int(count(pair[0])), int(count(pair[1]))


STORED_BITS = {"awq": 4, "gptq": 4, "fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "compressed-tensors": 8, "modelopt": 8}
"""Bits of a stored weight where the checkpoint's config does not say them."""
SCALE_BYTES = {4: 0.03, 8: 0.002}  # bytes of scales for each quantised value


class RankShare(Record):
    """What one rank holds: parameters of layers (quantised or not), of embeddings, and the cache of one token."""

    layers: int
    linear: int  # parameters that a checkpoint may quantise
    other: int  # norms, embeddings and the head
    cache: int  # values of keys and values that one token takes in layers with full attention
    windowed: int  # and in layers with a sliding window
    window: int
    widest: int  # values of one token at the widest moment of a layer
    vocabulary: int


def find_rank_share(config: Mapping[str, Any], tensor: int = 1, pipeline: int = 1) -> RankShare:
    """Return the largest share of any rank. ValueError where the engines refuse the split."""
    shape = parse_model_config(config)
    if shape.heads % tensor:
        raise ValueError(f"{tensor} GPUs cannot share each layer: the model has {shape.heads} attention heads")
    if pipeline > shape.layers:
        raise ValueError(f"{pipeline} pipeline stages are more than the model's {shape.layers} layers")
    layers = -(-shape.layers // pipeline)
    table = -(-shape.vocabulary // tensor) * shape.hidden
    linear = -(-_count_layers(shape) * layers // shape.layers // tensor)
    norms = (2 * layers + 1) * shape.hidden
    tables = table * (1 if shape.tied or pipeline > 1 else 2) + shape.positions * shape.hidden
    full, windowed = _cache_layers(shape, layers)
    cell = _cache_cell(config, shape, tensor)
    return RankShare(
        layers,
        linear,
        norms + tables,
        full * cell,
        windowed * cell,
        max(shape.windows, default=0),
        _widest_moment(shape, tensor),
        -(-shape.vocabulary // tensor),
    )


def _count_layers(shape: ModelShape) -> int:
    tables = shape.vocabulary * (1 if shape.tied else 2) + shape.positions
    return count_parameters(shape) - tables * shape.hidden


def _cache_layers(shape: ModelShape, layers: int) -> tuple[int, int]:
    """Return the number of layers with full attention and with a window."""
    windowed = sum(1 for window in shape.windows if window)
    share = -(-windowed * layers // shape.layers)
    return layers - share, share


def _cache_cell(config: Mapping[str, Any], shape: ModelShape, tensor: int) -> int:
    """Return the values that one layer keeps of a token: latent attention has one vector, which no rank shares."""
    latent = config.get("kv_lora_rank")
    if isinstance(latent, int) and latent > 0:
        return latent + int(config.get("qk_rope_head_dim") or 0)
    return 2 * max(1, -(-shape.kv_heads // tensor)) * shape.head_size


def _widest_moment(shape: ModelShape, tensor: int) -> int:
    """Return the values of one token where a layer holds the most: the residual, its norm and the MLP's parts."""
    inner = (3 if shape.gated else 2) * shape.inner // tensor
    if shape.experts:
        routed = shape.experts_per_token * (
            max(2 * shape.expert_inner // tensor, shape.hidden) + shape.expert_inner // tensor
        )
        inner = max(routed, inner if shape.dense_layers else 0) + 3 * shape.shared_inner // tensor
    attention = (shape.heads + 2 * shape.kv_heads) * shape.head_size // tensor + shape.heads * shape.head_size // tensor
    return 3 * shape.hidden + max(inner, attention)


def weight_bytes(share: RankShare, config: Mapping[str, Any], quant: str, width: int) -> int:
    """Return the bytes of a rank's weights; a checkpoint's own quantisation counts where none is asked for."""
    bits = {"nf4": 4, "fp4": 4, "int8": 8, "fp8": 8}.get(quant, 0) or stored_bits(config)
    if not bits:
        return (share.linear + share.other) * width
    return int(share.linear * (bits / 8 + SCALE_BYTES.get(bits, 0.01))) + share.other * width


def stored_bits(config: Mapping[str, Any]) -> int:
    """Return the bits of a quantised checkpoint's weights; 0 where it is not quantised."""
    stored = config.get("quantization_config")
    if not isinstance(stored, dict):
        return 0
    method = str(stored.get("quant_method") or "").lower()
    bits = stored.get("bits") or stored.get("w_bit")
    if isinstance(bits, int) and 2 <= bits <= 8:
        return bits
    if stored.get("load_in_4bit"):
        return 4
    groups = stored.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(weights.get("num_bits"), int):
            return int(weights["num_bits"])
    return STORED_BITS.get(method, 8 if stored.get("load_in_8bit") else 0)
