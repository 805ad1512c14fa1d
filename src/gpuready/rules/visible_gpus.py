"""The GPUs visible to CUDA: their values one by one, and how to name them in messages."""

from collections.abc import Iterable
from typing import Any

from gpuready.model import Contract, Facts, UnknownFactError

READS = ("gpu.count", "gpu.visible", "gpu.name", "gpu.uuid")
OTHER_PLATFORMS = ("rocm", "xpu", "npu", "hpu", "mps", "mlu", "musa", "neuron", "tpu")
"""Platforms other than CUDA that have accelerators of their own."""


def list_visible_gpus(facts: Facts) -> tuple[int, ...]:
    """Return the indices of the GPUs visible to CUDA; empty on a machine without an NVIDIA GPU."""
    return tuple(facts.value("gpu.visible") or ()) if facts.value("gpu.count") else ()


def fact_per_gpu(facts: Facts, key: str) -> dict[int, Any]:
    """Return one fact of every visible GPU, by index."""
    indices = list_visible_gpus(facts)
    if not indices:
        return {}
    values = facts.value(key) or ()
    for index in indices:
        if not 0 <= index < len(values) or values[index] is None:
            raise UnknownFactError(facts.fact(key).replace(value=None, gap=f"unknown for GPU {index}"))
    return {index: values[index] for index in indices}


def describe_gpus(facts: Facts, indices: Iterable[int], notes: dict[int, Any] | None = None) -> str:
    """Describe GPUs: ``the GPU (Tesla V100, 7.0)``, ``the 4 GPUs (H100)``, ``GPU 1 (T4) and GPU 3 (T4)``."""
    chosen, visible = list(indices), list_visible_gpus(facts)
    labels = [_gpu_label(facts, index, notes) for index in chosen]
    if len(chosen) == len(visible) and len(set(labels)) == 1:
        what = "the GPU" if len(chosen) == 1 else f"the {len(chosen)} GPUs"
        return f"{what} ({labels[0]})" if labels[0] else what
    parts = [f"GPU {index} ({label})" if label else f"GPU {index}" for index, label in zip(chosen, labels, strict=True)]
    return join_names(parts)


def _gpu_label(facts: Facts, index: int, notes: dict[int, Any] | None) -> str:
    names = facts.value_if_known("gpu.name") or ()
    parts = [names[index] if index < len(names) else None, (notes or {}).get(index)]
    return ", ".join(str(part) for part in parts if part)


def join_names(names: list[str], most: int = 8) -> str:
    """Return ``a, b and c``; shorten a long list and add how many more there are."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def visible_devices_value(facts: Facts, indices: Iterable[int]) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES that shows only these GPUs, by UUID if known."""
    uuids = facts.value_if_known("gpu.uuid") or ()
    return ",".join(str(uuids[i]) if i < len(uuids) and uuids[i] else str(i) for i in indices)


def accelerator_platforms(contract: Contract) -> list[str]:
    """Return the accelerator platforms that a contract supports; the CPU is none."""
    return [name for name in contract.platforms if name == "cuda" or name in OTHER_PLATFORMS]


def has_other_accelerator(facts: Facts, contract: Contract) -> bool:
    """Return whether the machine has the accelerator of another platform that the contract supports."""
    others = set(contract.platforms) & set(OTHER_PLATFORMS)
    return bool(others) and facts.value("platform.name") in others
