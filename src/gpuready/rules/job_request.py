"""What the job asks for, as far as stated. A job that states nothing asks for nothing."""

from typing import Any

from gpuready.model import Facts

READS = ("job.wants", "job.device_map", "job.parameters", "job.gpus")

BYTES_PER_WEIGHT = {
    4.0: ("fp32", "float32"),
    2.0: ("bf16", "bfloat16", "fp16", "float16"),
    1.0: ("8bit", "bnb-8bit", "int8", "fp8", "finegrained-fp8", "fbgemm-fp8"),
    0.5: ("4bit", "bnb-4bit", "nf4", "fp4", "qlora", "mxfp4", "nvfp4"),
    0.25: ("2bit",),
}
"""Minimum bytes per weight, by what the job asks for."""

UNKNOWN_WIDTH = ("gptq", "awq", "hqq", "vptq", "gguf", "auto-round", "torchao", "compressed-tensors", "aqlm", "quanto")
"""Quantisation methods that do not determine the bits per weight."""


def list_job_wants(facts: Facts) -> frozenset[str]:
    """Return the wants of the job, normalised: ``Flash_Attn`` -> ``flash-attn``."""
    return frozenset(str(word).casefold().replace("_", "-") for word in _stated_value(facts, "job.wants") or ())


def job_asks_for(facts: Facts, *words: str) -> bool:
    """Return whether the job asks for any of these."""
    return not list_job_wants(facts).isdisjoint(words)


def job_parameter_count(facts: Facts) -> int | None:
    """Return the number of parameters of the job's model, if stated."""
    count = _stated_value(facts, "job.parameters")
    return int(count) if count else None


def job_gpu_count(facts: Facts) -> int | None:
    """Return the number of GPUs the job asks for, if stated."""
    count = _stated_value(facts, "job.gpus")
    return int(count) if count else None


def uses_device_map(facts: Facts) -> bool:
    """Return whether the job places the model with a device map."""
    return job_asks_for(facts, "device-map") or bool(_stated_value(facts, "job.device_map"))


def offloads_weights(facts: Facts) -> bool:
    """Return whether weights may lie outside the GPUs: a device map puts on the CPU what does not fit."""
    return uses_device_map(facts) or any(word.endswith("offload") for word in list_job_wants(facts))


def estimate_weight_bytes(facts: Facts) -> tuple[int, str] | None:
    """Return the minimum bytes of the weights and how they were counted; None if unknown."""
    count, requested = job_parameter_count(facts), list_job_wants(facts)
    if count is None or not requested.isdisjoint(UNKNOWN_WIDTH):
        return None
    narrowest = min(
        (width for width, names in BYTES_PER_WEIGHT.items() if not requested.isdisjoint(names)), default=None
    )
    width = 2.0 if narrowest is None else narrowest
    bound = f"{width * 8:g} bits each" + (", as the job states no precision" if narrowest is None else "")
    return int(count * width), f"{count / 1e9:.3g} billion parameters, {bound}"


def _stated_value(facts: Facts, key: str) -> Any:
    return facts.value(key) if key in facts else None


HUB_READS = ("hub.cache", "hub.offline", "job.model")
LOCAL_PREFIXES = ("/", "./", "../", "~")


def may_download_model(facts: Facts) -> bool:
    """Return whether the hub may be used and the job does not name a local folder."""
    if facts.value("hub.offline"):
        return False
    model = facts.value("job.model") if "job.model" in facts else None
    return model is None or not str(model).startswith(LOCAL_PREFIXES)
