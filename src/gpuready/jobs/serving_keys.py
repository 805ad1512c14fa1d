"""Settings of vLLM and SGLang in a file, under the names that the engines give them."""

from __future__ import annotations

from typing import Any

from gpuready.jobs.config_reader import ConfigReader

SERVING_KEYS = {
    "tensor_parallel": ("tensor_parallel_size", "tensor_model_parallel_size", "tp_size", "tp"),
    "pipeline_parallel": ("pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"),
    "context": ("max_model_len", "context_length", "max_model_length"),
    "batch_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "max_sequences": ("max_num_seqs", "max_running_requests"),
}
FRACTION_KEYS = ("gpu_memory_utilization", "mem_fraction_static")


def parse_fraction(value: object) -> float:
    try:
        share = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = 0.0
    if isinstance(value, bool) or not 0 < share <= 1:
        raise ValueError("a number above 0 and up to 1")
    return share


def read_serving_keys(reader: ConfigReader, inside: str, engine: str) -> dict[str, Any]:
    """Return the fields of a ServingJob that a mapping of engine settings states."""
    served: dict[str, Any] = {"engine": engine}
    for field, keys in SERVING_KEYS.items():
        count = next((one for key in keys if (one := reader.read_count(inside + key)) is not None), None)
        if count is not None:
            served[field] = count
    for key in FRACTION_KEYS:
        share = reader.parse_value(inside + key, parse_fraction)
        if share is not None:
            served["fraction"] = share
    if reader.is_enabled(f"{inside}enforce_eager") or reader.is_enabled(f"{inside}disable_cuda_graph"):
        served["eager"] = True
    if "fp8" in str(reader.get_dotted(f"{inside}quantization") or ""):
        served["quant"] = "fp8"
    if str(reader.get_dotted(f"{inside}kv_cache_dtype") or "auto").startswith("fp8"):
        served["cache"] = "fp8"
    return served
