"""The settings of the CUDA allocator cannot be read by torch.

## What it checks
Whether PYTORCH_CUDA_ALLOC_CONF (PYTORCH_ALLOC_CONF from torch 2.9 on) is a valid list of ``option:value``
separated by commas. It is an error if torch is sure to refuse it; an unknown option name is a warning,
because a newer torch may have it.

## Why it matters
torch stops when CUDA is first used: ``Unrecognized CachingAllocator option``, ``Unrecognized key``. Usual
mistakes: ``=`` instead of the colon, ``true`` instead of ``True``, max_split_size_mb below 20.

## How to fix
Correct the value, for example ``expandable_segments:True``, or unset the variable.

## References
- PyTorch documentation, CUDA semantics: optimizing memory usage
- c10/cuda/CUDAAllocatorConfig.cpp
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, visible_gpus

CODE = "SYS013"
SEVERITY = "error"
READS = environment_variables.ALLOCATOR_READS
REQUIRED_FACTS = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")
BROKEN = {
    "env.names": ("PYTORCH_CUDA_ALLOC_CONF",),
    "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments=True",
    "package.torch": "2.8.0+cu128",
}
HEALTHY = BROKEN | {"env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512"}

SWITCHES = (
    *("expandable_segments", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc"),
    *("pinned_use_cuda_host_register", "pinned_use_hip_host_register", "pinned_use_background_threads"),
    *("graph_capture_record_stream_reuse", "pinned_free_catch_all", "throw_on_cudamalloc_oom"),
)
NUMBERS = (
    *("max_split_size_mb", "max_non_split_rounding_mb", "large_segment_size_mb"),
    *("pinned_num_register_threads", "pinned_reserve_segment_size_mb", "roundup_bypass_threshold_mb"),
)
SHARES = ("garbage_collection_threshold", "per_process_memory_fraction")
OTHERS = ("roundup_power2_divisions", "expandable_segments_reserve", "expandable_segments_reserve_by_class")
BACKENDS = ("native", "cudaMallocAsync", "hipMallocAsync")
MINIMUM_SPLIT_MB = 20
"""The split size must not be below that of a large block: 20 MiB unless another option changes it."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    effective = environment_variables.effective_allocator_setting(facts)
    if effective is None:
        return None
    variable, text = effective
    settings = environment_variables.parse_allocator_settings(text)
    refused = [why for name, value in settings if (why := _refusal_reason(name, value, text))]
    unknown = [
        f"unknown option {environment_variables.quote_value(n)}" for n, v in settings if v and not _is_known_option(n)
    ]
    if not (refused or unknown):
        return None
    cite = "torch, CUDA semantics: optimizing memory usage; c10/cuda/CUDAAllocatorConfig.cpp"
    return make_finding(
        f"torch cannot read {variable}: {visible_gpus.join_names(refused or unknown, 3)}",
        found=(facts.fact(f"env.{variable}"), facts.fact("package.torch")),
        needs=(Requirement(f"env.{variable}", "option:value", cite=cite),),
        so="torch stops when CUDA is first used" + ("" if refused else ", unless it knows the option"),
        fix=(FixStep(f"correct {variable}, for example to expandable_segments:True, or unset it"),),
        severity=SEVERITY if refused else "warning",
    )


def _is_known_option(name: str) -> bool:
    return name in (*SWITCHES, *NUMBERS, *SHARES, *OTHERS, "backend")


def _refusal_reason(name: str, value: str | None, text: str) -> str:
    """Return why torch certainly refuses an option; empty if it may accept it."""
    if not name:
        return "an option is missing before a comma"
    if "=" in name:
        return f"{environment_variables.quote_value(name)} has = instead of a colon"
    if not value:
        return f"{environment_variables.quote_value(name)} has no value"
    if name in SWITCHES and value not in ("True", "False"):
        return f"{name} must be True or False, not {environment_variables.quote_value(value)}"
    if name in NUMBERS and not value.isdecimal():
        return f"{name} must be a number, not {environment_variables.quote_value(value)}"
    if name == "max_split_size_mb" and int(value) < MINIMUM_SPLIT_MB and "large_segment_size_mb" not in text:
        return f"max_split_size_mb must be at least {MINIMUM_SPLIT_MB}, not {value}"
    if name == "garbage_collection_threshold" and not _is_fraction(value):
        return f"{name} must be between 0 and 1, not {environment_variables.quote_value(value)}"
    if name == "backend" and value not in BACKENDS:
        return f"there is no backend {environment_variables.quote_value(value)}"
    return ""


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False
